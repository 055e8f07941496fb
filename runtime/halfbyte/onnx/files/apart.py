"""Models in memory apart from NumPy's, as in a browser's tab.

The numbers of large initializers stay there: the message is copied without them, and they become
external data of the location `HERE`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from halfbyte.errors import FormatError
from halfbyte.formats.mapped import size_of
from halfbyte.formats.protobuf import Message, varint

HERE = ""  # no other model may name it
_LARGE = 1 << 12  # bytes of numbers that stay
_PAGE = 1 << 16  # bytes that are copied at once
_MAX_MESSAGE = (1 << 31) - 1  # bytes, of protobuf
_GRAPH, _INITIALIZER, _RAW, _EXTERNAL, _LOCATION = 7, 5, 9, 13, 14
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5


def without_numbers(data: Any, path: Path) -> memoryview:
    """A ModelProto without the numbers of large initializers of its main graph.

    Raises
    ------
    FormatError
        A message ends before its fields, or is larger than protobuf allows.
    """
    if size_of(data) > _MAX_MESSAGE:
        raise FormatError(
            f"{path}: expected a message of at most {_MAX_MESSAGE} bytes, found {size_of(data)}"
        )
    model = _Part(_Pages(data), 0, size_of(data))
    return memoryview(b"".join(_model(model, path)))


class _Pages:
    """Bytes of a file, of which the page that was read last is in NumPy's memory."""

    def __init__(self, data: Any) -> None:
        self._data, self._start = data, 0
        self._page = b""

    def read(self, start: int, end: int) -> bytes:
        """The bytes from `start` to `end`."""
        at = start - self._start
        if at < 0 or end - self._start > len(self._page):
            if end - start > _PAGE:
                return np.asarray(self._data[start:end]).tobytes()
            self._start, at = start, 0
            self._page = np.asarray(self._data[start : start + _PAGE]).tobytes()
        return self._page[at : at + end - start]


class _Part:
    """A view of some of them, for `Message`."""

    __slots__ = ("end", "pages", "start")

    def __init__(self, pages: _Pages, start: int, end: int) -> None:
        self.pages, self.start, self.end = pages, start, end

    def __len__(self) -> int:
        return self.end - self.start

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            first, last, _ = key.indices(len(self))
            return _Part(self.pages, self.start + first, self.start + max(first, last))
        if not 0 <= key < len(self):
            raise IndexError(key)
        return self.pages.read(self.start + key, self.start + key + 1)[0]

    def __bytes__(self) -> bytes:
        return self.pages.read(self.start, self.end)


def _fields(part: _Part, path: Path, name: str) -> Iterator[tuple[int, Any]]:
    """As `Message.fields`; values with a length are parts."""
    view: Any = part
    return Message(view, path, name).fields()


def _model(model: _Part, path: Path) -> Iterator[bytes]:
    for number, value in _fields(model, path, "model"):
        if number == _GRAPH and isinstance(value, _Part):
            yield from _nested(number, list(_graph(value, path)))
        else:
            yield from _field(number, value)


def _graph(graph: _Part, path: Path) -> Iterator[bytes]:
    for number, value in _fields(graph, path, "graph"):
        if number == _INITIALIZER and isinstance(value, _Part) and len(value) >= _LARGE:
            yield from _nested(number, list(_tensor(value, path)))
        else:
            yield from _field(number, value)


def _tensor(tensor: _Part, path: Path) -> Iterator[bytes]:
    """A TensorProto, whose numbers are elsewhere if they were raw and large."""
    fields = list(_fields(tensor, path, "initializer"))
    numbers = [value for number, value in fields if number == _RAW]
    outside = any(number in (_EXTERNAL, _LOCATION) for number, _ in fields)
    if len(numbers) != 1 or not isinstance(numbers[0], _Part) or outside:
        yield bytes(tensor)
        return
    raw = numbers[0]
    for number, value in fields:
        if number != _RAW:
            yield from _field(number, value)
    entries = {"location": HERE, "offset": str(raw.start), "length": str(len(raw))}
    for key, text in entries.items():
        entry = [*_nested(1, [key.encode()]), *_nested(2, [text.encode()])]
        yield from _nested(_EXTERNAL, entry)
    yield from _field(_LOCATION, 1)


def _field(number: int, value: Any) -> Iterator[bytes]:
    """A field as protobuf writes it."""
    if isinstance(value, int):
        yield varint(number << 3 | _VARINT) + varint(value)
    elif isinstance(value, bytes):
        yield varint(number << 3 | (_FOUR if len(value) == 4 else _EIGHT)) + value
    else:
        yield from _nested(number, [bytes(value)])


def _nested(number: int, parts: list[bytes]) -> Iterator[bytes]:
    yield varint(number << 3 | _BYTES) + varint(sum(map(len, parts)))
    yield from parts
