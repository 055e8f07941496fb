"""Elementwise functions of one operand, and of two with broadcasting."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.core.ops.activation import erf
from halfbyte.core.ops.demands import planned
from halfbyte.core.ops.operator import operator

F32 = npt.NDArray[np.float32]
I32 = npt.NDArray[np.int32]

PLAN_DIMS = 4  # outer dimensions of a plan; elementwise/broadcast.inc has the same number

BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
}


def strided(x: npt.NDArray[Any], plan: I32, strides: I32, n: int, d: int, step: int) -> Any:
    """n elements in rows of d, gathered by a plan's sizes and `strides`."""
    sizes = [int(size) for size in plan[:PLAN_DIMS]]
    return walked(x, (*sizes, d), (*map(int, strides), step)).reshape(n)


def walked(x: npt.NDArray[Any], shape: Sequence[int], strides: Sequence[int]) -> npt.NDArray[Any]:
    """A view of x with this shape, and strides in elements."""
    steps = [stride * x.itemsize for stride in strides]
    return np.lib.stride_tricks.as_strided(x, shape, steps, writeable=False)


@operator(
    "Binary",
    "x:f32[k] y:f32[m] plan:i32[12] -> z:f32[n]",
    reads={"plan": lambda d: 0},
    variant=lambda attributes: str(attributes["function"]),
    demands={
        "a constant plan": lambda d: "plan" in d,
        "x_step, y_step of 0 or 1": lambda d: {d["x_step"], d["y_step"]} <= {0, 1},
        "d of 1 and more and n = d sizes": lambda d: (
            d["d"] >= 1 and d["n"] == d["d"] * math.prod(d["plan"][:PLAN_DIMS].tolist())
        ),
        "plan, d and x_step inside of x: k": lambda d: planned(
            d, d["k"], 0, d["plan"][PLAN_DIMS : 2 * PLAN_DIMS], d["x_step"]
        ),
        "plan, d and y_step inside of y: m": lambda d: planned(
            d, d["m"], 0, d["plan"][2 * PLAN_DIMS :], d["y_step"]
        ),
    },
)
def binary(
    x: F32, y: F32, plan: I32, *, function: str, n: int, d: int, x_step: int, y_step: int
) -> F32:
    """z = x op y, op being add, sub, mul or div, with broadcasting.

    z has n elements in rows of d, with four outer dimensions: `plan` has their sizes, and the
    strides of x and of y over them, in elements. Along a row x and y advance by their step, 0 or 1.

    Source: ONNX Add, Sub, Mul, Div; broadcasting as NumPy's.
    """
    xs = strided(x, plan, plan[PLAN_DIMS : 2 * PLAN_DIMS], n, d, x_step)
    ys = strided(y, plan, plan[2 * PLAN_DIMS :], n, d, y_step)
    with np.errstate(all="ignore"):
        z: F32 = BINARY[function](xs, ys)
    return z


def _sigmoid(x: Any, alpha: float, beta: float) -> Any:
    return 1 / (1 + np.exp(-x))


UNARY: dict[str, Callable[[Any, float, float], Any]] = {
    "relu": lambda x, a, b: np.maximum(x, 0),
    "clip": lambda x, a, b: np.minimum(np.maximum(x, a), b),
    "leaky_relu": lambda x, a, b: np.where(x < 0, a * x, x),
    "sigmoid": _sigmoid,
    "hard_sigmoid": lambda x, a, b: np.clip(a * x + b, 0, 1),
    "hard_swish": lambda x, a, b: x * np.clip(x / 6 + 0.5, 0, 1),
    "tanh": lambda x, a, b: a * np.tanh(x / a),
    "erf": lambda x, a, b: erf(x),
    "exp": lambda x, a, b: np.exp(x),
    "log": lambda x, a, b: np.log(x),
    "sqrt": lambda x, a, b: np.sqrt(x),
    "reciprocal": lambda x, a, b: 1 / x,
    "neg": lambda x, a, b: -x,
    "abs": lambda x, a, b: np.abs(x),
    "softplus": lambda x, a, b: np.logaddexp(0, x),
}


@operator("Cast", "x:i64[n] -> y:f32[n]")
def cast(x: npt.NDArray[np.int64]) -> F32:
    """y = x as the nearest float32. Source: ONNX Cast (opset 13)."""
    return x.astype(np.float32)


@operator(
    "Unary",
    "x:f32[n,d] -> y:f32[n,d]",
    variant=lambda attributes: str(attributes["function"]),
    rows="n",
)
def unary(x: F32, *, function: str, alpha: float = 1.0, beta: float = 0.0) -> F32:
    """y = f(x): ONNX's functions of one number, under their names in snake case.

    relu max(x, 0); clip min(max(x, alpha), beta); leaky_relu x, and alpha x below 0; sigmoid
    1 / (1 + exp(-x)); hard_sigmoid min(max(alpha x + beta, 0), 1); hard_swish x times that of
    x / 6 + 1 / 2; tanh, which is alpha tanh(x / alpha), ONNX's with an alpha of 1; erf, exp, log,
    sqrt, reciprocal, neg, abs; softplus log(1 + exp(x)).

    Source: ONNX's operators of these names.
    """
    rounded = np.array([alpha, beta], np.float32).tolist()  # as in kernels
    with np.errstate(all="ignore"):
        wide = UNARY[function](x.astype(np.float64), rounded[0], rounded[1])
        y: F32 = wide.astype(np.float32)
    return y
