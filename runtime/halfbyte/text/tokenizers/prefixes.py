"""The longest of many strings that a text goes on with, in a time that hardly grows with them."""

from __future__ import annotations

from collections.abc import Iterable


class Prefixes:
    """Strings, none empty, found by bisection over their lengths.

    For each string the table has its beginnings at those lengths that the bisection looks at on its
    way to it, and for each beginning the longest string that it begins with (Waldvogel et al.,
    "Scalable High Speed IP Routing Lookups", 1997).
    """

    def __init__(self, strings: Iterable[str]) -> None:
        ordered = sorted(strings, key=len)
        self._lengths = sorted({len(string) for string in ordered})
        self._table: dict[str, str] = {}
        for string in ordered:  # so that all which a beginning can have are in the table before it
            low, high = 0, len(self._lengths)
            while low < high:
                middle = (low + high) // 2
                length = self._lengths[middle]
                if length > len(string):
                    high = middle
                    continue
                low = middle + 1
                start = string[:length]
                if start not in self._table:
                    whole = length == len(string)
                    self._table[start] = string if whole else self.longest(start, 0)
            self._table[string] = string

    def longest(self, text: str, start: int) -> str:
        """The longest string that the text has at a place; empty where there is none."""
        found = ""
        low, high = 0, len(self._lengths)
        while low < high:
            middle = (low + high) // 2
            length = self._lengths[middle]
            part = text[start : start + length]
            known = self._table.get(part) if len(part) == length else None
            if known is None:
                high = middle
            else:
                found, low = known or found, middle + 1
        return found
