"""Rules of elements at constant places."""

from __future__ import annotations

import math

import numpy as np

from halfbyte.core import ops
from halfbyte.onnx.capture import Capture
from halfbyte.onnx.lowering.move import moved
from halfbyte.onnx.lowering.registry import lower
from halfbyte.onnx.lowering.strides import row_major
from halfbyte.onnx.reference.arrays import axis_of
from halfbyte.onnx.size_arrays import is_sized
from halfbyte.onnx.sizes import is_named
from halfbyte.onnx.values import Array, Value


@lower("GatherElements")
def gather_elements(
    c: Capture, x: Value | Array, ids: Value | Array, *, axis: int = 0
) -> Value | None:
    """Elements at constant places, which are often equal distances apart: relative positions."""
    if not isinstance(x, Value) or not isinstance(ids, np.ndarray) or is_sized(ids):
        return None
    if ids.ndim != len(x.shape) or not ids.size or any(map(is_named, x.shape)):
        return None
    axis = axis_of(axis, ids.ndim)
    size = x.shape[axis]
    if ((ids < -size) | (ids >= size)).any():
        return None
    steps = row_major(x.shape)
    grid: list[Array] = list(np.indices(ids.shape, sparse=True))
    grid[axis] = np.where(ids < 0, ids + size, ids).astype(np.int64)
    places = np.asarray(sum(at * step for at, step in zip(grid, steps, strict=True)))
    if places.max() >= x.size:
        return None
    strides = _strides(places)
    if strides is not None:
        return moved(c, x, ids.shape, strides, int(places.reshape(-1)[0]))
    if x.dtype != "f32":
        return None
    rows = ops.gather(c.plain(x).view((x.size, 1)), c.constant(places.reshape(-1).astype(np.int32)))
    return c.value(rows, ids.shape)


@lower("GatherND")
def gather_nd(
    c: Capture, x: Value | Array, ids: Value | Array, *, batch_dims: int = 0
) -> Value | None:
    """Slices of float32 at constant places: rows of a matrix."""
    if not isinstance(x, Value) or not isinstance(ids, np.ndarray) or is_sized(ids) or batch_dims:
        return None
    if x.dtype != "f32" or any(map(is_named, x.shape)) or not ids.size:
        return None
    outer, inner = x.shape[: ids.shape[-1]], x.shape[ids.shape[-1] :]
    sizes = np.array(outer)
    if len(outer) < ids.shape[-1] or ((ids < -sizes) | (ids >= sizes)).any() or 0 in inner:
        return None
    c.allow((*ids.shape[:-1], *inner), x.numpy)
    places = np.where(ids < 0, ids + sizes, ids) @ row_major(outer)
    matrix = c.plain(x).view((math.prod(outer), math.prod(inner)))
    rows = ops.gather(matrix, c.constant(places.reshape(-1).astype(np.int32)))
    return c.value(rows, (*ids.shape[:-1], *inner))


def _strides(places: Array) -> list[int] | None:
    """The distances between neighbours along each axis, where all are equal."""
    first = places[(0,) * places.ndim]
    strides = [
        int(places[tuple(int(i == axis) for i in range(places.ndim))] - first) if size > 1 else 0
        for axis, size in enumerate(places.shape)
    ]
    grid: tuple[Array, ...] = np.indices(places.shape, sparse=True)
    even = first + sum(at * stride for at, stride in zip(grid, strides, strict=True))
    return strides if np.array_equal(places, even) else None
