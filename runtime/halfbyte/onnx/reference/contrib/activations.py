"""Forms of GELU, and sums fused with an activation."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.onnx.reference import _shapes
from halfbyte.onnx.reference._attention import softmax
from halfbyte.onnx.reference._numbers import rounded, vector, widened
from halfbyte.onnx.reference.contrib._common import contrib, gelu, gelu_tanh, sigmoid

Array = npt.NDArray[Any]


@contrib("Gelu", infer=_shapes.same, types="a > a")
def gelu_(x: Array) -> Array:
    """x Φ(x)."""
    return rounded(gelu(widened(x)), x.dtype)


def _bias(b: Array, x: Array) -> Array:
    """A bias over the last axis of x."""
    return vector(widened(b), x.shape[-1] if x.ndim else 1, "bias")


@contrib("BiasGelu", infer=_shapes.same, types="a a > a")
def bias_gelu(a: Array, b: Array) -> Array:
    """gelu(a + b); b is over the last axis."""
    return rounded(gelu(widened(a) + _bias(b, a)), a.dtype)


@contrib("FastGelu", infer=_shapes.same, types="a a > a")
def fast_gelu(x: Array, bias: Array | None = None) -> Array:
    """GELU of x + bias, by tanh."""
    whole = widened(x) if bias is None else widened(x) + _bias(bias, x)
    return rounded(gelu_tanh(whole), x.dtype)


@contrib("GemmFastGelu", infer=_shapes.product, types="a a a > a")
def gemm_fast_gelu(x: Array, w: Array, bias: Array | None = None) -> Array:
    """GELU of x w + bias, by tanh."""
    product = widened(x) @ widened(w)
    return rounded(gelu_tanh(product if bias is None else product + widened(bias)), x.dtype)


@contrib("QuickGelu", infer=_shapes.same, types="a > a")
def quick_gelu(x: Array, *, alpha: float = 1.702) -> Array:
    """x sigmoid(alpha x)."""
    wide = widened(x)
    return rounded(wide * sigmoid(np.asarray(alpha, wide.dtype) * wide), x.dtype)


@contrib("ScaledSiLU", infer=_shapes.same, types="a > a")
def scaled_silu(x: Array, scale: Array | None = None, *, alpha: float = 1.0) -> Array:
    """x sigmoid(alpha x), times `scale` where there is one."""
    wide = widened(x)
    result = wide * sigmoid(np.asarray(alpha, wide.dtype) * wide)
    return rounded(result if scale is None else result * widened(scale), x.dtype)


@contrib("BiasAdd", infer=_shapes.same, types="a > a")
def bias_add(x: Array, bias: Array, skip: Array) -> Array:
    """x + bias + skip; bias is over the last axis."""
    return rounded(widened(x) + widened(bias) + widened(skip), x.dtype)


@contrib(
    "BiasSplitGelu",
    infer=_shapes.alike(lambda x, bias: (*x.shape[:-1], x.shape[-1] // 2)),
    types="a a > a",
)
def bias_split_gelu(x: Array, bias: Array) -> Array:
    """left gelu(right), where left and right are x + bias split along the last axis."""
    left, right = np.split(widened(x) + widened(bias), 2, axis=-1)
    return rounded(left * gelu(right), x.dtype)


@contrib("BiasSoftmax", infer=_shapes.same, types="a > a")
def bias_softmax(data: Array, bias: Array, *, is_inner_broadcast: int, axis: int = 1) -> Array:
    """softmax(data + bias) over all axes from `axis` on.

    Missing axes of bias are its inner ones before `axis` if `is_inner_broadcast`, else its outer.
    """
    axis %= data.ndim
    wide = widened(data)
    added = widened(bias)
    if is_inner_broadcast:
        outer = len([1 for a, b in zip(data.shape[:axis], bias.shape, strict=False) if a == b])
        outer = min(outer, bias.ndim - (data.ndim - axis))
        shape = (*bias.shape[:outer], *[1] * (axis - outer), *data.shape[axis:])
        added = added.reshape(shape)
    whole = wide + added
    rows = whole.reshape(*whole.shape[:axis], -1)
    return rounded(softmax(rows).reshape(data.shape), data.dtype)
