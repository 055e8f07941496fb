"""The longest of many strings at a place of a text, in a time that hardly grows with them."""

from __future__ import annotations

from collections.abc import Iterable


class Prefixes:
    """Strings, none empty, found by bisection over their lengths.

    For each string the table has its prefixes of the lengths that the bisection tries on its way to
    it, and for each prefix the longest string that it begins with (Waldvogel et al., "Scalable High
    Speed IP Routing Lookups", 1997).
    """

    def __init__(self, strings: Iterable[str]) -> None:
        ordered = sorted(strings, key=len)
        self._lengths = sorted({len(string) for string in ordered})
        self._table: dict[str, str] = {}
        for string in ordered:  # all strings that a prefix may begin with come before it
            low, high = 0, len(self._lengths)
            while low < high:
                middle = (low + high) // 2
                length = self._lengths[middle]
                if length > len(string):
                    high = middle
                    continue
                low = middle + 1
                prefix = string[:length]
                if prefix not in self._table:
                    whole = length == len(string)
                    self._table[prefix] = string if whole else self.longest(prefix, 0)
            self._table[string] = string

    def longest(self, text: str, start: int) -> str:
        """The longest string at a place of the text; empty if there is none."""
        longest = ""
        low, high = 0, len(self._lengths)
        while low < high:
            middle = (low + high) // 2
            length = self._lengths[middle]
            part = text[start : start + length]
            known = self._table.get(part) if len(part) == length else None
            if known is None:
                high = middle
            else:
                longest, low = known or longest, middle + 1
        return longest
