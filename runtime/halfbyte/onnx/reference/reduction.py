"""Reductions over axes, and cumulative ones along an axis."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from halfbyte.onnx.reference import _shapes
from halfbyte.onnx.reference.arrays import Array, axes_of, axis_of, integers, scalar, working
from halfbyte.onnx.reference.math import divide
from halfbyte.onnx.reference.registry import define

Axes = tuple[int, ...]
Kernel = Callable[[Array, Axes], Array]  # keeps the axes, with size 1


def total(X: Array, axes: Axes) -> Array:
    """Sum of X; integers wrap."""
    return np.add.reduce(X, axis=axes, dtype=X.dtype, keepdims=True)


def mean(X: Array, axes: Axes) -> Array:
    """Sum of X by the number of its elements; integers are truncated towards zero."""
    count = math.prod(X.shape[axis] for axis in axes)
    return divide(total(X, axes), np.asarray(count).astype(X.dtype))


def product(X: Array, axes: Axes) -> Array:
    """Product of X; integers wrap."""
    return np.multiply.reduce(X, axis=axes, dtype=X.dtype, keepdims=True)


def lowest(dtype: np.dtype[Any]) -> Any:
    """The lowest value of the type."""
    if dtype.kind == "f":
        return -np.inf
    return np.iinfo(dtype).min if dtype.kind in "iu" else False


def highest(dtype: np.dtype[Any]) -> Any:
    """The highest value of the type."""
    if dtype.kind == "f":
        return np.inf
    return np.iinfo(dtype).max if dtype.kind in "iu" else True


def maximum(X: Array, axes: Axes) -> Array:
    """Largest of X; the type's lowest value if X is empty."""
    return np.maximum.reduce(X, axis=axes, keepdims=True, initial=lowest(X.dtype))


def minimum(X: Array, axes: Axes) -> Array:
    """Smallest of X; the type's highest value if X is empty."""
    return np.minimum.reduce(X, axis=axes, keepdims=True, initial=highest(X.dtype))


def l1(X: Array, axes: Axes) -> Array:
    """Sum of |X|."""
    return total(np.abs(X), axes)


def sum_square(X: Array, axes: Axes) -> Array:
    """Sum of X^2."""
    return total(X * X, axes)


def l2(X: Array, axes: Axes) -> Array:
    """sqrt(sum of X^2)."""
    return np.asarray(np.sqrt(sum_square(X, axes)))


def log_sum(X: Array, axes: Axes) -> Array:
    """log(sum of X)."""
    return np.asarray(np.log(total(X, axes)))


def log_sum_exp(X: Array, axes: Axes) -> Array:
    """log(sum of exp X), with the largest exponent taken out."""
    X = X if X.dtype.kind == "f" else X.astype(np.float64)
    largest = maximum(X, axes)
    largest = np.where(np.isfinite(largest), largest, X.dtype.type(0))
    return np.asarray(np.log(total(np.exp(X - largest), axes)) + largest)


def reduced(kernel: Kernel, X: Array, axes: Axes, keepdims: int) -> Array:
    """A reduction's result in X's type, without the reduced axes unless they are kept."""
    result = np.asarray(kernel(working(X), axes)).astype(X.dtype)
    return result if keepdims else np.asarray(np.squeeze(result, axis=axes))


def declare(name: str, kernel: Kernel, since: int) -> None:
    """Declare a reduction: `axes` is an attribute, and an input from version `since` on."""

    @define(name, infer=_shapes.reduced_by_attribute)
    def by_attribute(data: Array, *, axes: list[int] | None = None, keepdims: int = 1) -> Array:
        over = axes_of(axes or range(data.ndim), data.ndim)
        return reduced(kernel, data, over, keepdims)

    @define(name, since=since, decided_by=(1,), infer=_shapes.reduced_by_input)
    def by_input(
        data: Array,
        axes: Array | None = None,
        *,
        keepdims: int = 1,
        noop_with_empty_axes: int = 0,
    ) -> Array:
        listed = [] if axes is None else integers(axes)
        whole = [] if noop_with_empty_axes else range(data.ndim)
        return reduced(kernel, data, axes_of(listed or whole, data.ndim), keepdims)

    by_attribute.__doc__ = f"{kernel.__doc__} ONNX {name}-1."
    by_input.__doc__ = f"{kernel.__doc__} No axes are all, or none as asked. ONNX {name}-{since}."


for _name, _kernel, _since in (
    ("ReduceSum", total, 13),
    ("ReduceMean", mean, 18),
    ("ReduceProd", product, 18),
    ("ReduceMax", maximum, 18),
    ("ReduceMin", minimum, 18),
    ("ReduceL1", l1, 18),
    ("ReduceL2", l2, 18),
    ("ReduceSumSquare", sum_square, 18),
    ("ReduceLogSum", log_sum, 18),
    ("ReduceLogSumExp", log_sum_exp, 18),
):
    declare(_name, _kernel, _since)


def place(
    find: Callable[..., Any], data: Array, axis: int, keepdims: int, select_last_index: int
) -> Array:
    """int64 indices along an axis: the first of equal elements, or the last."""
    axis = axis_of(axis, data.ndim)
    if select_last_index:
        index = data.shape[axis] - 1 - find(np.flip(data, axis), axis=axis, keepdims=bool(keepdims))
    else:
        index = find(data, axis=axis, keepdims=bool(keepdims))
    return np.asarray(index, np.int64)


@define("ArgMax", infer=_shapes.one_axis)
def arg_max(data: Array, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Array:
    """The index of the largest element along `axis`. ONNX ArgMax-13."""
    return place(np.argmax, data, axis, keepdims, select_last_index)


@define("ArgMin", infer=_shapes.one_axis)
def arg_min(data: Array, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Array:
    """The index of the smallest element along `axis`. ONNX ArgMin-13."""
    return place(np.argmin, data, axis, keepdims, select_last_index)


def running(function: np.ufunc, x: Array, axis: Array, exclusive: int, reverse: int) -> Array:
    """`function` over all elements up to each one, which is left out if `exclusive`."""
    along = axis_of(scalar(axis), x.ndim)
    ordered = np.flip(x, along) if reverse else x
    result = function.accumulate(working(ordered), axis=along).astype(x.dtype)
    if exclusive:
        result = np.roll(result, 1, along)
        first = (slice(None),) * along + (slice(0, 1),)
        result[first] = function.identity
    return np.flip(result, along) if reverse else result


@define("CumSum", since=11, infer=_shapes.same)
def cumulative_sum(x: Array, axis: Array, *, exclusive: int = 0, reverse: int = 0) -> Array:
    """y_i = sum of x_j over j <= i; j < i if `exclusive`, from the end if `reverse`. CumSum-14."""
    return running(np.add, x, axis, exclusive, reverse)


@define("CumProd", since=26, infer=_shapes.same)
def cumulative_product(x: Array, axis: Array, *, exclusive: int = 0, reverse: int = 0) -> Array:
    """The same of products. ONNX CumProd-26."""
    return running(np.multiply, x, axis, exclusive, reverse)
