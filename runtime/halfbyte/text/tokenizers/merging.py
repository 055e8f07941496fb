"""Byte-pair merging, as byte-level BPE and SentencePiece do it."""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heappop, heappush


def merge(
    pieces: list[str], priorities: Mapping[str, float], separator: str, cut: int = 0
) -> list[str]:
    """Merge neighbours until no two of them can be; O(n log n).

    Parameters
    ----------
    pieces : list of str
        The characters of a word; changed.
    priorities : mapping
        For two pieces joined by the separator: their turn, the lowest first, the leftmost of
        equals. Pairs that are not in it are never merged.
    separator : str
        Nothing where the union alone matters, else what stands in no piece.

    cut : int
        So many characters are taken from the beginning of a right piece when it is merged.

    Returns
    -------
    list of str
        The pieces that are left.
    """
    end = len(pieces)
    following = list(range(1, end + 1))
    preceding = list(range(-1, end - 1))
    turn = priorities.get
    heap = []
    for left in range(end - 1):
        pair = pieces[left] + separator + pieces[left + 1]
        priority = turn(pair)
        if priority is not None:
            heap.append((priority, left, pair))
    heapify(heap)
    while heap:
        _, left, pair = heappop(heap)
        right = following[left]
        if right == end or not pieces[left] or pieces[left] + separator + pieces[right] != pair:
            continue  # one of the two was merged with another since
        pieces[left] += pieces[right][cut:]
        pieces[right] = ""
        after = following[left] = following[right]
        if after < end:
            preceding[after] = left
        for first, second in ((preceding[left], left), (left, after)):
            if first >= 0 and second < end:
                pair = pieces[first] + separator + pieces[second]
                priority = turn(pair)
                if priority is not None:
                    heappush(heap, (priority, first, pair))
    return [piece for piece in pieces if piece]
