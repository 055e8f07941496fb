"""Plans memory: scratch buffers and windows with disjoint lifetimes share memory in one arena.

Buffers are placed by size, the largest first, each at the lowest offset that is free during its
lifetime (greedy by size; Pisarchyk and Lee 2020, Efficient Memory Management for Deep Neural Net
Inference). That takes quadratic time, so very many buffers are placed in the order of their
lifetimes instead, each in the smallest gap that holds it (best fit).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from halfbyte.core.buffer import SHARED, Buffer
from halfbyte.core.instruction import Instruction
from halfbyte.core.interrupt import step
from halfbyte.core.program import Program

ALIGNMENT = 64
MAX_BY_SIZE = 2048  # buffers; the largest models have some hundreds


class Life(NamedTuple):
    """Indices of the first and the last instruction that use a buffer."""

    first: int
    last: int


def plan_memory(program: Program) -> Program:
    """Give every scratch buffer and window a place in the program's arena."""
    planned = program.rewritten(program.instructions)
    lives = lifetimes(program.instructions)
    planned.places, planned.arena_bytes = placed({b: b.nbytes for b in lives}, lives)
    return planned


def placed(
    sizes: Mapping[Buffer, int], lives: Mapping[Buffer, Life]
) -> tuple[dict[Buffer, int], int]:
    """Offsets in one arena of buffers with these sizes in bytes, and the arena's size."""
    if len(sizes) > MAX_BY_SIZE:
        return _placed_in_time(sizes, lives)
    taken: list[tuple[int, int, int, int]] = []  # offset, end, life; in this order
    places, arena_bytes = {}, 0
    for buffer in sorted(sizes, key=lambda b: -sizes[b]):
        step()
        first, last = lives[buffer]
        size = _rounded(sizes[buffer])
        offset = 0
        for start, end, born, died in taken:
            if died < first or last < born:
                continue
            if start - offset >= size:
                break
            offset = max(offset, end)
        insort(taken, (offset, offset + size, first, last))
        places[buffer] = offset
        arena_bytes = max(arena_bytes, offset + size)
    return places, arena_bytes


def _placed_in_time(
    sizes: Mapping[Buffer, int], lives: Mapping[Buffer, Life]
) -> tuple[dict[Buffer, int], int]:
    """As `placed`, by simulating allocation while the program runs."""
    arena, places = _Arena(), dict[Buffer, int]()
    ending: dict[int, list[Buffer]] = {}
    for buffer in sorted(sizes, key=lambda b: lives[b].first):
        ending.setdefault(lives[buffer].last, []).append(buffer)
    ends = sorted(ending, reverse=True)
    for buffer in sorted(sizes, key=lambda b: lives[b].first):
        step()
        while ends and ends[-1] < lives[buffer].first:
            for gone in ending[ends.pop()]:
                arena.free(places[gone], _rounded(sizes[gone]))
        places[buffer] = arena.take(_rounded(sizes[buffer]))
    return places, arena.nbytes


class _Arena:
    """Memory that grows at its end; adjacent gaps are merged."""

    def __init__(self) -> None:
        self.nbytes = 0
        self._gaps: list[tuple[int, int]] = []  # size and offset, in order
        self._starts: dict[int, int] = {}  # offset -> size of a gap
        self._ends: dict[int, int] = {}  # its end -> its offset

    def take(self, size: int) -> int:
        """Allocate `size` bytes in the smallest gap that holds them, or at the end."""
        index = bisect_left(self._gaps, (size, -1))
        if index == len(self._gaps):
            self.nbytes += size
            return self.nbytes - size
        gap, offset = self._gaps[index]
        self._forget(offset)
        if gap > size:
            self._add(offset + size, gap - size)
        return offset

    def free(self, offset: int, size: int) -> None:
        """Free bytes."""
        if not size:
            return
        if offset + size in self._starts:
            size += self._forget(offset + size)
        if offset in self._ends:
            offset = self._ends[offset]
            size += self._forget(offset)
        self._add(offset, size)

    def _add(self, offset: int, size: int) -> None:
        insort(self._gaps, (size, offset))
        self._starts[offset], self._ends[offset + size] = size, offset

    def _forget(self, offset: int) -> int:
        size = self._starts.pop(offset)
        del self._ends[offset + size], self._gaps[bisect_left(self._gaps, (size, offset))]
        return size


def _rounded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def lifetimes(instructions: Sequence[Instruction]) -> dict[Buffer, Life]:
    """The lifetime of each scratch buffer and window."""
    lives: dict[Buffer, Life] = {}
    for number, instruction in enumerate(instructions):
        step()
        for buffer in (b.root for b in (*instruction.inputs, *instruction.outputs)):
            if buffer.kind in SHARED:
                first = lives[buffer].first if buffer in lives else number
                lives[buffer] = Life(first, number)
    return lives
