r"""Unicode's categories as sets of characters in the syntax of Python's `re`.

Python's `\s`, `\d` and `\w` differ from those in tokenizer.json's regular expressions, it has no
`\p{L}`, and its Unicode version depends on Python's. The table here (`tools/make_unicode_table.py`)
has Unicode 16, the version of PyPI's `tokenizers`, and the versions 8 and 9 of its normalizers.
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
WHITESPACE = "".join(re.findall(f"[{_SPACE}]", "".join(map(chr, range(0x3001)))))
WORD = (  # \\w: Alphabetic, marks, decimal digits, connectors and joiners
    r"\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\u200c\u200d\u24b6-\u24e9\U0001f130-\U0001f149"
    r"\U0001f150-\U0001f169\U0001f170-\U0001f189"
)
_PART = re.compile(r"\\p\{(\w+)\}|(\\[swd])|(\\S)|\\.|\[\^?|\]|.", re.DOTALL)
_ASTRAL = re.compile("[\U00010000-\U0010ffff]")
_LAST = 0x10FFFF


@cache
def _runs() -> tuple[list[int], list[str]]:
    """The first code point of each run of one category, and the categories."""
    from halfbyte.text.tokenizers.unicode_table import RUNS

    starts, names, at = [], [], 0
    for name, count in re.findall(r"(\D\D)(\d*)", RUNS):
        starts.append(at)
        names.append(name)
        at += int(count or 1)
    return starts, names


def category(character: str) -> str:
    """The general category of a character, e.g. "Lu"."""
    starts, names = _runs()
    return names[bisect_right(starts, ord(character)) - 1]


@cache
def absent(version: str) -> Ranges:
    """The code points that Unicode "8.0" or "9.0" did not have yet."""
    from halfbyte.text.tokenizers import unicode_table

    runs = getattr(unicode_table, f"ABSENT_{version.replace('.', '_')}")
    missing: Ranges = []
    at = 0
    for index, length in enumerate(map(int, runs.split())):
        if index % 2:
            missing.append((at, at + length - 1))
        at += length
    return missing


# Characters that had another category in Unicode 8.
_MOVED = {
    0x166D: "Po", 0x1734: "Mn", 0x1885: "Lo", 0x1886: "Lo", 0xA9BD: "Mc", 0x111C9: "Po",
    0x1171E: "Mn",
}  # fmt: skip


def category_8(character: str) -> str:
    """The general category in Unicode 8, as in the BERT normalizer of `tokenizers`."""
    code = ord(character)
    if code in _MOVED:
        return _MOVED[code]
    return "Cn" if _is_absent(code, "8.0") else category(character)


def is_mark_9(character: str) -> bool:
    """Whether it was a mark in Unicode 9, as in `tokenizers`."""
    code = ord(character)
    if code in (0x1CF2, 0x1CF3):
        return True
    mark = category(character)[0] == "M" and code != 0x111C9
    return mark and not _is_absent(code, "9.0")


def _is_absent(code: int, version: str) -> bool:
    index = bisect_right(absent(version), (code, _LAST + 1)) - 1
    return index >= 0 and code <= absent(version)[index][1]


def lower(character: str) -> str:
    """A character in lower case in Unicode 17, whatever Python's version."""
    code = ord(character)
    if code in _LOWER:
        return chr(_LOWER[code])
    return character.lower()


# Lower case that is new in Unicode 15 to 17.
_LOWER = {
    0x1C89: 0x1C8A, 0xA7CB: 0x264, 0xA7CC: 0xA7CD, 0xA7CE: 0xA7CF, 0xA7D2: 0xA7D3, 0xA7D4: 0xA7D5,
    0xA7DA: 0xA7DB, 0xA7DC: 0x19B, **{code: code + 0x20 for code in range(0x10D50, 0x10D66)},
    **{code: code + 0x1B for code in range(0x16EA0, 0x16EB9)},
}  # fmt: skip


def ranges(name: str) -> Ranges:
    """All code points of a category ("Lu") or of a group ("L")."""
    starts, names = _runs()
    ends = [*starts[1:], _LAST + 1]
    merged: Ranges = []
    for start, end, kind in zip(starts, ends, names, strict=True):
        if kind.startswith(name):
            if merged and merged[-1][1] == start - 1:
                start = merged.pop()[0]
            merged.append((start, end - 1))
    return merged


def written(code_points: Ranges) -> str:
    """Ranges as written inside the brackets of a regular expression."""
    return "".join(
        f"\\U{first:08x}" + (f"-\\U{last:08x}" if last > first else "")
        for first, last in code_points
    )


def one_of(characters: Iterable[str]) -> str:
    """A regular expression that matches one of some characters, which are not none."""
    merged: Ranges = []
    for code in sorted({ord(character) for character in characters}):
        if merged and merged[-1][1] == code - 1:
            merged[-1] = merged[-1][0], code
        else:
            merged.append((code, code))
    return f"[{written(merged)}]"


def _short(name: str, last: int) -> str:
    if name == r"\s":
        return _SPACE
    return translate(f"[{WORD}]", last)[1:-1] if name == r"\w" else _class("Nd", last)


@lru_cache(64)
def _class(name: str, last: int) -> str:
    return written([(a, min(b, last)) for a, b in ranges(name) if a <= last])


# Equivalent patterns in Python's syntax, whose time is not quadratic in a run.
_LINEAR = {
    r"\s+$": r"(?<!\s)\s++\Z",
    r"\A +| +\z": r"\A +|(?<! ) ++\Z",
    " +\u2581": "(?<! ) ++\u2581",
    "^\u2581+$": "(?m:^\u2581+$)",
}


def translate(pattern: str, last: int = _LAST) -> str:
    r"""A regular expression with `\p{...}`, `\s`, `\S`, `\w` and `\d` in Python's syntax.

    `last` is the last code point that texts may have. Sets up to U+FFFF are one table look-up in
    `re`; beyond, ranges are compared one by one.
    """
    inside = False
    parts: list[str] = []
    for match in _PART.finditer(_LINEAR.get(pattern, pattern)):
        part = match.group()
        name, short, other = match.groups()
        if part in ("[", "[^") and not inside:
            inside = True
        elif part == "]":
            inside = False
        if name or short:
            characters = _class(name, last) if name else _short(short, last)
            part = characters if inside else f"[{characters}]"
        elif other:
            part = f"[^{_SPACE}]"  # no pattern has it inside brackets
        parts.append(part)
    return "".join(parts)


class Splitter:
    """Splits a text into the matches of a regular expression and the text between them."""

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
