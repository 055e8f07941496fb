"""Rules of nodes that move elements: transpositions, slices, concatenations and gathers.

Elements of four and eight bytes are moved as one or two 32-bit words.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from halfbyte.core import ops
from halfbyte.core.buffer import Buffer
from halfbyte.core.dtypes import DTYPES
from halfbyte.onnx.capture import Capture
from halfbyte.onnx.lowering.registry import lower
from halfbyte.onnx.lowering.strides import Dimension, broadcast, joined, planned, row_major
from halfbyte.onnx.lowering.tables import embedded
from halfbyte.onnx.reference.arrays import axes_of, axis_of
from halfbyte.onnx.sized_nodes import bounds
from halfbyte.onnx.sizes import broadcast_shapes
from halfbyte.onnx.values import (
    Array,
    Operand,
    Value,
    ints,
    is_channels_last,
    key_of,
    shape_of,
    sizes_of,
)


def element_words(value: Value) -> int:
    """How many 32-bit words an element has: 1 or 2; 0 for other sizes."""
    size = value.numpy.itemsize
    return size // 4 if size in (4, 8) else 0


def moved(
    c: Capture, x: Value, shape: Sequence[int], strides: Sequence[int], offset: int = 0
) -> Value | None:
    """A value of a shape with the elements of x at these strides, in elements."""
    wide = element_words(x)
    if not wide or not math.prod(shape) or not x.size:
        return None
    walk: list[Dimension] = [(d, (s * wide,)) for d, s in zip(shape, strides, strict=True)]
    planned_walk = planned([*walk, (wide, (1,))], 1)
    if planned_walk is None:
        return None
    plan, (d, (step,)) = planned_walk
    n = math.prod(shape) * wide
    y: Buffer = ops.move(
        c.plain(x).view((x.size * wide,), "i32"), c.plan(plan),
        n=n, d=d, step=step, offset=offset * wide,
    )  # fmt: skip
    return c.value(y.view(tuple(shape), x.dtype))


Part = tuple[int, int, int]  # first element, step, and number of elements along an axis


def sliced(c: Capture, x: Value, parts: Sequence[Part]) -> Value | None:
    """Elements at equal distances along each axis, in the form that x has."""
    if all(part == (0, 1, size) for part, size in zip(parts, x.shape, strict=True)):
        return x
    buffer, order = x.origin()
    steps = row_major(sizes_of(buffer))
    shape, strides, offset = [1] * len(order), [0] * len(order), 0
    for axis, (first, step, count) in zip(order, parts, strict=True):
        shape[axis], strides[axis] = count, step * steps[axis]
        offset += first * steps[axis]
    whole = Value(x.dtype, sizes_of(buffer), plain=buffer)
    part = moved(c, whole, shape, strides, offset)
    if part is None:
        return None
    return c.ordered(c.plain(part), order, last=is_channels_last(x))


def along(shape: Sequence[int], axis: int, part: Part) -> list[Part]:
    """A part of one axis, and all of the others."""
    return [part if i == axis else (0, 1, size) for i, size in enumerate(shape)]


@lower("Transpose")
def transpose(c: Capture, x: Value, *, perm: list[int] | None = None) -> Value | None:
    """Dimensions in another order; elements are moved only when a reader needs it."""
    rank = len(x.shape)
    order = list(perm) if perm is not None else list(reversed(range(rank)))
    return c.transposed(x, order) if sorted(order) == list(range(rank)) else None


def permuted(c: Capture, buffer: Buffer, order: Sequence[int]) -> Buffer | None:
    """The elements of a buffer with its dimensions in another order."""
    shape = sizes_of(buffer)
    strides = row_major(shape)
    if (transposed := _transposed(buffer, shape, order)) is not None:
        return transposed
    value = Value(buffer.dtype, shape, plain=buffer)
    result = moved(c, value, [shape[i] for i in order], [strides[i] for i in order])
    return None if result is None else result.plain


def _transposed(buffer: Buffer, shape: tuple[int, ...], order: Sequence[int]) -> Buffer | None:
    """`permuted` where two adjacent groups of dimensions at the end are swapped."""
    key = {1: "i8", 4: "i32"}.get(DTYPES[buffer.dtype].itemsize)
    strides = row_major(shape)
    walk = joined([(shape[i], (strides[i],)) for i in order], 1)
    if key is None or len(walk) not in (2, 3) or not math.prod(shape):
        return None
    *outer, (b, (near,)), (a, (far,)) = walk
    if near != 1 or far != b or any(stride != a * b for _, (stride,) in outer):
        return None
    n = math.prod(size for size, _ in outer)
    y: Buffer = ops.transpose(buffer.view((n, a, b), key))
    return y.view(tuple(shape[i] for i in order), buffer.dtype)


@lower("Expand")
def expand(c: Capture, x: Value, shape: Operand) -> Value | None:
    """x, broadcast to a shape."""
    if not isinstance(shape, np.ndarray):
        return None
    try:
        wanted = broadcast_shapes(x.shape, ints(shape))
    except ValueError:
        return None
    return x if wanted == x.shape else moved(c, x, wanted, broadcast(x.shape, wanted))


@lower("Slice")
def slice_(
    c: Capture, x: Value, begin: Operand = None, end: Operand = None, along: Operand = None,
    by: Operand = None, *, starts: list[int] | None = None, ends: list[int] | None = None,
    axes: list[int] | None = None,
) -> Value | None:  # fmt: skip
    """A part of x with constant bounds; steps may be negative."""
    if isinstance(begin, Value) or isinstance(end, Value):
        return None
    if isinstance(along, Value) or isinstance(by, Value):
        return None
    firsts = starts if begin is None else ints(begin)
    lasts = ends if end is None else ints(end)
    if firsts is None or lasts is None:
        return None
    chosen = axes if along is None else ints(along)
    steps = [1] * len(firsts) if by is None else ints(by)
    parts = [(0, 1, size) for size in x.shape]
    for axis, first, last, step in zip(
        axes_of(range(len(firsts)) if chosen is None else chosen, len(parts)),
        firsts,
        lasts,
        steps,
        strict=True,
    ):
        if not step:
            return None
        if step == 1:
            start, count = bounds(first, last, x.shape[axis])
        else:
            places = range(x.shape[axis])[slice(first, _last(last, x.shape[axis], step), step)]
            start, count = places.start, len(places)
        parts[axis] = (start, step, count)
    return sliced(c, x, parts)


def _last(last: int, size: int, step: int) -> int | None:
    """Python's end for ONNX's: with a negative step, one far below 0 includes the first element."""
    return None if step < 0 and last < -size else last


@lower("Split")
def split(
    c: Capture, x: Value, sizes: Operand = None, *, axis: int = 0, split: list[int] | None = None,
    num_outputs: int | None = None,
) -> tuple[Value, ...] | None:  # fmt: skip
    """The parts of x along an axis."""
    if isinstance(sizes, Value):
        return None
    axis = axis_of(axis, len(x.shape))
    total, count = x.shape[axis], len(c.node.outputs)
    parts = split if sizes is None else ints(sizes)
    if num_outputs not in (None, count) or (num_outputs and parts is not None):
        return None
    if parts is None:
        share = -(-total // count)
        if not num_outputs and total % count:
            return None
        parts = [share] * (count - 1) + [total - share * (count - 1)]
    if sum(parts) != total or len(parts) != count or min(parts) < 0:
        return None
    values, first = [], 0
    for part in parts:
        value = sliced(c, x, along(x.shape, axis, (first, 1, part)))
        if value is None:
            return None
        values.append(value)
        first += part
    return tuple(values)


@lower("Concat")
def concat(c: Capture, *parts: Value | Array, axis: int = 1) -> Value | None:
    """The parts side by side along an axis."""
    first = next(p for p in parts if isinstance(p, Value))
    rank = len(first.shape)
    axis = axis_of(axis, rank)
    if any(len(shape_of(p)) != rank or key_of(p) != first.dtype for p in parts):
        return None
    if not _most_channels_last(parts):
        return side_by_side(c, parts, axis)
    order = (0, *range(2, rank), 1)
    last = [
        c.value(c.channels_last(p))
        if isinstance(p, Value)
        else np.ascontiguousarray(p.transpose(order))
        for p in parts
    ]
    whole = side_by_side(c, last, order.index(axis))
    return None if whole is None else c.value_channels_last(c.plain(whole))


def _most_channels_last(parts: Sequence[Value | Array]) -> bool:
    """Whether most elements of computed parts have channels last only."""
    values = [p for p in parts if isinstance(p, Value)]
    last = sum(v.size for v in values if is_channels_last(v))
    return 2 * last > sum(v.size for v in values)


def side_by_side(c: Capture, parts: Sequence[Value | Array], axis: int) -> Value | None:
    """The parts, all of them in the order of their shapes, side by side along an axis."""
    first = next(p for p in parts if isinstance(p, Value))
    wide = element_words(first)
    if not wide:
        return None
    shape = list(first.shape)
    if any(shape_of(p)[:axis] + shape_of(p)[axis + 1 :] != (*shape[:axis], *shape[axis + 1 :])
           for p in parts):  # fmt: skip
        return None
    shape[axis] = sum(shape_of(p)[axis] for p in parts)
    if not math.prod(shape):
        return None
    outer, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 :]) * wide
    whole = c.program.scratch(first.dtype, tuple(shape))
    target = whole.view((outer, shape[axis] * inner), "i32")
    offset = 0
    for part in parts:
        width = shape_of(part)[axis] * inner
        if width:
            ops.concat_part(target, c.plain(part).view((outer, width), "i32"), offset=offset)
        offset += width
    return c.value(whole)


@lower("Gather")
def gather(c: Capture, x: Value | Array, ids: Value | Array, *, axis: int = 0) -> Value | None:
    """Elements of an axis at equal distances, as a part of x; rows of x or of a constant table."""
    if isinstance(x, np.ndarray) and isinstance(ids, Value):
        return embedded(c, x, ids) if axis in (0, -x.ndim) else None
    if not isinstance(x, Value) or isinstance(ids, Value) or not x.shape or ids.ndim > 1:
        return None
    axis = axis_of(axis, len(x.shape))
    size, places = x.shape[axis], ids.reshape(-1).astype(np.int64)
    if not len(places) or ((places < -size) | (places >= size)).any():
        return None
    places = np.where(places < 0, places + size, places)
    steps = set(np.diff(places).tolist()) or {1}
    if len(steps) != 1:
        return _rows_of(c, x, places, axis)
    part = sliced(c, x, along(x.shape, axis, (int(places[0]), steps.pop(), len(places))))
    if part is None or ids.ndim:
        return part
    return c.reshaped(part, [d for i, d in enumerate(x.shape) if i != axis])


def _rows_of(c: Capture, x: Value, places: Array, axis: int) -> Value | None:
    """Rows of x at any places of the first axis that has several."""
    inner = math.prod(x.shape[axis + 1 :])
    if x.dtype != "f32" or not inner or math.prod(x.shape[:axis]) != 1:
        return None
    rows = ops.gather(c.matrix(x, x.shape[axis], inner), c.constant(places.astype(np.int32)))
    return c.value(rows, (*x.shape[:axis], len(places), *x.shape[axis + 1 :]))
