"""Weights read from storage as they are needed: the same results, in the memory that was said."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.architectures import models
from tests.shapes import zeros
from tests.tools import load_tool

import halfbyte
from halfbyte.cli import main
from halfbyte.errors import FormatError, MemoryBudgetError, UnsupportedError
from halfbyte.formats import open_model
from halfbyte.planning import LEVELS, Settings, plan, plan_within
from halfbyte.program import Kind
from halfbyte.quantize import quantize_file

IDS = [1, *range(300, 340)]


@pytest.fixture
def small_lots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lots of a few rows: every matrix is cut, every buffer of the arena is shared."""
    module = sys.modules["halfbyte.passes.stream_weights"]
    monkeypatch.setattr(module, "LOT_BYTES", 5000)


def equal_to_mapped(path: Path, ids: list[int] = IDS, **options: Any) -> None:
    with (
        halfbyte.load(path, weights="mapped", **options) as mapped,
        halfbyte.load(path, weights="streamed", **options) as streamed,
    ):
        assert any(b.kind is Kind.WINDOW for b in streamed.program.buffers)
        for part in (ids[:-3], *([i] for i in ids[-3:])):  # a prompt, then token by token
            rows = min(len(part), 5)
            np.testing.assert_array_equal(
                streamed.feed(part, rows=rows), mapped.feed(part, rows=rows)
            )


@pytest.mark.usefixtures("small_lots")
@pytest.mark.parametrize("kind", ["bf16", "fp16", "int4", "int8", "Q5_1"])
def test_equal_to_mapped_weights(kind: str, storyteller: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    quantize_file(storyteller, kind, path)
    equal_to_mapped(path, threads=2)
    equal_to_mapped(path, threads=1, activations="float", batch=7)
    equal_to_mapped(path, backend="numpy", ids=IDS[:6])


@pytest.mark.usefixtures("small_lots")
@pytest.mark.parametrize("name", models.CONFIGS)
def test_every_architecture(name: str, tmp_path: Path) -> None:
    equal_to_mapped(models.write(tmp_path / "m.gguf", name), ids=models.ids(name))


def test_a_run_that_broke_off_leaves_the_next_one_right(storyteller: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    quantize_file(storyteller, "int8", path)
    content = path.read_bytes()
    with halfbyte.load(path, weights="streamed") as model:
        before = model.feed(IDS).copy()
        os.truncate(path, len(content) // 2)
        with pytest.raises(FormatError, match=r"m.gguf: tensor 'blk.*': expected bytes up to off"):
            model.logits(IDS)
        with path.open("r+b") as file:  # the same file, whole again
            file.write(content)
        np.testing.assert_array_equal(model.logits(IDS)[-1:], before)


def test_a_file_that_takes_its_name_is_not_read(storyteller: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    quantize_file(storyteller, "int8", path)
    with halfbyte.load(path, weights="streamed") as model:
        before = model.feed(IDS).copy()
        quantize_file(storyteller, "int4", path)
        np.testing.assert_array_equal(model.logits(IDS)[-1:], before)
    file = open_model(path)
    path.write_bytes(path.read_bytes() + b"more")
    with pytest.raises(FormatError, match=r"m.gguf: expected \d+ bytes as before, found \d+"):
        plan(file, Settings(weights="streamed"))


def test_bytes_in_memory_are_not_streamed(storyteller: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    quantize_file(storyteller, "int8", path)
    with pytest.raises(UnsupportedError, match="streamed': expected a file on storage"):
        halfbyte.load_bytes(path.read_bytes(), weights="streamed")
    budget = plan(open_model(path), Settings(weights="packed")).total - 1
    with pytest.raises(MemoryBudgetError, match="KV cache"):
        halfbyte.load_bytes(path.read_bytes(), memory_budget=budget)


@pytest.mark.parametrize("kind", ["Q4_0", "Q8_0"])
def test_a_billion_weights_need_a_twentieth(kind: str, repository: Path) -> None:
    file = zeros(repository, "llama-1b", kind)
    eager = plan(file, Settings(context=512, weights="packed"))
    lazy = plan(file, Settings(context=512, weights="streamed"))
    vectors = sum(t.nbytes for t in file.tensors.values() if len(t.shape) == 1)
    held = lazy.memory["weights (streamed)"] + vectors
    assert sum(lazy.memory[f"weights ({way})"] for way in ("mapped", "packed")) == 0
    assert 20 * held <= eager.memory["weights (packed)"] + eager.memory["weights (mapped)"]


def test_levels_need_less_and_less(repository: Path) -> None:
    file = zeros(repository, "smollm2-135m", "Q4_0")
    totals = []
    for name in ("baseline", "basic", "aggressive"):
        memory = plan(file, LEVELS[name]).memory
        totals.append(sum(memory.values()) - memory["weights (mapped)"])
    assert totals == sorted(totals, reverse=True)
    assert plan(file, LEVELS["aggressive"]).settings.context == 2048


# Everything that is planned gets touched: the whole context, logits of many rows.
FILL = """
import json, sys
import halfbyte
from halfbyte import footprint
model = halfbyte.load(sys.argv[1], threads=2, memory_budget=int(sys.argv[2]), context=256)
model.feed([1 + i % 100 for i in range(model.context)], rows=2)
windows = any(b.kind == "window" for b in model.program.buffers)
print(json.dumps([windows, footprint.peak_bytes()]))
"""


@pytest.fixture(scope="module")
def model_file(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Path:
    path = tmp_path_factory.mktemp("budget") / "m.gguf"
    load_tool(repository, "make_model").make_model(path, "smollm2-135m", "Q4_0")
    return path


@pytest.mark.parametrize("way", ["packed", "streamed"])
def test_a_budget_is_kept(way: str, model_file: Path) -> None:
    """The least budget that is accepted is never exceeded; a little less is refused."""
    settings = Settings(context=256, weights=way)
    least = plan(open_model(model_file), settings).total
    done = subprocess.run(
        [sys.executable, "-c", FILL, str(model_file), str(least)],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    streamed, peak = json.loads(done.stdout)
    assert streamed == (way == "streamed")
    assert peak <= least, (peak, least)
    with pytest.raises(MemoryBudgetError, match=r"expected to need at most .* MB, found .*MB: wei"):
        plan_within(open_model(model_file), settings, least - 1)


def test_on_the_command_line(storyteller: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = []
    for more in (["--weights", "mapped"], ["--weights", "streamed"], ["--level", "extreme"]):
        assert main(["run", str(storyteller), "Once", "-n", "8", "--temp", "0", *more]) == 0
        texts.append(capsys.readouterr().out)
    assert len(set(texts)) == 1
    assert main(["run", str(storyteller), "Once", "--memory-budget", "8MB"]) == 2
    assert "expected to need at most 8.0 MB, found" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["run", str(storyteller), "Once", "--memory-budget", "lots"])
    assert "expected a size such as 256MB" in capsys.readouterr().err
