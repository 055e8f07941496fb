"""Arithmetic element by element, with NumPy's broadcasting.

Results have the inputs' type: integers wrap, and their divisions are truncated towards zero.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from halfbyte.core.ops.activation import erf
from halfbyte.onnx.reference import _shapes
from halfbyte.onnx.reference.arrays import Array, as_type, axis_of, check_elements, numbers
from halfbyte.onnx.reference.registry import define


def broadcast(function: Callable[..., Any], *parts: Array) -> Array:
    """A function of arrays that NumPy broadcasts, after a check of the result's size."""
    if sum(part.size > 1 for part in parts) > 1 and len({part.shape for part in parts}) > 1:
        shape = np.broadcast_shapes(*(part.shape for part in parts))
        check_elements(shape, parts[-1].dtype.itemsize)
    return np.asarray(function(*parts))


def declare_unary(name: str, since: int, function: Callable[[Array], Any]) -> None:
    """Declare an operator that is a NumPy function of one array."""

    @define(name, since=since, infer=_shapes.same)
    def meaning(X: Array) -> Array:
        return np.asarray(function(X))

    meaning.__doc__ = f"Y = {getattr(function, '__name__', name)}(X). ONNX {name}-{since}."


def declare_binary(name: str, since: int, function: Callable[[Array, Array], Any]) -> None:
    """Declare an operator that is a NumPy function of two arrays, which broadcast."""

    @define(name, since=since, infer=_shapes.together)
    def meaning(A: Array, B: Array) -> Array:
        return broadcast(function, A, B)

    meaning.__doc__ = f"C = {getattr(function, '__name__', name)}(A, B). ONNX {name}-{since}."
    if since > 7:
        return

    def shape(
        A: Array, B: Array, *, axis: int | None = None, broadcast: int = 0, **others: Any
    ) -> Any:
        place = axis if broadcast else None
        return np.broadcast_shapes(
            A.shape, B.shape if place is None else along(B, A.ndim, place).shape
        )

    @define(name, infer=_shapes.Rule(shape))
    def by_attributes(
        A: Array,
        B: Array,
        *,
        axis: int | None = None,
        broadcast: int = 0,
        consumed_inputs: list[int] | None = None,
    ) -> Array:
        return meaning(A, along(B, A.ndim, axis) if broadcast and axis is not None else B)

    by_attributes.__doc__ = f"The same; B's first axis is A's `axis`. ONNX {name}-1 to {name}-6."


def along(B: Array, rank: int, axis: int) -> Array:
    """B with axes of size 1 appended, so that its first axis is `axis` of `rank`."""
    return B.reshape(B.shape + (1,) * (rank - axis_of(axis, rank) - B.ndim))


