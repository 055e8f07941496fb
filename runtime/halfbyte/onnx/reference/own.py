"""Operators of halfbyte's own domain, which only fused graphs have."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from halfbyte.onnx.reference import _shapes
from halfbyte.onnx.reference._attention import softmax
from halfbyte.onnx.reference._numbers import rounded, widened
from halfbyte.onnx.reference.activation import gelu, relu
from halfbyte.onnx.reference.arrays import Array, axis_of, working
from halfbyte.onnx.reference.normalization import root_mean_square, standardized
from halfbyte.onnx.reference.registry import define

DOMAIN = "ai.halfbyte"


@define("Linear", domain=DOMAIN, infer=_shapes.product, types="a - a > a")
def linear(x: Array, w: Array, bias: Array, *, activation: str = "") -> Array:
    """y = activation(x w + bias): x [..., k], w [k, n], bias [n]; Relu, Gelu, FastGelu (tanh).

    The matrix may be float16 where x is float32.

    Source: ONNX MatMul, Add, Relu, Gelu.
    """
    y: Array = np.asarray(working(x) @ working(w) + bias).astype(x.dtype, copy=False)
    if activation == "Relu":
        return relu(y)
    if activation:
        return gelu(y, approximate="tanh" if activation == "FastGelu" else "none")
    return y


@define("QuantizeDequantize", domain=DOMAIN, types="- a > a", infer=_shapes.same, special=True)
def quantize_dequantize(x: Array, scale: Array, *, low: int, high: int) -> Array:
    """y = scale round(x / scale), as a whole number from low to high; one scale, NaN stays NaN.

    Source: ONNX QuantizeLinear, DequantizeLinear.
    """
    step = widened(scale).reshape(())
    whole = np.clip(np.rint(widened(x).astype(step.dtype) / step), low, high)
    return rounded(whole * step, scale.dtype)


@define("ScaledKernel", domain=DOMAIN, types="a - > a", infer=_shapes.same)
def scaled_kernel(w: Array, factor: Array) -> Array:
    """w' = w factor by output channel: w [m, ...], factor float64 [m]."""
    factors = factor.reshape(-1, *[1] * (w.ndim - 1))
    # rounded as it is computed: float64 of a whole kernel would take more time than the products
    return np.multiply(w, factors, out=np.empty_like(w), dtype=np.float64, casting="unsafe")


def _layer_norm(x: Array, scale: Array, b: Array | None, epsilon: float) -> Array:
    y = standardized(x, (axis_of(-1, x.ndim),), epsilon)[0] * widened(scale)
    return y if b is None else y + widened(b)


@define("LayerNormalization", domain=DOMAIN, infer=_shapes.together, types="a a a > a")
def layer_normalization(
    x: Array, scale: Array, b: Array | None = None, *, epsilon: float = 1e-5
) -> Array:
    """y = (x - mean) / sqrt(variance + epsilon) scale + b along the last axis of x.

    Unlike ONNX's LayerNormalization it broadcasts rows of one number to the scale and the bias.

    Source: ONNX ReduceMean, Sub, Pow, Add, Sqrt, Div, Mul, Add.
    """
    return rounded(_layer_norm(widened(x), scale, b, epsilon), x.dtype)


@define("RMSNormalization", domain=DOMAIN, infer=_shapes.together, types="a a > a")
def rms_normalization(x: Array, scale: Array, *, epsilon: float = 1e-5) -> Array:
    """y = x / sqrt(mean(x^2) + epsilon) scale along the last axis of x, broadcast likewise.

    Source: ONNX Pow, ReduceMean, Add, Sqrt, Div, Mul.
    """
    wide = widened(x)
    y = wide / root_mean_square(wide, (axis_of(-1, x.ndim),), epsilon) * widened(scale)
    return rounded(y, x.dtype)


def _skipped(x: Array, skip: Array, *vectors: Array | None, epsilon: float) -> _shapes.Shapes:
    """Shapes of the normalized sum, and of the sum."""
    total = np.broadcast_shapes(x.shape, skip.shape)
    return [np.broadcast_shapes(total, *(v.shape for v in vectors if v is not None)), total]


@define("SkipLayerNormalization", domain=DOMAIN, types="a a a a > a", infer=_shapes.Rule(_skipped))
def skip_layer_normalization(
    x: Array, skip: Array, scale: Array, b: Array | None = None, *, epsilon: float
) -> tuple[Array, Array]:
    """LayerNormalization of x + skip, and that sum.

    Source: ONNX Add, and those of LayerNormalization.
    """
    total = widened(x) + widened(skip)
    return rounded(_layer_norm(total, scale, b, epsilon), x.dtype), rounded(total, x.dtype)


def _attended(
    q: Array, k: Array, v: Array, mask: Array | None = None, **attributes: Any
) -> _shapes.Shape:
    scores = _shapes.after_product(q.shape, (*k.shape[:2], k.shape[3], k.shape[2]))
    scores = scores if mask is None else np.broadcast_shapes(scores, mask.shape)
    return _shapes.after_product(scores, v.shape)


@define(
    "Attention", domain=DOMAIN, product=True, types="a a a a > a",
    infer=_shapes.Rule(_attended, _shapes.most_rank.rank),
)  # fmt: skip
def attention(
    q: Array, k: Array, v: Array, mask: Array | None = None, *, scale: float, axis: int = -1,
    to_end: int = 0,
) -> Array:  # fmt: skip
    """y = softmax(scale q k' + mask) v, of [batch, heads, n, d] each, as graphs spell it out.

    Operands are broadcast as by NumPy; the result of a query that sees no key is zeros. The softmax
    is along `axis`, which is the last or 3, or along all from 3 on if `to_end`: they differ where
    the mask has more than four axes.

    Source: ONNX MatMul, Mul, Add, Softmax, MatMul.
    """
    if {q.ndim, k.ndim, v.ndim} != {4}:
        raise ValueError(f"ranks {q.ndim}, {k.ndim} and {v.ndim}, expected 4")
    queries, keys, values = working(q), working(k), working(v)
    scores = np.matmul(queries * queries.dtype.type(scale), keys.swapaxes(2, 3))
    if mask is not None:
        scores = scores + working(mask)
    shape = scores.shape
    if to_end:
        scores = scores.reshape(*shape[:axis], math.prod(shape[axis:]))
        axis = -1
    weights = np.moveaxis(softmax(np.moveaxis(scores, axis, -1)), -1, axis).reshape(shape)
    return np.asarray(np.matmul(weights, values)).astype(q.dtype, copy=False)
