"""Softmax, LogSoftmax, Hardmax: along one axis; before version 13 over flattened axes."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from halfbyte.core.ops.activation import log_softmax_of, softmax_of
from halfbyte.onnx.reference import _shapes
from halfbyte.onnx.reference._numbers import Array, rounded, widened
from halfbyte.onnx.reference.arrays import axis_of
from halfbyte.onnx.reference.registry import define


def hardmax_of(x: Array, axis: int = -1) -> Array:
    """1 at the first largest element along `axis`, else 0."""
    y = np.zeros_like(x)
    if x.size:
        np.put_along_axis(y, np.expand_dims(x.argmax(axis=axis), axis), 1, axis)
    return y


def _flattened(function: Callable[[Array, int], Array], x: Array, axis: int) -> Array:
    """`function` over all axes from `axis` on, as if they were one; `axis` may be x.ndim."""
    first = axis if axis == x.ndim else axis_of(axis, x.ndim)
    matrix = widened(x).reshape(math.prod(x.shape[:first]), math.prod(x.shape[first:]))
    return rounded(function(matrix, 1).reshape(x.shape), x.dtype)


@define("Softmax", since=13, infer=_shapes.same)
def softmax(x: Array, *, axis: int = -1) -> Array:
    """exp(x) / sum of exp(x) along one axis. ONNX Softmax-13."""
    return rounded(softmax_of(widened(x), axis_of(axis, x.ndim)), x.dtype)


@define("Softmax", since=1, infer=_shapes.same)
def softmax_1(x: Array, *, axis: int = 1) -> Array:
    """The same over all axes from `axis` on. ONNX Softmax-1, -11."""
    return _flattened(softmax_of, x, axis)


@define("LogSoftmax", since=13, infer=_shapes.same)
def log_softmax(x: Array, *, axis: int = -1) -> Array:
    """x - log(sum of exp(x)) along one axis. ONNX LogSoftmax-13."""
    return rounded(log_softmax_of(widened(x), axis_of(axis, x.ndim)), x.dtype)


@define("LogSoftmax", since=1, infer=_shapes.same)
def log_softmax_1(x: Array, *, axis: int = 1) -> Array:
    """The same over all axes from `axis` on. ONNX LogSoftmax-1, -11."""
    return _flattened(log_softmax_of, x, axis)


@define("Hardmax", since=13, infer=_shapes.same)
def hardmax(x: Array, *, axis: int = -1) -> Array:
    """1 at the first largest element along one axis, else 0. ONNX Hardmax-13."""
    return hardmax_of(x, axis_of(axis, x.ndim))


@define("Hardmax", since=1, infer=_shapes.same)
def hardmax_1(x: Array, *, axis: int = 1) -> Array:
    """The same over all axes from `axis` on. ONNX Hardmax-1, -11."""
    return _flattened(hardmax_of, x, axis)
