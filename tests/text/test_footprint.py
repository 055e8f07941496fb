"""Planned memory against the memory that a process takes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import halfbyte
from halfbyte.quantize import quantize_file
from halfbyte.text import footprint
from halfbyte.weights import Packed

# Touches all planned memory: all weights, the whole KV cache, all scratch.
FILL = """
import json, sys
import halfbyte
from halfbyte.quantize import quantize_file
from halfbyte.text import footprint
model = halfbyte.load(sys.argv[1], context=512, threads=1)
model.feed([1 + i % 100 for i in range(model.context)], rows=2)
print(json.dumps([footprint.planned(model.program, model.vocabulary), footprint.peak_bytes()]))
"""


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Path:
    """A model whose bytes are many more than the interpreter's."""
    path = tmp_path_factory.mktemp("footprint") / "random.gguf"
    tool = repository / "tools/make_model.py"
    subprocess.run(
        [sys.executable, tool, "--shape", "smollm2-135m", "--type", "Q8_0", "-o", path],
        check=True, capture_output=True,
    )  # fmt: skip
    return path


@pytest.mark.parametrize("name", ["big", "storyteller"])
def test_a_process_needs_the_planned_memory(name: str, request: pytest.FixtureRequest) -> None:
    path: Path = request.getfixturevalue(name)
    command = [sys.executable, "-c", FILL, str(path)]
    if name == "storyteller":
        command[2] = FILL.replace("context=512", "context=256")
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    planned, peak = json.loads(done.stdout)
    total = sum(planned.values())
    assert abs(peak - total) <= 0.05 * total + 30e6, planned
    if name == "big":  # for a small model the interpreter's bytes may satisfy the bound
        assert planned["weights (packed)"] > 130e6
        assert planned["KV cache"] == 2 * 30 * 512 * 192 * 2


def test_weights_that_are_packed_already(storyteller: Path, tmp_path: Path) -> None:
    quantize_file(storyteller, "int8", tmp_path / "m.gguf")
    with halfbyte.load(tmp_path / "m.gguf", threads=1) as model:
        packed = [t.nbytes for t in model.weights.values() if issubclass(t.format, Packed)]
        assert packed
        assert footprint.planned(model.program, model.vocabulary)["weights (packed)"] == sum(packed)