def divide(A: Array, B: Array) -> Array:
    """A / B; integers are truncated towards zero, and give 0 where B is 0."""
    if A.dtype.kind not in "iu":
        return np.asarray(A / B)
    # The remainder has A's sign; without it, A divides evenly.
    return np.asarray((A - np.fmod(A, B)) // B)


UNARY: list[tuple[str, int, Callable[[Array], Any]]] = [
    ("Neg", 6, np.negative), ("Abs", 6, np.abs), ("Sqrt", 6, np.sqrt), ("Exp", 6, np.exp),
    ("Log", 6, np.log), ("Floor", 6, np.floor), ("Ceil", 6, np.ceil), ("Round", 11, np.rint),
    ("Sign", 9, np.sign), ("Erf", 9, erf), ("Reciprocal", 6, np.reciprocal),
    ("Sin", 7, np.sin), ("Cos", 7, np.cos), ("Tan", 7, np.tan),
    ("Asin", 7, np.arcsin), ("Acos", 7, np.arccos), ("Atan", 7, np.arctan),
    ("Sinh", 9, np.sinh), ("Cosh", 9, np.cosh), ("Tanh", 6, np.tanh),
    ("Asinh", 9, np.arcsinh), ("Acosh", 9, np.arccosh), ("Atanh", 9, np.arctanh),
]  # fmt: skip
for _name, _since, _unary in UNARY:
    declare_unary(_name, _since, _unary)

BINARY: list[tuple[str, int, Callable[[Array, Array], Any]]] = [
    ("Add", 7, np.add), ("Sub", 7, np.subtract), ("Mul", 7, np.multiply), ("Div", 7, divide),
]  # fmt: skip
for _name, _since, _binary in BINARY:
    declare_binary(_name, _since, _binary)


@define("Mod", since=10, infer=_shapes.together)
def mod(A: Array, B: Array, *, fmod: int = 0) -> Array:
    """A - floor(A / B) B, of B's sign; with `fmod` A - trunc(A / B) B, of A's. ONNX Mod-28."""
    return broadcast(np.fmod if fmod else np.mod, A, B)


@define("Pow", special=True, infer=_shapes.together)
def power_by_attributes(
    X: Array, Y: Array, *, axis: int | None = None, broadcast: int = 0
) -> Array:
    """The same; Y's first axis is X's `axis`. ONNX Pow-1."""
    return power(X, along(Y, X.ndim, axis) if broadcast and axis is not None else Y)


@define("Pow", since=7, special=True, infer=_shapes.together)
def power(X: Array, Y: Array) -> Array:
    """X^Y in X's type, whatever Y's type is. ONNX Pow-15.

    Integers keep their low bits; a negative power is 1 / X^-Y, truncated towards zero.
    """
    base, exponent = numbers(X), numbers(Y)
    if base.dtype.kind not in "iu":
        return as_type(broadcast(np.power, base, exponent), X.dtype)
    if exponent.dtype.kind not in "iu":
        return broadcast(np.power, base.astype(np.float64), exponent).astype(X.dtype)
    low_bits = broadcast(
        np.power, base.astype(np.uint64), np.maximum(exponent, 0).astype(np.uint64)
    ).astype(X.dtype)
    parity = np.where(exponent % 2 == 0, 1, base)
    inverse = np.where(np.abs(base) == 1, parity, 0)
    return np.where(exponent < 0, inverse, low_bits).astype(X.dtype)


def declare_variadic(name: str, since: int, function: Callable[[Array, Array], Any]) -> None:
    """Declare an operator that reduces one or more arrays to one."""

    @define(name, since=since, infer=_shapes.together)
    def meaning(*parts: Array) -> Array:
        return functools.reduce(functools.partial(broadcast, function), parts)

    meaning.__doc__ = f"{function.__name__} over all inputs. ONNX {name}-{since}."


for _name, _since, _folded in (
    ("Sum", 6, np.add),
    ("Min", 6, np.minimum),
    ("Max", 6, np.maximum),
):
    declare_variadic(_name, _since, _folded)


@define("Mean", since=6, infer=_shapes.together)
def mean(*parts: Array) -> Array:
    """The sum of all inputs, divided by their number. ONNX Mean-13."""
    total = functools.reduce(functools.partial(broadcast, np.add), parts)
    return np.asarray(total / total.dtype.type(len(parts)))


@define("Clip", since=6, infer=_shapes.same)
def clip_by_attributes(X: Array, *, min: float | None = None, max: float | None = None) -> Array:
    """min(max(X, `min`), `max`). ONNX Clip-6."""
    limits = [None if limit is None else np.asarray(limit, X.dtype) for limit in (min, max)]
    return clip(X, *limits)


@define("Clip", since=11, infer=_shapes.same)
def clip(X: Array, low: Array | None = None, high: Array | None = None) -> Array:
    """min(max(X, low), high): high where low is above it. Limits are scalars. ONNX Clip-13."""
    if low is not None:
        X = np.asarray(np.maximum(X, low.reshape(())))
    if high is not None:
        X = np.asarray(np.minimum(X, high.reshape(())))
    return X
