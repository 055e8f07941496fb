"""Finding given strings in a text: the leftmost, and of those the longest."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from halfbyte.tokenizers.unicode_classes import one_of


class Literals:
    """A set of strings, none empty, to be found in texts."""

    def __init__(self, strings: Iterable[str]) -> None:
        self._strings = frozenset(strings)
        self._lengths: dict[str, list[int]] = {}  # by first character, the longest first
        for start, length in sorted({(s[0], len(s)) for s in self._strings}, reverse=True):
            self._lengths.setdefault(start, []).append(length)
        self._start = self._candidates()

    def _candidates(self) -> re.Pattern[str] | None:
        """Where one can begin: a look at two characters rules out nearly everything."""
        single = {string for string in self._strings if len(string) == 1}
        longer = [string for string in self._strings if len(string) > 1]
        ways = [one_of(single)] if single else []
        if longer:
            ways.append(one_of(s[0] for s in longer) + f"(?={one_of(s[1] for s in longer)})")
        return re.compile("|".join(ways)) if ways else None

    def __bool__(self) -> bool:
        return bool(self._strings)

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Where they begin and end; they do not overlap."""
        at, size = 0, len(text)
        while self._start and (found := self._start.search(text, at)):
            start = found.start()
            ends = (start + length for length in self._lengths[text[start]])
            strings = self._strings
            at = next((end for end in ends if end <= size and text[start:end] in strings), start)
            if at > start:
                yield start, at
            else:
                at += 1
