"""Pooling: MaxPool, AveragePool, LpPool, their global forms, MaxUnpool.

A maximum or a sum over a window is computed one axis after the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from halfbyte.core.ops.reduce import mean_of
from halfbyte.errors import ProgramError
from halfbyte.onnx.reference import _shapes
from halfbyte.onnx.reference._numbers import Array, fitting, rounded, widened
from halfbyte.onnx.reference._windows import (
    Window,
    counts,
    make_window,
    padded,
    padding,
    per_axis,
    shifted,
    slid,
)  # fmt: skip
from halfbyte.onnx.reference.reduction import lowest
from halfbyte.onnx.reference.registry import define


def _over_windows(
    x: Array, window: Window, results: tuple[int, ...], combine: Callable[..., Any]
) -> Array:
    """A padded tensor combined over each window, axis by axis: [N, C, results...]."""
    for axis, count in enumerate(results):
        result = x[shifted(axis, 0, count, window)].copy()
        for tap in range(1, window.kernel[axis]):
            combine(result, x[shifted(axis, tap, count, window)], out=result)
        x = result
    return x


def _pooling(
    x: Array, kernel_shape: Sequence[int], strides: Sequence[int] | None,
    dilations: Sequence[int] | None, pads: Sequence[int] | None, auto_pad: str, ceil_mode: int,
) -> tuple[Window, tuple[int, ...]]:  # fmt: skip
    """The window, and the number of windows along each axis."""
    if x.ndim < 3:
        raise ProgramError(f"input {list(x.shape)}: expected [N, C, D...]")
    window = make_window(x.shape[2:], kernel_shape, strides, dilations, pads, auto_pad)
    ceil = bool(ceil_mode) and auto_pad == "NOTSET"
    results = counts(x.shape[2:], window, ceil, partial=True)
    fitting((*x.shape[:2], *results), 8)
    return window, results


def pooled(
    x: Array, *, kernel_shape: Sequence[int], auto_pad: str = "NOTSET", ceil_mode: int = 0,
    dilations: Sequence[int] | None = None, pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None, outputs: int = 1, **attributes: Any,
) -> _shapes.Shapes:  # fmt: skip
    """Shapes of a pool's results."""
    _, results = _pooling(x, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    shape = (*x.shape[:2], *results)
    return shape if outputs == 1 else [shape, shape]


@define("MaxPool", since=1, infer=_shapes.alike(pooled))
def max_pool(
    x: Array,
    *,
    kernel_shape: Sequence[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    storage_order: int = 0,
    strides: Sequence[int] | None = None,
    outputs: int = 1,
) -> Array | tuple[Array, Array]:
    """The largest element of each window, and its index. ONNX MaxPool-1, -8, -10, -11, -12, -22.

    Returns
    -------
    y : [N, C, results...]
    indices : int64, of the same shape
        Into the flattened x, in which the last spatial axis is fastest, or the first with
        storage_order 1. The first of equal elements counts.
    """
    window, results = _pooling(x, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    fill = lowest(x.dtype)
    wide = padded(x, window, results, fill)
    if outputs == 1:
        return _over_windows(wide, window, results, np.maximum)
    sizes = x.shape[2:]
    ordered = sizes[::-1] if storage_order else sizes
    plane: Array = np.arange(math.prod(sizes), dtype=np.int64).reshape(ordered)
    plane = plane.transpose() if storage_order else plane
    places = padded(plane[None, None], window, results, -1)
    values, taps = slid(wide, window, results), slid(places, window, results)
    y = np.full((*x.shape[:2], *results), fill, x.dtype)
    indices = np.full(y.shape, -1, np.int64)
    for index in np.ndindex(*window.kernel):
        value, place = values[(..., *index)], taps[(..., *index)]
        better = (place >= 0) & ((value > y) | (indices < 0))
        y = np.where(better, value, y)
        indices = np.where(better, place, indices)
    starts = np.arange(math.prod(x.shape[:2])).reshape(*x.shape[:2], *[1] * len(sizes))
    return y, indices + starts * math.prod(sizes)


def _populations(
    sizes: Sequence[int], window: Window, results: Sequence[int], with_padding: bool
) -> Array:
    """Number of elements that count in each window: [results...]."""
    result: Array = np.ones((), np.int64)
    for axis, (size, count) in enumerate(zip(sizes, results, strict=True)):
        begin, end = window.begins[axis], window.ends[axis]
        starts = np.arange(count) * window.strides[axis] - begin
        taps = starts[:, None] + np.arange(window.kernel[axis]) * window.dilations[axis]
        low, high = (-begin, size + end) if with_padding else (0, size)
        inside = ((taps >= low) & (taps < high)).sum(axis=1)
        result = result[..., None] * inside
    return result


@define("AveragePool", since=1, infer=_shapes.alike(pooled))
def average_pool(
    x: Array,
    *,
    kernel_shape: Sequence[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Array:
    """The mean of each window's elements, with count_include_pad those of the padding too.

    Elements that ceil_mode adds after the padding never count. ONNX AveragePool-1, -7, -10, -11,
    -19, -22.
    """
    window, results = _pooling(x, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    wide = padded(widened(x), window, results, 0)
    sums = _over_windows(wide, window, results, np.add)
    among = _populations(x.shape[2:], window, results, bool(count_include_pad))
    return rounded(sums / np.maximum(among, 1).astype(sums.dtype), x.dtype)


@define("LpPool", since=1, infer=_shapes.alike(pooled))
def lp_pool(
    x: Array,
    *,
    kernel_shape: Sequence[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Sequence[int] | None = None,
    p: float = 2,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Array:
    """(sum of |x|^p over each window)^(1/p). ONNX LpPool-1, -2, -11, -18, -22."""
    window, results = _pooling(x, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    powers = padded(np.abs(widened(x)) ** p, window, results, 0)
    return rounded(_over_windows(powers, window, results, np.add) ** (1 / p), x.dtype)


def _spatial(x: Array) -> tuple[int, ...]:
    if x.ndim < 3:
        raise ProgramError(f"input {list(x.shape)}: expected [N, C, D...]")
    return tuple(range(2, x.ndim))


@define("GlobalMaxPool", infer=_shapes.by_channel)
def global_max_pool(x: Array) -> Array:
    """The largest element of each channel: [N, C, 1...]. ONNX GlobalMaxPool-1, -22."""
    return np.asarray(x.max(axis=_spatial(x), keepdims=True))


@define("GlobalAveragePool", infer=_shapes.by_channel)
def global_average_pool(x: Array) -> Array:
    """The mean of each channel: [N, C, 1...]. ONNX GlobalAveragePool-1, -22."""
    return rounded(mean_of(widened(x), _spatial(x)), x.dtype)


@define("GlobalLpPool", infer=_shapes.by_channel)
def global_lp_pool(x: Array, *, p: float = 2) -> Array:
    """(sum of |x|^p over each channel)^(1/p): [N, C, 1...]. ONNX GlobalLpPool-1, -2, -22."""
    sums = (np.abs(widened(x)) ** p).sum(axis=_spatial(x), keepdims=True)
    return rounded(sums ** (1 / p), x.dtype)


def _unpooled_sizes(
    x: Array, kernel_shape: Sequence[int], pads: Sequence[int] | None, strides: Sequence[int] | None
) -> tuple[int, ...]:
    """The shape that MaxPool with these attributes made x from."""
    rank = x.ndim - 2
    begins, ends = padding(pads, rank)
    steps = per_axis(strides, rank, 1, "strides")
    kernel = per_axis(kernel_shape, rank, 1, "kernel_shape")
    spans = zip(x.shape[2:], steps, kernel, begins, ends, strict=True)
    sizes = [(d - 1) * step + k - begin - end for d, step, k, begin, end in spans]
    return fitting((*x.shape[:2], *sizes), x.dtype.itemsize)


def _unpooled(
    x: Array, indices: Array, output_shape: Array | None = None, *, kernel_shape: Sequence[int],
    pads: Sequence[int] | None = None, strides: Sequence[int] | None = None,
) -> _shapes.Shape:  # fmt: skip
    if output_shape is not None:
        return fitting(output_shape, x.dtype.itemsize)
    return _unpooled_sizes(x, kernel_shape, pads, strides)


@define("MaxUnpool", since=9, decided_by=(2,), infer=_shapes.alike(_unpooled))
def max_unpool(
    x: Array,
    indices: Array,
    output_shape: Array | None = None,
    *,
    kernel_shape: Sequence[int],
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Array:
    """Elements put back where MaxPool took them from, zero elsewhere.

    Indices refer to the size that MaxPool's attributes give, (D - 1) * stride + kernel - pads; a
    larger output_shape has these elements at its beginning. ONNX MaxUnpool-9, -11, -22.
    """
    if indices.shape != x.shape:
        raise ProgramError(f"indices {list(indices.shape)}: expected the input's {list(x.shape)}")
    shape = _unpooled_sizes(x, kernel_shape, pads, strides)
    count = math.prod(shape)
    if indices.size and not 0 <= int(indices.min()) <= int(indices.max()) < count:
        raise ProgramError(f"index {int(indices.min())} or {int(indices.max())}: 0 to {count - 1}")
    y = np.zeros(count, x.dtype)
    y[indices.reshape(-1)] = x.reshape(-1)
    y = y.reshape(shape)
    if output_shape is None:
        return y
    wanted = fitting(output_shape, x.dtype.itemsize)
    if len(wanted) != x.ndim or any(a < b for a, b in zip(wanted, shape, strict=True)):
        raise ProgramError(f"output_shape {list(wanted)}: expected at least {list(shape)}")
    return np.pad(y, [(0, a - b) for a, b in zip(wanted, shape, strict=True)])
