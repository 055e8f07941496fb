"""Instructions that may run at the same time: neighbours that do not touch each other's results.

Threads meet after every instruction, which costs microseconds. Those that are independent, such as
the products of one input with several matrices, share one meeting.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

Range = tuple[int, int]  # of addresses: from, to

MAX_TOGETHER = 8  # instructions, each of which is compared with all others


class Accesses(NamedTuple):
    """The memory that an instruction reads and writes."""

    reads: Sequence[Range]
    writes: Sequence[Range]

    def independent_of(self, other: Accesses) -> bool:
        """Whether the two may run in any order, or at the same time."""
        return not (
            _overlap(self.reads, other.writes)
            or _overlap(self.writes, other.reads)
            or _overlap(self.writes, other.writes)
        )


def followers(accesses: Iterable[Accesses | None]) -> list[int]:
    """How many instructions after each may run at the same time as it.

    None stands for an instruction that has to run by itself.
    """
    counts: list[int] = []
    group: list[Accesses] = []
    for one in accesses:
        fits = one is not None and all(one.independent_of(other) for other in group)
        if not fits or len(group) == MAX_TOGETHER:
            group = []
        if one is not None:
            group.append(one)
        counts.append(0)
        for before in range(2, len(group) + 1):
            counts[-before] += 1
    return counts


def _overlap(some: Sequence[Range], others: Sequence[Range]) -> bool:
    return any(a[0] < b[1] and b[0] < a[1] for a in some for b in others)
