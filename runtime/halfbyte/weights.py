"""Weight formats: how a row of numbers lies in bytes, and what those bytes mean.

One class per format, found by name in :data:`FORMATS`. ``decode`` and ``encode`` are the
definitions in NumPy; the C kernels are compared with them byte for byte. Block layouts and names
are GGUF's (``ggml_type`` is the number in the file).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from halfbyte.errors import HalfbyteError

U8 = npt.NDArray[np.uint8]
F32Array = npt.NDArray[np.float32]


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
    def codes(cls, rows: U8) -> tuple[npt.NDArray[np.int8], F32Array]:
        """Integers [rows, blocks, block] and scales [rows, blocks] of a block format."""
        raise NotImplementedError

    @classmethod
    def fits(cls, values: F32Array) -> bool:
        """Whether all values are finite and stay so when encoded (a scale is an F16)."""
        return bool(np.all(np.abs(values) < cls.limit))


def _inverse(d: F32Array) -> F32Array:
    """1 / d, or 0 where d is zero or so small that 1 / d overflows: that block becomes zero."""
    with np.errstate(divide="ignore", over="ignore"):
        inverse: F32Array = np.float32(1) / d
    return np.where(np.isfinite(inverse), inverse, np.float32(0))


class F32(WeightFormat):
    """IEEE binary32, little-endian."""

    name = "F32"
    ggml_type = 0
    block = 1
    block_bytes = 4
    limit = float("inf")

    @classmethod
    def decode(cls, rows: U8) -> F32Array:
        """A view, not a copy."""
        return rows.view("<f4")

    @classmethod
    def encode(cls, values: F32Array) -> U8:
        """A view, not a copy."""
        return values.astype("<f4", copy=False).view(np.uint8)


class F16(WeightFormat):
    """IEEE binary16; encoded to nearest, ties to even."""

    name = "F16"
    ggml_type = 1
    block = 1
    block_bytes = 2
    limit = 65520.0  # half-way from the largest F16 to the next power of two: rounds to infinity

    @classmethod
    def decode(cls, rows: U8) -> F32Array:
        return rows.view("<f2").astype(np.float32)

    @classmethod
    def encode(cls, values: F32Array) -> U8:
        with np.errstate(over="ignore"):
            return values.astype("<f2").view(np.uint8)


class BF16(WeightFormat):
    """The upper half of an IEEE binary32; encoded to nearest, ties to even, NaNs made quiet."""

    name = "BF16"
    ggml_type = 30
    block = 1
    block_bytes = 2
    limit = 2.0**127 * (2 - 2.0**-8)

    @classmethod
    def decode(cls, rows: U8) -> F32Array:
        return (rows.view("<u2").astype(np.uint32) << np.uint32(16)).view(np.float32)

    @classmethod
    def encode(cls, values: F32Array) -> U8:
        bits = values.view(np.uint32)
        quiet = (bits & np.uint32(0xFFFF0000)) | np.uint32(0x00400000)
        bits = np.where(np.isnan(values), quiet, bits)
        odd = (bits >> np.uint32(16)) & np.uint32(1)
        rounded = (bits + np.uint32(0x7FFF) + odd) >> np.uint32(16)
        return rounded.astype("<u2").view(np.uint8)


class Q8_0(WeightFormat):
    """Blocks of 32 weights d q: an F16 scale d, then 32 int8 q.

    Encoding: d = max|x| / 127, q = x (1 / d) rounded to nearest, halves away from zero; all in
    float32, q from the d before its rounding to F16.
    """

    name = "Q8_0"
    ggml_type = 8
    block = 32
    layout = np.dtype([("d", "<f2"), ("qs", "i1", (32,))])
    block_bytes = layout.itemsize
    limit = 127 * F16.limit

    @classmethod
    def decode(cls, rows: U8) -> F32Array:
        blocks = rows.view(cls.layout)
        values = blocks["qs"].astype(np.float32)
        with np.errstate(invalid="ignore"):  # 0 times an infinite scale
            values *= blocks["d"].astype(np.float32)[..., None]
        return values.reshape(len(rows), blocks.shape[1] * cls.block)

    @classmethod
    def codes(cls, rows: U8) -> tuple[npt.NDArray[np.int8], F32Array]:
        blocks = rows.view(cls.layout)
        return blocks["qs"], blocks["d"].astype(np.float32)

    @classmethod
    def encode(cls, values: F32Array) -> U8:
        x = values.reshape(len(values), values.shape[1] // cls.block, cls.block)
        d = np.abs(x).max(axis=-1, keepdims=True) / np.float32(127)
        scaled = x * _inverse(d)
        magnitude = np.abs(scaled)
        whole = np.floor(magnitude)
        whole += (magnitude - whole) >= np.float32(0.5)
        blocks = np.empty(x.shape[:2], cls.layout)
        with np.errstate(over="ignore"):
            blocks["d"] = d[..., 0]
        blocks["qs"] = np.copysign(whole, scaled)
        return blocks.view(np.uint8)


class Q4_0(WeightFormat):
    """Blocks of 32 weights d (q - 8): an F16 scale d, then q in 0...15, two to a byte.

    Byte j holds q[j] in its low four bits and q[j + 16] in its high ones. Encoding: m is the
    first of the weights that are largest in magnitude, d = m / -8, q = trunc(x (1 / d) + 8.5), at
    most 15; all in float32, q from the d before its rounding to F16.
    """

    name = "Q4_0"
    ggml_type = 2
    block = 32
    layout = np.dtype([("d", "<f2"), ("qs", "u1", (16,))])
    block_bytes = layout.itemsize
    limit = 8 * F16.limit

    @classmethod
    def decode(cls, rows: U8) -> F32Array:
        blocks = rows.view(cls.layout)
        values = np.empty((*blocks.shape, 2, 16), np.float32)
        values[..., 0, :] = blocks["qs"] & np.uint8(15)
        values[..., 1, :] = blocks["qs"] >> np.uint8(4)
        values -= np.float32(8)
        with np.errstate(invalid="ignore"):  # 0 times an infinite scale
            values *= blocks["d"].astype(np.float32)[..., None, None]
        return values.reshape(len(rows), blocks.shape[1] * cls.block)

    @classmethod
    def codes(cls, rows: U8) -> tuple[npt.NDArray[np.int8], F32Array]:
        blocks = rows.view(cls.layout)
        low, high = blocks["qs"] & np.uint8(15), blocks["qs"] >> np.uint8(4)
        q = np.concatenate([low, high], axis=-1).view(np.int8) - np.int8(8)
        return q, blocks["d"].astype(np.float32)

    @classmethod
    def encode(cls, values: F32Array) -> U8:
        x = values.reshape(len(values), values.shape[1] // cls.block, cls.block)
        largest = np.abs(x).argmax(axis=-1, keepdims=True)
        d = np.take_along_axis(x, largest, axis=-1) / np.float32(-8)
        q = np.minimum(x * _inverse(d) + np.float32(8.5), np.float32(15)).astype(np.uint8)
        blocks = np.empty(x.shape[:2], cls.layout)
        with np.errstate(over="ignore"):
            blocks["d"] = d[..., 0]
        blocks["qs"] = q[..., :16] | (q[..., 16:] << np.uint8(4))
        return blocks.view(np.uint8)


FORMATS: dict[str, type[WeightFormat]] = {f.name: f for f in (F32, F16, BF16, Q8_0, Q4_0)}
BY_GGML_TYPE: dict[int, type[WeightFormat]] = {f.ggml_type: f for f in FORMATS.values()}


@dataclass(frozen=True)
class Tensor:
    """A named matrix or vector as it lies in a file; `data` is a view, usually of mapped pages.

    `shape` is in C order: (rows, columns) for a matrix, (length,) for a vector (GGUF's own order
    is the reverse). `data` is one-dimensional uint8 of exactly the tensor's bytes.
    """

    name: str
    format: type[WeightFormat]
    shape: tuple[int, ...]
    data: U8

    @property
    def columns(self) -> int:
        """Length of the innermost dimension."""
        return self.shape[-1]

    @property
    def row_count(self) -> int:
        """Number of rows, all outer dimensions flattened; a vector is one."""
        return math.prod(self.shape[:-1])

    @property
    def nbytes(self) -> int:
        """Size of `data`, which is not touched."""
        return self.row_count * self.format.row_bytes(self.columns)

    @property
    def rows(self) -> U8:
        """The bytes as [rows, row_bytes], all outer dimensions flattened."""
        return self.format.rows(self.data, self.columns)

    def take(self, first: int, count: int) -> U8:
        """The bytes of at most `count` rows from row `first` on, as [rows, row_bytes]."""
        return self.rows[first : first + count]

    def decode(self) -> F32Array:
        """All values as float32 in `shape`."""
        return self.format.decode(self.rows).reshape(self.shape)
