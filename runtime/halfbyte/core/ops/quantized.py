"""Quantization to eight bits with one scale and zero point, its inverse, and quantized sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.core.ops.demands import zero_points
from halfbyte.core.ops.operator import operator

F32 = npt.NDArray[np.float32]
U8 = npt.NDArray[np.uint8]
I32 = npt.NDArray[np.int32]
Bytes = npt.NDArray[Any]  # uint8 or int8

RANGE = 4096  # numbers of a span, for which the least and the largest are computed


def to_quantized(real: F32, zero: int, lo: int, hi: int, dtype: np.dtype[Any]) -> Bytes:
    """zero + round(min(max(real, lo - zero), hi - zero)), ties to even.

    NaN becomes lo. Negative results keep their int8 byte in uint8.
    """
    low, high = np.float32(lo - zero), np.float32(hi - zero)
    limited = np.minimum(np.where(real > low, real, low), high)
    y: Bytes = (np.rint(limited).astype(np.int64) + zero).astype(dtype)
    return y


@operator("QuantizeLinear", "x:f32[n] -> y:u8[n]", demands=zero_points("zero"))
def quantize_linear(x: F32, *, scale: float, zero: int, lo: int, hi: int) -> U8:
    """y = zero + round(x / scale), clipped to [lo, hi], ties to even, as bytes of uint8 or int8.

    Source: ONNX QuantizeLinear (opset 13) with one scale.
    """
    with np.errstate(all="ignore"):
        real = x / np.float32(scale)
    return to_quantized(real, zero, lo, hi, np.dtype(np.uint8))


@operator(
    "ReduceMin+ReduceMax",
    "x:f32[n] -> range:f32[spans,2]",
    demands={"spans = ceil(n / 4096)": lambda d: d["spans"] == -(-d["n"] // RANGE)},
)
def tensor_range(x: F32, *, spans: int) -> F32:
    """Minimum and maximum, including 0, of each `RANGE` numbers of x; NaN if there is one."""
    parts = [x[i * RANGE : (i + 1) * RANGE] for i in range(spans)]
    return np.array([(p.min(initial=0), p.max(initial=0)) for p in parts], np.float32)


@operator(
    "DynamicQuantizeLinear",
    "x:f32[n,k] range:f32[spans,2] -> y:u8[n,k] sums:i32[n] scale:f32[1] zero:u8[1]",
)
def quantize_tensor(x: F32, range: F32) -> tuple[U8, I32, F32, U8]:
    """x quantized to 0 ... 255 by the range of the whole tensor; sums of y - zero for each row.

    scale = (largest - least) / 255, or 1 if that is 0, and zero = round(-least / scale); y as by
    :func:`quantize_linear`. `range` is the result of :func:`tensor_range`; if it contains NaN,
    scale is NaN and y is 0.

    Source: ONNX DynamicQuantizeLinear (opset 11).
    """
    y, scale, zero = bytes_of(x, range[:, 0].min(), range[:, 1].max())
    sums = (y.astype(np.int32) - zero).sum(axis=1, dtype=np.int32)
    return y, sums, np.array([scale], np.float32), np.array([zero], np.uint8)


def bytes_of(x: F32, low: np.float32, high: np.float32) -> tuple[Bytes, np.float32, int]:
    """x quantized by a range that contains 0; also scale and zero point."""
    with np.errstate(all="ignore"):
        scale = (high - low) / np.float32(255) or np.float32(1)
        zero = int(np.rint(np.nan_to_num(np.clip(-low / scale, 0, 255))))
        return to_quantized(x / scale, zero, 0, 255, np.dtype(np.uint8)), scale, zero


@operator("DequantizeLinear", "x:*[n] -> y:f32[n]", demands=zero_points("zero"))
def dequantize_linear(x: Bytes, *, scale: float, zero: int) -> F32:
    """y = (x - zero) scale of uint8 or int8. Source: ONNX DequantizeLinear (opset 13)."""
    y: F32 = (x.astype(np.int32) - zero).astype(np.float32) * np.float32(scale)
    return y


@operator(
    "QLinearAdd", "x:*[n] z:*[n] -> y:*[n]", demands=zero_points("x_zero", "z_zero", "y_zero")
)
def add_quantized(
    x: Bytes, z: Bytes, *, x_scale: float, x_zero: int, z_scale: float, z_zero: int, y_zero: int,
    lo: int, hi: int,
) -> Bytes:  # fmt: skip
    """y = y_zero + round((x - x_zero) x_scale + (z - z_zero) z_scale), clipped to [lo, hi].

    Scales are divided by the result's scale; products and sum are float32, ties go to even.

    Source: ONNX Runtime's QLinearAdd.
    """
    left = dequantize_linear.meaning(x, scale=x_scale, zero=x_zero)
    right = dequantize_linear.meaning(z, scale=z_scale, zero=z_zero)
    return to_quantized(left + right, y_zero, lo, hi, x.dtype)
