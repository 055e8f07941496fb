"""What a template's work costs, taken before it is done.

A unit is about 50 ns of an ordinary machine. Whatever walks through a value in C, as comparing,
printing and hashing do, pays for all that the value holds, however often it is held, and only for
values nested so little that C's stack is of no concern. Iterators that nest in one another cannot
come to be: only plain values are iterated, and what a filter yields is a list before it is handed
on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from operator import length_hint
from typing import Any

from jinja2 import TemplateRuntimeError
from jinja2.exceptions import SecurityError
from jinja2.runtime import Undefined
from jinja2.utils import Namespace

STEP = 50  # units of an iteration, a call, a filter or a test; a character is 1
ITEM = 8  # of a value that is looked at, among others in a list
NODE = 4  # of a node of the syntax tree, each time that it is passed
SECONDS = 5.0  # of a thread's time for one rendering, should an estimate be wrong
MAX_DEPTH = 100  # of lists in lists
MAX_CALLS = 50  # of macros, filters and tests in one another
_LOOK = 100_000  # units between looks at the clock
_SHORT = 2500  # characters; Python looks for a text in a longer one in linear time, but for ...
_NEEDLE = 100  # ... needles shorter than this

_VALUES: type[Any] = type({}.values())
_ITERATOR: type[Any] = type(iter([]))
_PLAIN = (str, bytes, Mapping, Sequence, AbstractSet, _VALUES, _ITERATOR, Undefined)
_SCALAR = (str, int, float, type(None))


try:
    time.thread_time()
    _clock = time.thread_time
except (AttributeError, OSError):  # not every system has one
    _clock = time.perf_counter


class LimitError(TemplateRuntimeError):
    """A rendering took more work than a conversation needs."""


class Meter:
    """The work that a rendering may still do; none before it begins."""

    def __init__(self) -> None:
        self.left = 0
        self.depth = 0  # of what was read last
        self._look, self._deadline, self._calls = 0, 0.0, 0

    def begin(self, work: int) -> None:
        """Allow this much work."""
        self.left, self._look, self._calls = work, work, 0
        self._deadline = _clock() + SECONDS

    def take(self, work: int) -> None:
        """Pay for some work, or raise `LimitError`."""
        self.left -= work
        if self.left < 0:
            raise LimitError("runs for too long, or makes too much text")
        if self.left < self._look:
            self._look = self.left - _LOOK
            if _clock() > self._deadline:
                raise LimitError(f"runs for too long: more than {SECONDS:g} seconds")

    @contextmanager
    def call(self) -> Iterator[None]:
        """One call in another."""
        self._calls += 1
        try:
            if self._calls > MAX_CALLS:
                raise LimitError(f"recursion: more than {MAX_CALLS} calls in one another")
            yield
        finally:
            self._calls -= 1

    def read(self, *values: object) -> int:
        """Pay for looking at all of these values, and at all that they hold; what it cost."""
        before, level = self.left, list(values)
        for self.depth in range(MAX_DEPTH):
            self.take(ITEM * len(level))
            deeper: list[object] = []
            for value in level:
                held = self._held(value)
                self.take(ITEM * len(held))
                deeper += held
            if not deeper:
                return before - self.left
            level = deeper
        raise LimitError(f"a value nested more than {MAX_DEPTH} deep: recursion without end")

    def _held(self, value: object) -> Any:
        """What a value holds; a text and a long number are paid for."""
        if isinstance(value, list | tuple):
            return value
        if isinstance(value, str | bytes):
            self.take(len(value))
        elif isinstance(value, int):
            self.take((value.bit_length() >> 6) ** 2)  # as decimal digits
        elif isinstance(value, Mapping):
            self.take(2 * ITEM * len(value))
            return [*value.keys(), *value.values()]
        elif isinstance(value, Namespace):
            return [value._Namespace__attrs]
        elif isinstance(value, _VALUES | AbstractSet):
            self.take(ITEM * len(value))
            return list(value)
        elif isinstance(value, Sequence) and not isinstance(value, range):
            return value
        return ()

    def size(self, value: Any) -> None:
        """Pay for each item that a value holds, but not for what the items hold."""
        length = len(value) if hasattr(value, "__len__") else 0
        self.take(1 + (length if isinstance(value, str) else length * ITEM // 2))

    def plain(self, value: object) -> None:
        """Refuse to go through what is neither a value of JSON nor made of one."""
        if hasattr(value, "__iter__") and not isinstance(value, _PLAIN):
            raise SecurityError(f"a {type(value).__name__} is not iterated here")

    def counted(self, values: Any, weight: int = 0) -> Iterator[Any]:
        """The same items, a step and some nodes each."""
        self.plain(values)
        for value in values:
            self.take(STEP + weight * NODE)
            yield value

    def key(self, value: Any) -> Any:
        """A value that a dict may have for a key: what it hashes to nobody can choose in masses."""
        self.read(value)
        if not isinstance(value, _SCALAR):
            raise SecurityError(f"a key of a dict: expected a text, found {type(value).__name__}")
        return value

    def search(self, text: str, part: str, backwards: bool = False) -> None:
        """Pay for looking for a part of a text."""
        n, m = len(text), len(part)
        worst = m if backwards or n < _SHORT else min(m, _NEEDLE)
        self.take(n + m + n * worst // 8)

    def contains(self, value: Any, values: Any) -> bool:
        """``value in values``."""
        cost = self.read(value)
        self.plain(values)
        if isinstance(values, str):
            self.search(values, str(value))
        elif not isinstance(values, Mapping | AbstractSet) or isinstance(value, tuple):
            equal = 1 + len(value) // 64 if isinstance(value, str) else cost
            self.take(length_hint(values) * equal)
        return value in values

    def order(self, values: Any) -> None:
        """Pay for sorting values, or for finding the largest."""
        self.take(self.read(values) * length_hint(values).bit_length())

    def paid_replace(self, text: str, old: str, new: str) -> None:
        """Pay for a replacement: the search, and what comes out."""
        self.search(text, old)
        self.take(text.count(old) * (len(new) + ITEM))


def _search(meter: Meter, text: str, *args: Any) -> None:
    meter.search(text, str(args[0]) if args else "")


def _search_back(meter: Meter, text: str, *args: Any) -> None:
    meter.search(text, str(args[0]) if args else "", backwards=True)


def _split(meter: Meter, text: str, *args: Any) -> None:
    if args and isinstance(args[0], str) and args[0]:
        meter.search(text, args[0], backwards=True)
        meter.take(ITEM * text.count(args[0]))
    else:
        meter.take(ITEM // 2 * len(text))


def _strip(meter: Meter, text: str, *args: Any) -> None:
    part = len(args[0]) if args and isinstance(args[0], str) else 1
    meter.take(len(text) * (1 + part // 8))


def _replace(meter: Meter, text: str, *args: Any) -> None:
    if len(args) > 1:
        meter.paid_replace(text, str(args[0]), str(args[1]))


def _starts(meter: Meter, text: str, *args: Any) -> None:
    """Arguments are read by every call."""


def _join(meter: Meter, text: str, *args: Any) -> None:
    if args:
        meter.plain(args[0])
        meter.take(length_hint(args[0]) * len(text))


def _words(meter: Meter, text: str, *args: Any) -> None:
    meter.take(2 * len(text))


# The methods of a text that templates have, and what each costs beside reading text and arguments.
TEXT_METHODS: dict[str, Callable[..., None]] = {
    "capitalize": _words, "count": _search, "endswith": _starts, "find": _search,
    "isalnum": _words, "isalpha": _words, "isdigit": _words, "islower": _words,
    "isspace": _words, "isupper": _words, "join": _join, "lower": _words, "lstrip": _strip,
    "partition": _search, "removeprefix": _starts, "removesuffix": _starts, "replace": _replace,
    "rfind": _search_back, "rpartition": _search_back, "rsplit": _split, "rstrip": _strip,
    "split": _split, "splitlines": _split, "startswith": _starts, "strip": _strip,
    "title": _words, "upper": _words,
}  # fmt: skip
