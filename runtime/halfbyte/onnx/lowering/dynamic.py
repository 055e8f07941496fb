"""Rules of integer products with scales and zero points from the run, and float results."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.core import ops
from halfbyte.core.buffer import Buffer
from halfbyte.onnx.capture import Capture
from halfbyte.onnx.lowering.linear import vector
from halfbyte.onnx.lowering.registry import MICROSOFT, lower
from halfbyte.onnx.lowering.sliding import floats
from halfbyte.onnx.values import Array, Operand, Value, key_of, sizes_of


def _quantized(x: Buffer) -> tuple[Buffer, ...]:
    """A matrix in uint8, the sums of its rows, and the scale and zero point of all."""
    n, k = sizes_of(x)
    limits = ops.tensor_range(x.view((n * k,)), spans=-(-n * k // ops.RANGE))
    results: tuple[Buffer, ...] = ops.quantize_tensor(x, limits)
    return results


def _rows(x: Value) -> tuple[int, int]:
    k = x.shape[-1] if x.shape else 1
    return x.size // k, k


@lower("DynamicQuantizeLinear")
def dynamic_quantize_linear(c: Capture, x: Value) -> tuple[Value, ...] | None:
    """Quantization of float32."""
    if x.dtype != "f32" or not x.size:
        return None
    y, _, scale, zero = c.quantized(x, *_rows(x), _quantized)
    return c.value(y, x.shape), c.value(scale, ()), c.value(zero, ())


@lower("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamic_quantize_matmul(
    c: Capture, a: Value | Array, b: Operand, b_scale: Operand, b_zero: Operand = None,
    bias: Operand = None,
) -> Value | None:  # fmt: skip
    """Products with a constant matrix; activations with several readers are quantized once."""
    if not isinstance(a, Value) or a.dtype != "f32" or not a.size or len(a.shape) < 2:
        return None
    y, sums, scale, zero = c.quantized(a, *_rows(a), _quantized)
    return _product(c, a.shape, (y, scale, zero), sums, (b, b_scale, b_zero), bias)


@lower("MatMulIntegerToFloat", domain=MICROSOFT)
def matmul_integer_to_float(
    c: Capture, a: Value | Array, b: Operand, a_scale: Value | Array, b_scale: Operand,
    a_zero: Operand = None, b_zero: Operand = None, bias: Operand = None,
) -> Value | None:  # fmt: skip
    """Products of uint8 with one scale, and a constant matrix."""
    if not isinstance(a, Value) or a.dtype != "u8" or not a.size or len(a.shape) < 2:
        return None
    a_zero = np.zeros(1, np.uint8) if a_zero is None else a_zero
    scale, zero = _single(c, a_scale, "f32"), _single(c, a_zero, "u8")
    if scale is None or zero is None:
        return None
    x = c.matrix(a, *_rows(a)), scale, zero
    return _product(c, a.shape, x, _sums(c, *x), (b, b_scale, b_zero), bias)


def _single(c: Capture, operand: Value | Array, dtype: str) -> Buffer | None:
    """The buffer of a single number; None for other operands."""
    if key_of(operand) != dtype or math.prod(operand.shape) != 1:
        return None
    return c.plain(operand if isinstance(operand, Value) else operand.reshape(1)).view((1,))


def _sums(c: Capture, x: Buffer, scale: Buffer, zero: Buffer) -> Buffer | None:
    """The sums of the rows of a quantized matrix, if the program quantizes it."""
    for instruction in c.program.instructions:
        if instruction.operator is ops.quantize_tensor:
            y, sums, _, offset = instruction.outputs
            if (y, offset) == (x.root, zero.root) and y.shape == x.shape:
                return sums
    return None


def _product(
    c: Capture, shape: tuple[int, ...], x: tuple[Buffer, Buffer, Buffer], x_sums: Buffer | None,
    w: tuple[Operand, Operand, Operand], bias: Operand,
) -> Value | None:  # fmt: skip
    """x times a constant w [k, m], each with its scale and zero point, for w perhaps by column."""
    b, scale, zero = w
    if not isinstance(b, np.ndarray) or b.ndim != 2 or b.dtype not in (np.int8, np.uint8):
        return None
    k, m = b.shape
    if shape[-1] != k or not m or not _by_column(scale, np.dtype(np.float32), m):
        return None
    if zero is not None and not _by_column(zero, b.dtype, m):
        return None
    if bias is not None and (bias.shape != (m,) or key_of(bias) != "f32"):
        return None
    flip = 0 if b.dtype == np.int8 else 128
    zeros = _column(np.zeros(1) if zero is None else zero, np.int32, m) - np.int32(flip)
    if zeros.any() and x_sums is None:
        return None

    def signed() -> Array:
        return (b ^ np.uint8(flip)).view(np.int8) if flip else b

    packed = floats(c, b, "packed 1 True", lambda: ops.pack_quantized(signed().T[:, :, None, None]))
    sums = floats(c, b, "sums", lambda: signed().sum(axis=0, dtype=np.int32))
    integers, x_scale, x_zero = x
    offsets = (c.constant(zeros), x_sums) if zeros.any() else (None, None)
    y = ops.matmul_quantized(
        integers, packed, sums, c.constant(_column(scale, np.float32, m)), vector(c, bias, m),
        x_scale, x_zero, *offsets,
    )  # fmt: skip
    return c.value(y, (*shape[:-1], m))


def _by_column(operand: Operand, dtype: np.dtype[Any], m: int) -> bool:
    """Whether an operand is a constant with one number, or one for each of m columns."""
    constant = isinstance(operand, np.ndarray) and operand.dtype == dtype
    return constant and operand is not None and operand.shape in ((), (1,), (m,))


def _column(operand: Any, dtype: npt.DTypeLike, m: int) -> Array:
    return np.ascontiguousarray(np.broadcast_to(operand.reshape(-1), m), dtype)
