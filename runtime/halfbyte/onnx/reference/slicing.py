"""Concatenating, splitting, slicing and repeating arrays along axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from halfbyte.onnx.reference import _shapes
from halfbyte.onnx.reference.arrays import Array, axes_of, axis_of, check_elements, integers
from halfbyte.onnx.reference.registry import define


@define("Concat", since=4, special=True, infer=_shapes.joined)
def concat(*parts: Array, axis: int) -> Array:
    """The parts concatenated along `axis`. ONNX Concat-13."""
    return np.concatenate(parts, axis=axis)


def pieces(data: Array, sizes: Sequence[int], axis: int) -> tuple[Array, ...]:
    """Parts of these sizes along an axis. Raises `ValueError` where they do not add up to it."""
    if any(size < 0 for size in sizes) or sum(sizes) != data.shape[axis]:
        raise ValueError(f"sizes {list(sizes)} of an axis of {data.shape[axis]}")
    ends = np.cumsum(sizes).tolist()
    before = (slice(None),) * axis
    return tuple(
        data[(*before, slice(end - size, end))] for size, end in zip(sizes, ends, strict=True)
    )


def _sizes(sizes: list[int], outputs: int) -> list[int]:
    if len(sizes) != outputs:
        raise ValueError(f"{len(sizes)} sizes of {outputs} outputs")
    return sizes


@define("Split", since=2, special=True, infer=_shapes.views(_shapes.same_rank))
def split_by_attribute(
    data: Array, *, outputs: int, axis: int = 0, split: list[int] | None = None
) -> tuple[Array, ...]:
    """Parts of sizes `split` along `axis`; of equal sizes by default. ONNX Split-11."""
    axis = axis_of(axis, data.ndim)
    equal = data.shape[axis] // outputs
    return pieces(data, _sizes(split or [equal] * outputs, outputs), axis)


@define("Split", since=13, decided_by=(1,), special=True, infer=_shapes.views(_shapes.same_rank))
def split_by_input(
    data: Array, split: Array | None = None, *, outputs: int, axis: int = 0
) -> tuple[Array, ...]:
    """The same with `split` as an input. ONNX Split-13."""
    sizes = None if split is None else integers(split)
    return split_by_attribute(data, outputs=outputs, axis=axis, split=sizes)


@define("Split", since=18, decided_by=(1,), special=True, infer=_shapes.views(_shapes.same_rank))
def split(
    data: Array,
    split: Array | None = None,
    *,
    outputs: int,
    axis: int = 0,
    num_outputs: int | None = None,
) -> tuple[Array, ...]:
    """The same; the last part is smaller where `num_outputs` does not divide. ONNX Split-18."""
    axis = axis_of(axis, data.ndim)
    if split is not None:
        return pieces(data, _sizes(integers(split), outputs), axis)
    whole, count = data.shape[axis], outputs if num_outputs is None else num_outputs
    if count != outputs:
        raise ValueError(f"num_outputs {count} of {outputs} outputs")
    each = -(-whole // count)
    return pieces(data, [each] * (count - 1) + [whole - each * (count - 1)], axis)


@define("Slice", special=True, infer=_shapes.views(_shapes.same_rank))
def slice_by_attributes(
    data: Array, *, starts: list[int], ends: list[int], axes: list[int] | None = None
) -> Array:
    """From `starts` up to `ends` along `axes`, all by default. ONNX Slice-1."""
    return sliced(data, starts, ends, axes, None)


@define(
    "Slice", since=10, decided_by=(1, 2, 3, 4), special=True, infer=_shapes.views(_shapes.same_rank)
)
def slice_by_inputs(
    data: Array,
    starts: Array,
    ends: Array,
    axes: Array | None = None,
    steps: Array | None = None,
) -> Array:
    """From starts up to ends along axes, by steps. ONNX Slice-13.

    Negative starts and ends count from the axis's end, and are then clipped to the axis.
    """
    return sliced(
        data,
        integers(starts),
        integers(ends),
        None if axes is None else integers(axes),
        None if steps is None else integers(steps),
    )


def sliced(
    data: Array,
    starts: Sequence[int],
    ends: Sequence[int],
    axes: Sequence[int] | None,
    steps: Sequence[int] | None,
) -> Array:
    """The part of `data` that Slice takes: a view."""
    along = axes_of(range(len(starts)) if axes is None else axes, data.ndim)
    index: list[Any] = [slice(None)] * data.ndim
    for axis, start, end, step in zip(
        along, starts, ends, [1] * len(starts) if steps is None else steps, strict=True
    ):
        index[axis] = python_slice(start, end, step, data.shape[axis])
    return data[(*index, ...)]  # never a scalar


def python_slice(start: int, end: int, step: int, size: int) -> slice:
    """Slice's start, end and step for an axis of this size as a Python slice."""
    if step == 0:
        raise ValueError("a step of 0")
    if size == 0:
        return slice(None)
    start, end = (place + size if place < 0 else place for place in (start, end))
    if step > 0:
        return slice(min(max(start, 0), size), min(max(end, 0), size), step)
    start, end = min(max(start, 0), size - 1), min(max(end, -1), size - 1)
    return slice(start, None if end < 0 else end, step)


def _expanded(X: Array, shape: Array) -> _shapes.Shape:
    return np.broadcast_shapes(X.shape, check_elements(integers(shape)))


@define(
    "Expand", since=8, decided_by=(1,), special=True,
    infer=_shapes.Rule(_expanded, _shapes.expanded_rank),
)  # fmt: skip
def expand(X: Array, shape: Array) -> Array:
    """X broadcast with a shape. ONNX Expand-13."""
    return np.broadcast_to(X, check_elements(_expanded(X, shape), X.dtype.itemsize)).copy()


def _tiled(X: Array, repeats: Array) -> _shapes.Shape:
    times = integers(repeats)
    if len(times) != X.ndim:
        raise ValueError(f"{len(times)} repeats of {X.ndim} axes")
    return tuple(size * n for size, n in zip(X.shape, times, strict=True))


@define("Tile", since=6, decided_by=(1,), special=True, infer=_shapes.alike(_tiled))
def tile(X: Array, repeats: Array) -> Array:
    """X repeated `repeats` times along each axis. ONNX Tile-13."""
    check_elements(_tiled(X, repeats), X.dtype.itemsize)
    return np.tile(X, integers(repeats))
