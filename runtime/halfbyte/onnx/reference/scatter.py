"""Elements written to a copy at given indices. Negative indices count from an axis's end."""

from __future__ import annotations

import numpy as np

from halfbyte.errors import UnsupportedError
from halfbyte.onnx.reference import _shapes
from halfbyte.onnx.reference.arrays import Array, as_type, axis_of, numbers
from halfbyte.onnx.reference.gather import elements
from halfbyte.onnx.reference.registry import define

REDUCTIONS = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def scattered(
    data: Array, places: tuple[Array, ...], updates: Array, reduction: str = "none"
) -> Array:
    """A copy of `data` with the updates written, or combined with its elements."""
    if reduction == "none":
        result = data.copy()
        result[places] = updates
        return result
    if reduction not in REDUCTIONS:
        raise UnsupportedError(f"reduction {reduction!r}: expected one of {sorted(REDUCTIONS)}")
    sums = numbers(data).copy()
    REDUCTIONS[reduction].at(sums, places, numbers(updates))
    return as_type(sums, data.dtype)


@define("ScatterElements", since=11, special=True, infer=_shapes.same)
def scatter_elements(
    data: Array, indices: Array, updates: Array, *, axis: int = 0, reduction: str = "none"
) -> Array:
    """y[i, indices[i, j, k], k] = updates[i, j, k] for axis 1, or their `reduction`.

    ONNX ScatterElements-18.
    """
    if indices.shape != updates.shape:
        raise ValueError(f"indices {list(indices.shape)} and updates {list(updates.shape)}")
    return scattered(data, elements(data, indices, axis), updates, reduction)


@define("Scatter", since=9, special=True, infer=_shapes.same)
def scatter(data: Array, indices: Array, updates: Array, *, axis: int = 0) -> Array:
    """ScatterElements under its first name. ONNX Scatter-11."""
    return scatter_elements(data, indices, updates, axis=axis)


@define("ScatterND", since=11, special=True, infer=_shapes.same)
def scatter_nd(data: Array, indices: Array, updates: Array, *, reduction: str = "none") -> Array:
    """y[indices[i, 0], indices[i, 1], ...] = updates[i], or their `reduction`. ScatterND-18."""
    depth = indices.shape[-1]
    expected = (*indices.shape[:-1], *data.shape[depth:])
    if depth > data.ndim or updates.shape != expected:
        raise ValueError(f"updates {list(updates.shape)}, expected {list(expected)}")
    return scattered(data, tuple(np.moveaxis(indices, -1, 0)), updates, reduction)


@define("TensorScatter", since=24, special=True, infer=_shapes.same)
def tensor_scatter(
    past_cache: Array,
    update: Array,
    write_indices: Array | None = None,
    *,
    axis: int = -2,
    mode: str = "linear",
) -> Array:
    """The cache with `update` written along `axis`, for batch element b from write_indices[b] on.

    past_cache [batch, ..., max_sequence, ...], update [batch, ..., sequence, ...]; indices
    wrap where `mode` is "circular". ONNX TensorScatter-24.
    """
    axis, room = axis_of(axis, past_cache.ndim), past_cache.shape[axis]
    if mode not in ("linear", "circular") or axis == 0:
        raise UnsupportedError(
            f"mode {mode!r}, axis {axis}: expected 'linear' or 'circular', not 0"
        )
    batch, length = update.shape[0], update.shape[axis]
    starts = np.zeros(batch, np.int64) if write_indices is None else write_indices.reshape(batch)
    places = starts[:, np.newaxis] + np.arange(length)
    if mode == "circular":
        places %= room
    elif places.size and (places.min() < 0 or places.max() >= room):
        raise ValueError(f"writes up to {places.max()} in a cache of {room}")
    cache, new = np.moveaxis(past_cache, axis, 1), np.moveaxis(update, axis, 1)
    if (cache.shape[0], *cache.shape[2:]) != (new.shape[0], *new.shape[2:]):
        raise ValueError("update and past_cache differ beside the axis")
    result = scattered(cache, (np.arange(batch)[:, np.newaxis], places), new)
    return np.moveaxis(result, 1, axis)
