"""Memory of closed or dropped models goes back to the system, cycle after cycle."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from tests.core.test_turns import network
from tests.onnx.session.models import HALFBYTE, session
from tests.support.tools import load_tool

import halfbyte
from halfbyte.core.aligned import aligned
from halfbyte.formats.mapped import is_mapped
from halfbyte.text.footprint import resident_bytes


@contextmanager
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def test_a_model_is_freed_with_its_last_reference(storyteller: Path) -> None:
    """Without waiting for the garbage collector, which may run much later."""
    with without_collector():
        model = halfbyte.load(storyteller)
        model.generate("Once", max_tokens=3)
        model.beam_search("Once", max_tokens=2)
        unfinished = model.stream("Tom")
        next(unfinished)
        parts = (model, model.file, model.executable, model.tokenizer, model.program)
        alive = [weakref.ref(part) for part in parts]
        del model, unfinished, parts
        assert [part() for part in alive] == [None] * 5


def test_a_session_is_freed_with_its_last_reference() -> None:
    with without_collector():
        opened = session(HALFBYTE, network())
        opened.run(None, {"x": np.zeros((2, 8), np.float32)}, HALFBYTE.RunOptions())
        alive = [weakref.ref(part) for part in (opened, opened._model, *opened._runners.values())]
        del opened
        assert [part() for part in alive] == [None] * 3


def test_pages_go_with_their_last_view() -> None:
    before = resident_bytes()
    whole = aligned(64 << 20)
    assert not is_mapped(whole)
    assert whole.ctypes.data % 64 == 0
    whole[...] = 1
    part = whole[5:9]
    del whole
    assert resident_bytes() > before + (60 << 20)
    del part
    assert resident_bytes() < before + (4 << 20)
    with pytest.raises(MemoryError, match="4611686018427387904 bytes"):
        aligned(1 << 62)


def test_what_is_closed_holds_nothing(tmp_path: Path, repository: Path) -> None:
    """Even if the caller still has the model."""
    path = tmp_path / "m.gguf"
    load_tool(repository, "make_model").make_model(path, "small", "Q8_0")
    size = path.stat().st_size
    assert size > 7e6
    before = resident_bytes()
    model = halfbyte.load(path, weights="packed")
    model.generate("Once", max_tokens=2)
    assert resident_bytes() > before + size
    model.close()
    assert resident_bytes() < before + size // 2
    assert model.program.dump()


# Mixes sizes and lifetimes, as a server does, so that leftovers would make the heap grow.
CYCLES = """
import sys
import numpy as np
import halfbyte
from halfbyte.text.footprint import resident_bytes
path, graph = sys.argv[1:]
kept, after = [], []
for cycle in range(40):
    model = halfbyte.load(path, threads=2, context=64 + cycle % 5 * 32)
    kept.append(model.generate("Once", max_tokens=3, seed=cycle))
    session = halfbyte.InferenceSession(graph)
    for rows in range(1, 12):
        kept.append(session.run(None, {"x": np.zeros((rows * 31, 8), np.float32)})[0][:1].copy())
    if cycle % 2:
        model.close()
        session.close()
    after.append(resident_bytes() / 1e6)
print(max(after[10:20]), max(after[30:]))
"""


def test_memory_is_flat(storyteller: Path, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(network())
    command = [sys.executable, "-c", CYCLES, str(storyteller), str(tmp_path / "m.onnx")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    early, late = map(float, done.stdout.split())
    assert late <= early + 2


# Takes a program for each shape, of which a session keeps some; sizes go up and down.
SHAPES = """
import sys
import numpy as np
import halfbyte
from halfbyte.text.footprint import resident_bytes
session = halfbyte.InferenceSession(sys.argv[1])
after = []
for number in range(2000):
    rows = 1 + number * 7 % 2003
    y = session.run(None, {"x": np.full((rows, 8), number, np.float32)})[0]
    assert y.shape[0] == rows
    after.append(resident_bytes() / 1e6)
print(len(session.programs()), max(after[500:1000]), max(after[1500:]))
"""


@pytest.mark.long
def test_two_thousand_shapes_through_one_session(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(network())
    command = [sys.executable, "-c", SHAPES, str(tmp_path / "m.onnx")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    programs, early, late = map(float, done.stdout.split())
    assert programs <= 64
    assert late <= early + 2


def test_the_soak_detects_growth(repository: Path) -> None:
    tool = load_tool(repository, "soak")

    def grown(megabytes: float = 0, threads: int = 0, files: int = 0) -> list[str]:
        return tool.problems(
            [
                tool.Sample(i / 10, i, i, i, 90 + megabytes * i, 9 + threads * i, 7 + files * i)
                for i in range(40)
            ]
        )

    assert grown() == []
    assert grown(megabytes=0.1) == []
    assert grown(megabytes=0.4) == ["MB: 95.8 after the warm-up, 103.8 at the end"]
    assert grown(threads=1) == ["threads: 23.5 after the warm-up, 43.5 at the end"]
    assert grown(files=1) == ["files: 21.5 after the warm-up, 41.5 at the end"]
