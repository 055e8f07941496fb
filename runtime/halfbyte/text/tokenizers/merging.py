"""Byte-pair merging, as byte-level BPE and SentencePiece do it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush

_IN_ORDER = range(1 << 31)  # each number's priority is itself


def merge(
    pieces: list[str],
    numbers: Mapping[str, int],
    separator: str,
    priorities: Sequence[float] = _IN_ORDER,
    cut: int = 0,
) -> list[str]:
    """Merge neighbours until no two of them can be merged; O(n log n).

    Parameters
    ----------
    pieces : list of str
        The characters of a word; the list is changed.
    numbers : mapping
        For two pieces joined by the separator; pairs that are not in it are never merged.
    separator : str
        Empty if only the union matters, otherwise a string that is in no piece.
    priorities : sequence
        By number. The lowest is merged first, the leftmost of equals.
    cut : int
        Characters that a right piece loses at its beginning when it is merged.

    Returns
    -------
    list of str
        The remaining pieces.
    """
    end = len(pieces)
    following = list(range(1, end + 1))
    preceding = list(range(-1, end - 1))
    number_of = numbers.get
    heap = []
    for left in range(end - 1):
        pair = pieces[left] + separator + pieces[left + 1]
        number = number_of(pair)
        if number is not None:
            heap.append((priorities[number], left, pair))
    heapify(heap)
    while heap:
        _, left, pair = heappop(heap)
        right = following[left]
        if right == end or not pieces[left] or pieces[left] + separator + pieces[right] != pair:
            continue  # one of the two has been merged with another
        pieces[left] += pieces[right][cut:]
        pieces[right] = ""
        after = following[left] = following[right]
        if after < end:
            preceding[after] = left
        for first, second in ((preceding[left], left), (left, after)):
            if first >= 0 and second < end:
                pair = pieces[first] + separator + pieces[second]
                number = number_of(pair)
                if number is not None:
                    heappush(heap, (priorities[number], first, pair))
    return [piece for piece in pieces if piece]
