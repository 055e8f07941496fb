"""PyTorch files without PyTorch: pickles assembled opcode by opcode, in both containers."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from halfbyte.weights import BF16, F16, F32, WeightFormat

MAGIC = 0x1950A86A20F9469CFC6C
STORAGES = {F32: "FloatStorage", F16: "HalfStorage", BF16: "BFloat16Storage"}
Values = Mapping[str, "np.ndarray[Any, Any]"]


@dataclass(frozen=True)
class Name:
    """A global: module and name."""

    module: str
    name: str


@dataclass(frozen=True)
class Call:
    """A function's result."""

    function: Name
    arguments: tuple[Any, ...]


@dataclass(frozen=True)
class Reference:
    """A persistent id."""

    identity: tuple[Any, ...]


def pickled(value: object) -> bytes:
    """A pickle of protocol 2."""
    return b"\x80\x02" + _opcodes(value) + b"."


def _opcodes(value: Any) -> bytes:
    match value:
        case None:
            return b"N"
        case bool():
            return b"\x88" if value else b"\x89"
        case int() if -(2**31) <= value < 2**31:
            return b"J" + struct.pack("<i", value)
        case int():
            raw = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
            return b"\x8a" + bytes([len(raw)]) + raw
        case str():
            text = value.encode()
            return b"X" + struct.pack("<I", len(text)) + text
        case tuple():
            return b"(" + b"".join(map(_opcodes, value)) + b"t"
        case list():
            return b"](" + b"".join(map(_opcodes, value)) + b"e"
        case dict():
            pairs = b"".join(_opcodes(k) + _opcodes(v) for k, v in value.items())
            return b"}(" + pairs + b"u"
        case Name():
            return f"c{value.module}\n{value.name}\n".encode()
        case Call():
            return _opcodes(value.function) + _opcodes(value.arguments) + b"R"
        case Reference():
            return _opcodes(value.identity) + b"Q"
    raise TypeError(value)


ORDERED = Call(Name("collections", "OrderedDict"), ())


def state_dict(tensors: Mapping[str, Call]) -> bytes:
    """An OrderedDict with the attribute that PyTorch's modules set."""
    pairs = b"".join(_opcodes(k) + _opcodes(v) for k, v in tensors.items())
    state = _opcodes({"_metadata": {"": {"version": 1}}})
    return b"\x80\x02" + _opcodes(ORDERED) + b"q\x01(" + pairs + b"u" + state + b"b."


def rebuilt(reference: Reference, offset: int, shape: Any, strides: Any) -> Call:
    name = Name("torch._utils", "_rebuild_tensor_v2")
    return Call(name, (reference, offset, tuple(shape), tuple(strides), False, ORDERED))


def _tensor(key: str, values: np.ndarray[Any, Any], storage: str, view: tuple[Any, ...]) -> Call:
    """A tensor with its own storage; arrays in Fortran order become transposed tensors."""
    reference = Reference(("storage", Name("torch", storage), key, "cpu", values.size, *view))
    strides = [step // values.itemsize for step in values.strides]
    return rebuilt(reference, 0, values.shape, strides)


def encoded(values: np.ndarray[Any, Any], format_: type[WeightFormat]) -> np.ndarray[Any, Any]:
    """Numbers of the format's own size, in the order of `values`."""
    flat = np.ascontiguousarray(values, np.float32).reshape(-1)
    raw = format_.encode(flat[None]).reshape(-1).view(f"<u{format_.block_bytes}")
    stored = np.empty_like(values, raw.dtype)
    stored[...] = raw.reshape(values.shape)
    return stored


def as_it_lies(values: np.ndarray[Any, Any]) -> bytes:
    """The bytes of an array in the order of its memory."""
    return values.transpose(sorted(range(values.ndim), key=lambda a: -values.strides[a])).tobytes()


def write_zip(
    path: Path, tensors: Values, format_: type[WeightFormat] = F32, method: int = 0, **extra: bytes
) -> Path:
    """Write like PyTorch 1.6 and newer; `extra` entries replace others."""
    raw = {name: encoded(values, format_) for name, values in tensors.items()}
    calls = {
        name: _tensor(str(index), values, STORAGES[format_], ())
        for index, (name, values) in enumerate(raw.items())
    }
    entries = {"data.pkl": state_dict(calls), "byteorder": b"little"}
    for index, values in enumerate(raw.values()):
        entries[f"data/{index}"] = as_it_lies(values)
    entries["version"] = b"3\n"
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in (entries | extra).items():
            archive.writestr(f"archive/{name}", content)
    return path


def write_legacy(
    path: Path, tensors: Values, format_: type[WeightFormat] = F32, end: bytes = b""
) -> Path:
    """Write like PyTorch before 1.6."""
    raw = {name: encoded(values, format_) for name, values in tensors.items()}
    calls = {
        name: _tensor(f"9{index}", values, STORAGES[format_], (None,))
        for index, (name, values) in enumerate(raw.items())
    }
    facts = {"protocol_version": 1001, "little_endian": True, "type_sizes": {"int": 4}}
    parts = [pickled(MAGIC), pickled(1001), pickled(facts), state_dict(calls)]
    parts.append(pickled([f"9{index}" for index in range(len(raw))]))
    for values in raw.values():
        parts += [struct.pack("<Q", values.size), as_it_lies(values)]
    path.write_bytes(b"".join(parts) + end)
    return path
