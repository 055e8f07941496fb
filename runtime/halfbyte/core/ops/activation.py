"""Activation functions, softmax, and sums and products of rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.core.ops.operator import Demand, operator

Array = npt.NDArray[Any]
F32 = npt.NDArray[np.float32]

ROWS: dict[str, Demand] = {"p = 1 or p = n": lambda d: d["p"] in (1, d["n"])}


@operator("Softmax", "x:f32[n,d] -> y:f32[n,d]", rows="n")
def softmax(x: F32) -> F32:
    """y = exp(x - max) / sum exp(x - max), per row. Source: ONNX Softmax (opset 13)."""
    return softmax_of(x)


def softmax_of(x: Array, axis: int = -1) -> Array:
    """exp(x) / sum exp(x) in x's type."""
    powers = np.exp(x - x.max(axis=axis, keepdims=True, initial=-np.inf))
    y: Array = powers / powers.sum(axis=axis, keepdims=True)
    return y


def log_softmax_of(x: Array, axis: int = -1) -> Array:
    """x - log(sum exp(x)) in x's type."""
    shifted = x - x.max(axis=axis, keepdims=True, initial=-np.inf)
    y: Array = shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True))
    return y


@operator("Swish", "x:f32[n,d] -> y:f32[n,d]", rows="n", like="swiglu_quantize")
def silu(x: F32) -> F32:
    """y = x / (1 + exp(-x)). Source: ONNX Swish (opset 24) with alpha = 1."""
    with np.errstate(over="ignore"):
        y: F32 = (x / (1 + np.exp(-x))).astype(np.float32, copy=False)
    return y


@operator(
    "Gelu",
    "x:f32[n,d] -> y:f32[n,d]",
    variant=lambda attributes: "tanh" if attributes["approximate"] == "tanh" else "erf",
    rows="n",
)
def gelu(x: F32, *, approximate: str) -> F32:
    """Gaussian error linear unit; `approximate` is "none" (erf) or "tanh".

    x (1 + erf(x / sqrt 2)) / 2, or x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2.

    Source: ONNX Gelu (opset 20); Hendrycks and Gimpel 2016.
    """
    return gelu_of(x.astype(np.float64), approximate).astype(np.float32)


def gelu_of(x: Array, approximate: str) -> Array:
    """As :func:`gelu`, in x's type."""
    if approximate == "tanh":
        inner = np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))
    else:
        inner = erf(x / math.sqrt(2))
    y: Array = x * (1 + inner) / 2
    return y


def erf(x: Array) -> Array:
    """2 / sqrt(pi) times the integral of exp(-t^2) from 0 to x; in float64, as `x`'s type."""
    y = np.fromiter(map(math.erf, x.reshape(-1).tolist()), np.float64, x.size)
    return y.astype(x.dtype).reshape(x.shape)


@operator(
    "Add",
    "x:f32[n,d] y:f32[p,d] -> z:f32[n,d]",
    demands=ROWS,
    like="binary",
)
def add(x: F32, y: F32) -> F32:
    """z = x + y; y has as many rows as x, or one. Source: ONNX Add."""
    return x + y


@operator(
    "Mul",
    "x:f32[n,d] y:f32[p,d] -> z:f32[n,d]",
    demands=ROWS,
    like="binary",
)
def mul(x: F32, y: F32) -> F32:
    """z = x * y; y has as many rows as x, or one. Source: ONNX Mul."""
    return x * y
