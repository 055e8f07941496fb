"""The numbers of stored weights as float32, slice by slice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import TensorProto

from halfbyte.quantize.encode import SLICE
from halfbyte.quantize.onnx.source import Source
from halfbyte.weights import BF16, F16, F32, Tensor, WeightFormat

F32Array = npt.NDArray[np.float32]

FORMATS: dict[int, type[WeightFormat]] = {
    TensorProto.FLOAT: F32, TensorProto.FLOAT16: F16, TensorProto.BFLOAT16: BF16,
}  # fmt: skip
"""Formats of the types that can be quantized."""


class Numbers:
    """The numbers of a constant, some rows at a time.

    Attributes
    ----------
    rows : int
        Length of the first dimension.
    columns : int
        Numbers in a row: the product of all other dimensions.
    """

    def __init__(self, source: Source, tensor: TensorProto) -> None:
        self.source, self.tensor = source, tensor
        self.shape = tuple(tensor.dims)
        self.rows = self.shape[0] if self.shape else 1
        self.columns = int(np.prod(self.shape[1:], dtype=np.int64))
        self.format = FORMATS[tensor.data_type]
        self._data = source.data(tensor).reshape(self.rows, -1)

    @property
    def nbytes(self) -> int:
        """Their size in bytes as stored."""
        return self._data.nbytes

    @property
    def size(self) -> int:
        """Their count."""
        return self.rows * self.columns

    def take(self, first: int, count: int) -> F32Array:
        """Rows as float32 [count, columns]; a copy where they are not aligned in the file."""
        self.source.file.check()
        x = self.format.decode(np.ascontiguousarray(self._data[first : first + count]))
        return np.require(x, requirements=["C", "A"])

    def take_columns(self, first: int, count: int) -> F32Array:
        """Columns, transposed: float32 [count, rows]."""
        self.source.file.check()
        width = self._data.shape[1] // self.columns
        part = self._data[:, first * width : (first + count) * width]
        return np.ascontiguousarray(self.format.decode(np.ascontiguousarray(part)).T)

    def slices(self) -> Iterator[tuple[int, F32Array]]:
        """All rows, a few at a time, with the number of the first; pages are released after use."""
        step = max(1, SLICE // max(self.columns, 1))
        for first in range(0, self.rows, step):
            yield first, self.take(first, step)
            self.source.file.forget()

    def top(self) -> float:
        """The largest magnitude; raises `FormatError` for values that are not finite."""
        tensor = Tensor(self.tensor.name, self.format, (self.rows, self.columns), self._data)
        parts = (self.source.file.check_values(tensor, x, first) for first, x in self.slices())
        return max(parts, default=0.0)


def dtype_of(data_type: int) -> np.dtype[Any]:
    """NumPy's type of the scales of weights of a type."""
    return np.dtype(np.float16 if data_type == TensorProto.FLOAT16 else np.float32)
