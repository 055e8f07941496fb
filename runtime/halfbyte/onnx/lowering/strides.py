"""Which elements of a row-major tensor a result takes, as the plans of `ops.move` and `ops.binary`.

A walk over a result is a list of dimensions, outer ones first: (size, stride of each operand).
Neighbours that are one piece for every operand are joined; of what is left, the last dimension is
the row and up to four others are the plan.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from halfbyte.core.ops.elementwise import PLAN_DIMS

Dimension = tuple[int, tuple[int, ...]]  # size; stride of each operand, in elements


def row_major(shape: Sequence[int]) -> list[int]:
    """Strides of a tensor whose elements lie in order."""
    return [math.prod(shape[i + 1 :]) for i in range(len(shape))]


def broadcast(shape: Sequence[int], result: Sequence[int]) -> list[int]:
    """Strides over a result of a tensor that is broadcast to it."""
    missing = len(result) - len(shape)
    strides = row_major(shape)
    return [0] * missing + [
        0 if size == 1 else stride for size, stride in zip(shape, strides, strict=True)
    ]


def joined(walk: Sequence[Dimension], operands: int) -> list[Dimension]:
    """The same walk in as few dimensions as there can be, at least one."""
    made: list[Dimension] = []
    for size, strides in walk:
        if size == 1:
            continue
        if made:
            outer_size, outer = made[-1]
            if all(o == size * s for o, s in zip(outer, strides, strict=True)):
                made[-1] = outer_size * size, strides
                continue
        made.append((size, strides))
    return made or [(1, (1,) * operands)]


def planned(
    walk: Sequence[Dimension], operands: int
) -> tuple[list[int], tuple[int, tuple[int, ...]]] | None:
    """Numbers of a plan and the row's dimension; None where there are too many dimensions."""
    *outer, row = joined(walk, operands)
    if len(outer) > PLAN_DIMS:
        return None
    padded: list[Dimension] = [(1, (0,) * operands)] * (PLAN_DIMS - len(outer)) + outer
    plan = [size for size, _ in padded]
    for operand in range(operands):
        plan += [strides[operand] for _, strides in padded]
    limit = 2**31 - 1
    return (plan, row) if max(map(abs, plan)) <= limit and row[0] <= limit else None
