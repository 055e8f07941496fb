"""Reductions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.core.ops.operator import operator

Array = npt.NDArray[Any]
F32 = npt.NDArray[np.float32]

REDUCTIONS: dict[str, Callable[..., Any]] = {
    "sum": np.sum,
    "mean": np.mean,
    "max": np.max,
    "min": np.min,
}


def mean_of(x: Array, axes: int | tuple[int, ...] | None, *, keepdims: bool = True) -> Array:
    """Means over axes in x's type; NaN if there are no elements."""
    over = range(x.ndim) if axes is None else np.atleast_1d(np.asarray(axes, np.int64))
    count = math.prod(x.shape[axis] for axis in over)
    total = np.asarray(x.sum(axis=axes, keepdims=keepdims))
    mean: Array = np.true_divide(total, np.int64(count)).astype(total.dtype)
    return mean


@operator(
    "Reduce",
    "x:f32[a,b,c] -> y:f32[a,c]",
    operations=lambda d: d["a"] * d["b"] * d["c"],
    variant=lambda attributes: str(attributes["function"]),
)
def reduce(x: F32, *, function: str) -> F32:
    """y[i, k] = sum, mean, max or min over j of x[i, j, k].

    Source: ONNX ReduceSum, ReduceMean, ReduceMax, ReduceMin.
    """
    y: F32 = REDUCTIONS[function](x, axis=1).astype(np.float32)
    return y
