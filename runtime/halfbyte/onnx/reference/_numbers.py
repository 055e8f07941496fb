"""Shared by the families of neural-network operators: working precision, and sizes of results."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from halfbyte.errors import MemoryBudgetError, ProgramError
from halfbyte.onnx.files import dtypes
from halfbyte.onnx.reference.arrays import (
    Array,
    as_type,
    check_elements,
    numbers,
    working,
)  # fmt: skip

__all__ = [
    "Array", "channels", "fitting", "float_of", "per_channel", "rounded", "saturated", "scalar",
    "vector", "widened",
]  # fmt: skip


def widened(x: Array) -> Array:
    """`x` in the type to compute in: float32 for narrower floats, else its own."""
    return working(numbers(x))


def rounded(x: Any, dtype: np.dtype[Any]) -> Array:
    """`x` rounded to the type that it was widened from."""
    return as_type(np.asarray(x), dtype)


def float_of(number: int, default: np.dtype[Any]) -> np.dtype[Any]:
    """ONNX's number of an element type as a NumPy dtype; 0 is `default`."""
    if number == 0:
        return default
    if number not in dtypes.DTYPES:
        raise ProgramError(f"element type {number}: expected one of ONNX's")
    return dtypes.DTYPES[number]


def fitting(shape: Iterable[int], itemsize: int, what: str = "result") -> tuple[int, ...]:
    """`check_elements`, with `what` in front of its messages.

    Raises
    ------
    MemoryBudgetError
        An array of this shape does not fit.
    ProgramError
        A size is negative.
    """
    try:
        return check_elements(shape, itemsize)
    except MemoryBudgetError as error:
        raise MemoryBudgetError(f"{what}: {error}") from None
    except ValueError as error:
        raise ProgramError(f"{what}: {error}") from None


def scalar(x: Any, what: str) -> Any:
    """The one element of a tensor, as a Python number."""
    array = np.asarray(x)
    if array.size != 1:
        raise ProgramError(f"{what} of shape {list(array.shape)}: expected one element")
    return array.reshape(()).item()


def channels(x: Array, rank: int) -> Array:
    """A vector over axis 1 of a tensor of `rank` axes, shaped to be broadcast with it."""
    return x.reshape(-1, *[1] * (rank - 2))


def per_channel(x: Array, count: int, what: str) -> Array:
    """A tensor of one element, or of one for each of `count` channels, as a vector."""
    if x.ndim > 1 or x.size not in (1, count):
        raise ProgramError(f"{what} of shape {list(x.shape)}: expected 1 or {count} elements")
    return x.reshape(-1)


def vector(x: Array, count: int, what: str) -> Array:
    """The tensor, once it is known to be a vector of `count` elements."""
    if x.shape != (count,):
        raise ProgramError(f"{what} of shape {list(x.shape)}: expected [{count}]")
    return x


def saturated(x: Array, dtype: np.dtype[Any]) -> Array:
    """Whole numbers as an integer type, clipped to its range; NaN is 0."""
    limits = np.iinfo(dtype)
    limited = np.nan_to_num(np.clip(x, limits.min, limits.max), nan=0.0)
    return np.asarray(limited.astype(dtype))
