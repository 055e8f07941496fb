r"""Unicode's categories as sets of characters that Python's `re` understands.

Python's own `\s`, `\d` and `\w` are others than those of tokenizer.json's regular expressions, it
has no `\p{L}`, and its tables are of another Unicode version in every Python.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from functools import cache, lru_cache

Ranges = list[tuple[int, int]]  # first and last code points

_SPACE = (
    "\\t-\\r\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000"  # White_Space
)
_PART = re.compile(r"\\p\{(\w+)\}|(\\s)|(\\S)|\\.|\[\^?|\]|.", re.DOTALL)
_ASTRAL = re.compile("[\U00010000-\U0010ffff]")
_LAST = 0x10FFFF


@cache
def _runs() -> tuple[list[int], list[str]]:
    """Where each run of code points of one category begins, and the categories."""
    from halfbyte.tokenizers.unicode_table import RUNS

    starts, names, at = [], [], 0
    for run in RUNS.split():
        starts.append(at)
        names.append(run[:2])
        at += int(run[2:])
    return starts, names


def category(character: str) -> str:
    """The general category of a character, e.g. "Lu"."""
    starts, names = _runs()
    return names[bisect_right(starts, ord(character)) - 1]


def ranges(name: str) -> Ranges:
    """All code points of a category ("Lu") or of a group of them ("L")."""
    starts, names = _runs()
    ends = [*starts[1:], _LAST + 1]
    found: Ranges = []
    for start, end, kind in zip(starts, ends, names, strict=True):
        if kind.startswith(name):
            if found and found[-1][1] == start - 1:
                start = found.pop()[0]
            found.append((start, end - 1))
    return found


def written(code_points: Ranges) -> str:
    """Ranges as they stand inside the brackets of a regular expression."""
    return "".join(
        f"\\U{first:08x}" + (f"-\\U{last:08x}" if last > first else "")
        for first, last in code_points
    )


def one_of(characters: Iterable[str]) -> str:
    """A regular expression for one of some characters, of which there is at least one."""
    found: Ranges = []
    for code in sorted({ord(character) for character in characters}):
        if found and found[-1][1] == code - 1:
            found[-1] = found[-1][0], code
        else:
            found.append((code, code))
    return f"[{written(found)}]"


@lru_cache(64)
def _class(name: str, last: int) -> str:
    return written([(a, min(b, last)) for a, b in ranges(name) if a <= last])


def translate(pattern: str, last: int = _LAST) -> str:
    r"""A regular expression with `\p{...}`, `\s` and `\S` in Python's syntax.

    With a smaller `last`, for texts whose code points all are at most that: sets that end at
    U+FFFF are one table look-up in `re`, what is beyond is compared range by range.
    """
    inside = False
    parts: list[str] = []
    for found in _PART.finditer(pattern):
        part = found.group()
        name, space, other = found.groups()
        if part in ("[", "[^") and not inside:
            inside = True
        elif part == "]":
            inside = False
        if name or space:
            characters = _class(name, last) if name else _SPACE
            part = characters if inside else f"[{characters}]"
        elif other:
            part = f"[^{_SPACE}]"  # no pattern has it inside brackets
        parts.append(part)
    return "".join(parts)


class Splitter:
    """Splits a text by one regular expression: its matches, and what is between them."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._compiled: dict[int, re.Pattern[str]] = {}

    def split(self, text: str) -> list[str]:
        """The parts, in order; none is empty."""
        last = _LAST if _ASTRAL.search(text) else 0xFFFF
        compiled = self._compiled.get(last)
        if compiled is None:
            compiled = re.compile(f"({translate(self._pattern, last)})")
            self._compiled[last] = compiled
        return list(filter(None, compiled.split(text)))
