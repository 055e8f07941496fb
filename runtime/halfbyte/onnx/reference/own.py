"""Operators of halfbyte's own domain, which fused graphs alone have."""

from __future__ import annotations

import numpy as np

from halfbyte.onnx.reference import _shapes
from halfbyte.onnx.reference._attention import softmax
from halfbyte.onnx.reference.activation import gelu, relu
from halfbyte.onnx.reference.arrays import Array, working
from halfbyte.onnx.reference.registry import define

DOMAIN = "ai.halfbyte"


@define("Linear", domain=DOMAIN, infer=_shapes.product, types="a a a > a")
def linear(x: Array, w: Array, bias: Array, *, activation: str = "") -> Array:
    """y = activation(x w + bias): x [..., k], w [k, n], bias [n]; Relu, Gelu, FastGelu (tanh).

    Source: ONNX MatMul, Add, Relu, Gelu.
    """
    y: Array = np.asarray(working(x) @ working(w) + bias).astype(x.dtype, copy=False)
    if activation == "Relu":
        return relu(y)
    if activation:
        return gelu(y, approximate="tanh" if activation == "FastGelu" else "none")
    return y


@define("ScaledKernel", domain=DOMAIN, types="- - > -")
def scaled_kernel(w: Array, factor: Array) -> Array:
    """w' = w factor by output channel: w [m, ...], factor float64 [m]."""
    return np.asarray(w * factor.reshape(-1, *[1] * (w.ndim - 1))).astype(w.dtype)


@define("Attention", domain=DOMAIN, product=True, infer=_shapes.same_rank, types="a a a a > a")
def attention(q: Array, k: Array, v: Array, mask: Array | None = None, *, scale: float) -> Array:
    """y = softmax(scale q k' + mask) v, of [batch, heads, n, d] each, as graphs spell it out.

    All is broadcast as NumPy does it; a query that sees no key has a result of zeros.

    Source: ONNX MatMul, Mul, Add, Softmax, MatMul.
    """
    if {q.ndim, k.ndim, v.ndim} != {4}:
        raise ValueError(f"ranks {q.ndim}, {k.ndim} and {v.ndim}, expected 4")
    queries, keys, values = working(q), working(k), working(v)
    scores = np.matmul(queries * queries.dtype.type(scale), keys.swapaxes(2, 3))
    if mask is not None:
        scores = scores + working(mask)
    return np.asarray(np.matmul(softmax(scores), values)).astype(q.dtype, copy=False)
