"""Elements taken by their indices. Negative indices count from an axis's end."""

from __future__ import annotations

from typing import Any

import numpy as np

from halfbyte.onnx.reference import _shapes
from halfbyte.onnx.reference.arrays import Array, axis_of, check_elements, take
from halfbyte.onnx.reference.registry import define


@define("Gather", special=True, infer=_shapes.gathered)
def gather(data: Array, indices: Array, *, axis: int = 0) -> Array:
    """Slices of `data` along `axis`, in an array of the shape of `indices`. ONNX Gather-13."""
    axis = axis_of(axis, data.ndim)
    shape = (*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :])
    check_elements(shape, data.dtype.itemsize)
    return take(data, indices.reshape(-1), axis).reshape(shape)


def _as_indices(data: Array, indices: Array, **attributes: Any) -> _shapes.Shape:
    return indices.shape


@define("GatherElements", since=11, special=True, infer=_shapes.Rule(_as_indices))
def gather_elements(data: Array, indices: Array, *, axis: int = 0) -> Array:
    """y[i, j, k] = data[i, indices[i, j, k], k] for axis 1. ONNX GatherElements-13."""
    return data[elements(data, indices, axis)]


def elements(data: Array, indices: Array, axis: int) -> tuple[Array, ...]:
    """The indices of *Elements operators in `data`: one index array per axis."""
    if indices.ndim != data.ndim:
        raise ValueError(f"indices of {indices.ndim} axes for data of {data.ndim}")
    places: list[Array] = list(np.indices(indices.shape, sparse=True))
    places[axis_of(axis, data.ndim)] = indices
    return tuple(places)


def _gathered_slices(data: Array, indices: Array, *, batch_dims: int = 0) -> _shapes.Shape:
    return (*indices.shape[:-1], *data.shape[batch_dims + indices.shape[-1] :])


@define("GatherND", since=11, special=True, product=True, infer=_shapes.Rule(_gathered_slices))
def gather_nd(data: Array, indices: Array, *, batch_dims: int = 0) -> Array:
    """y[b, i] = data[b, indices[b, i, 0], indices[b, i, 1], ...]. ONNX GatherND-13.

    b stands for the `batch_dims` axes that both share, i for the other axes of indices.
    """
    depth = indices.shape[-1]
    if not 0 <= batch_dims < min(data.ndim, indices.ndim) or depth + batch_dims > data.ndim:
        raise ValueError(f"tuples of {depth}, batch_dims {batch_dims}, data of {data.ndim} axes")
    batch = data.shape[:batch_dims]
    if indices.shape[:batch_dims] != batch:
        raise ValueError(f"batches {list(batch)} and {list(indices.shape[:batch_dims])}")
    shape = (*indices.shape[:-1], *data.shape[batch_dims + depth :])
    check_elements(shape, data.dtype.itemsize)
    if depth == 1 and not batch_dims:
        return take(data, indices.reshape(-1), 0).reshape(shape)
    between = (1,) * (indices.ndim - 1 - batch_dims)
    grids: tuple[Array, ...] = np.indices(batch, sparse=True)
    leading = [grid.reshape(*grid.shape, *between) for grid in grids]
    result = data[(*leading, *np.moveaxis(indices, -1, 0))]
    return np.asarray(result, data.dtype).reshape(shape)
