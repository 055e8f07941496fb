"""Reading protobuf's wire format: a message is a sequence of numbered fields.

Each field begins with a varint `number << 3 | kind`; kind 0 is a varint, 1 are eight bytes, 2 is a
varint length and as many bytes, 5 are four bytes
(https://protobuf.dev/programming-guides/encoding/).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from halfbyte.errors import FormatError

_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5
_FLOAT = struct.Struct("<f")

Value = int | memoryview


class Message:
    """One message; nothing is copied.

    Parameters
    ----------
    data : memoryview
        Its bytes.
    path, name
        Of the file and of the message, for errors.
    """

    def __init__(self, data: memoryview, path: Path, name: str) -> None:
        self.data, self.path, self.name = data, path, name

    def fields(self) -> Iterator[tuple[int, Value]]:
        """Number and value of each field: an int for varints, the bytes of all others.

        Raises
        ------
        FormatError
            Truncated, or of a kind that does not exist.
        """
        at = 0
        while at < len(self.data):
            start = at
            key, at = self._varint(at)
            number, kind = key >> 3, key & 7
            if kind == _VARINT:
                value, at = self._varint(at)
                yield number, value
                continue
            if kind == _BYTES:
                size, at = self._varint(at)
            elif kind in (_FOUR, _EIGHT):
                size = 4 if kind == _FOUR else 8
            else:
                raise self.error(f"field {number} at offset {start} is of unknown kind {kind}")
            if not number or size > len(self.data) - at:
                left = len(self.data) - at
                raise self.error(
                    f"field {number} at offset {start}: {size} bytes expected, {left} found"
                )
            yield number, self.data[at : at + size]
            at += size

    def text(self, value: Value) -> str:
        """A string field."""
        try:
            return str(self.bytes(value), "utf-8")
        except UnicodeDecodeError:
            raise self.error("a string is not UTF-8") from None

    def number(self, value: Value) -> float:
        """A float field."""
        data = self.bytes(value)
        if len(data) != _FLOAT.size:
            raise self.error(f"a float of {len(data)} bytes")
        return float(_FLOAT.unpack(data)[0])

    def bytes(self, value: Value) -> memoryview:
        """A field of bytes."""
        if isinstance(value, int):
            raise self.error("expected bytes, found an integer")
        return value

    def integer(self, value: Value) -> int:
        """An int32, enum or bool field."""
        if not isinstance(value, int):
            raise self.error(f"expected an integer, found {len(value)} bytes")
        return value - (1 << 64) if value >> 63 else value

    def message(self, value: Value, name: str) -> Message:
        """A field that is a message itself."""
        return Message(self.bytes(value), self.path, name)

    def error(self, problem: str) -> FormatError:
        """What is wrong, and where."""
        return FormatError(f"{self.path}: {self.name}: {problem}")

    def _varint(self, at: int) -> tuple[int, int]:
        """A varint and where it ends; at most ten bytes, 64 bits."""
        value = 0
        for index, byte in enumerate(self.data[at : at + 10]):
            value |= (byte & 127) << 7 * index
            if byte < 128:
                return value & (1 << 64) - 1, at + index + 1
        raise self.error(f"truncated or endless integer at offset {at}")
