"""safetensors files, and headers that lie."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.formats.folders import write_header, write_safetensors

from halfbyte.errors import HalfbyteError
from halfbyte.formats.checkpoints.shards import read_weights
from halfbyte.formats.mapped import map_file
from halfbyte.weights import BF16, F16, F32

Header = dict[str, Any]


@pytest.mark.parametrize("format_", [F32, F16, BF16])
def test_tensors_are_views_of_the_file(format_: type, tmp_path: Path) -> None:
    tensors = {
        "matrix": np.random.default_rng(0).standard_normal((3, 5), np.float32),
        "vector": np.arange(7, dtype=np.float32),
        "cube": np.ones((2, 3, 4), np.float32),
    }
    path = write_safetensors(tmp_path / "m.safetensors", tensors, format_)
    checkpoint = read_weights(path, map_file(path))
    assert checkpoint.kind == "safetensors"
    assert not checkpoint.unusable
    for name, values in tensors.items():
        tensor = checkpoint.tensors[name]
        assert (tensor.format, tensor.shape) == (format_, values.shape)
        assert not tensor.data.flags.owndata
        assert not tensor.data.flags.writeable
        rounded = format_.decode(format_.encode(values.reshape(1, -1)))
        np.testing.assert_array_equal(tensor.decode().reshape(1, -1), rounded)


@pytest.mark.parametrize("length", [0x280, 0x380, 0x480, 0x580])
def test_a_length_that_begins_as_a_pickle_does(length: int, tmp_path: Path) -> None:
    header = json.dumps({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})
    path = tmp_path / "m.safetensors"
    path.write_bytes(struct.pack("<Q", length) + header.ljust(length).encode() + bytes(4))
    assert list(read_weights(path, map_file(path)).tensors) == ["a"]


def test_other_types_are_noted_not_read(tmp_path: Path) -> None:
    header = {
        "a": {"dtype": "I64", "shape": [2], "data_offsets": [0, 16]},
        "b": {"dtype": "F8_E4M3", "shape": [3], "data_offsets": [16, 19]},
        "c": {"dtype": "F32", "shape": [], "data_offsets": [19, 23]},
        "d": {"dtype": "F32", "shape": [0, 4], "data_offsets": [23, 23]},
        "e": {"dtype": "F16", "shape": [1, 1, 1, 1, 1], "data_offsets": [23, 25]},
    }
    path = write_header(tmp_path / "m", header, bytes(19) + struct.pack("<f", 2.5) + bytes(2))
    checkpoint = read_weights(path, map_file(path))
    assert checkpoint.unusable["a"] == "dtype 'I64', expected one of F32, F16, BF16"
    assert checkpoint.unusable["b"] == "dtype 'F8_E4M3', expected one of F32, F16, BF16"
    assert checkpoint.unusable["d"].startswith("shape [0, 4], expected")
    assert checkpoint.unusable["e"].startswith("shape [1, 1, 1, 1, 1], expected")
    assert checkpoint.tensors["c"].decode().tolist() == [2.5]  # at an odd address


GOOD: Header = {
    "a": {"dtype": "F32", "shape": [2, 4], "data_offsets": [0, 32]},
    "b": {"dtype": "BF16", "shape": [4], "data_offsets": [32, 40]},
}


def change(name: str, **values: object) -> Callable[[Header], object]:
    return lambda header: header[name].update(values)


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (change("b", data_offsets=[24, 32]), "'b': data_offsets begin at 24, expected 32, where"),
        (change("b", data_offsets=[40, 48]), "'b': data_offsets begin at 40, expected 32, where"),
        (change("a", data_offsets=[8, 40]), "expected 0, where the tensor before it ends"),
        (change("b", data_offsets=[32, 48]), "truncated: "),
        (change("b", data_offsets=[32, 36], shape=[2]), "too long: "),
        (change("b", data_offsets=[40, 32]), "'b': expected 'data_offsets' [begin, end]"),
        (change("b", data_offsets=[-8, 32]), "'b': expected 'data_offsets' [begin, end]"),
        (change("b", data_offsets=[32.0, 40]), "'b': expected 'data_offsets' [begin, end]"),
        (change("b", data_offsets=[32]), "'b': expected 'data_offsets' [begin, end]"),
        (change("b", data_offsets=[32, 10**400]), "'b': expected 'data_offsets' [begin, end]"),
        (change("a", shape=[2, 5]), "'a': F32 of shape [2, 5] takes 40 bytes, data_offsets say 32"),
        (change("a", shape=[2, 3]), "'a': F32 of shape [2, 3] takes 24 bytes, data_offsets say 32"),
        (change("a", shape=[1 << 62, 1 << 62]), "'a': expected a 'shape' in the header"),
        (change("a", shape=[2, -4]), "'a': expected a 'shape' in the header"),
        (change("a", shape=[1] * 100), "'a': expected a 'shape' in the header"),
        (change("a", shape="24"), "'a': expected a 'shape' in the header"),
        (change("a", dtype=32), "'a': expected a 'dtype' in the header"),
        (lambda h: h.update(c=[]), "'c': expected 'data_offsets'"),
        (lambda h: h.update({"c" * 300: {}}), "name of 300 characters"),
    ],
)
def test_headers_that_lie(spoil: Callable[[Header], object], expected: str, tmp_path: Path) -> None:
    header = json.loads(json.dumps(GOOD))
    path = write_header(tmp_path / "m.safetensors", header, bytes(40))
    assert read_weights(path, map_file(path)).tensors.keys() == {"a", "b"}
    spoil(header)
    write_header(path, header, bytes(40))
    assert expected in refused(path)


def refused(path: Path) -> str:
    with pytest.raises(HalfbyteError) as caught:
        read_weights(path, map_file(path))
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    assert len(message) < len(str(path)) + 400
    return message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": 1, "a": 2}', "key 'a' appears twice"),
        ('{"a": {"dtype": "F32", "dtype": "F16"}}', "key 'dtype' appears twice"),
        ("{" * 100, "not JSON"),
        ('{"a": ' + "[" * 100_000, "nested too deep"),
        ('{"a": ' + "[" * 99 + "]" * 99 + "}", "nested more than 64 deep"),
        ('{"a": ' + "9" * 5000 + "}", "not JSON"),
        ('{"a": "\ud800"}', None),
    ],
)
def test_headers_that_are_not_json(text: str, expected: str | None, tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    data = text.encode("utf-8", "surrogatepass")
    path.write_bytes(struct.pack("<Q", len(data)) + data)
    assert (expected or "JSON is not UTF-8 at offset 7") in refused(path)


@pytest.mark.parametrize("length", [41, 1 << 32, (1 << 64) - 1])
def test_headers_longer_than_the_file(length: int, tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(struct.pack("<Q", length) + b"{" + bytes(39))
    assert f"truncated: a header of {length} bytes expected, 40 found" in refused(path)


def test_a_header_beyond_measure(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    with path.open("wb") as file:
        file.write(struct.pack("<Q", 1 << 30) + b"{")
        file.truncate((1 << 30) + 8)
    assert "header of 1073741824 bytes, expected at most 67108864" in refused(path)


def test_every_prefix_is_refused(tmp_path: Path) -> None:
    tensors = {"a": np.ones((3, 5), np.float32), "b": np.ones(4, np.float32)}
    whole = write_safetensors(tmp_path / "whole", tensors).read_bytes()
    path = tmp_path / "part"
    for length in range(1, len(whole)):
        path.write_bytes(whole[:length])
        refused(path)
    path.write_bytes(whole + b"\0")
    assert "too long" in refused(path)
