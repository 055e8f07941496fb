"""Convolutions and pools over three spatial axes, as those over two.

A kernel that is flat along the first axis sees images; one that is flat along the others sees rows
of planes; any other has the planes that it needs side by side as channels.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from halfbyte.core import ops
from halfbyte.core.buffer import Buffer
from halfbyte.onnx.capture import Capture
from halfbyte.onnx.lowering.move import concat, moved
from halfbyte.onnx.lowering.strides import row_major
from halfbyte.onnx.reference._windows import Window, counts
from halfbyte.onnx.sizes import is_named
from halfbyte.onnx.values import Array, Value, sizes_of

Limits = dict[str, float]


def volume_conv(
    c: Capture, x: Buffer, w: Array, bias: Buffer, r: Buffer | None, window: Window, group: int,
    limits: Limits,
) -> Buffer | None:  # fmt: skip
    """`ops.conv2d` for x [n, depth, rows, columns, c] and r, y [n, ..., m]; w is as in ONNX."""
    n, depth, rows, columns, channels = sizes_of(x)
    sizes = counts((depth, rows, columns), window)
    m = w.shape[0]
    if _flat(window, 1) and _flat(window, 2):
        image, kernel = x.view((n, depth, rows * columns, channels)), w.reshape(*w.shape[:3], 1)
        plane, results = Planar(window, 0, None), (n, sizes[0], rows * columns)
    else:
        planes = x
        if not _flat(window, 0):
            stacked = _stacked(c, x, window, sizes[0], group)
            if stacked is None:
                return None
            planes = stacked
        channels = int(planes.shape[4])  # type: ignore[arg-type]
        image = planes.view((n * sizes[0], rows, columns, channels))
        kernel = np.moveaxis(w, 2, 1).reshape(m, -1, *w.shape[3:])
        plane, results = Planar(window, 1, 2), (n * sizes[0], sizes[1], sizes[2])
    packed = c.constant(ops.pack_kernels(np.ascontiguousarray(kernel), group))
    operands = [image, packed, bias, *([] if r is None else [r.view((*results, m))])]
    y: Buffer = ops.conv2d(
        *operands, groups=group, p=results[1], q=results[2], **plane.attributes, **limits
    )
    return y.view((n, *sizes, m))


def volume_pool(x: Buffer, window: Window, sizes: Sequence[int]) -> Buffer:
    """`ops.max_pool` for x [n, depth, rows, columns, c]: over planes, then over their rows."""
    n, depth, rows, columns, channels = sizes_of(x)
    y: Buffer = x
    if not (_flat(window, 1) and _flat(window, 2)):
        images = y.view((n * depth, rows, columns, channels))
        y = image_pool(images, {"p": sizes[1], "q": sizes[2], **Planar(window, 1, 2).attributes})
    if not _flat(window, 0):
        area = sizes[1] * sizes[2]
        lines = y.view((n, depth, area, channels))
        y = ops.max_pool(lines, p=sizes[0], q=area, **Planar(window, 0, None).attributes)
    return y.view((n, *sizes, channels))


def image_pool(x: Buffer, window: dict[str, int]) -> Buffer:
    """`ops.max_pool`; maxima of large windows are those of columns of the maxima of rows."""
    _, rows, *_ = sizes_of(x)
    p, down, across = window["p"], window["kernel_h"], window["kernel_w"]
    if not is_named(rows) and 4 * (rows * (across + 2) + p * down) < 3 * p * down * across:
        only = {"kernel_h": 1, "stride_h": 1, "dilation_h": 1, "top": 0}
        x = ops.max_pool(x, **{**window, **only, "p": rows})
        window = {**window, "kernel_w": 1, "stride_w": 1, "dilation_w": 1, "left": 0}
    y: Buffer = ops.max_pool(x, **window)
    return y


class Planar:
    """A window over two axes of three, None for one that is only passed through."""

    def __init__(self, window: Window, down: int, across: int | None) -> None:
        names = ("kernel", "stride", "dilation")
        values = (window.kernel, window.strides, window.dilations)
        self.attributes = {"top": window.begins[down]}
        self.attributes["left"] = 0 if across is None else window.begins[across]
        for name, numbers in zip(names, values, strict=True):
            self.attributes[f"{name}_h"] = numbers[down]
            self.attributes[f"{name}_w"] = 1 if across is None else numbers[across]


def _flat(window: Window, axis: int) -> bool:
    """Whether a window passes an axis through."""
    numbers = (window.kernel[axis], window.strides[axis])
    return numbers == (1, 1) and not window.begins[axis] and not window.ends[axis]


def _stacked(c: Capture, x: Buffer, window: Window, count: int, group: int) -> Buffer | None:
    """[n, count, rows, columns, (group, tap, c / group)]: the planes of each result's window."""
    n, depth, rows, columns, channels = sizes_of(x)
    kernel, stride, dilation = (v[0] for v in (window.kernel, window.strides, window.dilations))
    first = window.begins[0]
    last = max((count - 1) * stride + (kernel - 1) * dilation + 1 - depth - first, 0)
    value: Value | None = c.value(x)
    if first or last:
        c.allow((n, first + depth + last, rows, columns, channels), np.dtype(np.float32))
        blanks = [np.zeros((n, k, rows, columns, channels), np.float32) for k in (first, last) if k]
        parts: list[Value | Array] = [c.value(x)]
        parts = [*blanks[: bool(first)], *parts, *blanks[bool(first) :]]
        value = concat(c, *parts, axis=1)
    if value is None:
        return None
    each = channels // group
    steps = row_major(value.shape)
    shape = (n, count, rows, columns, group, kernel, each)
    strides = [steps[0], stride * steps[1], steps[2], steps[3], each, dilation * steps[1], 1]
    stacked = moved(c, value, shape, strides)
    if stacked is None:
        return None
    return c.plain(stacked).view((n, count, rows, columns, channels * kernel))
