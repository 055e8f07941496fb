"""Scratch buffers and windows whose lifetimes do not meet share memory in one arena.

Buffers are placed by size, the largest first, each at the lowest offset that is free during its
whole life (greedy by size; Pisarchyk and Lee 2020, Efficient Memory Management for Deep Neural
Net Inference).
"""

from __future__ import annotations

from bisect import insort
from typing import NamedTuple

from halfbyte.program import SHARED, Buffer, Program

ALIGNMENT = 64


class _Life(NamedTuple):
    first: int
    last: int


def plan_memory(program: Program) -> Program:
    """Give every scratch buffer and window a place in the program's arena."""
    planned = program.rewritten(program.instructions)
    placed: list[tuple[int, int, _Life]] = []  # offset, end, life; in this order
    lives = _lifetimes(program)
    for buffer in sorted(lives, key=lambda b: -b.nbytes):
        life = lives[buffer]
        size = -(-buffer.nbytes // ALIGNMENT) * ALIGNMENT
        offset = 0
        for start, end, other in placed:
            if other.last < life.first or life.last < other.first:
                continue
            if start - offset >= size:
                break
            offset = max(offset, end)
        insort(placed, (offset, offset + size, life))
        planned.places[buffer] = offset
        planned.arena_bytes = max(planned.arena_bytes, offset + size)
    return planned


def _lifetimes(program: Program) -> dict[Buffer, _Life]:
    """First and last instruction that touches each of these buffers."""
    lives: dict[Buffer, _Life] = {}
    for number, instruction in enumerate(program.instructions):
        for buffer in (b.root for b in (*instruction.inputs, *instruction.outputs)):
            if buffer.kind in SHARED:
                first = lives[buffer].first if buffer in lives else number
                lives[buffer] = _Life(first, number)
    return lives
