"""llama2.c's files, versions 0, 1 and 2."""

from __future__ import annotations

import os
import struct
import sys
import weakref
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
from halfbyte.errors import FormatError, HalfbyteError
from halfbyte.formats import ModelFile
from halfbyte.quantize.gguf_writer import write_gguf
from halfbyte.text.opening import open_model
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
    """Groups of whole blocks become Q8_0, with the same integers; others become F32."""
    (tmp_path / "tokenizer.bin").write_bytes(tokenizer_bytes())
    file = open_model(write_v2(tmp_path / "m.bin", group))
    assert file.kind == "llama2.c v2"
    for name, value in weights().items():
        read = file.tensors[name]
        if value.ndim == 1:
            np.testing.assert_array_equal(read.decode(), value)
            continue
        assert read.format is format_
        groups = value.reshape(-1, group)
        scale = np.abs(groups).max(axis=1, keepdims=True) / np.float32(127)
        want = (np.rint(groups / scale) * scale).reshape(value.shape)
        np.testing.assert_allclose(read.decode(), want, rtol=2**-11 if format_ is Q8_0 else 0)
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
        tokenizer = elsewhere.rename(tmp_path / name)
        assert "tokenizer.ggml.tokens" in open_model(path).metadata
        elsewhere = tokenizer.rename(tmp_path / "other.bin")


def test_weights_lie_in_the_published_order(tmp_path: Path) -> None:
    """One layer; every tensor holds its own number, as export.py of llama2.c writes them."""
    dim, hidden, vocabulary, length = 4, 6, 3, 5
    order_0 = {
        "token_embd": (vocabulary, dim), "blk.0.attn_norm": (dim,), "blk.0.attn_q": (dim, dim),
        "blk.0.attn_k": (2, dim), "blk.0.attn_v": (2, dim), "blk.0.attn_output": (dim, dim),
        "blk.0.ffn_norm": (dim,), "blk.0.ffn_gate": (hidden, dim), "blk.0.ffn_down": (dim, hidden),
        "blk.0.ffn_up": (hidden, dim), "output_norm": (dim,), "": (2 * length,),
        "output": (vocabulary, dim),
    }  # fmt: skip
    norms = ["blk.0.attn_norm", "blk.0.ffn_norm", "output_norm"]
    order_1 = [*norms, *(name for name in order_0 if name and name not in norms)]
    sizes = struct.pack("<5i", dim, hidden, 1, 2, 1)
    versions = {
        0: (sizes + struct.pack("<ii", -vocabulary, length), list(order_0)),
        1: (b"24ka\1\0\0\0" + sizes + struct.pack("<iiB", vocabulary, length, 0), order_1),
    }
    for version, (start, order) in versions.items():
        parts = [np.full(order_0[name], i, np.float32).tobytes() for i, name in enumerate(order)]
        path = tmp_path / f"v{version}.bin"
        path.write_bytes((start.ljust(256, b"\0") if version else start) + b"".join(parts))
        file = open_model(path)
        assert file.kind == f"llama2.c v{version}"
        assert list(file.tensors) == [f"{name}.weight" for name in order if name]
        for index, name in enumerate(order):
            if name:
                read = file.tensors[f"{name}.weight"]
                assert read.shape == order_0[name]
                assert np.all(read.decode() == index)
        assert file.metadata["llama.rope.dimension_count"] == 2
        assert file.metadata["llama.context_length"] == length


