"""Shared by the families of definitions: axes, small integers, sizes and empty values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.errors import MemoryBudgetError
from halfbyte.onnx.files import dtypes
from halfbyte.onnx.sizes import is_named
from halfbyte.room import available_bytes

Array = npt.NDArray[Any]

MAX_ELEMENTS = 1 << 33
MAX_RANK = 32  # that all functions of all versions of NumPy take
SMALL = 8 << 20  # bytes that are allocated without a check of the memory that is left
_limit: ContextVar[float] = ContextVar("halfbyte_limit", default=math.inf)


@contextmanager
def results_limited(nbytes: float) -> Iterator[None]:
    """Inside this context, `check_elements` refuses results of more than `nbytes` bytes."""
    token = _limit.set(nbytes)
    try:
        yield
    finally:
        _limit.reset(token)


def check_shape(shape: Iterable[int], itemsize: int = 1) -> tuple[int, ...]:
    """The shape, if arrays may have it on any machine.

    Raises
    ------
    MemoryBudgetError
        It has more than `MAX_ELEMENTS`.
    ValueError
        A size is negative, or there are too many axes.
    """
    sizes: tuple[Any, ...] = tuple(size if is_named(size) else int(size) for size in shape)
    if len(sizes) > MAX_RANK:
        raise ValueError(f"a result of {len(sizes)} axes")
    if any(size < 0 for size in sizes):
        raise ValueError(f"a result of shape {list(sizes)}")
    if (count := math.prod(filter(None, sizes))) > MAX_ELEMENTS:  # NumPy refuses empty ones too
        raise MemoryBudgetError(
            f"a result of shape {list(sizes)}, {_sized(count * itemsize)}: expected at most "
            f"{MAX_ELEMENTS} elements"
        )
    return sizes


def check_elements(shape: Iterable[int], itemsize: int = 1) -> tuple[int, ...]:
    """The same, if the array also fits the memory; called before arrays of computed sizes.

    Raises
    ------
    MemoryBudgetError
        It has more than `MAX_ELEMENTS`, or needs more memory than is left.
    ValueError
        A size is negative, or there are too many axes.
    """
    sizes = check_shape(shape, itemsize)
    nbytes = math.prod(sizes) * itemsize
    if nbytes > _limit.get():
        raise MemoryBudgetError(
            f"a result of shape {list(sizes)}, {_sized(nbytes)}: more than this machine holds"
        )
    check_bytes(nbytes, f"a result of shape {list(sizes)}")
    return sizes


def take(x: Array, places: npt.ArrayLike, axis: int) -> Array:
    """`np.take` with indices of any integer type.

    Where addresses have 32 bits, NumPy 2.0 and older refuse int64, which ONNX's indices are.

    Raises
    ------
    IndexError
        An index is out of range.
    """
    positions = np.asarray(places)
    here = positions.astype(np.intp, copy=False)
    if here.dtype.itemsize < positions.dtype.itemsize and not np.array_equal(here, positions):
        raise IndexError(f"an index beyond axis {axis} of size {x.shape[axis]}")
    return np.take(x, here, axis)


def check_bytes(nbytes: int, what: str) -> None:
    """Raise `MemoryBudgetError` where the memory that is left has fewer bytes."""
    if nbytes > SMALL and nbytes > (left := available_bytes()):
        raise MemoryBudgetError(
            f"{what}, {_sized(nbytes)}: more than this machine holds ({_sized(left)} are left)"
        )


class Kept:
    """Counts bytes that add up in small pieces, and checks now and then that they fit the memory.

    The pieces are joined in the end, which takes as much memory again.
    """

    def __init__(self, what: str) -> None:
        self._what, self._total, self._next = what, 0, SMALL

    def add(self, value: Any) -> None:
        """Count an array, or another value."""
        self.add_bytes(_OBJECT + (value.nbytes if isinstance(value, np.ndarray) else 0))

    def add_bytes(self, nbytes: int) -> None:
        """Count bytes."""
        self._total += nbytes
        if self._total > self._next:
            check_bytes(self._total, self._what)
            self._next = self._total + self._total // 8


_OBJECT = 128  # bytes of an array besides its numbers


def _sized(nbytes: float) -> str:
    return f"{nbytes / 1e9:.1f} GB" if nbytes >= 1e9 else f"{nbytes / 1e6:.0f} MB"


def axis_of(axis: int, rank: int) -> int:
    """An axis counted from the front; negative ones count from the back."""
    if not -rank <= axis < rank:
        raise ValueError(f"axis {axis} of {rank} axes")
    return int(axis) % rank


def axes_of(axes: Iterable[int], rank: int) -> tuple[int, ...]:
    """Axes counted from the front. Raises `ValueError` where one is named twice."""
    numbers = tuple(axis_of(int(axis), rank) for axis in axes)
    if len(set(numbers)) < len(numbers):
        raise ValueError(f"axes {list(numbers)} name one twice")
    return numbers


def integers(array: Array | Sequence[int]) -> list[int]:
    """Values of a 1-D input as Python integers; a scalar is one value.

    Raises
    ------
    ValueError
        The input has more axes.
    """
    vector = np.asarray(array)
    if vector.ndim > 1:
        raise ValueError(f"axes, sizes or places of shape {list(vector.shape)}")
    return [int(value) for value in vector.reshape(-1)]


def scalar(array: Array) -> int:
    """The value of an input that has one element."""
    return int(np.asarray(array).reshape(()))


def numbers(array: Array) -> Array:
    """The array, as numbers where it has a type that NumPy lacks."""
    return dtypes.widen(array) if array.dtype.names else array


def as_type(array: Array, dtype: np.dtype[Any]) -> Array:
    """Numbers in `dtype`, which may be a type that NumPy lacks."""
    return dtypes.narrow(array, dtype) if dtype.names else array.astype(dtype, copy=False)


def zeros(shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """An array of ONNX's empty values: 0, False, ''."""
    result = np.zeros(shape, dtype)
    if dtype == dtypes.STRING:
        result[...] = ""
    return result


def working(array: Array) -> Array:
    """The array in the type to sum in: float32 for float16."""
    return array.astype(np.float32) if array.dtype == np.float16 else array
