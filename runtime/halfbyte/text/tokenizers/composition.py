"""Unicode's normal forms, in time that is not quadratic in a run of marks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import groupby
from typing import Literal
from unicodedata import combining, normalize

from halfbyte.text.tokenizers.unicode_classes import absent, translate, written

_LONG_RUN = 64  # marks; `unicodedata` sorts fewer quickly


Form = Literal["NFC", "NFD", "NFKC", "NFKD"]


def compose(text: str, form: Form = "NFC") -> str:
    """The text in a normal form of Unicode 9, as in `tokenizers`; newer characters stay."""
    if text.isascii():
        return text
    parts = _later().split(text)
    parts[::2] = (normalize(form, _long_runs().sub(_ordered, part)) for part in parts[::2])
    return "".join(parts)


def composites(text: str, form: Form = "NFC") -> Iterator[tuple[str, int, int]]:
    """Stretches of a text that are composed independently, and the spans that they come from."""
    start = 0
    for at in range(1, len(text) + 1):
        if at < len(text) and (_is_mark(text[at]) or _composes(text[start:at], text[at], form)):
            continue
        stretch = text[start:at]
        composed = compose(stretch, form)
        if composed == stretch:
            yield from ((c, start + i, start + i + 1) for i, c in enumerate(stretch))
        else:
            yield composed, start, at
        start = at


def _is_mark(character: str) -> bool:
    """Whether it, or what it is decomposed to, moves among the marks beside it."""
    return combining(normalize("NFD", character)[0]) > 0


def _composes(head: str, character: str, form: Form) -> bool:
    return compose(head + character, form) != compose(head, form) + compose(character, form)


@cache
def _later() -> re.Pattern[str]:
    return re.compile(f"([{written(absent('9.0'))}]+)")


@cache
def _long_runs() -> re.Pattern[str]:
    return re.compile(translate(r"\p{M}" + f"{{{_LONG_RUN},}}"))


def _ordered(run: re.Match[str]) -> str:
    """Decomposed marks in canonical order: a stable sort by class between those without one."""
    marks = "".join(normalize("NFD", mark) for mark in run.group())
    groups = groupby(marks, key=lambda mark: combining(mark) > 0)
    return "".join(
        "".join(sorted(group, key=combining) if sortable else group) for sortable, group in groups
    )
