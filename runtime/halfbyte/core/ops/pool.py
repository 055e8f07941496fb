"""Pooling and resizing of images with channels last: [images, rows, columns, channels].

Windows are those of :func:`halfbyte.core.ops.conv.conv2d`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.core.ops.conv import taps
from halfbyte.core.ops.demands import LIMIT, windows
from halfbyte.core.ops.operator import operator

F32 = npt.NDArray[np.float32]
I32 = npt.NDArray[np.int32]
Image = npt.NDArray[Any]


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
