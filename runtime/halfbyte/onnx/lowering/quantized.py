"""Rules of 8-bit quantized operators: rounding, sums in integers, and operators in floats.

Scales and zero points are constants, one for each tensor; weights may have one for each channel.
Operators without a kernel in integers compute in floats.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from halfbyte.core import ops
from halfbyte.core.buffer import Buffer
from halfbyte.onnx.capture import Capture
from halfbyte.onnx.lowering.elementwise import apply, combine, each_element
from halfbyte.onnx.lowering.registry import MICROSOFT, OWN, lower, rule_of
from halfbyte.onnx.values import Array, Operand, Value, is_channels_last, key_of, sizes_of

_NO_FRACTION = np.array(1.5 * 2**23, np.float32)  # sums with numbers below 2^22 have none
TYPES = {np.dtype(np.uint8): "u8", np.dtype(np.int8): "i8"}


@dataclass(frozen=True)
class Quantization:
    """The quantization of a tensor: an integer i stands for (i - zero) scale."""

    scale: np.float32
    zero: int
    dtype: str  # u8 or i8

    @property
    def limits(self) -> tuple[int, int]:
        """The smallest and the largest integer."""
        return (0, 255) if self.dtype == "u8" else (-128, 127)

    def attributes(self, prefix: str = "y_") -> dict[str, int]:
        """Attributes of a kernel with such results."""
        low, high = self.limits
        return {f"{prefix}zero": self.zero, "lo": low, "hi": high}


def quantization(scale: Operand, zero: Operand, like: str = "") -> Quantization | None:
    """The quantization with a constant scale and zero point; a missing one is 0 of type `like`."""
    if not isinstance(scale, np.ndarray) or isinstance(zero, Value) or scale.size != 1:
        return None
    if scale.dtype != np.float32 or (zero is not None and zero.size != 1):
        return None
    if scale.ndim > 1 or (zero is not None and zero.ndim > 1) or not 0 < scale < np.inf:
        return None
    dtype = like if zero is None else TYPES.get(zero.dtype, "")
    if dtype not in ("u8", "i8"):
        return None
    offset = 0 if zero is None else int(zero.reshape(-1)[0])
    return Quantization(scale.reshape(-1)[0], offset, dtype)


def typed(buffer: Buffer, dtype: str) -> Buffer:
    """A buffer of bytes with another element type."""
    return buffer.view(sizes_of(buffer), dtype)


def quantized(c: Capture, x: Value, q: Quantization) -> Value:
    """A float32 value in integers."""

    def change(flat: Buffer) -> Buffer:
        y = ops.quantize_linear(flat, scale=float(q.scale), **q.attributes(""))
        return typed(y, q.dtype)

    return each_element(c, x, change)


def dequantized(c: Capture, x: Value, q: Quantization) -> Value:
    """A quantized value in float32."""

    def change(flat: Buffer) -> Buffer:
        y: Buffer = ops.dequantize_linear(flat, scale=float(q.scale), zero=q.zero)
        return y

    return each_element(c, x, change)


@lower("QuantizeLinear")
@lower("QuantizeLinear", domain=MICROSOFT)
def quantize_linear(
    c: Capture, x: Value, y_scale: Operand, y_zero: Operand = None, *,
    output_dtype: int = 0, block_size: int = 0, precision: int = 0, **attributes: Any,
) -> Value | None:  # fmt: skip
    """float32 to uint8 or int8, with one scale."""
    q = quantization(y_scale, y_zero, {0: "u8", 2: "u8", 3: "i8"}.get(output_dtype, ""))
    if q is None or x.dtype != "f32" or block_size or precision or not x.size:
        return None
    return quantized(c, x, q)


@lower("DequantizeLinear")
@lower("DequantizeLinear", domain=MICROSOFT)
def dequantize_linear(
    c: Capture, x: Value | Array, x_scale: Operand, x_zero: Operand = None, *, block_size: int = 0,
    output_dtype: int = 0, **attributes: Any,
) -> Value | None:  # fmt: skip
    """uint8 or int8 to float32, with one scale."""
    if not isinstance(x, Value):
        return None
    if block_size or output_dtype not in (0, 1):
        return None
    if isinstance(x_scale, Value) or isinstance(x_zero, Value):
        return _dequantized_by_run(c, x, x_scale, x_zero)
    q = quantization(x_scale, x_zero, x.dtype)
    if q is None or q.dtype != x.dtype:
        return None
    return dequantized(c, x, q) if x.size else None


def _dequantized_by_run(c: Capture, x: Value, scale: Operand, zero: Operand) -> Value | None:
    """With one scale, which the run may compute, and one zero point that it computes."""
    if scale is None or key_of(scale) != "f32" or scale.shape not in ((), (1,)):
        return None
    if not isinstance(zero, Value) or zero.dtype != x.dtype or zero.shape not in ((), (1,)):
        return None
    if x.dtype not in ("u8", "i8") or not x.size or not x.shape:  # which one number would widen
        return None
    as_is = Quantization(np.float32(1), 0, x.dtype)
    centred = combine(c, "sub", dequantized(c, x, as_is), dequantized(c, zero, as_is))
    if centred is None or (isinstance(scale, np.ndarray) and scale.item() == 1):
        return centred
    return combine(c, "mul", centred, scale)


@lower("QuantizeDequantize", domain=OWN)
def quantize_dequantize(
    c: Capture, x: Value, scale: Operand, *, low: int, high: int
) -> Value | None:
    """float32 rounded to whole numbers of steps, which are limited first."""
    if not isinstance(scale, np.ndarray) or scale.size != 1 or not 0 < scale.item() < np.inf:
        return None
    if not -(2**22) <= low <= high <= 2**22:
        return None
    step = scale.reshape(())
    y = combine(c, "div", x, step)
    y = y and apply(c, y, "clip", low, high)
    y = y and combine(c, "add", y, _NO_FRACTION)  # which rounds, ties to even
    y = y and combine(c, "sub", y, _NO_FRACTION)
    return y and combine(c, "mul", y, step)


# ---- sums, and operators that use floats ---------------------------------------------------------


@lower("QLinearAdd", domain=MICROSOFT)
def qlinear_add(
    c: Capture, a: Operand, a_scale: Operand, a_zero: Operand, b: Operand, b_scale: Operand,
    b_zero: Operand, y_scale: Operand, y_zero: Operand = None,
) -> Value | None:  # fmt: skip
    """Sums of values of the same shape in integers, and others in floats."""
    if isinstance(a, Value) and isinstance(b, Value) and a.shape == b.shape and a.size:
        left, right = quantization(a_scale, a_zero, a.dtype), quantization(b_scale, b_zero, b.dtype)
        to = quantization(y_scale, y_zero, a.dtype)
        alike = left and right and to and left.dtype == right.dtype == a.dtype == b.dtype
        if alike and left and right and to:
            last = len(a.shape) > 2 and (is_channels_last(a) or is_channels_last(b))
            ours, theirs = (c.channels_last(v) if last else c.plain(v) for v in (a, b))
            with np.errstate(all="ignore"):
                scales = float(left.scale / to.scale), float(right.scale / to.scale)
            y = ops.add_quantized(
                ours.view((a.size,)), theirs.view((a.size,)), x_scale=scales[0],
                x_zero=left.zero, z_scale=scales[1], z_zero=right.zero, **to.attributes(),
            )  # fmt: skip
            shape = sizes_of(ours)
            total = typed(y, to.dtype).view(shape)
            return c.value_channels_last(total) if last else c.value(total, a.shape)
    return _pair(c, "add", (a, a_scale, a_zero), (b, b_scale, b_zero), y_scale, y_zero)


@lower("QLinearMul", domain=MICROSOFT)
def qlinear_mul(
    c: Capture, a: Operand, a_scale: Operand, a_zero: Operand, b: Operand, b_scale: Operand,
    b_zero: Operand, y_scale: Operand, y_zero: Operand = None,
) -> Value | None:  # fmt: skip
    """Products of elements, in floats."""
    return _pair(c, "mul", (a, a_scale, a_zero), (b, b_scale, b_zero), y_scale, y_zero)


Part = tuple[Operand, Operand, Operand]  # integers, scale, zero point


def _pair(
    c: Capture, function: str, a: Part, b: Part, y_scale: Operand, y_zero: Operand
) -> Value | None:
    reals = [_real(c, part) for part in (a, b)]
    like = next((v.dtype for v in (a[0], b[0]) if isinstance(v, Value)), "")
    to = quantization(y_scale, y_zero, like)
    if to is None or reals[0] is None or reals[1] is None:
        return None
    result = combine(c, function, reals[0], reals[1])
    return None if result is None else quantized(c, result, to)


def _real(c: Capture, part: Part) -> Value | Array | None:
    """A quantized value or constant in float32."""
    x, scale, zero = part
    if isinstance(x, Value):
        q = quantization(scale, zero, x.dtype)
        fits = q is not None and q.dtype == x.dtype and x.size
        return dequantized(c, x, q) if q is not None and fits else None
    like = "" if x is None else TYPES.get(x.dtype, "")
    q = quantization(scale, zero, like)
    if x is None or q is None:
        return None
    real: Array = (x.astype(np.int32) - q.zero).astype(np.float32) * q.scale
    return real


@lower(
    "QLinearGlobalAveragePool", "QLinearAveragePool", "QLinearSigmoid", "QLinearLeakyRelu",
    domain=MICROSOFT,
)  # fmt: skip
def single(
    c: Capture, x: Value, x_scale: Operand, x_zero: Operand, y_scale: Operand,
    y_zero: Operand = None, *, channels_last: int = 0, **attributes: Any,
) -> Value | None:  # fmt: skip
    """Functions of one operand, in floats."""
    to = quantization(y_scale, y_zero, x.dtype)
    real = _real(c, (x, x_scale, x_zero))
    if channels_last or to is None or not isinstance(real, Value):
        return None
    name = c.node.op_type.removeprefix("QLinear")
    if name == "Sigmoid":
        y = apply(c, real, "sigmoid")
    elif name == "LeakyRelu":
        y = apply(c, real, "leaky_relu", attributes.get("alpha", 0.01))
    else:
        rule = rule_of("", name)
        y = None if rule is None else rule(c, real, **attributes)
    return None if y is None else quantized(c, y, to)
