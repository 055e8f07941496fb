"""Unicode's normal form C, in time that does not grow with the square of a run of marks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import groupby
from unicodedata import combining, normalize

from halfbyte.tokenizers.unicode_classes import translate

_LONG_RUN = 64  # marks that `unicodedata` still sorts quickly


def compose(text: str) -> str:
    """The text in normal form C."""
    return normalize("NFC", text if text.isascii() else _long_runs().sub(_ordered, text))


def composites(text: str) -> Iterator[tuple[str, int, int]]:
    """Stretches of a text that are composed each for itself, and the spans that they come from."""
    start = 0
    for at in range(1, len(text) + 1):
        if at < len(text) and (combining(text[at]) or _composes(text[start:at], text[at])):
            continue
        stretch = text[start:at]
        composed = compose(stretch)
        if composed == stretch:
            yield from ((c, start + i, start + i + 1) for i, c in enumerate(stretch))
        else:
            yield composed, start, at
        start = at


def _composes(head: str, character: str) -> bool:
    return compose(head + character) != compose(head) + compose(character)


@cache
def _long_runs() -> re.Pattern[str]:
    return re.compile(translate(r"\p{M}" + f"{{{_LONG_RUN},}}"))


def _ordered(found: re.Match[str]) -> str:
    """Marks in canonical order, decomposed: a stable sort by class between those without one."""
    marks = "".join(normalize("NFD", mark) for mark in found.group())
    groups = groupby(marks, key=lambda mark: combining(mark) > 0)
    return "".join(
        "".join(sorted(group, key=combining) if sortable else group) for sortable, group in groups
    )
