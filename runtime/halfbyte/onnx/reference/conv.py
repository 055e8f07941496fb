"""Convolutions: Conv, ConvInteger, QLinearConv.

A convolution is a matrix product of the filters [M, C/group * kernel] with columns
[C/group * kernel, results], one column per window, for some rows of the result at a time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from halfbyte.errors import ProgramError
from halfbyte.onnx.reference import _shapes
from halfbyte.onnx.reference._numbers import (
    Array,
    channels,
    fitting,
    per_channel,
    rounded,
    saturated,
    vector,
    widened,
)  # fmt: skip
from halfbyte.onnx.reference._windows import Window, counts, make_window, padded, slid
from halfbyte.onnx.reference.registry import define

COLUMNS = 1 << 22  # elements of the columns that are computed at a time


def convolve(x: Array, w: Array, window: Window, group: int) -> Array:
    """Y[n, m, i...] = sum over c, k... of W[m, c, k...] X[n, c, i * stride + k * dilation - pad].

    Parameters
    ----------
    x : [N, C, D...]
    w : [M, C / group, K...], of the same dtype
    window : Window
        Its kernel is w's.
    group : int
        The filters of a group apply only to the channels of the same group.

    Returns
    -------
    [N, M, results...]
    """
    results = counts(x.shape[2:], window)
    fitting((len(x), len(w), *results), x.dtype.itemsize)
    x = padded(x, window, results, 0)
    if w.shape[1] == 1 and len(w) == group:
        return _depthwise(slid(x, window, results), w, results)
    return _by_columns(slid(x, window, results), w, results, group)


def _depthwise(view: Array, w: Array, results: tuple[int, ...]) -> Array:
    """One filter per channel: a sum over the kernel's elements of shifted inputs."""
    y = np.zeros((len(view), len(w), *results), view.dtype)
    for index in np.ndindex(*w.shape[2:]):
        y += view[(..., *index)] * channels(w[(slice(None), 0, *index)], y.ndim)
    return y


def _by_columns(view: Array, w: Array, results: tuple[int, ...], group: int) -> Array:
    """A matrix product for each batch, each group, and some rows of the result at a time."""
    rank = len(results)
    y = np.empty((len(view), len(w), *results), view.dtype)
    depth = math.prod(w.shape[1:])
    filters = w.reshape(group, len(w) // group, depth)
    across = math.prod(results[1:])
    rows = max(COLUMNS // max(depth * group * across, 1), 1)
    # [C, results..., K...] -> [C, K..., results...]
    order = (0, *range(1 + rank, 1 + 2 * rank), *range(1, 1 + rank))
    for batch in range(len(view)):
        for first in range(0, results[0], rows):
            part = view[batch, :, first : first + rows]
            columns = part.transpose(order).reshape(group, depth, -1)
            product = np.matmul(filters, columns)
            y[batch, :, first : first + rows] = product.reshape(
                y[batch, :, first : first + rows].shape
            )
    return y


def checked_window(
    x: Array,
    w: Array,
    group: int,
    auto_pad: str,
    dilations: Sequence[int] | None,
    kernel_shape: Sequence[int] | None,
    pads: Sequence[int] | None,
    strides: Sequence[int] | None,
) -> Window:
    """The window of a convolution of `x` with filters `w`, whose shapes are checked."""
    if x.ndim < 3 or x.ndim != w.ndim:
        raise ProgramError(
            f"input {list(x.shape)} and filters {list(w.shape)}: expected [N, C, D...] and"
            " [M, C / group, K...]"
        )
    if kernel_shape and tuple(kernel_shape) != w.shape[2:]:
        raise ProgramError(f"kernel_shape {list(kernel_shape)}: the filters' is {w.shape[2:]}")
    if group < 1 or x.shape[1] != w.shape[1] * group or len(w) % group:
        raise ProgramError(
            f"{x.shape[1]} channels and filters {list(w.shape)} in {group} groups: expected"
            f" {w.shape[1] * group} channels and a multiple of {group} filters"
        )
    return make_window(x.shape[2:], w.shape[2:], strides, dilations, pads, auto_pad)


def convolved(x: Array, *others: Array | None, **attributes: Any) -> _shapes.Shape:
    """The shape of a convolution, whose filters are the second input, or the fourth in integers."""
    w = others[0] if len(others) < 7 else others[2]
    if w is None:
        raise ProgramError("filters are left out")
    defaults = dict.fromkeys(("dilations", "kernel_shape", "pads", "strides"))
    window = checked_window(x, w, **{"group": 1, "auto_pad": "NOTSET", **defaults, **attributes})
    return (len(x), len(w), *counts(x.shape[2:], window))


@define("Conv", since=1, product=True, infer=_shapes.alike(convolved))
def conv(
    x: Array,
    w: Array,
    b: Array | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Array:
    """`convolve`, plus b [M]. ONNX Conv-1, -11, -22."""
    window = checked_window(x, w, group, auto_pad, dilations, kernel_shape, pads, strides)
    y = convolve(widened(x), widened(w), window, group)
    if b is not None:
        y += channels(vector(widened(b), len(w), "bias"), y.ndim)
    return rounded(y, x.dtype)


def _integer_convolution(
    x: Array, x_zero_point: Array | None, w: Array, w_zero_point: Array | None,
    window: Window, group: int,
) -> Array:  # fmt: skip
    """int64 sums of products; float64 represents each of them exactly."""
    left = x.astype(np.float64)
    if x_zero_point is not None:
        left -= per_channel(x_zero_point, 1, "x_zero_point")
    right = w.astype(np.float64)
    if w_zero_point is not None:
        right -= per_channel(w_zero_point, len(w), "w_zero_point").reshape(-1, *[1] * (w.ndim - 1))
    return convolve(left, right, window, group).astype(np.int64)


@define("ConvInteger", since=10, product=True, infer=_shapes.alike(convolved))
def conv_integer(
    x: Array,
    w: Array,
    x_zero_point: Array | None = None,
    w_zero_point: Array | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Array:
    """`convolve` of x - x_zero_point with w - w_zero_point, in int32. ONNX ConvInteger-10."""
    window = checked_window(x, w, group, auto_pad, dilations, kernel_shape, pads, strides)
    return _integer_convolution(x, x_zero_point, w, w_zero_point, window, group).astype(np.int32)


@define("QLinearConv", since=10, product=True, infer=_shapes.alike(convolved))
def qlinear_conv(
    x: Array,
    x_scale: Array,
    x_zero_point: Array,
    w: Array,
    w_scale: Array,
    w_zero_point: Array,
    y_scale: Array,
    y_zero_point: Array,
    b: Array | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Array:
    """Y = saturate(round((convolution + b) * x_scale * w_scale / y_scale) + y_zero_point).

    b is int32 in units of x_scale * w_scale. The factor is float32; ties round to even. ONNX
    QLinearConv-10.
    """
    window = checked_window(x, w, group, auto_pad, dilations, kernel_shape, pads, strides)
    sums = _integer_convolution(x, x_zero_point, w, w_zero_point, window, group)
    if b is not None:
        sums += channels(vector(b, len(w), "bias"), sums.ndim)
    sums = sums.astype(np.int32)  # beyond 32 bits it wraps
    scales = per_channel(w_scale, len(w), "w_scale")
    factor = per_channel(x_scale, 1, "x_scale") * scales / per_channel(y_scale, 1, "y_scale")
    real = np.rint(sums.astype(np.float32) * channels(factor, sums.ndim))
    return saturated(real + per_channel(y_zero_point, 1, "y_zero_point"), y_zero_point.dtype)
