"""Convolutions with channels last: images are [images, rows, columns, channels].

Weights are packed when a program is captured: see :func:`pack_kernels`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.core.aligned import contiguous, zeros
from halfbyte.core.ops.demands import Known, windows, zero_points
from halfbyte.core.ops.operator import Demand, operator
from halfbyte.core.ops.panels import Activation, activated
from halfbyte.core.ops.quantized import Bytes, to_quantized

F32 = npt.NDArray[np.float32]

I8 = npt.NDArray[np.int8]
I32 = npt.NDArray[np.int32]

TOGETHER = 16  # output channels whose weights are packed together
FOURS = 4  # integers that one instruction multiplies and adds up
MAX_TAPS = 512  # of a quantized depthwise kernel, so that sums are exact in float32


def pack_kernels(w: npt.NDArray[Any], groups: int = 1) -> npt.NDArray[Any]:
    """Pack ONNX's weights [m, c / groups, kernel_h, kernel_w] for `conv2d`: [b, k, 16].

    Sixteen output channels are contiguous, k = (row, column, channel of the group); each group
    begins a new sixteen, and is padded with zeros.
    """
    m, c, *kernel = w.shape
    width, taps = m // groups, math.prod(kernel)
    blocks, whole = -(-width // TOGETHER), width // TOGETHER
    packed = zeros((groups, blocks, taps, c, TOGETHER), w.dtype)
    rows = w.reshape(groups, width, c, taps)  # copied once, into their places
    full = rows[:, : whole * TOGETHER].reshape(groups, whole, TOGETHER, c, taps)
    packed[:, :whole] = full.transpose(0, 1, 4, 3, 2)
    if whole < blocks:
        rest = rows[:, whole * TOGETHER :]
        packed[:, whole, :, :, : rest.shape[1]] = rest.transpose(0, 3, 2, 1)
    return packed.reshape(groups * blocks, taps * c, TOGETHER)


def pack_quantized(w: I8, groups: int = 1, *, joined: bool = True) -> I8:
    """Pack int8 weights for `conv2d_quantized`: [b, k / 4, 16, 4].

    Runs that are contiguous in x are padded with zeros to fours. A run is a row of the kernel if
    rows are `joined` (one group, and no dilation of columns), otherwise a pixel.
    """
    packed = pack_kernels(w, groups)
    blocks, k, _ = packed.shape
    runs = _runs(w.shape[2], w.shape[3], joined and groups == 1)
    wide = np.zeros((blocks, runs, -(-k // runs // FOURS) * FOURS, TOGETHER), np.int8)
    wide[:, :, : k // runs] = packed.reshape(blocks, runs, k // runs, TOGETHER)
    fours = wide.reshape(blocks, -1, FOURS, TOGETHER)
    return contiguous(fours.swapaxes(2, 3))


def _runs(kernel_h: int, kernel_w: int, joined: bool) -> int:
    """The number of contiguous runs of a window."""
    return kernel_h if joined else kernel_h * kernel_w


def unpack_kernels(w: npt.NDArray[Any], m: int, groups: int) -> npt.NDArray[Any]:
    """The inverse of `pack_kernels`: [groups, m / groups, k]."""
    blocks, k, _ = w.shape
    rows = w.swapaxes(1, 2).reshape(groups, blocks // groups * TOGETHER, k)
    return rows[:, : m // groups]


def _whole_fours(d: Known) -> bool:
    """Whether int8 weights have the runs of fours that `pack_quantized` makes."""
    runs = _runs(d["kernel_h"], d["kernel_w"], d["groups"] == 1 and d["dilation_w"] == 1)
    taps = d["kernel_h"] * d["kernel_w"] * (d["c"] // d["groups"])
    return bool(d["k"] == runs * -(-(taps // runs) // FOURS))


# Of convolutions whose channels fall into groups
_GROUPS: dict[str, Demand] = {
    "c and m multiples of groups": lambda d: (
        d["groups"] >= 1 and d["c"] % d["groups"] == d["m"] % d["groups"] == 0
    ),
    "b = groups ceil(m / groups / 16)": lambda d: (
        d["b"] == d["groups"] * -(-(d["m"] // d["groups"]) // TOGETHER)
    ),
}


def taps(
    x: npt.NDArray[Any], p: int, q: int, window: dict[str, int], outside: float = 0
) -> npt.NDArray[Any]:
    """The window of each pixel of a result [p, q]: [n, p, q, kernel_h kernel_w, c].

    Pixel (i, j)'s window begins at row i stride_h - top and column j stride_w - left of x
    [n, h, v, c]; outside of x, elements are `outside`.
    """
    rows = _places(p, window, "h", window["top"])
    columns = _places(q, window, "w", window["left"])
    inside = ((rows >= 0) & (rows < x.shape[1]))[:, None, :, None] & (
        (columns >= 0) & (columns < x.shape[2])
    )[None, :, None, :]
    pixels = x[
        :,
        np.clip(rows, 0, x.shape[1] - 1)[:, None, :, None],
        np.clip(columns, 0, x.shape[2] - 1)[None, :, None, :],
    ]
    pixels = np.where(inside[None, ..., None], pixels, x.dtype.type(outside))
    return pixels.reshape(len(x), p, q, -1, x.shape[3])


def _places(count: int, window: dict[str, int], axis: str, before: int) -> npt.NDArray[np.int64]:
    """Rows or columns of x in the windows of results 0 ... count - 1: [count, kernel]."""
    starts = np.arange(count) * window[f"stride_{axis}"] - before
    return starts[:, None] + np.arange(window[f"kernel_{axis}"]) * window[f"dilation_{axis}"]


@operator(
    "Conv",
    "x:f32[n,h,v,c] w:f32[b,k,16] bias:f32[m] r?:f32[n,p,q,m] -> y:f32[n,p,q,m]",
    operations=lambda d: 2 * d["n"] * d["p"] * d["q"] * d["m"] * d["k"],
    demands={
        **windows(),
        **_GROUPS,
        "k = kernel_h kernel_w c / groups": lambda d: (
            d["k"] * d["groups"] == d["kernel_h"] * d["kernel_w"] * d["c"]
        ),
    },
    product=True,
)
def conv2d(
    x: F32, w: F32, bias: F32, r: F32 | None = None, *, p: int, q: int, groups: int, kernel_h: int,
    kernel_w: int, stride_h: int, stride_w: int, dilation_h: int, dilation_w: int, top: int,
    left: int, lo: float, hi: float,
) -> F32:  # fmt: skip
    """y = min(max(bias + sum over window and channels of x w + r, lo), hi).

    The window of y[n, i, j] begins at row i stride_h - top and column j stride_w - left of x, and
    has kernel_h x kernel_w pixels, every dilation_h-th and dilation_w-th; outside of x are zeros.
    With groups, the c channels and the m outputs are split into independent parts. `w` is packed by
    :func:`pack_kernels`.

    Source: ONNX Conv (opset 11) with channels last; ONNX Runtime's FusedConv.
    """
    window = {
        "kernel_h": kernel_h, "kernel_w": kernel_w, "stride_h": stride_h, "stride_w": stride_w,
        "dilation_h": dilation_h, "dilation_w": dilation_w, "top": top, "left": left,
    }  # fmt: skip
    m = len(bias)
    seen = taps(x, p, q, window).astype(np.float64)
    parts = seen.reshape(*seen.shape[:4], groups, -1)
    kernels = unpack_kernels(w, m, groups).reshape(groups, m // groups, seen.shape[3], -1)
    y = np.einsum("npqtgc,gmtc->npqgm", parts, kernels.astype(np.float64), optimize=True)
    y = y.reshape(len(x), p, q, m) + bias
    if r is not None:
        y += r
    result: F32 = np.clip(y, np.float32(lo), np.float32(hi)).astype(np.float32)
    return result


@operator(
    "Conv",
    "x:f32[n,h,v,c] w:f32[k,c] bias:f32[c] -> y:f32[n,p,q,c]",
    operations=lambda d: 2 * d["n"] * d["p"] * d["q"] * d["c"] * d["k"],
    demands=windows("k"),
    product=True,
)
def conv2d_depthwise(
    x: F32, w: F32, bias: F32, *, p: int, q: int, kernel_h: int, kernel_w: int, stride_h: int,
    stride_w: int, dilation_h: int, dilation_w: int, top: int, left: int, lo: float, hi: float,
) -> F32:  # fmt: skip
    """y = min(max(bias + sum over the window of x w, lo), hi), for each channel separately.

    Windows are those of :func:`conv2d`, w[k, c] has k = (row, column).

    Source: ONNX Conv (opset 11) with as many groups as channels, channels last.
    """
    window = {
        "kernel_h": kernel_h, "kernel_w": kernel_w, "stride_h": stride_h, "stride_w": stride_w,
        "dilation_h": dilation_h, "dilation_w": dilation_w, "top": top, "left": left,
    }  # fmt: skip
    seen = taps(x, p, q, window).astype(np.float64)
    y = np.einsum("npqkc,kc->npqc", seen, w.astype(np.float64)) + bias
    result: F32 = np.clip(y, np.float32(lo), np.float32(hi)).astype(np.float32)
    return result


def rescaled(
    total: npt.NDArray[np.int64], scale: F32, zero: int, lo: int, hi: int, dtype: np.dtype[Any]
) -> Bytes:
    """An int32 total times a scale, in float32, quantized by `to_quantized`."""
    real = total.astype(np.int32).astype(np.float32) * scale
    return to_quantized(real, zero, lo, hi, dtype)


@operator(
    "QLinearConv",
    "x:*[n,h,v,c] w:i8[b,k,16,4] bias:i32[m] sums:i32[m] scale:f32[m] -> y:*[n,p,q,m]",
    operations=lambda d: 8 * d["n"] * d["p"] * d["q"] * d["m"] * d["k"],
    demands={
        **windows(),
        **_GROUPS,
        **zero_points("x_zero", "y_zero"),
        "k of fours of kernel_h kernel_w c / groups, groups, dilation_w": _whole_fours,
    },
    product=True,
    kind=lambda d: "conv2d_quantized" + "_1x1" * (d["kernel_h"] == 1),
)
def conv2d_quantized(
    x: Bytes, w: I8, bias: I32, sums: I32, scale: F32, *, p: int, q: int, groups: int,
    kernel_h: int, kernel_w: int, stride_h: int, stride_w: int, dilation_h: int, dilation_w: int,
    top: int, left: int, x_zero: int, y_zero: int, lo: int, hi: int,
) -> Bytes:  # fmt: skip
    """Quantized convolution: y = y_zero + round(scale total), clipped to [lo, hi], ties to even.

    total = bias + sum over window and channels of (x - x_zero) w is an exact int32; outside of x
    is x_zero. x and y are both uint8 or both int8, `w` is packed by :func:`pack_quantized`, `sums`
    are the sums of each channel's weights, `scale` is x_scale w_scale / y_scale. Windows and groups
    are those of :func:`conv2d`; see :func:`~halfbyte.core.ops.quantized.to_quantized` for rounding.

    Source: ONNX QLinearConv (opset 10) with channels last.
    """
    window = {
        "kernel_h": kernel_h, "kernel_w": kernel_w, "stride_h": stride_h, "stride_w": stride_w,
        "dilation_h": dilation_h, "dilation_w": dilation_w, "top": top, "left": left,
    }  # fmt: skip
    m = len(bias)
    seen = taps(x, p, q, window, x_zero).astype(np.float64) - x_zero  # exact below 2^53
    parts = seen.reshape(*seen.shape[:4], groups, -1)
    runs = _runs(kernel_h, kernel_w, groups == 1 and dilation_w == 1)
    padded = w.swapaxes(2, 3).reshape(len(w), runs, -1, TOGETHER)
    taken = padded[:, :, : seen.shape[3] * parts.shape[5] // runs]
    kernels = unpack_kernels(taken.reshape(len(w), -1, TOGETHER), m, groups)
    kernels = kernels.reshape(groups, m // groups, seen.shape[3], -1).astype(np.float64)
    total = np.einsum("npqtgc,gmtc->npqgm", parts, kernels, optimize=True)
    total = total.reshape(len(x), p, q, m).astype(np.int64) + bias
    return rescaled(total, scale, y_zero, lo, hi, x.dtype)


@operator(
    "MatMulIntegerToFloat",
    "x:u8[n,k] w:i8[b,fours,16,4] sums:i32[m] scale:f32[m] bias:f32[m] x_scale:f32[1] x_zero:u8[1] "
    "zeros?:i32[m] x_sums?:i32[n] r?:f32[n,m] -> y:f32[n,m]",
    operations=lambda d: 2 * d["n"] * d["m"] * d["k"],
    demands={
        "b = ceil(m / 16)": lambda d: d["b"] == -(-d["m"] // TOGETHER),
        "fours = ceil(k / 4)": lambda d: d["fours"] == -(-d["k"] // FOURS),
    },
    product=True,
)
def matmul_quantized(
    x: Bytes, w: I8, sums: I32, scale: F32, bias: F32, x_scale: F32, x_zero: Bytes,
    zeros: I32 | None = None, x_sums: I32 | None = None, r: F32 | None = None, *,
    activation: int = Activation.NONE,
) -> F32:  # fmt: skip
    """y = activation(r + (bias + (x_scale scale) total)), in float32, multiplied, then added.

    total = sum over k of (x - x_zero) (w - zeros) is an exact int32. `w` [m, k, 1, 1] is packed by
    :func:`pack_quantized`, `sums` are those of each output's weights, `x_sums` those of x - x_zero
    by row, which `zeros` need.

    Source: ONNX Runtime's MatMulIntegerToFloat; its FusedConv for the order of residual and
    activation.
    """
    k, m = x.shape[1], len(bias)
    rows = w.swapaxes(2, 3).reshape(len(w), -1, TOGETHER)[:, :k]
    kernels = unpack_kernels(rows, m, 1)[0].astype(np.int64)
    if zeros is not None:
        kernels = kernels - zeros[:, None]
    total = ((x.astype(np.float64) - x_zero) @ kernels.T.astype(np.float64)).astype(np.int64)
    with np.errstate(all="ignore"):
        y = bias + total.astype(np.int32).astype(np.float32) * (x_scale * scale)
        return activated(y if r is None else r + y, activation)


@operator(
    "QLinearConv",
    "x:*[n,h,v,c] w:f32[k,c] bias:i32[c] sums:i32[c] scale:f32[c] -> y:*[n,p,q,c]",
    operations=lambda d: 2 * d["n"] * d["p"] * d["q"] * d["c"] * d["k"],
    demands={
        **windows("k", MAX_TAPS),
        **zero_points("x_zero", "y_zero"),
    },
    product=True,
)
def conv2d_depthwise_quantized(
    x: Bytes, w: F32, bias: I32, sums: I32, scale: F32, *, p: int, q: int, kernel_h: int,
    kernel_w: int, stride_h: int, stride_w: int, dilation_h: int, dilation_w: int, top: int,
    left: int, x_zero: int, y_zero: int, lo: int, hi: int,
) -> Bytes:  # fmt: skip
    """As :func:`conv2d_quantized`, for each channel separately.

    Integer weights w[k, c] are stored as floats, k = (row, column), at most `MAX_TAPS`.

    Source: ONNX QLinearConv (opset 10) with as many groups as channels, channels last.
    """
    window = {
        "kernel_h": kernel_h, "kernel_w": kernel_w, "stride_h": stride_h, "stride_w": stride_w,
        "dilation_h": dilation_h, "dilation_w": dilation_w, "top": top, "left": left,
    }  # fmt: skip
    seen = taps(x, p, q, window, x_zero).astype(np.int64) - x_zero
    total = np.einsum("npqkc,kc->npqc", seen, w.astype(np.int64)) + bias
    return rescaled(total, scale, y_zero, lo, hi, x.dtype)
