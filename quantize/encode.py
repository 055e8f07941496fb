"""Decoding, encoding and measuring rows, on the kernels or by the definitions in NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from halfbyte.core.backends import available
from halfbyte.core.backends.native import Kernels
from halfbyte.core.ops import hadamard
from halfbyte.formats import ModelFile
from halfbyte.quantize import scale_search
from halfbyte.quantize.steps import KernelSteps, OnePass, Steps
from halfbyte.weights import F32, ScaledFormat, Tensor, WeightFormat

F32Array = npt.NDArray[np.float32]
U8 = npt.NDArray[np.uint8]

SLICE = 1 << 20  # elements processed at once


class Codec:
    """Converts numbers to bytes of all formats, and back.

    Parameters
    ----------
    threads : int
        Threads of the kernels. Without kernels NumPy does the same, slowly.

    Attributes
    ----------
    threads : int
    steps : Steps
        The steps of encoding.
    """

    def __init__(self, threads: int = 1) -> None:
        native = available()[0] != "numpy"
        self.threads = threads
        self._kernels = Kernels(threads=threads) if native else None
        self.steps = Steps()
        if self._kernels is not None:
            whole = self._kernels.has("encode_integers")
            self.steps = (KernelSteps if whole else OnePass)(self._kernels)

    def __reduce__(self) -> tuple[type[Codec], tuple[()]]:
        """Another process gets one with a thread: results are the same with any number."""
        return Codec, ()

    def close(self) -> None:
        """Stop the threads."""
        if self._kernels is not None:
            self._kernels.close()

    def decode(self, format_: type[WeightFormat], rows: U8, columns: int) -> F32Array:
        """Bytes [n, row_bytes] -> float32 [n, columns]; a view of F32."""
        if format_.in_memory is not None:
            format_, rows = format_.in_memory, format_.converted(rows)
        name = f"gather_{format_.dtype}"
        if self._kernels is None or format_ is F32 or not self._kernels.has(name):
            return format_.decode(rows)
        n = len(rows)
        y = np.empty((n, columns), np.float32)
        ids = np.arange(n, dtype=np.int32)
        self._kernels.call(name, y=y, w=rows, ids=ids, n=n, v=n, d=columns)
        return y

    def values(self, tensor: Tensor, first: int, count: int) -> F32Array:
        """Rows of a tensor in floats."""
        values = self.decode(tensor.format, tensor.take(first, count), tensor.columns)
        return np.ascontiguousarray(values, np.float32)

    def hadamard(self, x: F32Array) -> F32Array:
        """Rotate each 32 numbers of a row, float32 [n, k]; see `halfbyte.core.ops.rotated`."""
        if self._kernels is None:
            return hadamard.meaning(x)  # type: ignore[no-any-return]
        n, k = x.shape
        y = np.empty_like(x)
        self._kernels.call("hadamard", y=y, x=x, n=n, k=k)
        return y

    def encode(self, format_: type[WeightFormat], x: F32Array) -> U8:
        """Round to nearest: float32 [n, k] -> bytes [n, row_bytes]."""
        name = f"encode_{format_.dtype}"
        kernels = self._kernels if self._kernels and self._kernels.has(name) else None
        if issubclass(format_, ScaledFormat) and (kernels is None or format_.minimum):
            return scale_search.encode(x, format_, self.steps)
        if kernels is None:
            return format_.encode(x)
        n, k = x.shape
        w = np.empty((n, format_.row_bytes(k)), np.uint8)
        kernels.call(name, w=w, x=x, n=n, k=k)
        return w

    def search(
        self, format_: type[ScaledFormat], x: F32Array, importance: F32Array
    ) -> tuple[U8, F32Array]:
        """Encode, searching each block's scale; see `halfbyte.quantize.scale_search`."""
        return scale_search.search(x, importance, format_, self.steps)

    def square_error(self, x: F32Array, y: F32Array) -> npt.NDArray[np.float64]:
        """Sums of x^2 and of (x - y)^2."""
        n, k = x.shape
        sums = np.empty((n, 2), np.float32)
        if self._kernels is not None:
            self._kernels.call("square_error", s=sums, x=x, y=y, n=n, k=k)
        else:
            sums[:, 0], sums[:, 1] = (x * x).sum(axis=1), np.square(x - y).sum(axis=1)
        total: npt.NDArray[np.float64] = sums.sum(axis=0, dtype=np.float64)
        return total

    def add_column_energy(self, sums: F32Array, x: F32Array) -> None:
        """sums[k] += sum over rows of x[n, k]^2."""
        if self._kernels is not None:
            self._kernels.call("column_energy", s=sums, x=x, n=len(x), k=x.shape[1])
        else:
            sums += np.square(x).sum(axis=0)


class Slice(NamedTuple):
    """Some rows of a tensor, decoded."""

    first: int
    values: F32Array
    data: U8  # the rows as stored


def slices(file: ModelFile, tensor: Tensor, codec: Codec) -> Iterator[Slice]:
    """A tensor's rows (a vector is one row), a few at a time; pages are released after use."""
    columns = tensor.columns
    step = max(1, SLICE // columns)
    for first in range(0, tensor.row_count, step):
        file.check()
        part = tensor.take(first, step)
        values = codec.decode(tensor.format, part, columns)
        yield Slice(first, np.ascontiguousarray(values, np.float32), part)
        file.forget()
    file.check()
