"""The cost of a template's work, paid before it is done.

A unit is about 50 ns on an ordinary machine. An operation that walks through a value in C, such as
comparing, printing or hashing, pays for all that the value holds, as often as it holds it. Values
nest at most 100 deep and calls 50, which C's stack bears. Iterators cannot nest: only plain values
are iterated, and a filter's items are put into a list before they are passed on.
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
ITEM = 8  # units of a value in a list that is read
NODE = 4  # units of a node of the syntax tree, each time that it runs
SECONDS = 5.0  # of a thread's time for one rendering, in case an estimate is wrong
MAX_DEPTH = 100  # of nested lists
MAX_CALLS = 50  # of nested macros, filters and tests
_CLOCK = 100_000  # units between two looks at the clock
_SHORT = 2500  # characters; in longer texts Python searches in linear time, except for ...
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
    """A rendering takes more work than a conversation needs."""


class Meter:
    """The work that a rendering may still do; none before `begin`."""

    def __init__(self) -> None:
        self.left = 0
        self.depth = 0  # of the values read last
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
            self._look = self.left - _CLOCK
            if _clock() > self._deadline:
                raise LimitError(f"runs for too long: more than {SECONDS:g} seconds")

    @contextmanager
    def call(self) -> Iterator[None]:
        """Count a nested call."""
        self._calls += 1
        try:
            if self._calls > MAX_CALLS:
                raise LimitError(f"recursion: more than {MAX_CALLS} calls in one another")
            yield
        finally:
            self._calls -= 1

    def read(self, *values: object) -> int:
        """Pay for reading these values and all that they hold; the units paid."""
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
        """The values that a value holds; pays for a text and a long number."""
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
        """Pay for each item of a value, but not for what the items hold."""
        length = len(value) if hasattr(value, "__len__") else 0
        self.take(1 + (length if isinstance(value, str) else length * ITEM // 2))

    def plain(self, value: object) -> None:
        """Refuse to iterate anything but values of JSON, and what templates make of them."""
        if hasattr(value, "__iter__") and not isinstance(value, _PLAIN):
            raise SecurityError(f"a {type(value).__name__} is not iterated here")

    def counted(self, values: Any, weight: int = 0) -> Iterator[Any]:
        """The items, each paid for with a step and `weight` nodes."""
        self.plain(values)
        for value in values:
            self.take(STEP + weight * NODE)
            yield value

    def key(self, value: Any) -> Any:
        """A value that may be a dict's key: one whose hash an attacker cannot choose."""
        self.read(value)
        if not isinstance(value, _SCALAR):
            raise SecurityError(f"a key of a dict: expected a text, found {type(value).__name__}")
        return value

    def search(self, text: str, part: str, backwards: bool = False) -> None:
        """Pay for searching a text for a part."""
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
        """Pay for sorting values or finding the largest."""
        self.take(self.read(values) * length_hint(values).bit_length())

    def paid_replace(self, text: str, old: str, new: str) -> None:
        """Pay for a replacement: the search and the result."""
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
    """Nothing more: every call pays for its arguments."""


def _join(meter: Meter, text: str, *args: Any) -> None:
    if args:
        meter.plain(args[0])
        meter.take(length_hint(args[0]) * len(text))


def _scan(meter: Meter, text: str, *args: Any) -> None:
    meter.take(2 * len(text))


# The methods of strings in templates, and their costs beyond reading text and arguments.
TEXT_METHODS: dict[str, Callable[..., None]] = {
    "capitalize": _scan, "count": _search, "endswith": _starts, "find": _search,
    "isalnum": _scan, "isalpha": _scan, "isdigit": _scan, "islower": _scan,
    "isspace": _scan, "isupper": _scan, "join": _join, "lower": _scan, "lstrip": _strip,
    "partition": _search, "removeprefix": _starts, "removesuffix": _starts, "replace": _replace,
    "rfind": _search_back, "rpartition": _search_back, "rsplit": _split, "rstrip": _strip,
    "split": _split, "splitlines": _split, "startswith": _starts, "strip": _strip,
    "title": _scan, "upper": _scan,
}  # fmt: skip
