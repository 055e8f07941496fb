"""The replacements of characters in a SentencePiece file, such as those of normal form KC.

Layout of a precompiled charsmap: u32 size of a trie in bytes; the trie, a Darts double array of
u32; replacements in UTF-8, each terminated by a zero. A unit is ``label | leaf << 8 | far << 9 |
offset << 10``, with the offset times 256 if `far` is set. The child of a node for byte c is at
``node ^ offset ^ c`` and has c as its label. Where a key ends, the child for 0 has bit 31 set, and
its other bits are the offset of the replacement.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from halfbyte.errors import FormatError
from halfbyte.text.tokenizers.unicode_classes import one_of

_LONGEST_KEY = 32  # characters; those of SentencePiece's own rules have up to 18
_LEAF = 1 << 31


class Charsmap:
    """Replaces strings in texts, the leftmost and of those the longest.

    Parameters
    ----------
    data : bytes
        The charsmap.
    where : str
        The file and its key, for error messages.

    Raises
    ------
    FormatError
        The charsmap is damaged.
    """

    def __init__(self, data: bytes, where: str) -> None:
        size = int.from_bytes(data[:4], "little")
        if size % 4 or not 4 <= size <= len(data) - 5:
            raise FormatError(f"{where}: {len(data)} bytes, with a trie of {size}")
        units = np.frombuffer(data, "<u4", size // 4, 4).astype(np.int64)
        self._where = where
        self._texts = data[4 + size :]
        self._values = units.tolist()
        self._labels = (units & (_LEAF | 0xFF)).tolist()
        bases = np.arange(len(units)) ^ (units >> 10) << ((units & 1 << 9) >> 6)
        self._bases = bases.tolist()
        self._start = self._candidates(bases, units)

    def parts(self, text: str) -> Iterator[tuple[str, int, int]]:
        """The replaced text in parts, with the spans of the text that they come from."""
        at = done = 0
        while self._start and (match := self._start.search(text, at)):
            start = match.start()
            at, replacement = self._longest(text, start)
            if at == start:
                at += 1
                continue
            if start > done:
                yield text[done:start], done, start
            yield replacement, start, at
            done = at
        if done < len(text):
            yield text[done:], done, len(text)

    def shortest(self, text: str) -> str | None:
        """The replacement of the shortest key that a text begins with, if there is one."""
        node = 0
        for byte in text.encode():
            node = self._bases[node] ^ byte
            if not byte or node >= len(self._labels) or self._labels[node] != byte:
                return None
            if self._values[node] >> 8 & 1:
                return self._replacement(self._leaf(node))
        return None

    def _longest(self, text: str, start: int) -> tuple[int, str]:
        """The end of the longest key that begins here, and its replacement."""
        labels, bases = self._labels, self._bases
        node, end, offset = 0, start, -1
        for at, character in enumerate(text[start : start + _LONGEST_KEY], start + 1):
            for byte in character.encode():
                node = bases[node] ^ byte
                if node >= len(labels) or labels[node] != byte:
                    return end, self._replacement(offset)
            if self._values[node] >> 8 & 1:
                end, offset = at, self._leaf(node)
        return end, self._replacement(offset)

    def _leaf(self, node: int) -> int:
        base = self._bases[node]
        if base >= len(self._values):
            raise FormatError(f"{self._where}: a node points beyond the trie")
        return int(self._values[base]) & (_LEAF - 1)

    def _replacement(self, offset: int) -> str:
        if offset < 0:
            return ""
        end = self._texts.find(b"\0", offset)
        try:
            if end >= 0:
                return self._texts[offset:end].decode()
        except UnicodeDecodeError:
            pass
        raise FormatError(f"{self._where}: no replacement at {offset} of {len(self._texts)} bytes")

    def _candidates(self, bases: _Ints, units: _Ints) -> re.Pattern[str] | None:
        """Where a key may begin: two characters rule out nearly every place."""
        single, firsts, seconds = set(), set(), set()
        labels = units & (_LEAF | 0xFF)
        letters = np.arange(1, 256)
        level: list[tuple[int, bytes]] = [(0, b"")]
        for _ in range(2 * 4):  # bytes of two characters
            children = bases[[node for node, _ in level]][:, None] ^ letters
            inside = np.minimum(children, len(units) - 1)
            valid = (children == inside) & (labels[inside] == letters)
            deeper = []
            for row, column in np.argwhere(valid)[: len(units)]:
                node, key = int(children[row, column]), level[row][1] + bytes([letters[column]])
                text = key.decode(errors="ignore")
                if len(text) == 2:
                    firsts.add(text[0])
                    seconds.add(text[1])
                    continue
                if units[node] >> 8 & 1 and len(text.encode()) == len(key):
                    single.add(text)
                deeper.append((node, key))
            level = deeper
            if not level:
                break
        patterns = [one_of(single)] if single else []
        if firsts:
            patterns.append(f"{one_of(firsts)}(?={one_of(seconds)})")
        return re.compile("|".join(patterns)) if patterns else None


_Ints = np.ndarray[tuple[int], np.dtype[np.int64]]
