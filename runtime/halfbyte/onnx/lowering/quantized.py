"""Rules of 8-bit quantized operators: convolutions and products in integers.

Scales and zero points are constants, one for each tensor; weights may have one for each channel.
Operators without a kernel in integers compute in floats.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from halfbyte.core import ops
from halfbyte.core.buffer import Buffer
from halfbyte.onnx.capture import Capture
from halfbyte.onnx.lowering.conv import Sliding, floats, image, result, sliding
from halfbyte.onnx.lowering.elementwise import apply, combine, each_element, is_channels_last
from halfbyte.onnx.lowering.registry import MICROSOFT, lower, rule_of
from halfbyte.onnx.values import Array, Operand, Value

_TYPES = {np.dtype(np.uint8): "u8", np.dtype(np.int8): "i8"}


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
    dtype = like if zero is None else _TYPES.get(zero.dtype, "")
    if dtype not in ("u8", "i8"):
        return None
    offset = 0 if zero is None else int(zero.reshape(-1)[0])
    return Quantization(scale.reshape(-1)[0], offset, dtype)


def _typed(buffer: Buffer, dtype: str) -> Buffer:
    """A buffer of bytes with another element type."""
    return buffer.view(tuple(int(d) for d in buffer.shape), dtype)  # type: ignore[arg-type]


def quantized(c: Capture, x: Value, q: Quantization) -> Value:
    """A float32 value in integers."""

    def change(flat: Buffer) -> Buffer:
        y = ops.quantize_linear(flat, scale=float(q.scale), **q.attributes(""))
        return _typed(y, q.dtype)

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
    q = quantization(x_scale, x_zero, x.dtype)
    if q is None or q.dtype != x.dtype or block_size or output_dtype not in (0, 1):
        return None
    return dequantized(c, x, q) if x.size else None


# ---- convolutions and products -------------------------------------------------------------------


@dataclass(frozen=True)
class _Product:
    """The constants of a convolution or product in integers: weights [m, ...] and quantizations.

    `m_last` says whether the initializer of the weights has m last.
    """

    w: Array  # int8
    scale: Array  # float32 [m]
    bias: Array  # int32 [m]
    x: Quantization
    y: Quantization
    m_last: bool

    @property
    def attributes(self) -> dict[str, int]:
        return {"x_zero": self.x.zero, **self.y.attributes()}


def _product(
    x: Quantization | None, w: Operand, w_scale: Operand, w_zero: Operand, y: Quantization | None,
    bias: Operand, m_last: bool = False,
) -> _Product | None:  # fmt: skip
    """The constants; None if weights are not constant, or not symmetric."""
    if x is None or y is None or not isinstance(w, np.ndarray) or isinstance(bias, Value):
        return None
    if not isinstance(w_scale, np.ndarray) or isinstance(w_zero, Value) or not w.size:
        return None
    m = len(w)
    shapes = (), (1,), (m,)
    if w_scale.shape not in shapes or w_scale.dtype != np.float32 or w.dtype not in _TYPES:
        return None
    center = 128 if w.dtype == np.uint8 else 0
    zeros = np.zeros(1, w.dtype) if w_zero is None else w_zero
    if zeros.shape not in shapes or (zeros != center).any():
        return None
    if bias is not None and (bias.dtype != np.int32 or bias.shape != (m,)):
        return None
    signed = (w ^ np.uint8(128)).view(np.int8) if center else w
    with np.errstate(all="ignore"):
        scale = (x.scale * np.broadcast_to(w_scale.reshape(-1), m)) / y.scale
    total = np.zeros(m, np.int32) if bias is None else bias.reshape(-1)
    return _Product(signed, scale.astype(np.float32), total, x, y, m_last)


@lower("QLinearConv")
@lower("QLinearConv", domain=MICROSOFT)
def qlinear_conv(
    c: Capture, x: Value | Array, x_scale: Operand, x_zero: Operand, w: Operand, w_scale: Operand,
    w_zero: Operand, y_scale: Operand, y_zero: Operand, b: Operand = None, *,
    auto_pad: str = "NOTSET", channels_last: int = 0, dilations: list[int] | None = None,
    group: int = 1, kernel_shape: list[int] | None = None, pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Value | None:  # fmt: skip
    """Convolutions with constant, symmetric weights."""
    source = quantization(x_scale, x_zero)
    constants = _product(source, w, w_scale, w_zero, quantization(y_scale, y_zero), b)
    if constants is None or channels_last or not isinstance(x, Value):
        return None
    if constants.x.dtype != x.dtype or not isinstance(w, np.ndarray):
        return None
    m, channels, *kernel = constants.w.shape
    if constants.w.ndim != len(x.shape) or list(kernel_shape or kernel) != kernel:
        return None
    if channels * group != x.shape[1] or m % group:
        return None
    window = sliding(x, kernel, strides, dilations, pads, auto_pad)
    if window is None:
        return None
    depthwise = group == m == x.shape[1] and math.prod(kernel) <= ops.MAX_TAPS
    y = _convolved(c, w, constants, image(c, x), window, 0 if depthwise else group)
    return result(c, y, len(x.shape))


def _convolved(
    c: Capture, w: Array, constants: _Product, x: Buffer, window: Sliding, groups: int
) -> Buffer:
    """The integers [n, p, q, m]; groups = 0 is depthwise. `w` is the initializer of the weights."""
    m, attributes = len(constants.w), {**window.attributes, **constants.attributes}
    bias = c.program.constant("bias", constants.bias)
    scale = c.program.constant("scale", constants.scale)
    rows = constants.w.reshape(m, -1)
    sums = floats(c, w, f"sums {constants.m_last}", lambda: rows.sum(axis=1, dtype=np.int32))
    if not groups:
        by_tap = floats(c, w, "by tap", lambda: np.ascontiguousarray(rows.T.astype(np.float32)))
        y: Buffer = ops.conv2d_depthwise_quantized(x, by_tap, bias, sums, scale, **attributes)
        return _typed(y, constants.y.dtype)
    kernels = constants.w if constants.w.ndim == 4 else constants.w[:, :, None]  # a row
    joined = attributes["dilation_w"] == 1
    packed = floats(
        c, w, f"packed {groups} {joined} {constants.m_last}",
        lambda: ops.pack_quantized(kernels, groups, joined=joined),
    )  # fmt: skip
    y = ops.conv2d_quantized(x, packed, bias, sums, scale, groups=groups, **attributes)
    return _typed(y, constants.y.dtype)


def _multiplied(c: Capture, a: Value, w: Operand, constants: _Product | None) -> Value | None:
    """a [..., k] times weights [m, k, 1, 1]: a convolution with rows as pixels."""
    if constants is None or constants.x.dtype != a.dtype:
        return None
    if not a.size or not isinstance(w, np.ndarray):
        return None
    m, k = constants.w.shape[:2]
    if not a.shape or a.shape[-1] != k:
        return None
    rows = a.size // k
    pixels = Value(a.dtype, (1, k, 1, rows))
    window = sliding(pixels, (1, 1), None, None, None, "NOTSET")
    if window is None:
        return None
    y = _convolved(c, w, constants, c.plain(a).view((1, 1, rows, k)), window, 1)
    return c.value(y, (*a.shape[:-1], m))


def _as_kernels(b: Operand, transposed: bool) -> Array | None:
    """A constant matrix [k, m], or [m, k], as weights [m, k, 1, 1]."""
    if not isinstance(b, np.ndarray) or b.ndim != 2:
        return None
    return np.ascontiguousarray(b if transposed else b.T)[:, :, None, None]


@lower("QGemm", domain=MICROSOFT)
def qgemm(
    c: Capture, a: Value | Array, a_scale: Operand, a_zero: Operand, b: Operand, b_scale: Operand,
    b_zero: Operand, bias: Operand = None, y_scale: Operand = None, y_zero: Operand = None, *,
    alpha: float = 1.0, transA: int = 0, transB: int = 0,
) -> Value | None:  # fmt: skip
    """Products with a constant matrix, with quantized results."""
    w = _as_kernels(b, bool(transB))
    if not isinstance(a, Value) or len(a.shape) != 2 or transA or alpha != 1 or w is None:
        return None
    if y_zero is None:
        return None
    source, to = quantization(a_scale, a_zero), quantization(y_scale, y_zero, a.dtype)
    constants = _product(source, w, b_scale, b_zero, to, bias, m_last=not transB)
    return _multiplied(c, a, b, constants)


@lower("QLinearMatMul")
def qlinear_matmul(
    c: Capture, a: Value | Array, a_scale: Operand, a_zero: Operand, b: Operand, b_scale: Operand,
    b_zero: Operand, y_scale: Operand, y_zero: Operand,
) -> Value | None:  # fmt: skip
    """Products with a constant matrix that has one scale, or one for each column."""
    w = _as_kernels(b, transposed=False)
    if not isinstance(a, Value) or w is None:
        return None
    source, to = quantization(a_scale, a_zero), quantization(y_scale, y_zero)
    constants = _product(source, w, b_scale, b_zero, to, None, m_last=True)
    return _multiplied(c, a, b, constants)


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
            shape = tuple(int(d) for d in ours.shape)  # type: ignore[arg-type]
            total = _typed(y, to.dtype).view(shape)
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
    like = "" if x is None else _TYPES.get(x.dtype, "")
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
