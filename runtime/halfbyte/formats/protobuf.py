"""Reader of protobuf's wire format: a message is a sequence of numbered fields.

Each field begins with a varint `number << 3 | kind`; kind 0 is a varint, 1 is eight bytes, 2 is a
varint length and as many bytes, 5 is four bytes
(https://protobuf.dev/programming-guides/encoding/). Repeated numbers come one per field, or
"packed": many in the bytes of one field. Nothing is copied, so arrays may be unaligned.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.errors import FormatError, printable

_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5
_FLOAT = struct.Struct("<f")
_TOP, _MODULUS = 1 << 63, 1 << 64  # of integers with a sign
_MAX_VARINT = 10  # bytes of a varint
_FEW = 64  # bytes that Python decodes faster than NumPy
_CHUNK = 1 << 20  # bytes decoded at once, so that intermediate arrays stay small
MAX_PROBLEM = 500  # characters of an error, its path aside

Value = int | bytes | memoryview  # a varint; four or eight bytes; bytes with a length


class Message:
    """One message: a view.

    Parameters
    ----------
    data : memoryview
        The message's bytes.
    path, name
        Path of the file and name of the message, for errors.
    """

    __slots__ = ("data", "name", "path")

    def __init__(self, data: memoryview, path: Path, name: str) -> None:
        self.data, self.path, self.name = data, path, name

    def fields(self) -> Iterator[tuple[int, Value]]:
        """Number and value of each field: an int for varints, `bytes` for four or eight bytes, and
        a view for fields with a length.

        Raises
        ------
        FormatError
            Truncated, or a field of a kind that does not exist.
        """
        data, at, end = self.data, 0, len(self.data)
        while at < end:
            start = at
            key = data[at]
            at += 1
            if key > 127:
                key, at = self._varint(start)
            number, kind = key >> 3, key & 7
            if kind in (_VARINT, _BYTES):
                if at < end and data[at] < 128:
                    size = data[at]
                    at += 1
                else:
                    size, at = self._varint(at)
            elif kind in (_FOUR, _EIGHT):
                size = 4 if kind == _FOUR else 8
            else:
                raise self.error(f"field {number} at offset {start} is of unknown kind {kind}")
            if not number:
                raise self.error(f"field 0 at offset {start}: numbers begin with 1")
            if kind == _VARINT:
                yield number, size
                continue
            if size > end - at:
                raise self.error(
                    f"field {number} at offset {start}: {size} bytes expected, {end - at} found"
                )
            value = data[at : at + size]
            yield number, value if kind == _BYTES else bytes(value)
            at += size

    def text(self, value: Value) -> str:
        """A string field."""
        try:
            return str(self.bytes(value), "utf-8")
        except UnicodeDecodeError:
            raise self.error("a string is not UTF-8") from None

    def number(self, value: Value) -> float:
        """A float field."""
        if not isinstance(value, bytes) or len(value) != _FLOAT.size:
            raise self.error(f"expected a float, found {_described(value)}")
        return float(_FLOAT.unpack(value)[0])

    def bytes(self, value: Value) -> memoryview:
        """A field of bytes."""
        if not isinstance(value, memoryview):
            raise self.error(f"expected bytes, found {_described(value)}")
        return value

    def integer(self, value: Value) -> int:
        """An int64, int32, enum or bool field."""
        if not isinstance(value, int):
            raise self.error(f"expected an integer, found {_described(value)}")
        return value - _MODULUS if value >= _TOP else value

    def message(self, value: Value, name: str) -> Message:
        """A field that is a message itself."""
        return Message(self.bytes(value), self.path, name)

    def integers(self, values: Sequence[Value]) -> list[int]:
        """A repeated int64 field: all its values, in fields of their own or packed."""
        integers: list[int] = []
        for value in values:
            if isinstance(value, int):
                integers.append(value - _MODULUS if value >= _TOP else value)
            elif len(value) > _FEW:
                integers += self.integer_array([value]).view(np.int64).tolist()
            else:
                packed = Message(self.bytes(value), self.path, self.name)
                at = 0
                while at < len(value):
                    number, at = packed._varint(at)
                    integers.append(number - _MODULUS if number >= _TOP else number)
        return integers

    def integer_array(self, values: Sequence[Value]) -> npt.NDArray[np.uint64]:
        """A repeated integer field as NumPy's numbers; a view as int64 has the signs."""
        parts: list[npt.NDArray[np.uint64]] = []
        singles: list[int] = []
        for value in values:
            if isinstance(value, int):
                singles.append(value)
                continue
            if singles:
                parts.append(np.array(singles, np.uint64))
                singles = []
            parts += self._packed(self.bytes(value))
        if singles:
            parts.append(np.array(singles, np.uint64))
        if len(parts) == 1:
            return parts[0]
        return np.concatenate([np.zeros(0, np.uint64), *parts])

    def number_array(self, values: Sequence[Value], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """A repeated float or double field; a view if it is one packed field."""
        size = np.dtype(dtype).itemsize
        parts: list[bytes | memoryview] = []
        for value in values:
            if isinstance(value, int) or len(value) % size:
                raise self.error(f"expected numbers of {size} bytes, found {_described(value)}")
            if isinstance(value, bytes) and len(value) != size:
                raise self.error(f"expected a number of {size} bytes, found {_described(value)}")
            parts.append(value)
        whole = parts[0] if len(parts) == 1 else b"".join(parts)
        return np.frombuffer(whole, dtype) if len(whole) else np.zeros(0, dtype)

    def error(self, problem: str) -> FormatError:
        """An error that names file and message."""
        return FormatError(f"{self.path}: {printable(f'{self.name}: {problem}', MAX_PROBLEM)}")

    def _packed(self, data: memoryview) -> Iterator[npt.NDArray[np.uint64]]:
        """Consecutive varints without keys, in chunks."""
        raw = np.frombuffer(data, np.uint8) if len(data) else np.zeros(0, np.uint8)
        at = 0
        while at < len(raw):
            part = raw[at : at + _CHUNK]
            ends = np.flatnonzero(part < 128)
            if not len(ends):
                raise self.error("truncated or endless integer in packed ones")
            used = int(ends[-1]) + 1
            if len(ends) == used:
                yield part[:used].astype(np.uint64)
            else:
                yield self._varints(part, ends)
            at += used

    def _varints(
        self, part: npt.NDArray[np.uint8], ends: npt.NDArray[np.intp]
    ) -> npt.NDArray[np.uint64]:
        """The varints that end at `ends`: seven bits per byte, the lowest first."""
        starts = np.concatenate([np.zeros(1, np.intp), ends[:-1] + 1])
        sizes = ends - starts + 1
        longest = int(sizes.max())
        if longest > _MAX_VARINT:
            raise self.error(f"an integer of {longest} bytes, expected at most {_MAX_VARINT}")
        values = np.zeros(len(ends), np.uint64)
        for index in range(longest):
            chosen = np.flatnonzero(sizes > index)
            bits = (part[starts[chosen] + index] & 127).astype(np.uint64)
            values[chosen] |= bits << np.uint64(7 * index)
        return values

    def _varint(self, at: int) -> tuple[int, int]:
        """A varint of at most ten bytes, as 64 bits, and its end."""
        value = 0
        for index, byte in enumerate(self.data[at : at + _MAX_VARINT]):
            value |= (byte & 127) << 7 * index
            if byte < 128:
                return value & _MODULUS - 1, at + index + 1
        raise self.error(f"truncated or endless integer at offset {at}")


def varint(value: int) -> bytes:
    """A number of 0 or more as it is written, seven bits per byte."""
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _described(value: Value) -> str:
    return "an integer" if isinstance(value, int) else f"{len(value)} bytes"
