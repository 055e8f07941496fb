"""Activations, element by element, computed in float32 or wider."""

from __future__ import annotations

import numpy as np

from halfbyte.core.ops.activation import gelu_of
from halfbyte.core.ops.elementwise import UNARY
from halfbyte.errors import ProgramError
from halfbyte.onnx.reference import _shapes
from halfbyte.onnx.reference._numbers import Array, channels, per_channel, rounded, widened
from halfbyte.onnx.reference.registry import define

SELU_ALPHA = 1.67326319217681884765625  # defaults of ONNX's attributes
SELU_GAMMA = 1.05070102214813232421875


def sigmoid_of(x: Array) -> Array:
    """1 / (1 + exp(-x)), in `x`'s float type; without overflow."""
    small = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, 1, small) / (1 + small))


def softplus_of(x: Array) -> Array:
    """log(1 + exp(x)) without overflow."""
    return np.asarray(np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))))


def elu_of(x: Array, alpha: float) -> Array:
    """x, below zero alpha * (exp(x) - 1)."""
    return np.asarray(np.where(x < 0, alpha * np.expm1(np.minimum(x, 0)), x))


def softsign_of(x: Array) -> Array:
    """x / (1 + |x|)."""
    return np.asarray(x / (1 + np.abs(x)))


def thresholded_of(x: Array, alpha: float) -> Array:
    """x where it exceeds alpha, else 0."""
    return np.asarray(np.where(x > np.float32(alpha), x, 0))


@define("Relu", since=1, infer=_shapes.same)
def relu(x: Array) -> Array:
    """max(x, 0). ONNX Relu-1, -6, -13, -14 (integers too)."""
    return np.asarray(UNARY["relu"](x, 0, 0))


@define("LeakyRelu", since=1, infer=_shapes.same)
def leaky_relu(x: Array, *, alpha: float = 0.01) -> Array:
    """x, below zero alpha * x. ONNX LeakyRelu-1, -6, -16."""
    return rounded(UNARY["leaky_relu"](widened(x), alpha, 0), x.dtype)


@define("PRelu", since=7, infer=_shapes.same)
def prelu(x: Array, slope: Array) -> Array:
    """x, below zero slope * x; slope is broadcast to x. ONNX PRelu-7, -9, -16."""
    wide = widened(x)
    scaled = widened(slope) * wide
    if scaled.shape != x.shape:
        raise ProgramError(
            f"slope {list(slope.shape)}: expected to be broadcast to {list(x.shape)}"
        )
    return rounded(np.where(wide < 0, scaled, wide), x.dtype)


@define("PRelu", since=6, infer=_shapes.same)
def prelu_6(x: Array, slope: Array) -> Array:
    """The same with one slope for all, or one per channel (axis 1). ONNX PRelu-6."""
    count = x.shape[1] if x.ndim > 1 else 1
    return prelu(x, channels(per_channel(slope, count, "slope"), max(x.ndim, 2)))


@define("Elu", since=1, infer=_shapes.same)
def elu(x: Array, *, alpha: float = 1.0) -> Array:
    """x, below zero alpha * (exp(x) - 1). ONNX Elu-1, -6, -22."""
    return rounded(elu_of(widened(x), alpha), x.dtype)


@define("Selu", since=1, infer=_shapes.same)
def selu(x: Array, *, alpha: float = SELU_ALPHA, gamma: float = SELU_GAMMA) -> Array:
    """gamma * (x, at zero and below alpha * (exp(x) - 1)). ONNX Selu-1, -6, -22."""
    return rounded(gamma * elu_of(widened(x), alpha), x.dtype)


@define("Celu", since=12, infer=_shapes.same)
def celu(x: Array, *, alpha: float = 1.0) -> Array:
    """max(0, x) + min(0, alpha * (exp(x / alpha) - 1)). ONNX Celu-12, -28."""
    wide = widened(x)
    return rounded(np.maximum(wide, 0) + np.minimum(alpha * np.expm1(wide / alpha), 0), x.dtype)


@define("ThresholdedRelu", since=10, infer=_shapes.same)
def thresholded_relu(x: Array, *, alpha: float = 1.0) -> Array:
    """x where it exceeds alpha, else 0. ONNX ThresholdedRelu-10, -22."""
    return rounded(thresholded_of(widened(x), alpha), x.dtype)


@define("Sigmoid", since=1, infer=_shapes.same)
def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)). ONNX Sigmoid-1, -6, -13."""
    return rounded(sigmoid_of(widened(x)), x.dtype)


@define("HardSigmoid", since=1, infer=_shapes.same)
def hard_sigmoid(x: Array, *, alpha: float = 0.2, beta: float = 0.5) -> Array:
    """max(0, min(1, alpha * x + beta)). ONNX HardSigmoid-1, -6, -22."""
    return rounded(UNARY["hard_sigmoid"](widened(x), alpha, beta), x.dtype)


@define("HardSwish", since=14, infer=_shapes.same)
def hard_swish(x: Array) -> Array:
    """x * max(0, min(1, x / 6 + 1 / 2)). ONNX HardSwish-14, -22."""
    return rounded(UNARY["hard_swish"](widened(x), 0, 0), x.dtype)


@define("Mish", since=18, infer=_shapes.same)
def mish(x: Array) -> Array:
    """x * tanh(log(1 + exp(x))). ONNX Mish-18, -22."""
    wide = widened(x)
    return rounded(wide * np.tanh(softplus_of(wide)), x.dtype)


@define("Softplus", since=1, infer=_shapes.same)
def softplus(x: Array) -> Array:
    """log(1 + exp(x)). ONNX Softplus-1, -22."""
    return rounded(softplus_of(widened(x)), x.dtype)


@define("Softsign", since=1, infer=_shapes.same)
def softsign(x: Array) -> Array:
    """x / (1 + |x|). ONNX Softsign-1, -22."""
    return rounded(softsign_of(widened(x)), x.dtype)


@define("Gelu", since=20, infer=_shapes.same)
def gelu(x: Array, *, approximate: str = "none") -> Array:
    """x (1 + erf(x / sqrt 2)) / 2, or x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2.

    approximate is "none" or "tanh". ONNX Gelu-20.
    """
    if approximate not in ("none", "tanh"):
        raise ProgramError(f"approximate {approximate!r}: expected none or tanh")
    return rounded(gelu_of(widened(x), approximate), x.dtype)


@define("Swish", since=24, infer=_shapes.same)
def swish(x: Array, *, alpha: float = 1.0) -> Array:
    """x / (1 + exp(-alpha * x)). ONNX Swish-24."""
    wide = widened(x)
    return rounded(wide * sigmoid_of(alpha * wide), x.dtype)


@define("SwiGLU", since=28, infer=_shapes.same)
def swiglu(a: Array, b: Array, *, alpha: float = 1.0) -> Array:
    """a / (1 + exp(-alpha * a)) * b, of equal shapes. ONNX SwiGLU-28."""
    if a.shape != b.shape:
        raise ProgramError(f"shapes {list(a.shape)} and {list(b.shape)}: expected equal ones")
    wide = widened(a)
    return rounded(wide * sigmoid_of(alpha * wide) * widened(b), a.dtype)


@define("Shrink", since=9, infer=_shapes.same)
def shrink(x: Array, *, bias: float = 0.0, lambd: float = 0.5) -> Array:
    """x + bias below -lambd, x - bias above lambd, else 0. ONNX Shrink-9."""
    wide = x.astype(np.float64) if x.dtype.kind in "iu" else widened(x)
    result = np.where(wide < -lambd, wide + bias, np.where(wide > lambd, wide - bias, 0))
    return rounded(result, x.dtype)
