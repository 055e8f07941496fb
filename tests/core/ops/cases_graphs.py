"""Cases of operators of all kinds of graphs: functions, moves, reductions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from tests.core.ops.case import EPS, TINY, Case, activations

from halfbyte.core import ops
from halfbyte.core.ops.elementwise import BINARY, UNARY
from halfbyte.core.ops.reduce import REDUCTIONS

EDGES = np.array(
    [-3e38, -1e4, -104, -88, -9.5, -1, -0.6251, -0.5, -1e-30, -0.0, 0, 1e-30, 0.4999, 1, 88, 1e4],
    np.float32,
)


def binary() -> Iterator[Case]:
    """Both operands full; one of them a row, a number, a column; both repeated."""
    full = [2, 3, 1, 2]
    plans = {
        "full": ([*full], [1, 1, 1, 1], [1, 1, 1, 1], 1, 1),
        "row": ([*full], [1, 1, 1, 1], [0, 0, 0, 0], 1, 1),
        "number": ([*full], [0, 0, 0, 0], [1, 1, 1, 1], 0, 1),
        "column": ([*full], [1, 1, 1, 1], [0, 1, 0, 0], 1, 0),
        "outer": ([*full], [1, 0, 0, 1], [0, 1, 0, 0], 1, 0),
    }
    for label, (sizes, x_kept, y_kept, x_step, y_step) in plans.items():
        for d in (1, 5, 16, 37):
            n = int(np.prod(sizes)) * d
            x_plan, x_size = _strides(sizes, x_kept, d, x_step)
            y_plan, y_size = _strides(sizes, y_kept, d, y_step)
            x, y = activations(1, x_size)[0], activations(2, y_size)[1] + np.float32(1)
            operands = {
                "x": x, "y": y, "plan": np.array([*sizes, *x_plan, *y_plan], np.int32),
            }  # fmt: skip
            for function in BINARY if d == 37 else ("sub",):
                attributes = {
                    "function": function, "n": n, "d": d, "x_step": x_step, "y_step": y_step,
                }  # fmt: skip
                yield Case(f"{function}-{label}-{d}", ops.binary, operands, attributes)


def _strides(sizes: list[int], kept: list[int], d: int, step: int) -> tuple[list[int], int]:
    """Strides of an operand that lacks the dimensions not kept, and its number of elements."""
    strides, size = [0] * len(sizes), d if step else 1
    for i in reversed(range(len(sizes))):
        if kept[i]:
            strides[i] = size
            size *= sizes[i]
    return strides, size


def unary() -> Iterator[Case]:
    """Errors are relative to the result; of tanh, erf and sigmoid also to their range."""
    limits = {
        "clip": (-0.5, 6.0),
        "tanh": (1.5, 0.0),
        "leaky_relu": (0.1, 0.0),
        "hard_sigmoid": (0.2, 0.5),
    }
    for function in UNARY:
        alpha, beta = limits.get(function, (0.0, 0.0))
        attributes = {"function": function, "alpha": alpha, "beta": beta}
        for n in (1, 15, 16, 17, 100):
            x = activations(1, n + 40, spread=3)[0, 40:]
            positive = function in ("sqrt", "reciprocal", "log")
            x = np.abs(x) + np.float32(0.01) if positive else x
            yield _unary_case(f"{function}-{n}", x, attributes)
        if function not in ("sqrt", "reciprocal", "exp", "log"):
            yield _unary_case(f"{function}-edges", EDGES, attributes)
    attributes = {"function": "log", "alpha": 0.0, "beta": 0.0}
    x = np.array([1e-45, 1e-40, 1.1e-38, 0.7, 0.71, 1.42, 3.4e38], np.float32)
    yield _unary_case("log-small", x, attributes)
    special = np.array([[0.0, -0.0, np.inf, -np.inf, np.nan, -1.0, 1.0]], np.float32)
    yield Case("log-exact", ops.unary, {"x": special}, attributes)


def casts() -> Iterator[Case]:
    """Integers that float32 cannot represent, including ties, and the limits of int64."""
    near = [(1 << 24) + i for i in range(-2, 7)]
    edges = [*near, *(-i for i in near), 0, -1, (1 << 31) - 1, -(1 << 31)]
    wide = [(1 << 60) + i for i in (0, 1 << 36, (1 << 36) + 1, 3 << 36)]
    wide += [(1 << 63) - 1, -(1 << 63), (1 << 53) + 1]
    for n in (1, 16, 37):
        yield Case(f"{n}", ops.cast, {"x": np.resize(np.array(wide + edges, np.int64), n)})


def _unary_case(label: str, x: npt.NDArray[np.float32], attributes: dict[str, Any]) -> Case:
    exact = ("relu", "clip", "neg", "abs", "sqrt", "reciprocal")
    x = x.reshape(-1, 5 if len(x) == 100 else 1)
    case = Case(label, ops.unary, {"x": x}, attributes)
    function = attributes["function"]
    if function not in exact:
        wide = np.abs(x.astype(np.float64))
        # erf's approximation; a sum near zero of terms of the size of 1, or of x
        slack = {"erf": 2e-7, "hard_sigmoid": EPS, "hard_swish": EPS * wide}.get(str(function), 0)
        case.bound = 12 * EPS * np.abs(case.expected()[0].astype(np.float64)) + slack + TINY
    return case


def moves() -> Iterator[Case]:
    """Permuted dimensions, every second element, a repetition, parts of rows."""
    x = np.arange(2 * 3 * 4 * 5 * 7, dtype=np.int32)
    for label, sizes, strides, d, step, offset in (
        ("exchanged", (2, 4, 3, 5), (420, 35, 140, 7), 7, 1, 0),
        ("transposed", (1, 2, 3, 4), (0, 420, 140, 35), 5, 7, 0),
        ("second", (1, 1, 1, 24), (0, 0, 0, 35), 17, 2, 1),
        ("repeated", (1, 2, 1, 3), (0, 0, 0, 5), 33, 0, 11),
        ("part", (1, 1, 1, 1), (0, 0, 0, 0), 100, 1, 700),
    ):
        plan = np.array([*sizes, *strides], np.int32)
        n = int(np.prod(sizes)) * d
        attributes = {"n": n, "d": d, "step": step, "offset": offset}
        yield Case(label, ops.move, {"x": x, "plan": plan}, attributes)
    for n, d, t, offset in ((1, 1, 1, 0), (3, 5, 9, 2), (4, 33, 40, 7)):
        y = np.full((n, t), 9, np.int32)
        part = np.arange(n * d, dtype=np.int32).reshape(n, d)
        yield Case(f"{n}-{d}", ops.concat_part, {"y": y, "x": part}, {"offset": offset})


def reductions() -> Iterator[Case]:
    """Along rows and across them."""
    for a, b, c in ((1, 1, 1), (3, 15, 1), (2, 16, 1), (2, 57, 1), (2, 5, 3), (1, 9, 33)):
        x = activations(a, b * c).reshape(a, b, c)
        for function in REDUCTIONS:
            size = np.abs(x).astype(np.float64).sum(axis=1)
            bound = None if function in ("max", "min") else (b + 2) * EPS * size + TINY
            attributes = {"function": function}
            yield Case(f"{function}-{a}x{b}x{c}", ops.reduce, {"x": x}, attributes, bound=bound)
    for function, value in (
        ("min", np.inf),
        ("max", -np.inf),
    ):  # the largest and smallest there are
        for b, c in ((19, 1), (19, 3)):
            x = np.full((2, b, c), value, np.float32)
            yield Case(f"{function}-infinite-{b}x{c}", ops.reduce, {"x": x}, {"function": function})


FAMILIES = (binary, casts, unary, moves, reductions)
