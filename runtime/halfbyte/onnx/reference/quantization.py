"""Quantization: QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear, integer products.

There is one scale for the tensor, one for each index of an axis, or one for each block of an axis;
its zero point has the same shape.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from halfbyte.core.ops.quantized import bytes_of
from halfbyte.errors import ProgramError
from halfbyte.onnx.files import dtypes
from halfbyte.onnx.reference import _shapes
from halfbyte.onnx.reference._numbers import (
    Array,
    float_of,
    rounded,
    saturated,
    widened,
)  # fmt: skip
from halfbyte.onnx.reference.arrays import axis_of, take
from halfbyte.onnx.reference.registry import define

SMALL_INTEGERS = {"uint4": (0, 15), "int4": (-8, 7), "uint2": (0, 3), "int2": (-2, 1)}


def spread(scale: Array, shape: tuple[int, ...], axis: int, block_size: int, what: str) -> Array:
    """A scale or zero point, shaped to be broadcast with a tensor of `shape`."""
    if scale.size == 1 and (scale.ndim <= 1 or not block_size):
        return scale.reshape(())
    number = axis_of(axis, len(shape))
    if scale.ndim == 1 and not block_size and len(scale) == shape[number]:
        return scale.reshape([-1 if i == number else 1 for i in range(len(shape))])
    blocks = list(shape)
    if block_size > 0:
        blocks[number] = -(-shape[number] // block_size)
    if block_size <= 0 or list(scale.shape) != blocks:
        raise ProgramError(
            f"{what} {list(scale.shape)}: expected one element, {shape[number]} along axis"
            f" {number}, or blocks {blocks} (block_size {block_size})"
        )
    return take(np.repeat(scale, block_size, axis=number), np.arange(shape[number]), number)


def _alike(scale: Array, zero_point: Array) -> None:
    """Check that a zero point has the shape of its scale; single elements may have any rank."""
    if scale.shape != zero_point.shape and not scale.size == zero_point.size == 1:
        raise ProgramError(
            f"zero point {list(zero_point.shape)}: expected the scale's {list(scale.shape)}"
        )


def quantized(real: Array, zero_point: Array | None, dtype: np.dtype[Any], saturate: bool) -> Array:
    """Real numbers, already divided by the scale, as a quantized type: round, add, saturate."""
    name = dtypes.special_name(dtype)
    if name is not None and name not in SMALL_INTEGERS:
        wide = real if zero_point is None else real + widened(zero_point)
        return dtypes.narrow(wide.astype(np.float32), dtype, saturate=saturate)
    whole = np.rint(real)
    if zero_point is not None:
        whole = whole.astype(np.float64) + widened(zero_point)
    if name is None:
        return saturated(whole, dtype)
    low, high = SMALL_INTEGERS[name]
    limited = np.nan_to_num(np.clip(whole, low, high), nan=0.0)
    return dtypes.narrow(limited.astype(np.int8 if low else np.uint8), dtype)


def _quantized_type(zero: Array | None, output_dtype: int) -> np.dtype[Any]:
    """The zero point's type, else output_dtype, else uint8."""
    return float_of(output_dtype, np.dtype(np.uint8) if zero is None else zero.dtype)


def _quantized_like(
    x: Array, scale: Array, zero: Array | None = None, *, output_dtype: int = 0, **attributes: Any
) -> Array:
    return _shapes.blank(x.shape, _quantized_type(zero, output_dtype))


def _dequantized_like(
    x: Array, scale: Array, zero: Array | None = None, *, output_dtype: int = 0, **attributes: Any
) -> Array:
    return _shapes.blank(x.shape, float_of(output_dtype, scale.dtype))


@define("QuantizeLinear", since=10, special=True, infer=_shapes.alike(_quantized_like))
def quantize_linear(
    x: Array,
    y_scale: Array,
    y_zero_point: Array | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: int = 1,
) -> Array:
    """Y = saturate(round(X / y_scale) + y_zero_point), ties to even.

    The quotient is rounded to the type `precision`, or y_scale's. The result has the type of the
    zero point, else output_dtype, else uint8. Floats of 8 bits and fewer are not rounded to whole
    numbers. ONNX QuantizeLinear-10, -13, -19, -21, -23, -24, -25, -28.
    """
    dtype = _quantized_type(y_zero_point, output_dtype)
    scale = spread(y_scale, x.shape, axis, block_size, "y_scale")
    zero = None
    if y_zero_point is not None:
        _alike(y_scale, y_zero_point)
        zero = spread(y_zero_point, x.shape, axis, block_size, "y_zero_point")
    inner = float_of(precision, y_scale.dtype)
    if inner == dtypes.FLOAT8E8M0:
        inner = np.dtype(np.float32)
    wide = widened(x).astype(np.float64 if inner == np.float64 else np.float32)
    real = widened(rounded(wide / widened(scale).astype(wide.dtype), inner))
    return quantized(real, zero, dtype, bool(saturate))


