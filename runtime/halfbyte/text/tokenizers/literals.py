"""Finding given strings in a text, the leftmost and of those the longest."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from halfbyte.text.tokenizers.prefixes import Prefixes
from halfbyte.text.tokenizers.unicode_classes import one_of

_MANY = 32  # lengths of strings with the same first character; more are bisected


class Literals:
    """A set of strings, none empty, to find in texts."""

    def __init__(self, strings: Iterable[str]) -> None:
        self._strings = frozenset(strings)
        groups: dict[str, list[str]] = {}  # by first character
        for string in self._strings:
            groups.setdefault(string[0], []).append(string)
        self._lengths = {  # the longest first
            start: sorted({len(string) for string in group}, reverse=True)
            for start, group in groups.items()
        }
        self._many = {
            start: Prefixes(groups[start])
            for start, lengths in self._lengths.items()
            if len(lengths) > _MANY
        }
        self._start = self._candidates()

    def _candidates(self) -> re.Pattern[str] | None:
        """Where a string may begin: two characters rule out nearly every place."""
        single = {string for string in self._strings if len(string) == 1}
        longer = [string for string in self._strings if len(string) > 1]
        patterns = [one_of(single)] if single else []
        if longer:
            patterns.append(one_of(s[0] for s in longer) + f"(?={one_of(s[1] for s in longer)})")
        return re.compile("|".join(patterns)) if patterns else None

    def __bool__(self) -> bool:
        return bool(self._strings)

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Where they are; they do not overlap."""
        at = 0
        while self._start and (match := self._start.search(text, at)):
            start = match.start()
            at = self._end(text, start)
            if at > start:
                yield start, at
            else:
                at += 1

    def _end(self, text: str, start: int) -> int:
        """The end of the longest string that begins at `start`; `start` if none does."""
        many = self._many.get(text[start])
        if many is not None:
            return start + len(many.longest(text, start))
        ends = (start + length for length in self._lengths[text[start]])
        strings, size = self._strings, len(text)
        return next((end for end in ends if end <= size and text[start:end] in strings), start)
