"""Scratch buffers and windows whose lifetimes do not meet share memory in one arena.

Buffers are placed by size, the largest first, each at the lowest offset that is free during its
whole life (greedy by size; Pisarchyk and Lee 2020, Efficient Memory Management for Deep Neural
Net Inference).
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from halfbyte.program import SHARED, Buffer, Instruction, Program

ALIGNMENT = 64


class Life(NamedTuple):
    """Numbers of instructions."""

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
    """Offsets of buffers of so many bytes in one arena, and the bytes of the arena."""
    taken: list[tuple[int, int, Life]] = []  # offset, end, life; in this order
    places, arena_bytes = {}, 0
    for buffer in sorted(sizes, key=lambda b: -sizes[b]):
        life = lives[buffer]
        size = -(-sizes[buffer] // ALIGNMENT) * ALIGNMENT
        offset = 0
        for start, end, other in taken:
            if other.last < life.first or life.last < other.first:
                continue
            if start - offset >= size:
                break
            offset = max(offset, end)
        insort(taken, (offset, offset + size, life))
        places[buffer] = offset
        arena_bytes = max(arena_bytes, offset + size)
    return places, arena_bytes


def lifetimes(instructions: Sequence[Instruction]) -> dict[Buffer, Life]:
    """First and last instruction that touches each scratch buffer and window."""
    lives: dict[Buffer, Life] = {}
    for number, instruction in enumerate(instructions):
        for buffer in (b.root for b in (*instruction.inputs, *instruction.outputs)):
            if buffer.kind in SHARED:
                first = lives[buffer].first if buffer in lives else number
                lives[buffer] = Life(first, number)
    return lives
