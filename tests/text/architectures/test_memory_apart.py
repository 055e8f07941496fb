"""Every architecture with its file in a memory apart from NumPy's, as in a tab with threads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.support import wasm
from tests.support.sampled import sampled
from tests.text.architectures import models

import halfbyte
from halfbyte.text.opening import open_model
from halfbyte.text.placing import header_reader
from halfbyte.text.planning import Settings, plan


@pytest.mark.parametrize("name", sampled(models.CONFIGS, 3))
def test_logits_are_the_same(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = models.write(tmp_path / f"{name}.gguf", name)
    ids = models.ids(name)[:9]
    with halfbyte.load(path, backend="wasm-simd128") as model:
        expected = model.logits(ids)
    library = wasm.library("simd128", 1 << 24)
    monkeypatch.setattr(wasm, "library", lambda *_: library)
    content = library.memory.reach(np.fromfile(path, np.uint8))
    with halfbyte.load_bytes(content, path.name, backend="wasm-simd128") as model:
        np.testing.assert_array_equal(model.logits(ids), expected)


@pytest.mark.parametrize("name", sampled(models.CONFIGS, 3))
def test_a_header_is_enough_for_a_plan(name: str, tmp_path: Path) -> None:
    """Before a large file is fetched, its memory is planned."""
    path = models.write(tmp_path / f"{name}.gguf", name)
    content = path.read_bytes()
    header = header_reader(path.name)(len(content), memoryview(content)[:-4])
    assert header is not None
    assert plan(header, Settings()).memory == plan(open_model(path), Settings()).memory
