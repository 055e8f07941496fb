"""Tensors whose bytes are computed from the file's on demand."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.errors import FormatError
from halfbyte.weights import F32, U8, F32Array, Tensor, WeightFormat

_SLICE = 1 << 20  # elements computed at once


class DerivedTensor(Tensor):
    """A tensor that is stored otherwise than GGUF wants it: permuted, widened, regrouped.

    `take` computes the requested rows. `data` computes all of them, for the caller to keep: the
    same array is returned as long as it is referenced, then its memory is freed. The quantizer,
    which takes slices, so needs memory for a slice, and a loaded model for its derived tensors.

    Parameters
    ----------
    make : callable
        (first, count) -> bytes uint8 [count, row_bytes] of these rows, all of them in range.
    """

    make: Callable[[int, int], U8]
    _bytes: weakref.ref[U8] | None

    def __init__(
        self,
        name: str,
        weight_format: type[WeightFormat],
        shape: tuple[int, ...],
        make: Callable[[int, int], U8],
        whole: Tensor | None = None,
        picked: Any = None,
    ) -> None:
        fields = {
            "name": name, "format": weight_format, "shape": shape, "make": make, "whole": whole,
            "picked": picked,
        }  # fmt: skip
        for field, value in {**fields, "_bytes": None}.items():
            object.__setattr__(self, field, value)

    def take(self, first: int, count: int) -> U8:
        """The bytes of at most `count` rows from row `first` on, computed again."""
        return self.make(first, min(count, self.row_count - first))

    @property
    def data(self) -> U8:
        """The tensor's bytes in its `format`."""
        data: U8 | None = self._bytes() if self._bytes is not None else None
        if data is None:
            data = self._make()
            object.__setattr__(self, "_bytes", weakref.ref(data))
        return data

    def part(self, first: int, end: int) -> Tensor:
        """Rows [first, end) as a matrix of its own, computed the same way."""
        return DerivedTensor(
            f"{self.name}[{first}:{end}]", self.format, (end - first, self.columns),
            lambda start, count: self.make(first + start, count), self, slice(first, end),
        )  # fmt: skip

    @property
    def owned(self) -> bool:
        """Always true: the bytes are computed for the caller."""
        return True

    def release(self) -> U8:
        """Give the computed bytes away; a whole, of which other rows are needed, keeps its own."""
        data = self.data
        self._forget()
        return data

    def _forget(self) -> None:
        object.__setattr__(self, "_bytes", None)

    def _make(self) -> U8:
        data = np.empty(self.nbytes, np.uint8)
        rows = self.format.rows(data, self.columns)
        step = max(1, _SLICE // self.columns)
        for first in range(0, self.row_count, step):
            rows[first : first + step] = self.take(first, step)
        return data


def permuted(tensor: Tensor, name: str, axes: tuple[int, ...]) -> Tensor:
    """The tensor with its axes in another order, in a format without blocks."""
    element = f"u{tensor.format.block_bytes}"
    shape = tuple(tensor.shape[axis] for axis in axes)

    def make(first: int, count: int) -> U8:
        elements = tensor.data.view(element).reshape(tensor.shape).transpose(axes)
        rows = np.unravel_index(np.arange(first, first + count), shape[:-1])
        data: U8 = np.ascontiguousarray(elements[rows]).view(np.uint8).reshape(count, -1)
        return data

    return DerivedTensor(name, tensor.format, shape, make)


def reordered(
    tensor: Tensor, name: str, order: npt.NDArray[np.integer[Any]], whole: Tensor | None = None
) -> Tensor:
    """The tensor's rows `order[0]`, `order[1]`, ...; a slice of `order` should span few rows.

    Rows of all matrices are counted; `order` [..., rows] has the shape of the result. They may be
    some of the rows of a `whole` tensor.
    """
    flat = order.reshape(-1)

    def make(first: int, count: int) -> U8:
        part = flat[first : first + count]
        low, high = int(part.min()), int(part.max())
        rows: U8 = np.asarray(tensor.take(low, high + 1 - low))[part - low]
        return rows

    shape = (*order.shape, tensor.columns)
    return DerivedTensor(name, tensor.format, shape, make, whole, flat)


def split_rows(tensor: Tensor, count: int) -> Tensor:
    """A matrix as [count, rows, columns]; raises `FormatError` if its rows are not divisible."""
    rows, columns = tensor.row_count, tensor.columns
    if rows % count:
        raise FormatError(f"{rows} rows: expected a multiple of {count}")
    shape = (count, rows // count, columns)
    if isinstance(tensor, DerivedTensor):
        return DerivedTensor(tensor.name, tensor.format, shape, tensor.make)
    return Tensor(tensor.name, tensor.format, shape, tensor.data)


def with_columns(tensor: Tensor, name: str, order: npt.NDArray[np.integer[Any]]) -> Tensor:
    """The matrix with its columns in another order, in a format without blocks."""
    if tensor.format.block > 1:
        raise FormatError(f"expected single numbers, found blocks of {tensor.format.name}")
    element = f"u{tensor.format.block_bytes}"

    def make(first: int, count: int) -> U8:
        rows = np.ascontiguousarray(tensor.take(first, count)).view(element)[:, order]
        data: U8 = np.ascontiguousarray(rows).view(np.uint8)
        return data

    return DerivedTensor(name, tensor.format, tensor.shape, make)


def padded(tensor: Tensor, name: str, more: int) -> Tensor:
    """The matrix with further rows, whose bytes are zeros."""
    rows, columns = tensor.shape

    def make(first: int, count: int) -> U8:
        data = np.zeros((count, tensor.format.row_bytes(columns)), np.uint8)
        known = min(first + count, rows) - first
        if known > 0:
            data[:known] = tensor.take(first, known)
        return data

    return DerivedTensor(name, tensor.format, (rows + more, columns), make)


def stacked(tensors: Sequence[Tensor], name: str) -> Tensor:
    """Matrices of one shape and format as one tensor [matrices, rows, columns]."""
    first_tensor = tensors[0]
    each = first_tensor.row_count

    def make(first: int, count: int) -> U8:
        parts = []
        for number in range(first // each, -(-(first + count) // each)):
            start = max(first - number * each, 0)
            parts.append(
                tensors[number].take(start, min(first + count - number * each, each) - start)
            )
        return np.concatenate(parts)

    shape = (len(tensors), *first_tensor.shape)
    return DerivedTensor(name, first_tensor.format, shape, make)


def widened(tensor: Tensor, name: str, function: Callable[[F32Array], F32Array]) -> Tensor:
    """`function` of a vector or a small matrix, in F32."""
    shape = function(np.zeros(tensor.shape, np.float32)).shape

    def make(first: int, count: int) -> U8:
        rows = function(tensor.decode()).reshape(-1, shape[-1])
        return F32.encode(rows[first : first + count])

    return DerivedTensor(name, F32, shape, make)


def scaled(tensor: Tensor, name: str, factors: npt.NDArray[np.float32]) -> Tensor:
    """The tensor's rows times their factors, or times one factor, in F32."""
    each = np.broadcast_to(factors, tensor.row_count)[:, None]

    def make(first: int, count: int) -> U8:
        values = tensor.format.decode(tensor.take(first, count))
        return F32.encode(values * each[first : first + count])

    return DerivedTensor(name, F32, tensor.shape, make)


class ConvertedTensor(DerivedTensor):
    """A tensor in the layout that its format has in memory, which takes more than in the file."""

    source: Tensor  # in the file

    def __init__(self, tensor: Tensor, layout: type[WeightFormat]) -> None:
        def make(first: int, count: int) -> U8:
            return tensor.format.converted(tensor.take(first, count))

        super().__init__(tensor.name, layout, tensor.shape, make, tensor.whole)
        object.__setattr__(self, "source", tensor)


def converted(tensor: Tensor) -> Tensor:
    """The tensor in the layout that its format has in memory, or the tensor itself."""
    layout = tensor.format.in_memory
    return tensor if layout is None else ConvertedTensor(tensor, layout)


def aligned(tensor: Tensor, name: str) -> Tensor:
    """The tensor under `name`; derived by copying if its address is not aligned for kernels."""
    if isinstance(tensor, DerivedTensor):
        return DerivedTensor(name, tensor.format, tensor.shape, tensor.make)
    if tensor.data.ctypes.data % tensor.format.block_bytes:
        return DerivedTensor(
            name, tensor.format, tensor.shape, lambda first, n: tensor.take(first, n).copy()
        )
    return Tensor(name, tensor.format, tensor.shape, tensor.data)
