"""Buffers, the operands of a program: memory for numbers whose sizes may change between runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.core.dtypes import DTYPES
from halfbyte.errors import ProgramError
from halfbyte.weights import BY_DTYPE, Tensor


@dataclass(frozen=True)
class Size:
    """A dimension or position that is known only at run time."""

    name: str
    maximum: int

    def __str__(self) -> str:
        return f"{self.name}≤{self.maximum}"

    def at(self, registers: Mapping[str, int]) -> int:
        """Its value in one run."""
        return registers[self.name]


@dataclass(frozen=True)
class SumSize(Size):
    """A size that follows from others: the sum of these, less that of `minus`."""

    plus: tuple[Size, ...] = ()
    minus: tuple[Size, ...] = ()

    def at(self, registers: Mapping[str, int]) -> int:
        """Its value in one run."""
        return sum(s.at(registers) for s in self.plus) - sum(s.at(registers) for s in self.minus)


@dataclass(frozen=True)
class ComputedSize(Size):
    """A size that is computed from named ones; its name is the formula, such as ``384*s0``.

    Buffers with such dimensions are contiguous at the sizes of a run: it uses their first elements,
    as many as there are.
    """

    compute: Callable[[Mapping[str, int]], int] = field(default=lambda _: 0, compare=False)

    def at(self, registers: Mapping[str, int]) -> int:
        """Its value in one run; the maximum where no sizes are given."""
        return self.compute(registers) if registers else self.maximum


Dim = int | Size


def maximum(dim: Dim) -> int:
    """The largest value a dimension takes."""
    return dim.maximum if isinstance(dim, Size) else dim


def at(dim: Dim, registers: Mapping[str, int]) -> int:
    """A dimension's value in one run."""
    return dim.at(registers) if isinstance(dim, Size) else dim


def _sized(dim: Size, registers: Mapping[str, int]) -> int:
    """A size's value in one run, or its maximum if it has no value there."""
    if isinstance(dim, ComputedSize):
        return dim.at(registers)
    return registers.get(dim.name, dim.maximum)


class Kind(StrEnum):
    """The purpose of a buffer. Only the memory of scratch and windows is reused.

    A cache has rows for every position, which later runs write again; a state is of the last
    position only. A window holds a part of the weights while it is needed, read from the file in
    every run.
    """

    WEIGHT = "weight"
    CONSTANT = "constant"
    CACHE = "cache"
    STATE = "state"
    INPUT = "input"
    OUTPUT = "output"
    SCRATCH = "scratch"
    WINDOW = "window"


SHARED = frozenset({Kind.SCRATCH, Kind.WINDOW})  # kinds that share one arena


@dataclass(frozen=True, eq=False)
class Buffer:
    """Memory for numbers; only weights and constants have a `value`, or a function that returns it.

    A buffer with a `source` is a view of that buffer's memory, from the byte `offset` on.
    """

    name: str
    kind: Kind
    dtype: str  # a key of DTYPES, or a weight format's name in lower case
    shape: tuple[Dim, ...]
    value: Tensor | npt.NDArray[Any] | Callable[[], npt.NDArray[Any]] | None = None
    source: Buffer | None = None
    offset: int = 0

    @property
    def root(self) -> Buffer:
        """The buffer that owns the memory: itself, except for views."""
        return self if self.source is None else self.source.root

    def view(self, shape: tuple[Dim, ...], dtype: str | None = None) -> Buffer:
        """The same bytes with another shape, and optionally another of DTYPES."""
        dtype = dtype or self.dtype
        if (shape, dtype) == (self.shape, self.dtype):
            return self
        whole = self.root
        same = (shape, dtype, self.offset) == (whole.shape, whole.dtype, 0)
        if same and self.nbytes == whole.nbytes:
            return whole
        view = self.part(0, shape, dtype)
        if view.nbytes != self.nbytes:
            raise ProgramError(f"{self}: cannot be viewed as {view}")
        return view

    def part(self, offset: int, shape: tuple[Dim, ...], dtype: str | None = None) -> Buffer:
        """A view of the bytes from `offset` on, with this shape."""
        root, first = self.root, self.offset + offset
        where = f"+{first}" if first else ""
        name = f"{root.name}{where}:{'x'.join(map(str, shape))}"
        part = Buffer(name, self.kind, dtype or self.dtype, shape, source=root, offset=first)
        if offset + part.nbytes > self.nbytes:
            raise ProgramError(f"{self}: has no part {part}")
        return part

    @cached_property
    def nbytes(self) -> int:
        """Bytes at the maxima of all sizes."""
        return self.bytes_at({})

    def bytes_at(self, registers: Mapping[str, int], rows: int | None = None) -> int:
        """Bytes at given sizes (by default maxima), or of `rows` rows (the last dimension)."""
        *outer, columns = self.sizes_at(registers) or (1,)
        count = columns * (math.prod(outer) if rows is None else rows)
        if self.dtype in DTYPES:
            return count * DTYPES[self.dtype].itemsize
        return BY_DTYPE[self.dtype].row_bytes(count)

    def held_as(self, registers: Mapping[str, int]) -> tuple[np.dtype[Any], tuple[int, ...]]:
        """Dtype and shape of the array that holds it, at given sizes (by default maxima).

        Block formats are held as bytes: per row, or per element of the first two dimensions.
        """
        shape = self.sizes_at(registers)
        if self.dtype in DTYPES:
            return DTYPES[self.dtype], shape
        outer = min(len(shape) - 1, 2)
        row_bytes = BY_DTYPE[self.dtype].row_bytes(math.prod(shape[outer:]))
        return np.dtype(np.uint8), (*shape[:outer], row_bytes)

    def sizes_at(self, registers: Mapping[str, int]) -> tuple[int, ...]:
        """The shape at given sizes (by default maxima)."""
        for dim in self.shape:
            if isinstance(dim, Size):
                break
        else:
            return self.shape  # type: ignore[return-value]
        return tuple(_sized(d, registers) if isinstance(d, Size) else d for d in self.shape)

    def __str__(self) -> str:
        return f"{self.name} {self.dtype}[{', '.join(map(str, self.shape))}]"
