"""Nodes that compute with codes of eight bits: convolutions and products in integers.

Scales and zero points are constants, one a tensor, of weights also one a channel. What has no
kernel of its own goes through floats.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from halfbyte.core import ops
from halfbyte.core.program import Buffer
from halfbyte.onnx.capture import Capture
from halfbyte.onnx.lowering.conv import Sliding, floats, image, result, sliding
from halfbyte.onnx.lowering.elementwise import apply, combine, is_channels_last
from halfbyte.onnx.lowering.registry import MICROSOFT, lower, rule_of
from halfbyte.onnx.values import Array, Operand, Value

_TYPES = {np.dtype(np.uint8): "u8", np.dtype(np.int8): "i8"}


@dataclass(frozen=True)
class Meaning:
    """What codes of a tensor mean: (code - zero) scale."""

    scale: np.float32
    zero: int
    dtype: str  # u8 or i8

    @property
    def limits(self) -> tuple[int, int]:
        """The least and the largest code."""
        return (0, 255) if self.dtype == "u8" else (-128, 127)

    def attributes(self, prefix: str = "y_") -> dict[str, int]:
        """Of a kernel that rounds to such codes."""
        low, high = self.limits
        return {f"{prefix}zero": self.zero, "lo": low, "hi": high}


def meaning(scale: Operand, zero: Operand, like: str = "") -> Meaning | None:
    """Of constants; a zero point that is left out is 0, of the type `like`."""
    if not isinstance(scale, np.ndarray) or isinstance(zero, Value) or scale.size != 1:
        return None
    if scale.dtype != np.float32 or (zero is not None and zero.size != 1):
        return None
    if scale.ndim > 1 or (zero is not None and zero.ndim > 1) or not 0 < scale < np.inf:
        return None
    dtype = like if zero is None else _TYPES.get(zero.dtype, "")
    if dtype not in ("u8", "i8"):
        return None
    return Meaning(scale.reshape(-1)[0], 0 if zero is None else int(zero.reshape(-1)[0]), dtype)


def _typed(buffer: Buffer, dtype: str) -> Buffer:
    """Bytes under the type that they are meant in."""
    return buffer.view(tuple(int(d) for d in buffer.shape), dtype)  # type: ignore[arg-type]


def _anywhere(c: Capture, x: Value, change: Callable[[Buffer], Buffer]) -> Value:
    """A function of each number of x, which stays where it lies."""
    last = is_channels_last(x)
    buffer = c.channels_last(x) if last else c.plain(x)
    made = change(buffer.view((x.size,))).view(tuple(int(d) for d in buffer.shape))  # type: ignore[arg-type]
    return c.value_channels_last(made) if last else c.value(made, x.shape)


def quantized(c: Capture, x: Value, as_: Meaning) -> Value:
    """Codes of float32."""

    def change(flat: Buffer) -> Buffer:
        y = ops.quantize_linear(flat, scale=float(as_.scale), **as_.attributes(""))
        return _typed(y, as_.dtype)

    return _anywhere(c, x, change)


def dequantized(c: Capture, x: Value, as_: Meaning) -> Value:
    """Floats of codes."""

    def change(flat: Buffer) -> Buffer:
        made: Buffer = ops.dequantize_linear(flat, scale=float(as_.scale), zero=as_.zero)
        return made

    return _anywhere(c, x, change)


@lower("QuantizeLinear")
@lower("QuantizeLinear", domain=MICROSOFT)
def quantize_linear(
    c: Capture, x: Value, y_scale: Operand, y_zero: Operand = None, *,
    output_dtype: int = 0, block_size: int = 0, precision: int = 0, **attributes: Any,
) -> Value | None:  # fmt: skip
    """Of float32, with one scale, to uint8 or int8."""
    as_ = meaning(y_scale, y_zero, {0: "u8", 2: "u8", 3: "i8"}.get(output_dtype, ""))
    if as_ is None or x.dtype != "f32" or block_size or precision or not x.size:
        return None
    return quantized(c, x, as_)


@lower("DequantizeLinear")
@lower("DequantizeLinear", domain=MICROSOFT)
def dequantize_linear(
    c: Capture, x: Value | Array, x_scale: Operand, x_zero: Operand = None, *, block_size: int = 0,
    output_dtype: int = 0, **attributes: Any,
) -> Value | None:  # fmt: skip
    """Of uint8 or int8, with one scale, to float32."""
    if not isinstance(x, Value):
        return None
    as_ = meaning(x_scale, x_zero, x.dtype)
    if as_ is None or as_.dtype != x.dtype or block_size or output_dtype not in (0, 1):
        return None
    return dequantized(c, x, as_) if x.size else None


# ---- convolutions and products -------------------------------------------------------------------


@dataclass(frozen=True)
class _Product:
    """Constants of a convolution or product of codes: weights [m, ...] and what they mean.

    `turned` says whether the constant that the weights were made of has m last.
    """

    w: Array  # int8
    scale: Array  # float32 [m]
    bias: Array  # int32 [m]
    x: Meaning
    y: Meaning
    turned: bool

    @property
    def attributes(self) -> dict[str, int]:
        return {"x_zero": self.x.zero, **self.y.attributes()}


def _product(
    x: Meaning | None, w: Operand, w_scale: Operand, w_zero: Operand, y: Meaning | None,
    bias: Operand, turned: bool = False,
) -> _Product | None:  # fmt: skip
    """None where weights are not symmetric, or not constant."""
    if x is None or y is None or not isinstance(w, np.ndarray) or isinstance(bias, Value):
        return None
    if not isinstance(w_scale, np.ndarray) or isinstance(w_zero, Value) or not w.size:
        return None
    m = len(w)
    shapes = (), (1,), (m,)
    if w_scale.shape not in shapes or w_scale.dtype != np.float32 or w.dtype not in _TYPES:
        return None
    centre = 128 if w.dtype == np.uint8 else 0
    zeros = np.zeros(1, w.dtype) if w_zero is None else w_zero
    if zeros.shape not in shapes or (zeros != centre).any():
        return None
    if bias is not None and (bias.dtype != np.int32 or bias.shape != (m,)):
        return None
    codes = (w ^ np.uint8(128)).view(np.int8) if centre else w
    with np.errstate(all="ignore"):
        scale = (x.scale * np.broadcast_to(w_scale.reshape(-1), m)) / y.scale
    total = np.zeros(m, np.int32) if bias is None else bias.reshape(-1)
    return _Product(codes, scale.astype(np.float32), total, x, y, turned)


@lower("QLinearConv")
@lower("QLinearConv", domain=MICROSOFT)
def qlinear_conv(
    c: Capture, x: Value | Array, x_scale: Operand, x_zero: Operand, w: Operand, w_scale: Operand,
    w_zero: Operand, y_scale: Operand, y_zero: Operand, b: Operand = None, *,
    auto_pad: str = "NOTSET", channels_last: int = 0, dilations: list[int] | None = None,
    group: int = 1, kernel_shape: list[int] | None = None, pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Value | None:  # fmt: skip
    """With constant weights, symmetric ones."""
    source = meaning(x_scale, x_zero)
    found = _product(source, w, w_scale, w_zero, meaning(y_scale, y_zero), b)
    if found is None or channels_last or not isinstance(x, Value) or found.x.dtype != x.dtype:
        return None
    if not isinstance(w, np.ndarray):
        return None
    m, channels, *kernel = found.w.shape
    if found.w.ndim != len(x.shape) or list(kernel_shape or kernel) != kernel:
        return None
    if channels * group != x.shape[1] or m % group:
        return None
    window = sliding(x, kernel, strides, dilations, pads, auto_pad)
    if window is None:
        return None
    depthwise = group == m == x.shape[1] and math.prod(kernel) <= ops.MAX_TAPS
    y = _convolved(c, w, found, image(c, x), window, 0 if depthwise else group)
    return result(c, y, len(x.shape))


def _convolved(
    c: Capture, w: Array, found: _Product, x: Buffer, window: Sliding, groups: int
) -> Buffer:
    """Codes [n, p, q, m]; groups 0 are as many as channels. `w` names the constant."""
    m, attributes = len(found.w), {**window.attributes, **found.attributes}
    bias = c.program.constant("bias", found.bias)
    scale = c.program.constant("scale", found.scale)
    rows = found.w.reshape(m, -1)
    sums = floats(c, w, f"sums {found.turned}", lambda: rows.sum(axis=1, dtype=np.int32))
    if not groups:
        by_tap = floats(c, w, "by tap", lambda: np.ascontiguousarray(rows.T.astype(np.float32)))
        y: Buffer = ops.conv2d_depthwise_quantized(x, by_tap, bias, sums, scale, **attributes)
        return _typed(y, found.y.dtype)
    kernels = found.w if found.w.ndim == 4 else found.w[:, :, None]  # a row
    joined = attributes["dilation_w"] == 1
    packed = floats(
        c, w, f"packed {groups} {joined} {found.turned}",
        lambda: ops.pack_quantized(kernels, groups, joined=joined),
    )  # fmt: skip
    y = ops.conv2d_quantized(x, packed, bias, sums, scale, groups=groups, **attributes)
    return _typed(y, found.y.dtype)


def _multiplied(c: Capture, a: Value, w: Operand, found: _Product | None) -> Value | None:
    """a [..., k] times weights [m, k, 1, 1]: a convolution whose pixels are the rows."""
    if found is None or found.x.dtype != a.dtype or not a.size or not isinstance(w, np.ndarray):
        return None
    m, k = found.w.shape[:2]
    if not a.shape or a.shape[-1] != k:
        return None
    rows = a.size // k
    pixels = Value(a.dtype, (1, k, 1, rows))
    window = sliding(pixels, (1, 1), None, None, None, "NOTSET")
    if window is None:
        return None
    y = _convolved(c, w, found, c.plain(a).view((1, 1, rows, k)), window, 1)
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
    """With a constant matrix, to codes."""
    w = _as_kernels(b, bool(transB))
    if not isinstance(a, Value) or len(a.shape) != 2 or transA or alpha != 1 or w is None:
        return None
    if y_zero is None:
        return None
    found = _product(
        meaning(a_scale, a_zero), w, b_scale, b_zero, meaning(y_scale, y_zero, a.dtype), bias,
        turned=not transB,
    )  # fmt: skip
    return _multiplied(c, a, b, found)


@lower("QLinearMatMul")
def qlinear_matmul(
    c: Capture, a: Value | Array, a_scale: Operand, a_zero: Operand, b: Operand, b_scale: Operand,
    b_zero: Operand, y_scale: Operand, y_zero: Operand,
) -> Value | None:  # fmt: skip
    """With a constant matrix; one scale, or one a column."""
    w = _as_kernels(b, transposed=False)
    if not isinstance(a, Value) or w is None:
        return None
    to = meaning(y_scale, y_zero)
    found = _product(meaning(a_scale, a_zero), w, b_scale, b_zero, to, None, turned=True)
    return _multiplied(c, a, b, found)


# ---- sums, and what goes through floats ----------------------------------------------------------


@lower("QLinearAdd", domain=MICROSOFT)
def qlinear_add(
    c: Capture, a: Operand, a_scale: Operand, a_zero: Operand, b: Operand, b_scale: Operand,
    b_zero: Operand, y_scale: Operand, y_zero: Operand = None,
) -> Value | None:  # fmt: skip
    """Of two values of the same shape in integers, others through floats."""
    if isinstance(a, Value) and isinstance(b, Value) and a.shape == b.shape and a.size:
        left, right = meaning(a_scale, a_zero, a.dtype), meaning(b_scale, b_zero, b.dtype)
        to = meaning(y_scale, y_zero, a.dtype)
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
            made = _typed(y, to.dtype).view(shape)
            return c.value_channels_last(made) if last else c.value(made, a.shape)
    return _pair(c, "add", (a, a_scale, a_zero), (b, b_scale, b_zero), y_scale, y_zero)


@lower("QLinearMul", domain=MICROSOFT)
def qlinear_mul(
    c: Capture, a: Operand, a_scale: Operand, a_zero: Operand, b: Operand, b_scale: Operand,
    b_zero: Operand, y_scale: Operand, y_zero: Operand = None,
) -> Value | None:  # fmt: skip
    """Through floats."""
    return _pair(c, "mul", (a, a_scale, a_zero), (b, b_scale, b_zero), y_scale, y_zero)


Part = tuple[Operand, Operand, Operand]  # codes, scale, zero point


def _pair(
    c: Capture, function: str, a: Part, b: Part, y_scale: Operand, y_zero: Operand
) -> Value | None:
    reals = [_real(c, part) for part in (a, b)]
    like = next((v.dtype for v in (a[0], b[0]) if isinstance(v, Value)), "")
    to = meaning(y_scale, y_zero, like)
    if to is None or reals[0] is None or reals[1] is None:
        return None
    made = combine(c, function, reals[0], reals[1])
    return None if made is None else quantized(c, made, to)


def _real(c: Capture, part: Part) -> Value | Array | None:
    """Floats of codes; of constants too."""
    codes, scale, zero = part
    if isinstance(codes, Value):
        as_ = meaning(scale, zero, codes.dtype)
        known = as_ is not None and as_.dtype == codes.dtype and codes.size
        return dequantized(c, codes, as_) if as_ is not None and known else None
    like = "" if codes is None else _TYPES.get(codes.dtype, "")
    as_ = meaning(scale, zero, like)
    if codes is None or as_ is None:
        return None
    real: Array = (codes.astype(np.int32) - as_.zero).astype(np.float32) * as_.scale
    return real


@lower(
    "QLinearGlobalAveragePool", "QLinearAveragePool", "QLinearSigmoid", "QLinearLeakyRelu",
    domain=MICROSOFT,
)  # fmt: skip
def single(
    c: Capture, x: Value, x_scale: Operand, x_zero: Operand, y_scale: Operand,
    y_zero: Operand = None, *, channels_last: int = 0, **attributes: Any,
) -> Value | None:  # fmt: skip
    """The function of floats, between."""
    to = meaning(y_scale, y_zero, x.dtype)
    real = _real(c, (x, x_scale, x_zero))
    if channels_last or to is None or not isinstance(real, Value):
        return None
    name = c.node.op_type.removeprefix("QLinear")
    if name == "Sigmoid":
        made = apply(c, real, "sigmoid")
    elif name == "LeakyRelu":
        made = apply(c, real, "leaky_relu", attributes.get("alpha", 0.01))
    else:
        rule = rule_of("", name)
        made = None if rule is None else rule(c, real, **attributes)
    return None if made is None else quantized(c, made, to)