@define("DequantizeLinear", since=10, special=True, infer=_shapes.alike(_dequantized_like))
def dequantize_linear(
    x: Array,
    x_scale: Array,
    x_zero_point: Array | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Array:
    """Y = (X - x_zero_point) * x_scale, in the type output_dtype or x_scale's.

    ONNX DequantizeLinear-10, -13, -19, -21, -23, -24, -25, -28.
    """
    dtype = float_of(output_dtype, x_scale.dtype)
    scale = widened(spread(x_scale, x.shape, axis, block_size, "x_scale"))
    quantized = widened(x)
    quantized = quantized.astype(np.int64) if quantized.dtype.kind in "iu" else quantized
    if x_zero_point is not None:
        _alike(x_scale, x_zero_point)
        quantized = quantized - widened(
            spread(x_zero_point, x.shape, axis, block_size, "x_zero_point")
        )
    inner = np.float64 if dtype == np.float64 else np.float32
    return rounded(quantized.astype(inner) * scale.astype(inner), dtype)


@define("DynamicQuantizeLinear", since=11, infer=_shapes.Rule(lambda x: [x.shape, (), ()]))
def dynamic_quantize_linear(x: Array) -> tuple[Array, Array, Array]:
    """X in uint8, its scale (max(X, 0) - min(X, 0)) / 255, its zero point round(-min / scale).

    A scale of 0 becomes 1; it is NaN where X has NaN. ONNX DynamicQuantizeLinear-11.
    """
    high = np.float32(x.max(initial=0))
    low = np.float32(x.min(initial=0))
    y, scale, zero = bytes_of(x, low, high)
    return y, np.asarray(scale, np.float32), np.asarray(zero, np.uint8)


def _rows(v: Array, a: Array) -> Array:
    """One number per row of the matrix `a`, or one for all, shaped to be broadcast with it."""
    return v.reshape(-1, 1) if v.ndim == 1 and v.size > 1 and a.ndim > 1 else v


def _without_zero(x: Array, zero_point: Array | None) -> Array:
    wide = widened(x).astype(np.float64)
    return wide if zero_point is None else wide - widened(zero_point)


@define("MatMulInteger", since=10, product=True, infer=_shapes.product)
def matmul_integer(
    a: Array, b: Array, a_zero_point: Array | None = None, b_zero_point: Array | None = None
) -> Array:
    """(A - a_zero_point) (B - b_zero_point) in int32.

    There is one zero point for all, one per row of A, or one per column of B. float64
    represents each sum exactly; sums of more than 32 bits wrap. ONNX MatMulInteger-10.
    """
    left = _without_zero(a, None if a_zero_point is None else _rows(a_zero_point, a))
    right = _without_zero(b, b_zero_point)
    return np.asarray(np.matmul(left, right)).astype(np.int64).astype(np.int32)


def _product_of_quantized(a: Array, *others: Array) -> _shapes.Shape:
    """The shape of QLinearMatMul's result; the other factor is its fourth input."""
    return _shapes.after_product(a.shape, others[2].shape)


@define(
    "QLinearMatMul", since=10, special=True, product=True, infer=_shapes.Rule(_product_of_quantized)
)
def qlinear_matmul(
    a: Array,
    a_scale: Array,
    a_zero_point: Array,
    b: Array,
    b_scale: Array,
    b_zero_point: Array,
    y_scale: Array,
    y_zero_point: Array,
) -> Array:
    """Y = saturate(round((A - a_zero_point) (B - b_zero_point) * scales) + y_zero_point).

    scales is a_scale * b_scale / y_scale, in float32: one number for all, one per row of A (and Y),
    or one per column of B. ONNX QLinearMatMul-10, -21.
    """
    left = _without_zero(a, _rows(a_zero_point, a))
    sums = np.asarray(np.matmul(left, _without_zero(b, b_zero_point)))
    factor = (
        widened(_rows(a_scale, a)).astype(np.float32)
        * widened(b_scale).astype(np.float32)
        / widened(_rows(y_scale, a)).astype(np.float32)
    )
    if sums.ndim < 2 and factor.size == 1:
        factor = factor.reshape(())
    return quantized(
        sums.astype(np.float32) * factor, _rows(y_zero_point, a), y_zero_point.dtype, True
    )
