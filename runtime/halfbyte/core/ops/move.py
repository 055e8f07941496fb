"""Moves of elements of four bytes, whatever their type."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from halfbyte.core.ops.demands import planned
from halfbyte.core.ops.elementwise import PLAN_DIMS, strided
from halfbyte.core.ops.operator import operator

I32 = npt.NDArray[np.int32]


@operator(
    "Transpose",
    "x:i32[m] plan:i32[8] -> y:i32[n]",
    reads={"plan": lambda d: 0, "x": lambda d: -(-d["n"] // d["m"])},
    demands={
        "a constant plan": lambda d: "plan" in d,
        "d of 1 and more and n = d sizes": lambda d: (
            d["d"] >= 1 and d["n"] == d["d"] * math.prod(d["plan"][:PLAN_DIMS].tolist())
        ),
        "offset, plan, d and step inside of x: m": lambda d: planned(
            d, d["m"], d["offset"], d["plan"][PLAN_DIMS:], d["step"]
        ),
    },
)
def move(x: I32, plan: I32, *, n: int, d: int, step: int, offset: int) -> I32:
    """y = elements of x by strides: permuted dimensions, slices, repetitions.

    y has n elements in rows of d. Rows have four outer dimensions, whose sizes and strides are in
    `plan`; the first element is x[offset], and x advances by `step` along a row.

    Source: ONNX Transpose, Slice, Split, Expand.
    """
    y: I32 = strided(x[offset:], plan, plan[PLAN_DIMS:], n, d, step)
    return y


@operator(
    "Concat",
    "y:i32[n,t] x:i32[n,d] -> y:i32[n,t]",
    reads={"y": lambda d: 0},
    demands={
        "0 <= offset <= t - d": lambda d: 0 <= d["offset"] <= d["t"] - d["d"],
    },
)
def concat_part(y: I32, x: I32, *, offset: int) -> I32:
    """Write x to the columns of y from `offset` on, in place. Source: ONNX Concat."""
    y[:, offset : offset + x.shape[1]] = x
    return y
