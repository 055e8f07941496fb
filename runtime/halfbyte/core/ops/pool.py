"""Pools, resizes and samples of images with channels last: [images, rows, columns, channels].

Windows are those of :func:`halfbyte.core.ops.conv.conv2d`.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.core.ops.conv import taps
from halfbyte.core.ops.demands import LIMIT, windows
from halfbyte.core.ops.operator import operator

F32 = npt.NDArray[np.float32]
I32 = npt.NDArray[np.int32]
Image = npt.NDArray[Any]
FAR = 2**21  # elements, beyond which positions are not told apart
PADDINGS = ("zeros", "border", "reflection")


@operator(
    "MaxPool",
    "x:*[n,h,v,c] -> y:*[n,p,q,c]",
    demands=windows(),
)
def max_pool(
    x: Image, *, p: int, q: int, kernel_h: int, kernel_w: int, stride_h: int, stride_w: int,
    dilation_h: int, dilation_w: int, top: int, left: int,
) -> Image:  # fmt: skip
    """y = the maximum of each window; outside of x are the type's smallest numbers.

    Float32, int8 or uint8. Source: ONNX MaxPool (opset 12) with channels last.
    """
    window = {
        "kernel_h": kernel_h, "kernel_w": kernel_w, "stride_h": stride_h, "stride_w": stride_w,
        "dilation_h": dilation_h, "dilation_w": dilation_w, "top": top, "left": left,
    }  # fmt: skip
    lowest = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    y: Image = taps(x, p, q, window, lowest).max(axis=3)
    return y


@operator(
    "AveragePool",
    "x:f32[n,h,v,c] -> y:f32[n,p,q,c]",
    demands={
        **windows(),
        "bottom, right of 0 to 2^31 - 1": lambda d: (
            min(d["bottom"], d["right"]) >= 0 and max(d["bottom"], d["right"]) <= LIMIT
        ),
    },
)
def average_pool(
    x: F32, *, p: int, q: int, kernel_h: int, kernel_w: int, stride_h: int, stride_w: int,
    dilation_h: int, dilation_w: int, top: int, left: int, bottom: int, right: int,
    count_include_pad: int,
) -> F32:  # fmt: skip
    """y = the mean of each window's numbers inside of x.

    With `count_include_pad` the sum is divided by the number of elements inside of x or its
    padding. Source: ONNX AveragePool (opset 19) with channels last.
    """
    window = {
        "kernel_h": kernel_h, "kernel_w": kernel_w, "stride_h": stride_h, "stride_w": stride_w,
        "dilation_h": dilation_h, "dilation_w": dilation_w, "top": top, "left": left,
    }  # fmt: skip
    _, h, v, _ = x.shape
    inside = np.ones((1, h, v, 1), np.float32)
    among = window
    if count_include_pad:
        inside = np.ones((1, h + top + bottom, v + left + right, 1), np.float32)
        among = {**window, "top": 0, "left": 0}
    number = np.maximum(taps(inside, p, q, among).sum(axis=3), 1)
    y: F32 = taps(x, p, q, window).sum(axis=3) / number
    return y


@operator("Resize", "x:i8[n,h,v,c] rows:i32[p] columns:i32[q] -> y:i8[n,p,q,c]")
def resize_nearest(x: Image, rows: I32, columns: I32) -> Image:
    """y[n, i, j] = x[n, rows[i], columns[j]]; elements of any type, as bytes.

    Rows and columns are clipped to those of x. Source: ONNX Resize, mode nearest, with channels
    last.
    """
    _, h, v, _ = x.shape
    y: Image = x[:, np.clip(rows, 0, h - 1)][:, :, np.clip(columns, 0, v - 1)]
    return y


@operator(
    "Resize",
    "x:f32[n,h,v,c] rows:i32[p,t] row_weights:f32[p,t] columns:i32[q,t] column_weights:f32[q,t] "
    "-> y:f32[n,p,q,c]",
    operations=lambda d: 2 * d["n"] * d["p"] * d["q"] * d["c"] * d["t"] * d["t"],
)
def resize_linear(x: F32, rows: I32, row_weights: F32, columns: I32, column_weights: F32) -> F32:
    """y[n, i, j] = sum over t, u of row_weights[i, t] column_weights[j, u] x[n, rows[i, t],
    columns[j, u]].

    Rows and columns are clipped to those of x. Source: ONNX Resize, modes linear (t = 2) and cubic
    (t = 4), with channels last.
    """
    _, h, v, _ = x.shape
    wide = x.astype(np.float64)[:, np.clip(rows, 0, h - 1)]
    down = np.einsum("npthc,pt->nphc", wide, row_weights.astype(np.float64))
    across = down[:, :, np.clip(columns, 0, v - 1)]
    y: F32 = np.einsum("npqtc,qt->npqc", across, column_weights).astype(np.float32)
    return y


@operator("Transpose", "x:*[n,a,b] -> y:*[n,b,a]")
def transpose(x: Image) -> Image:
    """The last two dimensions exchanged; elements of four bytes as int32, of one as int8.

    Source: ONNX Transpose.
    """
    return x.swapaxes(1, 2)


@operator(
    "GridSample",
    "x:f32[n,d,h,v,c] grid:f32[n,p,r] -> y:f32[n,p,c]",
    operations=lambda d: 2 * d["n"] * d["p"] * d["c"] * d["taps"] ** d["r"],
    demands={
        "taps 1, 2 or 4; padding 0, 1 or 2; align_corners 0 or 1": lambda d: (
            d["taps"] in (1, 2, 4) and d["padding"] in (0, 1, 2) and d["align_corners"] in (0, 1)
        ),
        f"r from 1 to 3, axes of at most {FAR} elements, those left out of one": lambda d: (
            d["r"] in (1, 2, 3)
            and max(d["d"], d["h"], d["v"]) <= FAR
            and (d["d"], d["h"], d["v"])[: 3 - d["r"]] == (1,) * (3 - d["r"])
        ),
    },
    like="average_pool",
)
def grid_sample(x: F32, grid: F32, *, taps: int, padding: int, align_corners: int) -> F32:
    """y[n, i] = x[n] at the position grid[n, i], whose r numbers are along v, h and d.

    They are -1 and 1 at the ends of an axis, their centers with `align_corners`, else their outer
    edges. Along an axis count the nearest element (1 tap), two linearly, or four (cubic); outside
    of it, those that PADDINGS[padding] names. Source: ONNX GridSample-20 with channels last.
    """
    return sampled(x, grid, taps, padding, align_corners)


def sampled(x: Image, grid: Image, taps: int, padding: int, align_corners: int) -> Image:
    """The same for x [n, d..., c] of any type and rank; only the nearest element of others."""
    n, *sizes, c = x.shape
    images = x.reshape(n, -1, c)
    y: Image = np.zeros((), x.dtype)
    axes = [
        _taps(grid[..., -1 - axis], size, taps, padding, align_corners)
        for axis, size in enumerate(sizes[len(sizes) - grid.shape[2] :])
    ]
    for choice in itertools.product(range(taps), repeat=len(axes)):
        place: Image = np.zeros(grid.shape[:2], np.int64)
        weight: Image = np.ones((), grid.dtype)
        inside = np.ones(grid.shape[:2], np.bool_)
        for (elements, weights), size, tap in zip(axes, sizes[-len(axes) :], choice, strict=True):
            inside &= elements[tap] >= 0
            place = place * size + elements[tap]
            weight = weight * weights[tap]
        values = images[np.arange(n)[:, None], np.where(inside, place, 0)]
        if taps == 1:
            return np.where(inside[..., None], values, y)
        y = y + np.where(inside[..., None], values * weight[..., None], 0)
    return y


def _taps(
    grid: Image, size: int, taps: int, padding: int, align_corners: int
) -> tuple[list[Image], list[Image]]:
    """Elements along an axis, -1 outside of it, and their weights; those of NaN are NaN."""
    scale = np.float32(size - align_corners)
    at = (grid + 1) / 2 * scale if align_corners else ((grid + 1) * scale - 1) / 2
    at = np.clip(at, -FAR, FAR)
    whole = np.rint(at) if taps == 1 else np.floor(at)
    t = at - whole
    weights: list[Image] = [1 - t, t] if taps == 2 else _cubic(t)
    if taps == 1:
        weights = [np.ones_like(t)]
    first = np.where(np.isnan(whole), -4, whole - (taps == 4)).astype(np.int64)
    elements = [
        np.where(np.isnan(weight), 0, _padded(first + i, size, padding, align_corners))
        for i, weight in enumerate(weights)
    ]
    return elements, weights


def _padded(i: Image, size: int, padding: int, align_corners: int) -> Image:
    """The elements of an axis that the padding has for elements i."""
    turn = 2 * (size - align_corners)
    inside = np.clip(i, 0, size - 1)
    if padding == 0:
        return np.where(inside == i, i, -1)
    if padding == 1 or turn == 0:
        return inside
    away = i % turn
    return np.where(away < size, away, turn - 1 + align_corners - away)


def _cubic(t: Image) -> list[Image]:
    """Keys's weights with a = -0.75 of the elements at -1, 0, 1 and 2, for positions after 0."""

    def near(d: Image) -> Image:
        return (np.float32(1.25) * d - np.float32(2.25)) * d * d + 1

    def far(d: Image) -> Image:
        return ((np.float32(-0.75) * d + np.float32(3.75)) * d - 6) * d + 3

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]
