"""A stack machine for pickles that builds only plain containers.

A pickle is a program for a stack machine; Python's own runs any callable that the pickle names.
This one has the opcodes that build numbers, strings, tuples, lists and dicts, and looks up every
name in a table of the caller, whose callables are our own. Anything else is refused by name.
Python's `pickle` is not used.

Opcodes: CPython's Lib/pickletools.py describes them all.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from halfbyte.errors import FormatError, UnsupportedError
from halfbyte.formats.mapped import Pages

_MAX_STEPS = 1 << 21  # opcodes: at worst some 100 MB; a model of 700 tensors has 30,000
_MAX_STRING = 1 << 16


@dataclass(frozen=True)
class Function:
    """A function to which a name in a pickle may refer, called with the pickle's arguments."""

    call: Callable[..., object]


class _Mark:
    """Marks the beginning of a group of values on the stack."""


_MARK = _Mark()


class PickleMachine:
    """Runs one pickle after another from a file's bytes.

    Parameters
    ----------
    where : str
        Prefix of error messages.
    pages, start, end
        The pickles' bytes are `pages[start:end]`.
    names : mapping
        "module name" -> a `Function`, or a value that is passed on.
    persistent : callable
        Returns the value of a persistent id, by which PyTorch refers to storages.
    """

    def __init__(
        self,
        where: str,
        pages: Pages,
        start: int,
        end: int,
        names: Mapping[str, object],
        persistent: Callable[[object], object],
    ) -> None:
        self.where, self.pages, self.at, self.end = where, pages, start, end
        self.names, self.persistent = names, persistent
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        self._steps = 0

    def load(self) -> Any:
        """The next pickle's value.

        Raises
        ------
        FormatError
            Truncated, or not a pickle.
        UnsupportedError
            A name or an opcode that is not supported.
        """
        self._stack, self._memo = [], {}
        while True:
            self._steps += 1
            if self._steps > _MAX_STEPS:
                raise UnsupportedError(
                    f"{self.where}: pickle: expected at most {_MAX_STEPS} steps, found more"
                )
            opcode = self._take(1)
            if opcode == b".":
                return self._pop()
            step = self._OPCODES.get(opcode)
            if step is None:
                raise UnsupportedError(
                    f"{self.where}: pickle opcode {opcode!r} at offset {self.at - 1} is not "
                    "needed for tensors, and might run code of the file's; saved as safetensors, "
                    "it can be read"
                )
            step(self)

    def _error(self, problem: str) -> FormatError:
        return FormatError(f"{self.where}: pickle: {problem} at offset {self.at}")

    def _take(self, size: int) -> bytes:
        if size > self.end - self.at:
            raise self._error(f"truncated: {size} bytes expected, {self.end - self.at} found")
        self.at += size
        return bytes(self.pages[self.at - size : self.at])

    def _number(self, form: str) -> Any:
        (value,) = struct.unpack(form, self._take(struct.calcsize(form)))
        return value

    def _pop(self) -> Any:
        if not self._stack or self._stack[-1] is _MARK:
            raise self._error("nothing is on the stack")
        return self._stack.pop()

    def _top(self, kind: type) -> Any:
        if not self._stack or type(self._stack[-1]) is not kind:
            raise self._error(f"expected a {kind.__name__} on the stack")
        return self._stack[-1]

    def _group(self) -> list[Any]:
        """The values down to the last mark."""
        for index in range(len(self._stack) - 1, -1, -1):
            if self._stack[index] is _MARK:
                values = self._stack[index + 1 :]
                del self._stack[index:]
                return values
        raise self._error("no mark is on the stack")

    def _last(self, count: int) -> list[Any]:
        values = [self._pop() for _ in range(count)]
        return values[::-1]

    def _push(self, value: object) -> None:
        self._stack.append(value)

    def _string(self, size: int) -> None:
        if size > _MAX_STRING:
            raise self._error(f"string of {size} bytes, expected at most {_MAX_STRING}")
        try:
            self._push(self._take(size).decode())
        except UnicodeDecodeError:
            raise self._error("string that is not UTF-8") from None

    def _line(self) -> str:
        """Text to the end of the line."""
        size = self.pages[self.at : min(self.end, self.at + 256)]
        length = bytes(size).find(b"\n")
        if length < 0:
            raise self._error("no end of line")
        return self._take(length + 1)[:-1].decode("utf-8", "replace")

    def _store(self, pairs: list[Any]) -> None:
        """Put alternating keys and values into the dict on the stack."""
        target = self._top(dict)
        if len(pairs) % 2:
            raise self._error("a key without a value")
        for key, value in zip(pairs[::2], pairs[1::2], strict=True):
            if type(key) not in (str, int):  # a tuple of tuples may take forever to hash
                raise self._error(f"key of type {type(key).__name__}, expected str or int")
            target[key] = value

    def _recall(self, index: int) -> None:
        if index not in self._memo:
            raise self._error(f"nothing was remembered as {index}")
        self._push(self._memo[index])

    def _remember(self, index: int) -> None:
        value = self._pop()
        self._push(value)
        self._memo[index] = value

    def _find(self, module: str, name: str) -> None:
        full = f"{module} {name}"
        if full not in self.names:
            raise UnsupportedError(
                f"{self.where}: pickle asks for {f'{module}.{name}'[:80]!r}, which tensors do not "
                "need, and which might run code of the file's; saved as safetensors, it can be read"
            )
        self._push(self.names[full])

    def _find_on_stack(self) -> None:
        module, name = self._last(2)
        if type(module) is not str or type(name) is not str:
            raise self._error("a name that is not a string")
        self._find(module, name)

    def _call(self) -> None:
        function, arguments = self._last(2)
        if type(function) is not Function or type(arguments) is not tuple:
            raise self._error("a call of something that is not a function")
        try:
            self._push(function.call(*arguments))
        except (TypeError, ValueError, OverflowError):
            raise self._error("a call with arguments that do not fit") from None

    def _build(self) -> None:
        """Skip an object's state: only an OrderedDict, whose attributes hold no tensors."""
        self._pop()
        self._top(dict)

    def _append(self, values: list[Any]) -> None:
        self._top(list).extend(values)

    def _long(self) -> None:
        self._push(int.from_bytes(self._take(self._number("<B")), "little", signed=True))

    _OPCODES: ClassVar[dict[bytes, Callable[[PickleMachine], object]]] = {
        b"\x80": lambda m: m._number("<B"),  # protocol
        b"\x95": lambda m: m._number("<Q"),  # frame
        b"(": lambda m: m._push(_MARK),
        b"0": lambda m: m._pop(),
        b"1": lambda m: m._group(),
        b"N": lambda m: m._push(None),
        b"\x88": lambda m: m._push(True),
        b"\x89": lambda m: m._push(False),
        b"K": lambda m: m._push(m._number("<B")),
        b"M": lambda m: m._push(m._number("<H")),
        b"J": lambda m: m._push(m._number("<i")),
        b"\x8a": _long,
        b"G": lambda m: m._push(m._number(">d")),
        b"X": lambda m: m._string(m._number("<I")),
        b"\x8c": lambda m: m._string(m._number("<B")),
        b"T": lambda m: m._string(m._number("<I")),  # strings of Python 2
        b"U": lambda m: m._string(m._number("<B")),
        b")": lambda m: m._push(()),
        b"t": lambda m: m._push(tuple(m._group())),
        b"\x85": lambda m: m._push(tuple(m._last(1))),
        b"\x86": lambda m: m._push(tuple(m._last(2))),
        b"\x87": lambda m: m._push(tuple(m._last(3))),
        b"]": lambda m: m._push([]),
        b"a": lambda m: m._append(m._last(1)),
        b"e": lambda m: m._append(m._group()),
        b"}": lambda m: m._push({}),
        b"s": lambda m: m._store(m._last(2)),
        b"u": lambda m: m._store(m._group()),
        b"q": lambda m: m._remember(m._number("<B")),
        b"r": lambda m: m._remember(m._number("<I")),
        b"\x94": lambda m: m._remember(len(m._memo)),
        b"h": lambda m: m._recall(m._number("<B")),
        b"j": lambda m: m._recall(m._number("<I")),
        b"c": lambda m: m._find(m._line(), m._line()),
        b"\x93": _find_on_stack,
        b"Q": lambda m: m._push(m.persistent(m._pop())),
        b"R": _call,
        b"b": _build,
    }
