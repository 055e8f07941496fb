"""Shapes, and the same elements under another shape. Results share memory with their inputs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from halfbyte.onnx.reference import _shapes
from halfbyte.onnx.reference.arrays import Array, axes_of, integers
from halfbyte.onnx.reference.registry import define


@define("Identity", special=True, infer=_shapes.views(_shapes.same_rank))
def identity(X: Any) -> Any:
    """The input, a tensor or not. ONNX Identity-25."""
    return X


@define("Shape", special=True, infer=_shapes.views(_shapes.vector))
def shape(data: Array, *, start: int = 0, end: int | None = None) -> Array:
    """Sizes of the axes from `start` up to `end`, as int64. ONNX Shape-25."""
    return np.array(data.shape[start:end], np.int64)


@define("Size", special=True, infer=_shapes.Rule(lambda data: ()))
def size(data: Array) -> Array:
    """The number of elements, as int64. ONNX Size-25."""
    return np.array(data.size, np.int64)


@define("Reshape", since=5, decided_by=(1,), special=True, infer=_shapes.views(_shapes.stated))
def reshape(data: Array, shape: Array, *, allowzero: int = 0) -> Array:
    """The elements under another shape. ONNX Reshape-25.

    One size may be -1: it is computed from the others. 0 is the size of the same axis of `data`,
    unless `allowzero`.
    """
    sizes = integers(shape)
    if any(size < -1 for size in sizes):
        raise ValueError(f"shape {sizes}")
    if allowzero and 0 in sizes and -1 in sizes:
        raise ValueError(f"shape {sizes}: with a 0, -1 may be any size")
    if not allowzero:
        sizes = [data.shape[axis] if size == 0 else size for axis, size in enumerate(sizes)]
    return data.reshape(sizes)


@define("Flatten", special=True, infer=_shapes.views(_shapes.matrix))
def flatten(X: Array, *, axis: int = 1) -> Array:
    """A matrix: axes before `axis` are its rows, the others its columns. ONNX Flatten-25."""
    if not -X.ndim <= axis <= X.ndim:
        raise ValueError(f"axis {axis} of {X.ndim} axes")
    axis = axis + X.ndim if axis < 0 else axis
    return X.reshape(math.prod(X.shape[:axis]), math.prod(X.shape[axis:]))


@define("Squeeze", special=True, infer=_shapes.views(_shapes.squeezed))
def squeeze_by_attribute(data: Array, *, axes: list[int] | None = None) -> Array:
    """`data` without the `axes`, whose sizes are 1; by default, without all such. Squeeze-11."""
    if axes is None:
        return np.squeeze(data)
    return np.squeeze(data, axis=axes_of(axes, data.ndim))


@define("Squeeze", since=13, decided_by=(1,), special=True, infer=_shapes.views(_shapes.squeezed))
def squeeze(data: Array, axes: Array | None = None) -> Array:
    """The same with axes as an input. ONNX Squeeze-25."""
    return squeeze_by_attribute(data, axes=None if axes is None else integers(axes))


@define("Unsqueeze", special=True, infer=_shapes.views(_shapes.unsqueezed))
def unsqueeze_by_attribute(data: Array, *, axes: list[int]) -> Array:
    """`data` with new axes of size 1, numbered as in the result. ONNX Unsqueeze-11."""
    return np.expand_dims(data, axes_of(axes, data.ndim + len(axes)))


@define(
    "Unsqueeze", since=13, decided_by=(1,), special=True, infer=_shapes.views(_shapes.unsqueezed)
)
def unsqueeze(data: Array, axes: Array) -> Array:
    """The same with axes as an input. ONNX Unsqueeze-25."""
    return unsqueeze_by_attribute(data, axes=integers(axes))


@define("Transpose", special=True, infer=_shapes.views(_shapes.same_rank))
def transpose(data: Array, *, perm: list[int] | None = None) -> Array:
    """Axis i of the result is axis `perm`[i] of `data`; reversed by default. ONNX Transpose-25."""
    if perm is not None and sorted(perm) != list(range(data.ndim)):
        raise ValueError(f"perm {perm} of {data.ndim} axes")
    return data.transpose(perm)
