"""torchless' files, made by ``tools/make_torchless.py`` from a Hugging Face folder."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.formats.files import weights, write_small
from tests.formats.folders import trained_weights, write_folder, write_safetensors
from tests.support.tools import load_tool

import halfbyte
from halfbyte.cli import main
from halfbyte.text.opening import open_bytes, open_model
from halfbyte.weights import F32, Q8_0

Header = dict[str, Any]
REPOSITORY = Path(__file__).resolve().parents[2]
make_torchless = load_tool(REPOSITORY, "make_torchless").make_torchless


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "folder", model_type="mistral", sliding_window=None)


def test_float32_is_the_model_it_was_made_from(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    make_torchless(folder, path)
    file = open_model(path)
    assert file.kind == "torchless"
    assert file.notes == ()
    assert file.size == path.stat().st_size
    for name, values in weights().items():
        np.testing.assert_array_equal(file.tensors[name].decode(), values)
    whole = write_small(tmp_path / "whole.gguf")
    with halfbyte.load(path) as model, halfbyte.load(whole) as one:
        ids = one.tokenizer.encode("ab a")
        assert model.tokenizer.encode("ab a") == ids
        np.testing.assert_allclose(model.logits(ids), one.logits(ids), rtol=1e-4, atol=1e-4)
    with halfbyte.load_bytes(path.read_bytes()) as model:
        assert model.vocabulary == 264


def test_int8_becomes_q8_0(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    make_torchless(folder, path, int8=True)
    file = open_model(path)
    assert file.notes[0].startswith("14 int8 tensors as Q8_0: weights as in the file, scales")
    for name, values in weights().items():
        read = file.tensors[name]
        small = values.ndim == 1 or name == "token_embd.weight"
        assert read.format is (F32 if small else Q8_0)
        step = np.abs(values).max() / 127
        bound = step * (0.5 + 127 * 2**-11)  # rounding to int8, and of the scale to F16
        np.testing.assert_allclose(read.decode(), values, atol=0 if small else bound)
    with halfbyte.load(path) as model:
        assert np.isfinite(model.logits([1, 5, 9])).all()


def test_a_group_of_zeros(folder: Path, tmp_path: Path) -> None:
    """Its scale is infinite."""
    path = tmp_path / "model.bin"
    make_torchless(folder, path, int8=True)
    header, body = parts(path)
    entry = header["tensors"]["model.layers.0.mlp.up_proj.weight"]
    body[entry["offset"] : entry["offset"] + 64] = bytes(64)
    body[entry["scale_offset"] : entry["scale_offset"] + 4] = struct.pack("<f", np.inf)
    write(path, header, body)
    values = open_model(path).tensors["blk.0.ffn_up.weight"].decode()
    assert not values[:2].any()
    assert values[2:].all(axis=1).any()


def test_sliding_window(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "folder", model_type="mistral", sliding_window=8)
    make_torchless(folder, tmp_path / "model.bin")
    file = open_bytes((tmp_path / "model.bin").read_bytes(), "model.bin")
    assert file.metadata["llama.attention.sliding_window"] == 8


def test_an_embedding_with_more_rows_than_tokens(tmp_path: Path) -> None:
    names = {"model_type": "mistral", "sliding_window": None, "vocab_size": 300}
    tensors = trained_weights()
    embedding = tensors["model.embed_tokens.weight"]
    padding = np.ones((300 - len(embedding), embedding.shape[1]), np.float32)
    tensors["model.embed_tokens.weight"] = np.concatenate([embedding, padding])
    folder = write_folder(tmp_path / "folder", **names)
    write_safetensors(folder / "model.safetensors", tensors)
    path = tmp_path / "model.bin"
    make_torchless(folder, path)
    header, body = parts(path)
    assert len(header["tokenizer"]["vocab"]) == 264
    write(path, header, body)
    with halfbyte.load(path) as model:
        assert model.vocabulary == model.tokenizer.vocab_size == 300
        assert model.tokenizer.decode([299]) == ""
        assert max(model.tokenizer.encode("[PAD299] ab")) < 264
        assert model.notes == [
            "36 rows of the embedding have no token: chosen, they decode as nothing"
        ]


def parts(path: Path) -> tuple[Header, bytearray]:
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + length].rstrip(b"\0")), bytearray(data[8 + length :])


def write(path: Path, header: Header, body: bytes) -> None:
    text = json.dumps(header).encode()
    text += bytes(-(8 + len(text)) % 64)
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


NAME = "model.layers.0.mlp.up_proj.weight"


def set_tensor(**changes: object) -> Callable[[Header], object]:
    return lambda header: header["tensors"][NAME].update(changes)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (set_tensor(offset=64 * 10**9), "bytes expected at offset 64000000000"),
        (set_tensor(offset=-64), "bytes expected at offset -64"),
        (set_tensor(offset=32), "bytes expected at offset 32 (a multiple of 64)"),
        (set_tensor(offset="0"), "offset': expected an integer, found a string"),
        (set_tensor(offset=0), "tensor 'model."),
        (set_tensor(shape=[1 << 40, 1 << 40]), "'scale_size' as many"),
        (set_tensor(shape=[0]), "expected a 'shape' of 1 to 4 numbers"),
        (set_tensor(shape=[32, 64]), "has shape [32, 64], but "),
        (set_tensor(dtype="int4"), "dtype 'int4', expected 'f32' or 'int8'"),
        (set_tensor(scale_size=1), "expected groups of 64, and 'scale_size' as many"),
        (lambda h: h["tensors"].pop(NAME), "layer 0 has no tensor for 'ffn_up.weight'"),
        (lambda h: h["metadata"].update(n_layers="3"), "layer 2 is missing, but "),
        (lambda h: h["metadata"].update(n_layers="2.5"), "'metadata.n_layers': expected a number"),
        (lambda h: h["metadata"].update(n_layers=2), "expected a string, found an integer"),
        (lambda h: h["metadata"].update(act_type="gelu"), "expected 'silu', found 'gelu'"),
        (lambda h: h.pop("tokenizer"), "'tokenizer': expected an object, found nothing"),
        (lambda h: h["tokenizer"]["vocab"].update(a=3), "expected ids 0 to 263, once each"),
        (lambda h: h["tokenizer"]["vocab"].pop("a"), "expected ids 0 to 263, once each"),
        (lambda h: h["tokenizer"]["merges"].append("a c"), "'a c' makes no token of the voc"),
    ],
)
def test_headers_that_lie(
    change: Callable[[Header], object], expected: str, folder: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    path = tmp_path / "model.bin"
    make_torchless(folder, path, int8=True)
    header, body = parts(path)
    change(header)
    write(path, header, body)
    assert main(["quantize", str(path), "--int8"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith(f"error: {path}: ")
    assert expected in err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["folder", "model.bin"]


def test_scales_beyond_f16(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    make_torchless(folder, path, int8=True)
    header, body = parts(path)
    for value in (0.0, -1.0, np.nan, 1e-8):
        at = header["tensors"][NAME]["scale_offset"]
        body[at : at + 4] = struct.pack("<f", value)
        write(path, header, body)
        with pytest.raises(halfbyte.HalfbyteError, match="1 / scales are not all in"):
            open_model(path)
