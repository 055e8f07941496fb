"""Elements selected by their values, and values by conditions."""

from __future__ import annotations

from typing import Any

import numpy as np

from halfbyte.onnx.reference import _shapes
from halfbyte.onnx.reference.arrays import (
    Array,
    axis_of,
    check_elements,
    numbers,
    scalar,
    take,
)
from halfbyte.onnx.reference.math import broadcast
from halfbyte.onnx.reference.registry import define


@define("Where", since=9, special=True, infer=_shapes.together)
def where(condition: Array, X: Array, Y: Array) -> Array:
    """X where the condition is true, else Y. ONNX Where-16."""
    return broadcast(np.where, condition, X, Y)


@define("NonZero", since=9, dynamic=True)
def non_zero(X: Array) -> Array:
    """Indices of elements that are not 0: int64 [rank, count]. ONNX NonZero-13."""
    if X.ndim == 0:
        return np.zeros((0, np.count_nonzero(X)), np.int64)
    return np.array(np.nonzero(X), np.int64)


@define("Compress", since=9, dynamic=True, special=True)
def compress(X: Array, condition: Array, *, axis: int | None = None) -> Array:
    """Slices along `axis` (elements, without one) where the condition is true. ONNX Compress-28."""
    flat = X.reshape(-1) if axis is None else X
    along = 0 if axis is None else axis_of(axis, X.ndim)
    return take(flat, np.flatnonzero(condition), along)


def _marked(indices: Array, depth: Array, values: Array, *, axis: int = -1) -> _shapes.Shape:
    count = int(numbers(depth).reshape(()))
    place = axis_of(axis, indices.ndim + 1)
    return (*indices.shape[:place], count, *indices.shape[place:])


@define("OneHot", since=9, decided_by=(1,), special=True, infer=_shapes.Rule(_marked))
def one_hot(indices: Array, depth: Array, values: Array, *, axis: int = -1) -> Array:
    """y[..., d] = values[1] where d is the index, else values[0]; d < depth is `axis`. OneHot-28.

    Negative indices count from the depth; those out of range give no 1.
    """
    shape = _marked(indices, depth, values, axis=axis)
    count, place = int(numbers(depth).reshape(())), axis_of(axis, indices.ndim + 1)
    check_elements(shape, values.dtype.itemsize)
    wanted = numbers(indices).astype(np.int64)
    wanted = np.expand_dims(np.where(wanted < 0, wanted + count, wanted), place)
    classes = np.arange(count).reshape((count,) + (1,) * (indices.ndim - place))
    off, on = values
    return np.where(wanted == classes, np.asarray(on, values.dtype), np.asarray(off, values.dtype))


def _selected(X: Array, K: Array, *, axis: int = -1, **attributes: Any) -> _shapes.Shapes:
    at = axis_of(axis, X.ndim)
    shape = (*X.shape[:at], scalar(K), *X.shape[at + 1 :])
    return [shape, shape]


def _selected_by_attribute(X: Array, *, k: int, axis: int = -1) -> _shapes.Shapes:
    return _selected(X, np.array(k), axis=axis)


@define("TopK", infer=_shapes.alike(_selected_by_attribute))
def top_k_by_attribute(X: Array, *, k: int, axis: int = -1) -> tuple[Array, Array]:
    """The `k` largest elements along `axis`, in order, and their indices. ONNX TopK-1."""
    return top_k(X, np.array(k), axis=axis)


@define("TopK", since=10, decided_by=(1,), infer=_shapes.alike(_selected))
def top_k(
    X: Array, K: Array, *, axis: int = -1, largest: int = 1, sorted: int = 1
) -> tuple[Array, Array]:
    """The K largest or smallest elements along `axis`, and their int64 indices. ONNX TopK-24.

    They are in order whether or not `sorted`; of equal ones, the first comes first.
    """
    axis, count = axis_of(axis, X.ndim), scalar(K)
    size = X.shape[axis]
    if not 0 <= count <= size:
        raise ValueError(f"the top {count} of {size}")
    if largest:  # from the back, so that the first of equal elements is the last of them
        flipped = np.argsort(np.flip(X, axis), axis, kind="stable")
        order = size - 1 - np.flip(flipped, axis)
    else:
        order = np.argsort(X, axis, kind="stable")
    places = take(order, np.arange(count), axis).astype(np.int64, copy=False)
    return np.take_along_axis(X, places, axis), places


@define("Unique", since=11, dynamic=True)
def unique(X: Array, *, axis: int | None = None, sorted: int = 1) -> tuple[Array, ...]:
    """Distinct slices along `axis` (elements, without one), sorted or in the order of X.

    Also returns the index of the first of each in X, the index of each slice of X among the
    distinct ones, and their counts. ONNX Unique-28.
    """
    along = 0 if axis is None else axis_of(axis, X.ndim)
    flat = X.reshape(-1) if axis is None else X
    ranks = np.unique(flat, return_inverse=True)[1].reshape(flat.shape)  # numbers, of strings too
    rows = np.moveaxis(ranks, along, 0).reshape(flat.shape[along], -1)
    _, first, inverse, counts = np.unique(
        rows, axis=0, return_index=True, return_inverse=True, return_counts=True
    )
    inverse = inverse.reshape(-1)
    if not sorted:
        order = np.argsort(first)
        first, counts, inverse = first[order], counts[order], np.argsort(order)[inverse]
    as_places = (part.astype(np.int64, copy=False) for part in (first, inverse, counts))
    return take(flat, first, along), *as_places
