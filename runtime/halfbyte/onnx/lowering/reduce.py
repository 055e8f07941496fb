"""Rules of reductions and softmax."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from halfbyte.core import ops
from halfbyte.core.buffer import Buffer
from halfbyte.onnx.capture import Capture
from halfbyte.onnx.lowering.elementwise import apply, combine
from halfbyte.onnx.lowering.registry import lower
from halfbyte.onnx.reference.arrays import axes_of, axis_of
from halfbyte.onnx.values import Operand, Value, ints, is_channels_last

FEW = 8  # numbers of a row, up to which rows are reduced as columns
_FUNCTIONS = {
    "ReduceSum": "sum", "ReduceMean": "mean", "ReduceMax": "max", "ReduceMin": "min",
    "ReduceL2": "sum", "ReduceSumSquare": "sum",
}  # fmt: skip


@lower(*_FUNCTIONS)
def reduce(
    c: Capture, x: Value, over: Operand = None, *, axes: list[int] | None = None,
    keepdims: int = 1, noop_with_empty_axes: int = 0,
) -> Value | None:  # fmt: skip
    """Reductions of float32, also of squares, and the root of their sum."""
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
    if is_channels_last(x) and dropped in ([1], list(range(2, rank))):
        return _channels_last(c, x, dropped, keepdims)
    if not dropped:
        return None
    if dropped != list(range(dropped[0], dropped[-1] + 1)):
        left = [i for i in range(rank) if i not in dropped]
        parts = (math.prod(x.shape[i] for i in left), math.prod(x.shape[i] for i in dropped), 1)
        shape = [1 if i in dropped else x.shape[i] for i in (range(rank) if keepdims else left)]
        return _total(c, c.transposed(x, [*left, *dropped]), c.plain, parts, tuple(shape))
    first, last = dropped[0], dropped[-1] + 1
    parts = (math.prod(x.shape[:first]), math.prod(x.shape[first:last]), math.prod(x.shape[last:]))
    kept = [1] * (last - first) if keepdims else []
    return _total(c, x, c.plain, parts, (*x.shape[:first], *kept, *x.shape[last:]))


def _channels_last(c: Capture, x: Value, dropped: list[int], keepdims: int) -> Value | None:
    """A reduction over the channels of an image, which are last, or over all spatial axes."""
    n, channels, *between = x.shape
    pixels, kept = math.prod(between), [1] * len(dropped) if keepdims else []
    if dropped == [1]:
        return _total(c, x, c.channels_last, (n * pixels, channels, 1), (n, *kept, *between))
    return _total(c, x, c.channels_last, (n, pixels, channels), (n, channels, *kept))


def _total(
    c: Capture, x: Value, form: Callable[[Value], Buffer], parts: tuple[int, int, int],
    shape: tuple[int, ...],
) -> Value | None:  # fmt: skip
    """The node's reduction over the middle of three dimensions of a form of x."""
    kind = c.node.op_type
    terms = combine(c, "mul", x, x) if kind in ("ReduceL2", "ReduceSumSquare") else x
    if terms is None:
        return None
    buffer = form(terms)
    if parts[2] == 1 and parts[1] <= FEW:  # whole vectors of rows, instead of parts of a row
        columns = ops.transpose(buffer.view((1, *parts[:2]), "i32"))
        buffer, parts = columns.view(columns.shape, "f32"), (1, parts[1], parts[0])
    y = ops.reduce(buffer.view(parts), function=_FUNCTIONS[kind])
    total = c.value(y, shape)
    return apply(c, total, "sqrt") if kind == "ReduceL2" else total


@lower("Softmax")
def softmax(c: Capture, x: Value, *, axis: int | None = None, **attributes: Any) -> Value | None:
    """Softmax along an axis; before version 13, along all axes from one on."""
    rank = len(x.shape)
    if x.dtype != "f32" or not x.size or not rank:
        return None
    if c.version < 13:
        axis = 1 if axis is None else axis
        axis = axis_of(axis, rank)
        columns = math.prod(x.shape[axis:])
    else:
        axis = axis_of(-1 if axis is None else axis, rank)
        if axis < rank - 1:
            order = [i for i in range(rank) if i != axis] + [axis]
            last = softmax(c, c.transposed(x, order))
            return last and c.transposed(last, [order.index(i) for i in range(rank)])
        columns = x.shape[-1]
    return c.value(ops.softmax(c.matrix(x, x.size // columns, columns)), x.shape)
