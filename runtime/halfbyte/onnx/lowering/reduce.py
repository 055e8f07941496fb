"""Rules of reductions and softmax."""

from __future__ import annotations

import math
from typing import Any

from halfbyte.core import ops
from halfbyte.onnx.capture import Capture
from halfbyte.onnx.lowering.elementwise import apply, combine
from halfbyte.onnx.lowering.registry import lower
from halfbyte.onnx.reference.arrays import axes_of, axis_of
from halfbyte.onnx.values import Operand, Value, ints

_FUNCTIONS = {
    "ReduceSum": "sum", "ReduceMean": "mean", "ReduceMax": "max", "ReduceMin": "min",
    "ReduceL2": "sum", "ReduceSumSquare": "sum",
}  # fmt: skip


@lower(*_FUNCTIONS)
def reduce(
    c: Capture, x: Value, over: Operand = None, *, axes: list[int] | None = None,
    keepdims: int = 1, noop_with_empty_axes: int = 0,
) -> Value | None:  # fmt: skip
    """Reductions of float32 over adjacent axes, also of squares, and the root of their sum."""
    kind = c.node.op_type
    if isinstance(over, Value) or x.dtype != "f32" or not x.size:
        return None
    chosen = axes if over is None else ints(over)
    rank = len(x.shape)
    if not chosen:
        if noop_with_empty_axes:
            return x if kind in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin") else None
        chosen = list(range(rank))
    dropped = sorted(axes_of(chosen, rank))
    if not dropped or dropped != list(range(dropped[0], dropped[-1] + 1)):
        return None
    first, last = dropped[0], dropped[-1] + 1
    parts = (math.prod(x.shape[:first]), math.prod(x.shape[first:last]), math.prod(x.shape[last:]))
    terms = combine(c, "mul", x, x) if kind in ("ReduceL2", "ReduceSumSquare") else x
    if terms is None:
        return None
    y = ops.reduce(c.plain(terms).view(parts), function=_FUNCTIONS[kind])
    kept = [1] * (last - first) if keepdims else []
    total = c.value(y, (*x.shape[:first], *kept, *x.shape[last:]))
    return apply(c, total, "sqrt") if kind == "ReduceL2" else total


@lower("Softmax")
def softmax(c: Capture, x: Value, *, axis: int | None = None, **attributes: Any) -> Value | None:
    """Softmax along the last axis; before version 13, along all axes from one on."""
    rank = len(x.shape)
    if x.dtype != "f32" or not x.size or not rank:
        return None
    if c.version < 13:
        axis = 1 if axis is None else axis
        axis = axis_of(axis, rank)
        columns = math.prod(x.shape[axis:])
    else:
        if axis not in (None, -1, rank - 1):
            return None
        columns = x.shape[-1]
    return c.value(ops.softmax(c.matrix(x, x.size // columns, columns)), x.shape)
