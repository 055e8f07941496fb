"""Sequences (lists of tensors) and optionals (a value or None)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.errors import ProgramError
from halfbyte.onnx.files.model import TypeInfo
from halfbyte.onnx.reference.registry import Body, define

Array = npt.NDArray[Any]


@define("SequenceConstruct", dynamic=True, special=True)
def sequence_construct(*inputs: Array) -> list[Array]:
    """The inputs as a sequence."""
    return list(inputs)


@define("SequenceEmpty", dynamic=True, special=True)
def sequence_empty(*, dtype: int = 1) -> list[Array]:
    """A sequence without tensors."""
    return []


@define("SequenceLength", dynamic=True, special=True)
def sequence_length(sequence: list[Array]) -> Array:
    """The number of tensors, an int64 scalar."""
    return np.array(len(sequence), np.int64)


@define("SequenceAt", dynamic=True, special=True)
def sequence_at(sequence: list[Array], position: Array) -> Array:
    """The tensor at `position`; negative positions count from the end."""
    return sequence[_index(position, len(sequence))]


@define("SequenceErase", dynamic=True, special=True)
def sequence_erase(sequence: list[Array], position: Array | None = None) -> list[Array]:
    """All but the tensor at `position` (default: the last)."""
    at = len(sequence) - 1 if position is None else _index(position, len(sequence))
    return sequence[:at] + sequence[at + 1 :]


@define("SequenceInsert", dynamic=True, special=True)
def sequence_insert(
    sequence: list[Array], tensor: Array, position: Array | None = None
) -> list[Array]:
    """`tensor` inserted before the one at `position` (default: after the last)."""
    at = len(sequence) if position is None else _index(position, len(sequence), end=1)
    return [*sequence[:at], tensor, *sequence[at:]]


def _index(position: Array, length: int, end: int = 0) -> int:
    at = int(position.item())
    if not -length <= at < length + end:
        raise ProgramError(f"position {at} of a sequence of {length}")
    return at + length if at < 0 else at


@define("ConcatFromSequence", dynamic=True, special=True)
def concat_from_sequence(sequence: list[Array], *, axis: int, new_axis: int = 0) -> Array:
    """Tensors concatenated along `axis`, or stacked along it if `new_axis`."""
    return np.stack(sequence, axis) if new_axis else np.concatenate(sequence, axis)


@define("SplitToSequence", dynamic=True, special=True)
def split_to_sequence(
    x: Array, split: Array | None = None, *, axis: int = 0, keepdims: int = 1
) -> list[Array]:
    """Parts of x along `axis`: of the sizes `split` [n], or of `split` each (the last may be less).

    Without `split` the parts have size 1, and lose the axis unless `keepdims`.
    """
    length = x.shape[axis]
    if split is None:
        parts = np.split(x, length, axis) if length else []
        return parts if keepdims else [part.squeeze(axis) for part in parts]
    if split.ndim == 0:
        step = int(split)
        if step < 1:
            raise ProgramError(f"split {step}, expected at least 1")
        return np.split(x, range(step, length, step), axis)
    if (split < 0).any() or int(split.sum()) != length:
        raise ProgramError(f"parts of {split.tolist()}, expected a sum of {length}")
    return np.split(x, np.cumsum(split)[:-1], axis)


@define("SequenceMap", dynamic=True, special=True)
def sequence_map(sequence: list[Any], *others: Any, body: Body) -> tuple[Any, ...]:
    """`body` of each element (and of other sequences' elements; tensors are passed unchanged)."""
    for other in others:
        if isinstance(other, list) and len(other) != len(sequence):
            raise ProgramError(f"sequences of {len(sequence)} and {len(other)} tensors")
    rows = [
        body(item, *(other[i] if isinstance(other, list) else other for other in others))
        for i, item in enumerate(sequence)
    ]
    return tuple([row[i] for row in rows] for i in range(len(body.graph.outputs)))


@define("Optional", since=15, dynamic=True, special=True)
def optional(value: Any = None, *, type: TypeInfo | None = None) -> Any:
    """The value as an optional; without a value, an empty one of `type`."""
    return value


@define("OptionalHasElement", since=15, dynamic=True, special=True)
def optional_has_element(value: Any = None) -> Array:
    """Whether there is a value: a bool scalar."""
    return np.array(value is not None)


@define("OptionalGetElement", since=15, dynamic=True, special=True)
def optional_get_element(value: Any) -> Any:
    """The value of an optional; from version 18 on, also any tensor or sequence itself."""
    if value is None:
        raise ProgramError("an empty optional, expected a value")
    return value
