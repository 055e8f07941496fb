"""Walks over tensors in row-major order, and the plans of `ops.move` and `ops.binary` for them.

A walk is a list of dimensions of the result, outer ones first: (size, stride of each operand).
Adjacent dimensions that are contiguous for every operand are joined. Of the remaining ones, the
last is the row, and up to four others are the plan.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from halfbyte.core.ops.elementwise import PLAN_DIMS

Dimension = tuple[int, tuple[int, ...]]  # size; stride of each operand, in elements


def row_major(shape: Sequence[int]) -> list[int]:
    """Strides of a contiguous tensor, in elements."""
    return [math.prod(shape[i + 1 :]) for i in range(len(shape))]


def broadcast(shape: Sequence[int], result: Sequence[int]) -> list[int]:
    """Strides of a contiguous tensor that is broadcast to the shape of a result."""
    missing = len(result) - len(shape)
    strides = row_major(shape)
    return [0] * missing + [
        0 if size == 1 else stride for size, stride in zip(shape, strides, strict=True)
    ]


def joined(walk: Sequence[Dimension], operands: int) -> list[Dimension]:
    """The same walk with as few dimensions as possible, at least one."""
    dimensions: list[Dimension] = []
    for size, strides in walk:
        if size == 1:
            continue
        if dimensions:
            outer_size, outer = dimensions[-1]
            if all(o == size * s for o, s in zip(outer, strides, strict=True)):
                dimensions[-1] = outer_size * size, strides
                continue
        dimensions.append((size, strides))
    return dimensions or [(1, (1,) * operands)]


def planned(
    walk: Sequence[Dimension], operands: int
) -> tuple[list[int], tuple[int, tuple[int, ...]]] | None:
    """The numbers of a plan, and the row's dimension; None if a plan cannot hold the walk."""
    *outer, row = joined(walk, operands)
    if len(outer) > PLAN_DIMS:
        return None
    padded: list[Dimension] = [(1, (0,) * operands)] * (PLAN_DIMS - len(outer)) + outer
    plan = [size for size, _ in padded]
    for operand in range(operands):
        plan += [strides[operand] for _, strides in padded]
    limit = 2**31 - 1
    return (plan, row) if max(map(abs, plan)) <= limit and row[0] <= limit else None
