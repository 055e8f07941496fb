"""Rules of convolutions and products of 8-bit quantized operands, in integers."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from halfbyte.core import ops
from halfbyte.core.buffer import Buffer
from halfbyte.onnx.capture import Capture
from halfbyte.onnx.lowering.elementwise import combine
from halfbyte.onnx.lowering.linear import matmul
from halfbyte.onnx.lowering.move import along, sliced
from halfbyte.onnx.lowering.quantized import (
    TYPES,
    Quantization,
    dequantized,
    quantization,
    quantized,
    typed,
)
from halfbyte.onnx.lowering.registry import MICROSOFT, lower
from halfbyte.onnx.lowering.sliding import Sliding, floats, image, result, sliding
from halfbyte.onnx.values import Array, Operand, Value, key_of

EXACT = 2**24 // 255**2  # so many products of bytes have an exact sum in float32


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
    if w_scale.shape not in shapes or w_scale.dtype != np.float32 or w.dtype not in TYPES:
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
    if window is None or window.volume:
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
        return typed(y, constants.y.dtype)
    kernels = constants.w if constants.w.ndim == 4 else constants.w[:, :, None]  # a row
    joined = attributes["dilation_w"] == 1
    packed = floats(
        c, w, f"packed {groups} {joined} {constants.m_last}",
        lambda: ops.pack_quantized(kernels, groups, joined=joined),
    )  # fmt: skip
    y = ops.conv2d_quantized(x, packed, bias, sums, scale, groups=groups, **attributes)
    return typed(y, constants.y.dtype)


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
    """Products with a constant matrix that has one scale, or one for each column; other products
    in floats, whose sums are exact."""
    w = _as_kernels(b, transposed=False)
    source, to = quantization(a_scale, a_zero), quantization(y_scale, y_zero)
    if isinstance(a, Value) and w is not None:
        constants = _product(source, w, b_scale, b_zero, to, None, m_last=True)
        y = _multiplied(c, a, b, constants)
        if y is not None:
            return y
    if source is None or to is None or b is None or not a.shape:
        return None
    other = quantization(b_scale, b_zero)
    if other is None or min(len(a.shape), len(b.shape)) < 2:
        return None
    left, right = _centred(c, a, source), _centred(c, b, other)
    total = None if left is None or right is None else _exactly(c, left, right)
    with np.errstate(all="ignore"):
        factor = source.scale * other.scale / to.scale
    scaled = None if total is None else combine(c, "mul", total, np.asarray(factor, np.float32))
    return None if scaled is None else quantized(c, scaled, replace(to, scale=np.float32(1)))


def _exactly(c: Capture, x: Value | Array, w: Value | Array) -> Value | None:
    """x [..., n, k] times w [..., k, m], both whole numbers; parts of k have exact sums."""
    k, total = x.shape[-1], None
    if w.shape[-2] != k or not k:
        return None
    for first in range(0, k, EXACT):
        last = min(first + EXACT, k)
        part = matmul(c, _part(c, x, -1, first, last), _part(c, w, -2, first, last))
        if part is None:
            return None
        total = part if total is None else combine(c, "add", total, part)
    return total


def _part(c: Capture, x: Value | Array, axis: int, first: int, last: int) -> Any:
    """Elements [first, last) of one of the last two axes."""
    if isinstance(x, Value):
        axis += len(x.shape)
        return sliced(c, x, along(x.shape, axis, (first, 1, last - first)))
    return np.ascontiguousarray(x[..., first:last] if axis == -1 else x[..., first:last, :])


def _centred(c: Capture, x: Value | Array, q: Quantization) -> Value | Array | None:
    """The integers of a tensor minus their zero point, as floats."""
    if key_of(x) != q.dtype:
        return None
    if isinstance(x, Value):
        return dequantized(c, x, replace(q, scale=np.float32(1)))
    return x.astype(np.float32) - np.float32(q.zero)
