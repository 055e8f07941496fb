"""llama2.c's files, versions 0, 1 and 2."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.formats.files import (
    VOCABULARY,
    model_metadata,
    pieces,
    tensor,
    tokenizer_bytes,
    weights,
    write_small,
    write_v0,
    write_v1,
    write_v2,
)

import halfbyte
from halfbyte.errors import FormatError
from halfbyte.formats import ModelFile, open_model
from halfbyte.quantize.writers import write_gguf
from halfbyte.weights import F32, Q8_0

IDS = [1, 260, 261, 263]


def assert_weights(file: ModelFile, tied: bool = True) -> None:
    want = weights(tied)
    assert set(file.tensors) == set(want)
    for name, value in want.items():
        np.testing.assert_array_equal(file.tensors[name].decode(), value)


def logits(path: Path) -> np.ndarray:
    with halfbyte.load(path, backend="numpy", activations="float", cache="f32") as model:
        return model.logits(IDS)


@pytest.mark.parametrize("tied", [True, False])
def test_version_0(tmp_path: Path, tied: bool) -> None:
    path = write_v0(tmp_path / "m.bin", tied=tied)
    file = open_model(path)
    assert file.kind == "llama2.c v0"
    assert_weights(file, tied)
    assert file.metadata["llama.vocab_size"] == VOCABULARY
    assert file.metadata["tokenizer.ggml.tokens"] == pieces()


def test_version_1(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.bin").write_bytes(tokenizer_bytes())
    file = open_model(write_v1(tmp_path / "m.bin"))
    assert file.kind == "llama2.c v1"
    assert_weights(file)


@pytest.mark.parametrize(("group", "format_"), [(32, Q8_0), (64, Q8_0), (16, F32)])
def test_version_2(tmp_path: Path, group: int, format_: type) -> None:
    """Groups of whole blocks become Q8_0, with the same codes; others become F32."""
    (tmp_path / "tokenizer.bin").write_bytes(tokenizer_bytes())
    file = open_model(write_v2(tmp_path / "m.bin", group))
    assert file.kind == "llama2.c v2"
    for name, value in weights().items():
        found = file.tensors[name]
        if value.ndim == 1:
            np.testing.assert_array_equal(found.decode(), value)
            continue
        assert found.format is format_
        groups = value.reshape(-1, group)
        scale = np.abs(groups).max(axis=1, keepdims=True) / np.float32(127)
        want = (np.rint(groups / scale) * scale).reshape(value.shape)
        np.testing.assert_allclose(found.decode(), want, rtol=2**-11 if format_ is Q8_0 else 0)
    assert "int8 tensors as" in file.notes[0]


def test_all_versions_are_the_same_model(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.bin").write_bytes(tokenizer_bytes())
    want = logits(write_small(tmp_path / "m.gguf"))
    np.testing.assert_array_equal(logits(write_v0(tmp_path / "v0.bin")), want)
    np.testing.assert_array_equal(logits(write_v1(tmp_path / "v1.bin")), want)
    groups = write_v2(tmp_path / "v2.bin", 32)
    decoded = [tensor(name, t.decode()) for name, t in open_model(groups).tensors.items()]
    write_gguf(tmp_path / "decoded.gguf", model_metadata(), decoded)
    np.testing.assert_array_equal(logits(groups), logits(tmp_path / "decoded.gguf"))


def test_tokenizer_is_found_or_given(tmp_path: Path) -> None:
    path = write_v0(tmp_path / "m.bin")
    beside = tmp_path / "m-tokenizer.bin"
    elsewhere = beside.rename(tmp_path / "other.bin")
    file = open_model(path)
    assert "tokenizer.ggml.tokens" not in file.metadata
    assert file.notes[0].startswith("no tokenizer found: looked for m-tokenizer.bin, tokenizer.bin")
    with pytest.raises(FormatError, match=r"m.bin: metadata 'tokenizer.ggml.model' is missing; no"):
        halfbyte.load(path)
    assert open_model(path, elsewhere).metadata["tokenizer.ggml.tokens"] == pieces()
    for name in ("tokenizer.bin", f"tok{VOCABULARY}.bin"):
        found = elsewhere.rename(tmp_path / name)
        assert "tokenizer.ggml.tokens" in open_model(path).metadata
        elsewhere = found.rename(tmp_path / "other.bin")
