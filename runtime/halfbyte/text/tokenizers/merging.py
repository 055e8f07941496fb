"""Byte-pair merging, as byte-level BPE and SentencePiece do it."""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heappop, heappush


def merge(
    pieces: list[str], priorities: Mapping[str, float], separator: str, cut: int = 0
) -> list[str]:
    """Merge neighbours until no two of them can be merged; O(n log n).

    Parameters
    ----------
    pieces : list of str
        The characters of a word; the list is changed.
    priorities : mapping
        For two pieces joined by the separator. The lowest is merged first, the leftmost of equals;
        pairs that are not in it are never merged.
    separator : str
        Empty if only the union matters, otherwise a string that is in no piece.
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
    priority_of = priorities.get
    heap = []
    for left in range(end - 1):
        pair = pieces[left] + separator + pieces[left + 1]
        priority = priority_of(pair)
        if priority is not None:
            heap.append((priority, left, pair))
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
                priority = priority_of(pair)
                if priority is not None:
                    heappush(heap, (priority, first, pair))
    return [piece for piece in pieces if piece]
