"""Rules of Resize, Upsample and GridSample over one to three spatial axes, with channels last."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from halfbyte.core import ops
from halfbyte.core.buffer import Buffer
from halfbyte.core.dtypes import DTYPES
from halfbyte.core.ops.pool import PADDINGS
from halfbyte.onnx.capture import Capture
from halfbyte.onnx.lowering.registry import MICROSOFT, lower
from halfbyte.onnx.reference.interpolation import TAPS
from halfbyte.onnx.reference.resize import (
    MODES,
    Axis,
    Method,
    copied,
    described,
    nearest_elements,
    simply_described,
    weights_of,
)
from halfbyte.onnx.sizes import is_named
from halfbyte.onnx.values import Array, Operand, Value, key_of, sizes_of

_TOGETHER = 4  # weights of a result along an axis, up to which two axes are interpolated at once
_BLANK = np.zeros((), np.float32)


@lower("Resize")
def resize(c: Capture, x: Value, *inputs: Operand, **attributes: Any) -> Value | None:
    """Resizes by constants: nearest elements of any type, and interpolation of float32."""
    arrays = _constants(inputs)
    if arrays is None:
        return None
    how = simply_described if c.version < 11 else described
    return _resized(c, x, *how(_blank(x), *arrays, **attributes))


@lower("Upsample")
def upsample(
    c: Capture, x: Value, given: Operand = None, *, scales: Sequence[float] | None = None,
    mode: str = "nearest",
) -> Value | None:  # fmt: skip
    """The same under its older name, with scales as an input or as an attribute."""
    if isinstance(given, Value) or (given is None) == (scales is None):
        return None
    factors = np.asarray(scales, np.float32) if given is None else given
    return _resized(c, x, *simply_described(_blank(x), factors, mode=MODES.get(mode, mode)))


def _constants(inputs: Sequence[Operand]) -> list[Any] | None:
    """The inputs, if none of them is computed."""
    arrays = [v for v in inputs if not isinstance(v, Value)]
    return arrays if len(arrays) == len(inputs) else None


def _blank(x: Value) -> Array:
    """An array of x's shape without memory of its own."""
    return np.broadcast_to(_BLANK, x.shape)


def _resized(c: Capture, x: Value, axes: Sequence[Axis], method: Method) -> Value | None:
    """Spatial axes resized two at a time; None where another axis is."""
    if method.mode not in ("nearest", "linear", "cubic"):
        return None
    if copied(axes, method):
        return x
    rank = len(x.shape)
    targets = [axis.target for axis in axes]
    if rank not in (3, 4, 5) or not x.size or not math.prod(targets):
        return None
    if not (axes[0].same and axes[1].same) or method.transformation == "tf_crop_and_resize":
        return None
    if method.mode != "nearest" and x.dtype != "f32":
        return None
    c.allow(targets, x.numpy)
    buffer, spatial = c.channels_last(x), list(axes[2:])
    n, *sizes, channels = sizes_of(buffer)
    if len(spatial) == 1:
        spatial, sizes = [_kept(1), *spatial], [1, *sizes]
    last, (down, across) = sizes[:-2], spatial[-2:]
    images = n * math.prod(last)
    y = _plane(c, buffer.view((images, *sizes[-2:], channels)), down, across, method)
    if last:
        area = down.target * across.target
        volume = y.view((n, *last, area, channels))
        y = _plane(c, volume, spatial[0], _kept(area), method)
    return c.value_channels_last(y.view((n, *targets[2:], channels)))


def _kept(size: int) -> Axis:
    return Axis(size, size, 1.0)


def _plane(c: Capture, x: Buffer, down: Axis, across: Axis, method: Method) -> Buffer:
    """Images [n, rows, columns, channels] with both axes resized."""
    if down.same and across.same:
        return x
    if method.mode == "nearest":
        return _chosen(c, x, down, across, method)
    tables = [_table(axis, method) for axis in (down, across)]
    widths = [index.shape[1] for index, _ in tables]
    if max(widths) > _TOGETHER and min(widths) > 1:
        x = _plane(c, x, down, _kept(across.size), method)
        return _plane(c, x, _kept(down.target), across, method)
    operands = []
    for index, weight in tables:
        padding = ((0, 0), (0, max(widths) - index.shape[1]))
        operands.append(c.constant(np.pad(index, padding).astype(np.int32)))
        operands.append(c.constant(np.pad(weight, padding).astype(np.float32)))
    y: Buffer = ops.resize_linear(x, *operands)
    return y


def _table(axis: Axis, method: Method) -> tuple[Array, Array]:
    """Elements and weights of each result along an axis: [target, taps]."""
    if axis.same:
        return np.arange(axis.size)[:, None], np.ones((axis.size, 1))
    return weights_of(axis, method)


def _chosen(c: Capture, x: Buffer, down: Axis, across: Axis, method: Method) -> Buffer:
    """Elements of any type, moved as bytes."""
    shape, wide = sizes_of(x), DTYPES[x.dtype].itemsize
    places = [
        np.arange(axis.size) if axis.same else nearest_elements(axis, method)
        for axis in (down, across)
    ]
    rows, columns = (c.constant(place.astype(np.int32)) for place in places)
    as_bytes = x.view((*shape[:3], shape[3] * wide), "i8")
    y: Buffer = ops.resize_nearest(as_bytes, rows, columns)
    return y.view((shape[0], down.target, across.target, shape[3]), x.dtype)


@lower("GridSample")
@lower("GridSample", domain=MICROSOFT)
def grid_sample(
    c: Capture, x: Value | Array, grid: Value | Array, *, align_corners: int = 0,
    mode: str = "linear", padding_mode: str = "zeros",
) -> Value | None:  # fmt: skip
    """Images of float32 of one to three spatial axes, at the positions of a grid."""
    rank, taps = len(x.shape) - 2, TAPS.get(mode)
    if key_of(x) != "f32" or key_of(grid) != "f32" or taps is None or not 1 <= rank <= 3:
        return None
    results = grid.shape[1:-1]
    if len(grid.shape) != rank + 2 or padding_mode not in PADDINGS:
        return None
    if any(map(is_named, (*x.shape, *results))) or 0 in (*x.shape, *results):
        return None
    c.allow((*x.shape[:2], *results), x.numpy if isinstance(x, Value) else x.dtype)
    image = c.channels_last(x if isinstance(x, Value) else c.value(c.constant(x)))
    n, *sizes, channels = sizes_of(image)
    y = ops.grid_sample(
        image.view((n, *[1] * (3 - rank), *sizes, channels)),
        c.plain(grid).view((n, math.prod(results), rank)),
        taps=taps, padding=PADDINGS.index(padding_mode), align_corners=int(align_corners != 0),
    )  # fmt: skip
    return c.value_channels_last(y.view((n, *results, channels)))
