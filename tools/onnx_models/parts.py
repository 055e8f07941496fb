"""Parts of transformers, in the forms that exporters write."""

from __future__ import annotations

import numpy as np
from tools.onnx_models.builder import FLOAT, GraphBuilder
from tools.onnx_models.weights import F32Array

LOWEST = float(np.finfo(np.float32).min)


def linear(g: GraphBuilder, x: str, name: str, weight: F32Array, bias: F32Array) -> str:
    """MatMul with `weight` [in, out] and Add of `bias` [out], the bias first, as exporters do."""
    y = g.node("MatMul", x, g.weight(f"{name}.weight", weight))
    return g.node("Add", g.weight(f"{name}.bias", bias), y)


def layer_norm(
    g: GraphBuilder, x: str, name: str, gain: F32Array, bias: F32Array, epsilon: float,
    *, decomposed: bool = False, output: str = "",
) -> str:  # fmt: skip
    """(x - mean) / sqrt(variance + epsilon) gain + bias over the last axis."""
    scale, shift = g.weight(f"{name}.weight", gain), g.weight(f"{name}.bias", bias)
    if not decomposed:
        return g.node(
            "LayerNormalization", x, scale, shift, output=output, axis=-1, epsilon=epsilon
        )
    centred = g.node("Sub", x, g.reduce_mean(x, -1))
    variance = g.reduce_mean(g.node("Pow", centred, g.constant(2.0)), -1)
    deviation = g.node("Sqrt", g.node("Add", variance, g.constant(epsilon)))
    y = g.node("Mul", g.node("Div", centred, deviation), scale)
    return g.node("Add", y, shift, output=output)


def gelu(g: GraphBuilder, x: str, spelling: str) -> str:
    """x Φ(x); "erf" and "op" are exact, "tanh" approximates (Hendrycks and Gimpel 2016)."""
    if spelling == "op":
        return g.node("Gelu", x)
    if spelling == "erf":
        y = g.node("Erf", g.node("Div", x, g.constant(2**0.5)))
        y = g.node("Mul", x, g.node("Add", y, g.constant(1.0)))
        return g.node("Mul", y, g.constant(0.5))
    if spelling == "tanh":
        half = g.node("Mul", x, g.constant(0.5))
        cubic = g.node("Mul", g.node("Pow", x, g.constant(3.0)), g.constant(0.044715))
        inner = g.node("Mul", g.node("Add", x, cubic), g.constant((2 / np.pi) ** 0.5))
        return g.node("Mul", half, g.node("Add", g.node("Tanh", inner), g.constant(1.0)))
    raise ValueError(f"gelu: expected 'erf', 'op' or 'tanh', found {spelling!r}")


def masked(g: GraphBuilder, mask: str) -> str:
    """(1 - mask) times the lowest float32, to be added to the scores of masked tokens."""
    inverse = g.node("Sub", g.constant(1.0), g.node("Cast", mask, to=FLOAT))
    return g.node("Mul", inverse, g.constant(LOWEST))


def split_heads(g: GraphBuilder, x: str, heads: int, size: int, order: list[int]) -> str:
    """[batch, sequence, heads size] to [batch, sequence, heads, size], then transposed."""
    shape = g.shape_of(g.dim(x, 0), g.dim(x, 1), heads, size)
    return g.node("Transpose", g.node("Reshape", x, shape), perm=order)


def merge_heads(g: GraphBuilder, x: str, width: int) -> str:
    """[batch, heads, sequence, size] to [batch, sequence, width]."""
    x = g.node("Transpose", x, perm=[0, 2, 1, 3])
    return g.node("Reshape", x, g.shape_of(g.dim(x, 0), g.dim(x, 1), width))
