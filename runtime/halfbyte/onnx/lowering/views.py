"""Rules of nodes that move no elements: the same memory in another shape, or constant shapes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from halfbyte.onnx.capture import Capture
from halfbyte.onnx.lowering.registry import lower
from halfbyte.onnx.reference.arrays import axes_of, axis_of
from halfbyte.onnx.size_arrays import vector
from halfbyte.onnx.values import Array, Operand, Value, ints


@lower("Identity")
def identity(c: Capture, x: Value) -> Value:
    """x itself."""
    return x


@lower("Dropout")
def dropout(
    c: Capture, x: Value, ratio: Operand = None, training: Operand = None, **attributes: Any
) -> Value | None:
    """x itself, without training and without a mask."""
    if len(c.node.outputs) > 1 or isinstance(training, Value):
        return None
    if any(v is not None and v.shape for v in (ratio, training)):
        return None
    return x if training is None or not training.any() else None


@lower("Shape")
def shape(c: Capture, x: Value, *, start: int = 0, end: int | None = None) -> Array:
    """The shape as a constant."""
    return vector(x.shape[start:end], np.int64)  # type: ignore[no-any-return]


@lower("Size")
def size(c: Capture, x: Value) -> Array:
    """The number of elements as a constant."""
    return vector([x.size], np.int64).reshape(())  # type: ignore[no-any-return]


@lower("Reshape")
def reshape(
    c: Capture, x: Value, shape: Operand = None, *, allowzero: int = 0, **attributes: Any
) -> Value | None:
    """x in another shape. 0 copies a dimension (unless `allowzero`), -1 is inferred."""
    if not isinstance(shape, np.ndarray):
        return None
    wanted = ints(shape)
    if not allowzero:
        if any(d == 0 and i >= len(x.shape) for i, d in enumerate(wanted)):
            return None
        wanted = [x.shape[i] if d == 0 else d for i, d in enumerate(wanted)]
    if wanted.count(-1) == 1:
        known = math.prod(d for d in wanted if d != -1)
        if not known:
            return None
        wanted[wanted.index(-1)] = x.size // known
    return _viewed(c, x, wanted)


@lower("Flatten")
def flatten(c: Capture, x: Value, *, axis: int = 1) -> Value | None:
    """A matrix [d0 ... d(axis-1), d(axis) ...]."""
    rank = len(x.shape)
    axis = rank if axis == rank else axis_of(axis, rank)
    return _viewed(c, x, [math.prod(x.shape[:axis]), math.prod(x.shape[axis:])])


@lower("Squeeze")
def squeeze(
    c: Capture, x: Value, places: Operand = None, *, axes: list[int] | None = None
) -> Value | None:
    """x without some or all dimensions of size 1."""
    if isinstance(places, Value):
        return None
    chosen = axes if places is None else ints(places)
    dropped = (
        [i for i, d in enumerate(x.shape) if d == 1]
        if chosen is None
        else axes_of(chosen, len(x.shape))
    )
    if any(x.shape[i] != 1 for i in dropped):
        return None
    return _viewed(c, x, [d for i, d in enumerate(x.shape) if i not in dropped])


@lower("Unsqueeze")
def unsqueeze(
    c: Capture, x: Value, places: Operand = None, *, axes: list[int] | None = None
) -> Value | None:
    """x with dimensions of size 1 at `axes` of the result."""
    if isinstance(places, Value):
        return None
    chosen = axes if places is None else ints(places)
    if chosen is None:
        return None
    rank = len(x.shape) + len(chosen)
    added = axes_of(chosen, rank)
    sizes = iter(x.shape)
    return _viewed(c, x, [1 if i in added else next(sizes) for i in range(rank)])


def _viewed(c: Capture, x: Value, shape: list[int]) -> Value | None:
    """`x` in another shape; None if the shape does not fit, so that the definition says why."""
    if any(d < 0 for d in shape) or math.prod(shape) != x.size:
        return None
    return c.reshaped(x, shape)
