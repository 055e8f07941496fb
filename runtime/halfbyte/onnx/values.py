"""Tensors while a graph is captured: dtype, shape, and where a program has their numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.core.buffer import Buffer
from halfbyte.core.dtypes import DTYPES, dtype_key
from halfbyte.errors import ProgramError

Array = npt.NDArray[Any]

MAX_COPIED = 16 << 20  # bytes of a constant that `aligned` copies


@dataclass(eq=False)
class Value:
    """A tensor that a program computes.

    Its elements are in one of three forms: `plain`, in the order of `shape`; `channels_last`, of a
    tensor [n, c, ...], as [n, ..., c], which convolutions take and return; `permuted`, a buffer and
    the order of its dimensions that makes it the tensor. `Capture.plain` and
    `Capture.channels_last` make the first two from another form when they are first needed.
    """

    dtype: str
    shape: tuple[int, ...]
    plain: Buffer | None = None
    channels_last: Buffer | None = None
    permuted: tuple[Buffer, tuple[int, ...]] | None = None

    def origin(self) -> tuple[Buffer, tuple[int, ...]]:
        """A buffer of its elements, and the order of its dimensions that makes the tensor."""
        rank = len(self.shape)
        if self.plain is not None:
            return self.plain.view(self.shape), tuple(range(rank))
        if self.channels_last is not None:
            return self.channels_last, (0, rank - 1, *range(1, rank - 1))
        if self.permuted is None:
            raise ProgramError("a value without a buffer")
        return self.permuted

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def numpy(self) -> np.dtype[Any]:
        """The dtype of its arrays."""
        return DTYPES[self.dtype]


class Unknown:
    """A value that programs do not hold: a list, a string tensor, an absent optional."""


Operand = Value | Array | None  # computed, constant, or left out


def is_channels_last(value: Value) -> bool:
    """Whether a value has only the form with channels last."""
    return value.channels_last is not None and value.plain is None


def ints(array: Array) -> list[int]:
    """The numbers of a constant that holds sizes, axes or the like."""
    if array.dtype.kind not in "iu" or array.ndim > 1:
        raise ProgramError(f"{array.dtype}{list(array.shape)}: expected a vector of whole numbers")
    numbers: list[int] = array.reshape(-1).tolist()
    return numbers


def aligned(value: Any) -> Any:
    """The value, where it is an array at an address that NumPy computes with; a copy of others.

    NumPy would copy such an operand of a product in every run. Large ones stay in the file's pages.
    """
    if type(value) is not np.ndarray or value.flags.aligned or value.dtype.hasobject:
        return value
    return value.copy() if value.nbytes <= MAX_COPIED else value


def sizes_of(buffer: Buffer) -> tuple[int, ...]:
    """The shape of a program's buffer while it is captured."""
    return buffer.shape  # type: ignore[return-value]


def shape_of(operand: Value | Array) -> tuple[int, ...]:
    """The shape of a computed or constant tensor."""
    return operand.shape


def key_of(operand: Value | Array) -> str | None:
    """The program's name of its element type."""
    return operand.dtype if isinstance(operand, Value) else dtype_key(operand.dtype)


def dtype_of(operand: Value | Array) -> np.dtype[Any]:
    """The element type of its arrays."""
    return operand.numpy if isinstance(operand, Value) else operand.dtype
