"""Sums and products of rows, activation functions, and softmax."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.core import ops
from halfbyte.core.buffer import Buffer
from halfbyte.core.instruction import Instruction
from halfbyte.core.ops.activation import erf
from halfbyte.errors import ProgramError
from halfbyte.quantize.tuning.gradients.rules import definition, rule

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]


@definition("x:f32[n,d] -> y:f32[p,d]")
def sum_rows(x: F32, *, p: int) -> F32:
    """The sum of all rows, as p = 1 row."""
    y: F32 = x.sum(axis=0, keepdims=True)
    return y


def _second(i: Instruction, dy: Buffer) -> Buffer:
    """The gradient of an operand with as many rows as the first one, or one."""
    x, y = i.inputs
    if y.shape == x.shape:
        return dy
    if y.shape[0] != 1:
        raise ProgramError(f"{i.operator.name}: no gradient where n = {x.shape[0]} may be 1")
    summed: Buffer = sum_rows(dy, p=1)
    return summed


@rule(ops.add)
def _add(i: Instruction, dy: Buffer, wanted: Collection[str]) -> dict[str, Buffer]:
    return {"x": dy} | ({"y": _second(i, dy)} if "y" in wanted else {})


@rule(ops.mul)
def _mul(i: Instruction, dy: Buffer, wanted: Collection[str]) -> dict[str, Buffer]:
    x, y = i.inputs
    gradients = {}
    if "x" in wanted:
        gradients["x"] = ops.mul(dy, y)
    if "y" in wanted:
        gradients["y"] = _second(i, ops.mul(dy, x))
    return gradients


@definition("dy:f32[n,d] x:f32[n,d] -> dx:f32[n,d]")
def silu_dx(dy: F32, x: F32) -> F32:
    """Of y = x s with s = 1 / (1 + exp(-x)): dx = dy s (1 + x (1 - s))."""
    share = 1 / (1 + np.exp(-x))
    return np.asarray(dy * (share * (1 + x * (1 - share))), np.float32)


@rule(ops.silu)
def _silu(i: Instruction, dy: Buffer, wanted: Collection[str]) -> dict[str, Buffer]:
    return {"x": silu_dx(dy, *i.inputs)}


@definition("dy:f32[n,d] x:f32[n,d] -> dx:f32[n,d]")
def gelu_dx(dy: F32, x: F32, *, approximate: str) -> F32:
    """Of :func:`halfbyte.core.ops.gelu`: dx = dy (P(x) + x P'(x)), where y = x P(x)."""
    wide = x.astype(np.float64)
    if approximate == "tanh":
        a, b = math.sqrt(2 / math.pi), 0.044715
        inner = np.tanh(a * (wide + b * wide**3))
        slope = (1 - inner * inner) * a * (1 + 3 * b * wide * wide)
    else:
        inner = erf(wide / math.sqrt(2))
        slope = math.sqrt(2 / math.pi) * np.exp(-wide * wide / 2)
    dx: F32 = (dy * ((1 + inner) / 2 + wide * slope / 2)).astype(np.float32)
    return dx


@rule(ops.gelu)
def _gelu(i: Instruction, dy: Buffer, wanted: Collection[str]) -> dict[str, Buffer]:
    return {"x": gelu_dx(dy, *i.inputs, **i.attributes)}


def _sigmoid_slope(x: F64, a: float, b: float) -> Any:
    share = 1 / (1 + np.exp(-x))
    return share * (1 - share)


# f'(x) of `ops.unary`; at a corner that of one side
SLOPES: dict[str, Callable[[F64, float, float], Any]] = {
    "relu": lambda x, a, b: x > 0,
    "clip": lambda x, a, b: (x >= a) & (x <= b),
    "leaky_relu": lambda x, a, b: np.where(x < 0, a, 1),
    "sigmoid": _sigmoid_slope,
    "hard_sigmoid": lambda x, a, b: np.where(np.abs(a * x + b - 0.5) < 0.5, a, 0),
    "hard_swish": lambda x, a, b: np.where(np.abs(x) < 3, x / 3 + 0.5, x >= 3),
    "tanh": lambda x, a, b: 1 - np.tanh(x / a) ** 2,
    "erf": lambda x, a, b: 2 / math.sqrt(math.pi) * np.exp(-x * x),
    "exp": lambda x, a, b: np.exp(x),
    "sqrt": lambda x, a, b: 0.5 / np.sqrt(x),
    "reciprocal": lambda x, a, b: -1 / (x * x),
    "neg": lambda x, a, b: -1.0,
    "abs": lambda x, a, b: np.sign(x),
    "softplus": lambda x, a, b: 1 / (1 + np.exp(-x)),
}


@definition("dy:f32[n,d] x:f32[n,d] -> dx:f32[n,d]")
def unary_dx(dy: F32, x: F32, *, function: str, alpha: float, beta: float) -> F32:
    """Of y = f(x): dx = dy f'(x)."""
    with np.errstate(all="ignore"):
        dx: F32 = (dy * SLOPES[function](x.astype(np.float64), alpha, beta)).astype(np.float32)
    return dx


@rule(ops.unary)
def _unary(i: Instruction, dy: Buffer, wanted: Collection[str]) -> dict[str, Buffer]:
    return {"x": unary_dx(dy, *i.inputs, **i.attributes)}


@definition("dy:f32[n,d] y:f32[n,d] -> dx:f32[n,d]")
def softmax_dx(dy: F32, y: F32) -> F32:
    """Of y = softmax(x) of rows: dx = y (dy - sum(y dy))."""
    dx: F32 = y * (dy - (y * dy).sum(axis=-1, keepdims=True))
    return dx


@rule(ops.softmax)
def _softmax(i: Instruction, dy: Buffer, wanted: Collection[str]) -> dict[str, Buffer]:
    return {"x": softmax_dx(dy, i.outputs[0])}
