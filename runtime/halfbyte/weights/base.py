"""What a weight format is."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from halfbyte.errors import HalfbyteError

U8 = npt.NDArray[np.uint8]
F32Array = npt.NDArray[np.float32]


class Codes(NamedTuple):
    """A block format as integer products see it: weight = d q + m in every block.

    The blocks here are those with a scale of their own: a K-quant's are parts of the file's.
    """

    q: npt.NDArray[np.int8]  # [rows, blocks, columns of a block]
    d: F32Array  # [rows, blocks]
    m: F32Array | None = None  # [rows, blocks]; None where there are no minima


class WeightFormat:
    """A storage format of matrix rows; subclasses are never instantiated."""

    name: ClassVar[str]
    ggml_type: ClassVar[int]
    block: ClassVar[int]  # elements that share one scale; rows are whole blocks
    block_bytes: ClassVar[int]
    limit: ClassVar[float]  # magnitudes below it encode to finite numbers and scales

    @classmethod
    def row_bytes(cls, columns: int) -> int:
        """Bytes of a row of `columns` elements; raises where it is no whole number of blocks."""
        if columns % cls.block:
            raise HalfbyteError(
                f"{columns} columns is not a multiple of {cls.name}'s block of {cls.block}"
            )
        return columns // cls.block * cls.block_bytes

    @classmethod
    def rows(cls, data: U8, columns: int) -> U8:
        """All bytes of a matrix -> bytes [rows, row_bytes]: a view, or, of a packed one, a copy."""
        return data.reshape(-1, cls.row_bytes(columns))

    @classmethod
    def decode(cls, rows: U8) -> F32Array:
        """Bytes [rows, row_bytes] -> float32 [rows, columns]."""
        raise NotImplementedError

    @classmethod
    def encode(cls, values: F32Array) -> U8:
        """Round to nearest: C-contiguous float32 [rows, columns] -> bytes [rows, row_bytes].

        Byte-identical to ``gguf.quants`` (0.18 or newer) for values that `fits` accepts.
        """
        raise NotImplementedError

    @classmethod
    def codes(cls, rows: U8) -> Codes:
        """Integers, scales and minima of a block format."""
        raise NotImplementedError

    @classmethod
    def fits(cls, values: F32Array) -> bool:
        """Whether all values are finite and stay so when encoded (a scale is an F16)."""
        return bool(np.all(np.abs(values) < cls.limit))
