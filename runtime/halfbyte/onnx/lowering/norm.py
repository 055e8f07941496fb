"""Rules of normalizations over rows, also of sums, and of Gelu in its variants."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from halfbyte.core import ops
from halfbyte.onnx.capture import Capture
from halfbyte.onnx.lowering.elementwise import apply, combine, each_element
from halfbyte.onnx.lowering.registry import MICROSOFT, OWN, lower
from halfbyte.onnx.reference.arrays import axis_of
from halfbyte.onnx.values import Array, Operand, Value, is_channels_last, key_of


def _rows(x: Value, axis: int) -> tuple[int, int] | None:
    """Rows and columns of a tensor as a matrix whose rows begin at an axis."""
    rank = len(x.shape)
    axis = axis_of(axis, rank)
    if x.dtype != "f32" or not x.size:
        return None
    columns = math.prod(x.shape[axis:])
    return x.size // columns, columns


def _over(x: Value, factor: Value | Array, d: int) -> bool:
    """Whether a scale or bias has d numbers, one per column, and broadcasts to rows only."""
    shape = tuple(factor.shape)
    while shape[:1] == (1,):
        shape = shape[1:]
    return math.prod(shape) == d and shape == x.shape[len(x.shape) - len(shape) :]


def normalized(
    c: Capture, x: Value, scale: Operand, bias: Operand, epsilon: float, axis: int = -1
) -> Value | None:
    """(x - mean) / sqrt(variance + epsilon) scale + bias by rows."""
    sizes = _rows(x, axis)
    if sizes is None or scale is None or key_of(scale) != "f32":
        return None
    rows, d = sizes
    bias = np.zeros(d, np.float32) if bias is None else bias
    if key_of(bias) != "f32" or not _over(x, scale, d) or not _over(x, bias, d):
        return None
    y = ops.layer_norm(
        c.matrix(x, rows, d), c.plain(scale).view((d,)), c.plain(bias).view((d,)), epsilon=epsilon
    )
    return c.value(y, x.shape)


@lower("LayerNormalization")
def layer_normalization(
    c: Capture, x: Value, scale: Operand, bias: Operand = None, *, axis: int = -1,
    epsilon: float = 1e-5, **attributes: Any,
) -> Value | None:  # fmt: skip
    """LayerNormalization without its mean and deviation as outputs."""
    if any(c.node.outputs[1:]):
        return None
    return normalized(c, x, scale, bias, epsilon, axis)


lower("LayerNormalization", domain=OWN)(layer_normalization)


@lower("SkipLayerNormalization", domain=MICROSOFT)
def skip_layer_normalization(
    c: Capture, x: Operand, skip: Operand, gamma: Operand, beta: Operand = None,
    bias: Operand = None, *, epsilon: float = 1e-12, **attributes: Any,
) -> tuple[Value | None, ...] | None:  # fmt: skip
    """LayerNormalization of x + skip + bias; the sum is the fourth output."""
    total = summed(c, x, skip, bias, gamma, beta)
    y = None if total is None else normalized(c, total, gamma, beta, epsilon)
    return None if y is None or any(c.node.outputs[1:3]) else (y, None, None, total)


@lower("SkipLayerNormalization", domain=OWN)
def fused_skip_layer_normalization(
    c: Capture, x: Operand, skip: Operand, scale: Operand, bias: Operand = None, *, epsilon: float
) -> tuple[Value, Value] | None:
    """LayerNormalization of x + skip, fused; the sum is the second output."""
    total = summed(c, x, skip, None, scale, bias)
    y = None if total is None else normalized(c, total, scale, bias, epsilon)
    return None if y is None or total is None else (y, total)


def summed(c: Capture, x: Operand, skip: Operand, bias: Operand, *vectors: Operand) -> Value | None:
    """x + skip + bias, if the bias and `vectors` are vectors over the last axis."""
    if x is None or skip is None:
        return None
    total = combine(c, "add", x, skip)
    if total is None or not total.shape:
        return None
    if any(v is not None and v.shape != total.shape[-1:] for v in (bias, *vectors)):
        return None
    if bias is None:
        return total
    return combine(c, "add", total, bias)


def rms_normalized(c: Capture, x: Value, scale: Operand, epsilon: float, axis: int) -> Value | None:
    """x / sqrt(mean(x^2) + epsilon) scale by rows."""
    sizes = _rows(x, axis)
    if sizes is None or scale is None or key_of(scale) != "f32":
        return None
    rows, d = sizes
    if not _over(x, scale, d):
        return None
    y = ops.rms_norm(c.matrix(x, rows, d), c.plain(scale).view((d,)), epsilon=epsilon)
    return c.value(y, x.shape)


@lower("RMSNormalization", "SimplifiedLayerNormalization")
def rms_normalization(
    c: Capture, x: Value, scale: Operand, *, axis: int = -1, epsilon: float = 1e-5,
    **attributes: Any,
) -> Value | None:  # fmt: skip
    """RMSNormalization without its deviation as an output."""
    if any(c.node.outputs[1:]):
        return None
    return rms_normalized(c, x, scale, epsilon, axis)


lower("SimplifiedLayerNormalization", domain=MICROSOFT)(rms_normalization)
lower("RMSNormalization", domain=OWN)(rms_normalization)


@lower("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_rms_normalization(
    c: Capture, x: Operand, skip: Operand, gamma: Operand, bias: Operand = None, *,
    epsilon: float = 1e-12, **attributes: Any,
) -> tuple[Value | None, ...] | None:  # fmt: skip
    """RMSNormalization of x + skip + bias; the sum is the fourth output."""
    total = summed(c, x, skip, bias, gamma)
    y = None if total is None else rms_normalized(c, total, gamma, epsilon, -1)
    return None if y is None or any(c.node.outputs[1:3]) else (y, None, None, total)


@lower("Gelu")
def gelu(c: Capture, x: Value, *, approximate: str = "none") -> Value | None:
    """Gelu by erf or by tanh."""
    if x.dtype != "f32" or not x.size or approximate not in ("none", "tanh"):
        return None
    return each_element(
        c, x, lambda flat: ops.gelu(flat.view((1, x.size)), approximate=approximate)
    )


@lower("Gelu", "BiasGelu", "FastGelu", domain=MICROSOFT)
def microsoft_gelu(c: Capture, x: Value, bias: Operand = None) -> Value | None:
    """Gelu of x + bias: FastGelu by tanh, the others by erf."""
    total: Value | None = x
    if bias is not None:
        if not x.shape or bias.shape != (x.shape[-1],):
            return None
        total = combine(c, "add", x, bias)
    approximate = "tanh" if c.node.op_type == "FastGelu" else "none"
    return None if not isinstance(total, Value) else gelu(c, total, approximate=approximate)


def _by_channel(c: Capture, y: Value | None, scale: Operand, bias: Operand) -> Value | None:
    """y scale + bias by channel of y [n, c, ...]; factors of 1 and sums with 0 are left out."""
    for function, numbers, without in (("mul", scale, 1), ("add", bias, 0)):
        if y is None or numbers is None:
            return None
        if isinstance(numbers, np.ndarray):
            if (numbers == without).all():
                continue
            spread: Value | Array = numbers.reshape(-1, *[1] * (len(y.shape) - 2))
        else:
            spread = c.value(c.plain(numbers), (*numbers.shape, *[1] * (len(y.shape) - 2)))
        y = combine(c, function, y, spread)
    return y


def _grouped(c: Capture, x: Value, groups: int, epsilon: float) -> Value | None:
    """(x - mean) / sqrt(variance + epsilon) over each of the groups of channels of an image."""
    if x.dtype != "f32" or not x.size or len(x.shape) < 3 or groups < 1 or x.shape[1] % groups:
        return None
    if groups == x.shape[1] and is_channels_last(x):
        return _by_image(c, x, epsilon)
    rows = x.shape[0] * groups
    d = x.size // rows
    one, zero = (c.constant(np.full(d, value, np.float32)) for value in (1, 0))
    return c.value(ops.layer_norm(c.matrix(x, rows, d), one, zero, epsilon=epsilon), x.shape)


def _by_image(c: Capture, x: Value, epsilon: float) -> Value | None:
    """(x - mean) / sqrt(variance + epsilon) of each channel, which are last."""
    centred = combine(c, "sub", x, _mean(c, x))
    squares = None if centred is None else combine(c, "mul", centred, centred)
    if centred is None or squares is None:
        return None
    spread = combine(c, "add", _mean(c, squares), np.array(epsilon, np.float32))
    root = None if spread is None else apply(c, spread, "sqrt")
    return None if root is None else combine(c, "div", centred, root)


def _mean(c: Capture, x: Value) -> Value:
    """The mean of each channel, by one axis after the other: sums of few numbers are exacter."""
    y, (n, channels, *between) = c.channels_last(x), x.shape
    for i in reversed(range(len(between))):
        y = ops.reduce(y.view((n * math.prod(between[:i]), between[i], channels)), function="mean")
    return c.value_channels_last(y.view((n, *[1] * len(between), channels)))


@lower("InstanceNormalization")
def instance_normalization(
    c: Capture, x: Value, scale: Operand, bias: Operand, *, epsilon: float = 1e-5
) -> Value | None:
    """Each channel of each image by its own mean and variance."""
    if any(v is None or key_of(v) != "f32" or v.shape != x.shape[1:2] for v in (scale, bias)):
        return None
    return _by_channel(c, _grouped(c, x, x.shape[1], epsilon), scale, bias)


@lower("GroupNormalization")
def group_normalization(
    c: Capture, x: Value, scale: Operand, bias: Operand, *, num_groups: int,
    epsilon: float = 1e-5, stash_type: int = 1,
) -> Value | None:  # fmt: skip
    """Each group of channels by its own mean and variance; before version 21, scaled by group."""
    of = x.shape[1] if c.version >= 21 else num_groups
    if any(v is None or key_of(v) != "f32" or v.shape != (of,) for v in (scale, bias)):
        return None
    y = _grouped(c, x, num_groups, epsilon)
    if y is None or of == x.shape[1]:
        return _by_channel(c, y, scale, bias)
    parts = c.value(c.plain(y), (x.shape[0], num_groups, y.size // x.shape[0] // num_groups))
    scaled = _by_channel(c, parts, scale, bias)
    return None if scaled is None else c.value(c.plain(scaled), x.shape)
