"""Arrays from attributes, from a shape, or from a few numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from halfbyte.errors import ProgramError
from halfbyte.onnx.files import dtypes
from halfbyte.onnx.files.model import SparseTensor
from halfbyte.onnx.reference import _shapes
from halfbyte.onnx.reference.arrays import Array, as_type, check_elements, integers, zeros
from halfbyte.onnx.reference.cast import element_type
from halfbyte.onnx.reference.registry import define


@define("Constant", special=True)
def constant(
    *,
    value: Array | None = None,
    sparse_value: SparseTensor | None = None,
    value_float: float | None = None,
    value_floats: list[float] | None = None,
    value_int: int | None = None,
    value_ints: list[int] | None = None,
    value_string: str | None = None,
    value_strings: list[str] | None = None,
) -> Array:
    """The attribute that is given, as a tensor. ONNX Constant-25."""
    if value is not None:
        return value
    if sparse_value is not None:
        return dense(sparse_value)
    plain: list[tuple[Any, Any]] = [
        (value_float, np.float32), (value_floats, np.float32), (value_int, np.int64),
        (value_ints, np.int64), (value_string, object), (value_strings, object),
    ]  # fmt: skip
    for numbers, dtype in plain:
        if numbers is not None:
            return np.array(numbers, dtype)
    raise ProgramError("a constant without a value")


def dense(sparse: SparseTensor) -> Array:
    """A sparse tensor as an array."""
    shape = check_elements(sparse.shape, sparse.values.dtype.itemsize)
    array = zeros(shape, sparse.values.dtype)
    if sparse.indices.ndim == 1:
        array.reshape(-1)[sparse.indices] = sparse.values
    else:
        array[tuple(sparse.indices.T)] = sparse.values
    return array


@define("ConstantOfShape", since=9, decided_by=(0,), special=True)
def constant_of_shape(shape: Array, *, value: Array | None = None) -> Array:
    """`value` (float32 0 by default) everywhere. ONNX ConstantOfShape-25."""
    filling = np.zeros((), np.float32) if value is None else value.reshape(())
    sizes = check_elements(integers(shape), filling.dtype.itemsize)
    array = zeros(sizes, filling.dtype)
    array[...] = filling
    return array


@define("Range", since=11, decided_by=(0, 1, 2))
def arange(start: Array, limit: Array, delta: Array, *, stash_type: int = 1) -> Array:
    """start + i delta for all i >= 0 below the limit. ONNX Range-27.

    float16 is computed in float32 by default (`stash_type`).
    """
    first, last, step = (value.reshape(()) for value in (start, limit, delta))
    if step == 0:
        raise ValueError("a delta of 0")
    if first.dtype.kind in "iu":
        count = -((int(first) - int(last)) // int(step))
    else:
        count = math.ceil((float(last) - float(first)) / float(step))
    (count,) = check_elements([max(count, 0)], 8)
    kind = first.dtype
    if kind == np.float16 and stash_type == dtypes.NUMBERS[np.dtype(np.float32)]:
        first, step = first.astype(np.float32), step.astype(np.float32)
    return np.asarray(first + np.arange(count).astype(first.dtype) * step).astype(kind, copy=False)


@define("EyeLike", since=9, special=True, infer=_shapes.numbered)
def eye_like(X: Array, *, dtype: int | None = None, k: int = 0) -> Array:
    """1 on diagonal `k` of a matrix of X's shape, else 0. ONNX EyeLike-22."""
    rows, columns = X.shape
    ones = np.eye(rows, columns, min(max(k, -rows), columns), dtype=np.float32)
    return as_type(ones, X.dtype if dtype is None else element_type(dtype))
