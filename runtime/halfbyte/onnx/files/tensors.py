"""TensorProto and SparseTensorProto as NumPy arrays.

Raw data, in the file or in one beside it, is a read-only view of the mapped bytes. Protobuf aligns
nothing, so a view may begin at any address (`array.flags.aligned`). NumPy computes with such
arrays; code that passes addresses to C takes `np.require(array, requirements="A")`, which copies
where it must. Elements of four and two bits are unpacked to one byte each; `Tensor.packed` has the
bytes as stored.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from halfbyte.errors import UnsupportedError
from halfbyte.formats.mapped import is_apart
from halfbyte.formats.protobuf import Message, Value
from halfbyte.onnx.files import dtypes
from halfbyte.onnx.files.external import External
from halfbyte.onnx.files.model import Array, SparseTensor

MAX_RANK = 32  # of NumPy 1's arrays
MAX_SIZE = 1 << 60  # bytes of an array that an address can name
MAX_NAME = 1024  # characters

_MAX_PIECES = 1 << 12  # fields of packed elements in a tensor; writers use one
_STRING, _BOOL = 8, 9
_BITS = {21: 4, 22: 4, 23: 4, 25: 2, 26: 2}  # of types with less than a byte
_CHECKED = {_BOOL, *_BITS}  # types whose bytes are looked at
_SIXES = {27: "FLOAT6E2M3", 28: "FLOAT6E3M2"}
# The field with the elements of a type, if they are not raw; int32_data for all others.
_FIELDS = {
    1: "float_data", 14: "float_data", 8: "string_data", 7: "int64_data", 11: "double_data",
    15: "double_data", 12: "uint64_data", 13: "uint64_data",
}  # fmt: skip
_NUMBERS = {
    4: "float_data", 5: "int32_data", 7: "int64_data", 10: "double_data", 11: "uint64_data",
}  # fmt: skip


class Tensor(NamedTuple):
    """A named tensor, and its stored bytes if they hold several elements each."""

    name: str
    array: Array
    packed: Array | None = None


@dataclass
class _Fields:
    """The fields of a TensorProto."""

    name: str = ""
    dtype: int = 0
    location: int = 0
    raw: memoryview | None = None
    dims: list[Value] = field(default_factory=list)
    external: dict[str, str] = field(default_factory=dict)
    typed: dict[str, list[Value]] = field(default_factory=dict)
    strings: list[str] = field(default_factory=list)
    pieces: int = 0  # fields of packed elements


def entry(message: Message) -> tuple[str, str]:
    """A StringStringEntryProto."""
    key = text = ""
    for number, value in message.fields():
        if number == 1:
            key = message.text(value)
        elif number == 2:
            text = message.text(value)
    return key, text


def element_type(number: int, message: Message) -> int:
    """A DataType, checked."""
    if number in _SIXES:
        raise UnsupportedError(f"{message.path}: {message.name}: elements of {_SIXES[number]}")
    if number in dtypes.DTYPES:
        return number
    raise message.error(f"element type {number}, expected one of 1 to {min(_SIXES) - 1}")


def read_tensor(message: Message, external: External, *, apart: bool = False) -> Tensor:
    """A TensorProto; `apart`, its array may be in the memory apart that its bytes are in.

    Raises
    ------
    FormatError
        The number of elements is not the shape's, or they are not in the field of their type.
    UnsupportedError
        The tensor is one segment of several, or has a type that halfbyte does not support.
    """
    fields = _read_fields(message)
    if fields.name:
        message = Message(message.data, message.path, f"{message.name}: tensor {fields.name!r}")
    number = element_type(fields.dtype, message)
    shape = read_shape(message, fields.dims, dtypes.DTYPES[number].itemsize)
    count = math.prod(shape)
    raw = _external(message, fields, number, count, external) if fields.location else fields.raw
    _refuse_others(message, fields, number)
    packed = None
    if raw is not None:
        if number == _STRING:
            raise message.error("strings in raw_data")
        stays = apart and is_apart(raw) and number not in _CHECKED
        here = raw if stays or not is_apart(raw) else np.asarray(raw).data
        flat, packed = _from_raw(message, here, number, count)
    elif number == _STRING:
        flat = np.empty(len(fields.strings), dtypes.STRING)
        flat[:] = fields.strings
    else:
        values = fields.typed.get(_FIELDS.get(number, "int32_data"), [])
        flat, packed = _from_typed(message, values, number, count)
    if len(flat) != count:
        raise message.error(f"expected {count} elements of shape {list(shape)}, found {len(flat)}")
    array = flat.reshape(shape)
    if not is_apart(array):
        array.flags.writeable = False
    return Tensor(fields.name, array, packed)


def read_sparse(message: Message, external: External) -> tuple[str, SparseTensor]:
    """A SparseTensorProto and its name, which is the name of its values."""
    values = indices = None
    dims: list[Value] = []
    for number, value in message.fields():
        if number == 1:
            values = read_tensor(message.message(value, f"{message.name}: values"), external)
        elif number == 2:
            indices = read_tensor(message.message(value, f"{message.name}: indices"), external)
        elif number == 3:
            dims.append(value)
    if values is None:
        raise message.error("a sparse tensor without values")
    message = Message(message.data, message.path, f"{message.name}: tensor {values.name!r}")
    shape = read_shape(message, dims, values.array.itemsize)
    places = np.zeros(0, np.int64) if indices is None else indices.array
    _check_indices(message, values.array, places, shape)
    return values.name, SparseTensor(values.array, places, shape)


def read_shape(message: Message, dims: Sequence[Value], itemsize: int) -> tuple[int, ...]:
    """A shape without negative sizes whose bytes an address can name."""
    shape = tuple(message.integers(dims))
    if len(shape) > MAX_RANK:
        raise message.error(f"{len(shape)} dimensions, expected at most {MAX_RANK}")
    if any(size < 0 for size in shape):
        raise message.error(f"shape {list(shape)} has a negative size")
    if math.prod(max(size, 1) for size in shape) * itemsize > MAX_SIZE:
        raise message.error(f"shape {list(shape)} is larger than any memory")
    return shape


def _read_fields(message: Message) -> _Fields:
    fields = _Fields()
    for number, value in message.fields():
        if number == 1:
            fields.dims.append(value)
        elif number == 2:
            fields.dtype = message.integer(value)
        elif number == 3:
            raise UnsupportedError(f"{message.path}: {message.name}: a segment of a tensor")
        elif number == 8:
            fields.name = message.text(value)
        elif number == 9:
            fields.raw = message.bytes(value) if _has_elements(value) else None
        elif number == 13:
            key, text = entry(message.message(value, message.name))
            fields.external[key] = text
        elif number == 14:
            fields.location = message.integer(value)
        elif number == 6:
            fields.strings.append(message.text(value))
        elif number in _NUMBERS:
            fields.typed.setdefault(_NUMBERS[number], []).append(value)
            fields.pieces += isinstance(value, memoryview)
            if fields.pieces > _MAX_PIECES:
                raise message.error(f"expected at most {_MAX_PIECES} fields of packed elements")
    if len(fields.name) > MAX_NAME:
        raise message.error(f"a name of {len(fields.name)} characters")
    if fields.location not in (0, 1):
        raise message.error(f"data_location {fields.location}, expected 0 or 1")
    return fields


def _refuse_others(message: Message, fields: _Fields, number: int) -> None:
    """Raise if there are elements in a field that is not the one of their type."""
    present = [name for name, values in fields.typed.items() if any(map(_has_elements, values))]
    if fields.strings:
        present.append("string_data")
    if fields.raw is not None:
        present.append("raw_data")
    if fields.location:
        expected = "external_data"
    else:
        expected = "raw_data" if fields.raw is not None else _FIELDS.get(number, "int32_data")
    for name in present:
        if name != expected:
            raise message.error(f"elements of type {number} in {name}, expected {expected}")


def _has_elements(value: Value) -> bool:
    """Whether a field has elements: bytes may be empty."""
    return isinstance(value, int) or len(value) > 0


def _external(
    message: Message, fields: _Fields, number: int, count: int, external: External
) -> Any:
    """The bytes in another file."""
    entries = fields.external
    if "location" not in entries:
        raise message.error("external data without a location")
    if number == _STRING:
        raise message.error("strings in external data")
    size = _byte_size(number, count)
    offset = _decimal(message, entries, "offset", 0)
    length = _decimal(message, entries, "length", size)
    if length != size:
        raise message.error(f"expected {size} bytes of external data, found a length of {length}")
    if not size:
        return memoryview(b"")
    return external.read(entries["location"], offset, size, fields.name)


def _decimal(message: Message, entries: dict[str, str], key: str, default: int) -> int:
    text = entries.get(key, "")
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise message.error(f"external data: {key} {text[:40]!r} is not a size")
    return int(text)


def _byte_size(number: int, count: int) -> int:
    """Bytes of `count` elements in a file."""
    if number in _BITS:
        return -(-count * _BITS[number] // 8)
    return count * dtypes.DTYPES[number].itemsize


def _from_raw(message: Message, raw: Any, number: int, count: int) -> tuple[Array, Array | None]:
    size = _byte_size(number, count)
    if len(raw) != size:
        raise message.error(f"expected {size} bytes for {count} elements, found {len(raw)}")
    dtype = dtypes.DTYPES[number]
    if not size:
        return np.zeros(0, dtype), None
    if is_apart(raw):
        return raw.view(dtype), None
    data = np.frombuffer(raw, np.uint8)
    if number in _BITS:
        return _unpacked(data, number, count), data
    if number == _BOOL and data.max() > 1:
        raise message.error(f"a bool of {data.max()}, expected 0 or 1")
    return np.frombuffer(raw, dtype), None


def _from_typed(
    message: Message, values: Sequence[Value], number: int, count: int
) -> tuple[Array, Array | None]:
    """Elements from the field of their type, however many there are."""
    dtype = dtypes.DTYPES[number]
    name = _FIELDS.get(number, "int32_data")
    if name in ("float_data", "double_data"):
        floats = message.number_array(values, np.float32 if name == "float_data" else np.float64)
        if dtype.kind == "c" and len(floats) % 2:
            raise message.error(f"{len(floats)} parts of complex numbers, expected pairs")
        return floats.view(dtype), None
    integers = message.integer_array(values)
    if name == "int64_data":
        return integers.view(np.int64), None
    if name == "uint64_data":
        return _fitting(message, integers, dtype), None
    signed = integers.astype(np.uint32).view(np.int32)  # only the low bits of an int32 count
    if number in _BITS:
        packed = _fitting(message, signed, np.dtype(np.uint8))
        expected = _byte_size(number, count)
        if len(packed) != expected:
            raise message.error(f"expected {expected} bytes in int32_data, found {len(packed)}")
        return _unpacked(packed, number, count), packed
    if number == _BOOL:
        return _fitting(message, signed, np.dtype(np.uint8), 1).view(np.bool_), None
    if dtype.kind in "fV":  # the bits of floats
        bits = np.dtype(f"u{dtype.itemsize}")
        return _fitting(message, signed, bits).view(dtype), None
    return _fitting(message, signed, dtype), None


def _fitting(
    message: Message, values: npt.NDArray[Any], dtype: np.dtype[Any], largest: int | None = None
) -> Array:
    """Integers as another type, which must hold them."""
    bounds = np.iinfo(dtype)
    largest = bounds.max if largest is None else largest
    if len(values):
        low, high = int(values.min()), int(values.max())
        if low < bounds.min or high > largest:
            raise message.error(f"values from {low} to {high}, expected {bounds.min} to {largest}")
    return values.astype(dtype, copy=False)


def _unpacked(data: npt.NDArray[np.uint8], number: int, count: int) -> Array:
    """One byte per element; the first of each stored byte is in its lowest bits."""
    bits = _BITS[number]
    each = 8 // bits
    unpacked = np.empty((len(data), each), np.uint8)
    for index in range(each):
        unpacked[:, index] = data >> (bits * index) & ((1 << bits) - 1)
    dtype = dtypes.DTYPES[number]
    flat = unpacked.reshape(-1)[:count]
    if dtype[0].kind == "i":
        sign = np.uint8(1 << bits - 1)
        flat ^= sign
        flat -= sign
    return flat.view(dtype)


def _check_indices(message: Message, values: Array, indices: Array, shape: tuple[int, ...]) -> None:
    """Raise unless there is an index for each value, ascending and inside the shape."""
    count = len(values) if values.ndim == 1 else -1
    shapes = [(count,), (count, len(shape))]
    if count < 0 or indices.dtype != np.int64 or indices.shape not in shapes:
        raise message.error(
            f"values {list(values.shape)} with indices {list(indices.shape)} of {indices.dtype}, "
            f"expected [n] with [n] or [n, {len(shape)}] of int64"
        )
    if not count:
        return
    linear = indices
    if indices.ndim == 2:
        if (indices < 0).any() or (indices >= np.array(shape, np.int64)).any():
            raise message.error(f"indices outside the shape {list(shape)}")
        strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
        linear = indices @ np.array(strides, np.int64)
    if linear[0] < 0 or linear[-1] >= math.prod(shape) or (np.diff(linear) <= 0).any():
        raise message.error(f"indices are not ascending inside the shape {list(shape)}")