def test_a_group_may_span_rows_and_have_any_size(tmp_path: Path) -> None:
    """Version 2 with untied head and groups of 24; every weight is q times its group's scale."""
    dim, hidden, vocabulary, group = 8, 12, 6, 24
    start = b"24ka" + struct.pack("<8iBi", 2, dim, hidden, 1, 1, 1, vocabulary, 9, 0, group)
    path = tmp_path / "m.bin"
    path.write_bytes(start.ljust(256, b"\0") + bytes(9999))
    with pytest.raises(FormatError, match=r"'blk\.0\.attn_q\.weight': 64 weights is not a multip"):
        open_model(path)

    dim, group = 24, 48
    random = np.random.default_rng(0)
    shapes = {
        "token_embd": (vocabulary, dim), "blk.0.attn_q": (dim, dim), "blk.0.attn_k": (dim, dim),
        "blk.0.attn_v": (dim, dim), "blk.0.attn_output": (dim, dim), "blk.0.ffn_gate": (12, dim),
        "blk.0.ffn_down": (dim, 12), "blk.0.ffn_up": (12, dim), "output": (vocabulary, dim),
    }  # fmt: skip
    parts, want = [np.ones(3 * dim, np.float32).tobytes()], {}
    for name, shape in shapes.items():
        q = random.integers(-127, 128, shape, np.int8)
        scales = random.random(q.size // group, np.float32)
        parts += [q.tobytes(), scales.tobytes()]
        want[name] = (q.reshape(-1, group) * scales[:, None]).reshape(shape)
    start = b"24ka" + struct.pack("<8iBi", 2, dim, 12, 1, 2, 2, vocabulary, 9, 0, group)
    path.write_bytes(start.ljust(256, b"\0") + b"".join(parts))
    file = open_model(path)
    for name, value in want.items():
        read = file.tensors[f"{name}.weight"]
        assert read.format is F32
        np.testing.assert_array_equal(read.decode(), value)


@pytest.mark.parametrize("scale", [-1.0, 65520.0, float("inf"), float("nan")])
def test_scales_that_f16_cannot_hold(tmp_path: Path, scale: float) -> None:
    path = write_v2(tmp_path / "m.bin", 32)
    data = bytearray(path.read_bytes())
    data[-4:] = struct.pack("<f", scale)
    path.write_bytes(data)
    with pytest.raises(FormatError, match=r"'blk\.1\.ffn_up\.weight': scales are not all in \[0"):
        open_model(path)


def test_grouped_tensors_are_made_on_demand_and_let_go(tmp_path: Path) -> None:
    tensor = open_model(write_v2(tmp_path / "m.bin", 32)).tensors["blk.0.attn_q.weight"]
    data = tensor.data
    assert tensor.data is data
    seen = weakref.ref(data)
    copy = data.copy()
    del data
    assert seen() is None
    np.testing.assert_array_equal(tensor.data, copy)


@pytest.mark.parametrize("change", [-4, 4])
def test_a_file_of_another_size_names_the_missing_bytes(tmp_path: Path, change: int) -> None:
    path = write_v0(tmp_path / "m.bin")
    whole = path.read_bytes()
    path.write_bytes(whole[:change] if change < 0 else whole + bytes(change))
    with pytest.raises(HalfbyteError) as caught:
        open_model(path)
    message = str(caught.value)
    assert f"found {len(whole) + change} bytes that begin with" in message
    end = "truncated?" if change < 0 else "too long?"
    sizes = f"(dim 32, 2 layers, vocabulary {VOCABULARY})"
    assert message.endswith(f"as llama2.c v0 its header {sizes} asks for {len(whole)} bytes: {end}")


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS refuses such names itself")
def test_a_name_that_is_not_utf8(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/m\xff.bin"))
    file = open_model(write_v0(path))
    assert file.metadata["general.name"] == "m?"
    write_gguf(tmp_path / "m.gguf", file.metadata, [])
    assert open_model(tmp_path / "m.gguf").metadata["general.name"] == "m?"


def test_tokenizers_that_do_not_fit(tmp_path: Path) -> None:
    path = write_v0(tmp_path / "m.bin")
    beside = tmp_path / "m-tokenizer.bin"
    whole = beside.read_bytes()
    last = struct.pack("<fi", 0, 1) + b"c"
    for data, problem in {
        whole + last: f"m.bin has {VOCABULARY} tokens, but {beside} has {VOCABULARY + 1} tokens",
        whole[:-1]: f"{beside}: token {VOCABULARY - 1}: length 2, expected 0 to 1",
        whole[:-5]: f"{beside}: token {VOCABULARY - 1}: truncated at offset",
        whole[:3]: f"{beside}: 0 tokens, expected at least <unk>, <s>, </s>",
        whole[:4] + struct.pack("<fi", 0, -1): f"{beside}: token 0: length -1, expected 0 to 0",
        whole[:4] + struct.pack("<fi", 0, 2**31 - 1): f"{beside}: token 0: length 2147483647",
        whole[:4] + struct.pack("<fi", 0, 1) + b"\xff": f"{beside}: token 0: not UTF-8",
        b"": f"{beside}: is empty",
    }.items():
        beside.write_bytes(data)
        with pytest.raises(FormatError) as caught:
            open_model(path)
        assert problem in str(caught.value)
    beside.write_bytes(whole + last)
    (tmp_path / "tokenizer.bin").write_bytes(whole)  # the first that fits is taken
    assert open_model(path).metadata["tokenizer.ggml.tokens"] == pieces()
    beside.write_bytes(whole[:4] + struct.pack("<f", float("nan")) + whole[8:])
    with pytest.raises(FormatError, match="scores': not all are finite"):
        halfbyte.load(path)
    with pytest.raises(FormatError, match="is a directory"):
        open_model(path, tmp_path)


@pytest.mark.data
def test_a_trained_model_opens(data: Path) -> None:
    file = open_model(data / "llama2c" / "stories260K.bin")
    assert file.kind == "llama2.c v0"
    sizes = {
        "embedding_length": 64, "feed_forward_length": 172, "block_count": 5, "vocab_size": 512,
        "attention.head_count": 8, "attention.head_count_kv": 4, "context_length": 512,
    }  # fmt: skip
    assert {key: file.metadata[f"llama.{key}"] for key in sizes} == sizes
    assert len(file.tensors) == 2 + 9 * 5
    assert len(file.metadata["tokenizer.ggml.tokens"]) == 512  # type: ignore[arg-type]
    assert 0.1 < file.tensors["output_norm.weight"].decode().mean() < 20
