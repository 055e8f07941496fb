"""The interface of a weight format."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from halfbyte.errors import HalfbyteError

U8 = npt.NDArray[np.uint8]
F32Array = npt.NDArray[np.float32]
Blocks = npt.NDArray[np.void]


class QuantizedBlocks(NamedTuple):
    """Rows of a block format as integer products see them: weight = d q + m in every block.

    A block here is whatever has a scale of its own: for K-quants, part of a block in the file.
    """

    q: npt.NDArray[np.int8]  # [rows, blocks, columns of a block]
    d: F32Array  # [rows, blocks]
    m: F32Array | None = None  # [rows, blocks]; None if the format has no minima


class Preset(NamedTuple):
    """A type of files that `quantize` writes.

    The fields below are names of formats, "" for that of the other matrices. `head` is for the
    head, and for the token embedding if the two are shared; `embeddings` for the token embedding
    beside a head, and for position embeddings. `halfbyte.quantize.mixtures` has those with more
    formats.
    """

    name: str  # llama.cpp's
    file_type: int  # ``general.file_type``
    head: str = ""
    embeddings: str = ""


class Plane(NamedTuple):
    """Where blocks have some bits of their integers.

    They are `bits` of every integer, from bit `shift` on. Byte j of a run of bytes has those of
    integer j of a run of integers in its lowest bits, then those of integer j of the next run, and
    so on.
    """

    name: str  # of the field
    shift: int
    bits: int
    run: int


class WeightFormat:
    """A storage format of matrix rows; subclasses are never instantiated.

    Formats of files are registered by :func:`halfbyte.weights.registry.register`.
    """

    name: ClassVar[str]
    ggml_type: ClassVar[int]
    block: ClassVar[int]  # elements that share one scale; rows are whole blocks
    block_bytes: ClassVar[int]
    limit: ClassVar[float]  # magnitudes below it encode to finite numbers and scales
    dtype: ClassVar[str]  # of buffers and kernels: the name in small letters
    packed: ClassVar[type[Layout] | None] = None  # the same numbers with rows interleaved
    in_memory: ClassVar[type[WeightFormat] | None] = None  # if programs run it in another layout

    planes: ClassVar[tuple[Plane, ...]] = ()  # of a block format

    # For `quantize`: types of files (none: the format is only read), and the format for tensors
    # that do not fit, F32 by default
    presets: ClassVar[tuple[Preset, ...]] = ()
    wider: ClassVar[type[WeightFormat]]
    like: ClassVar[str] = ""  # the format whose products take as long, where these are not measured

    @classmethod
    def row_bytes(cls, columns: int) -> int:
        """Bytes of a row of `columns` elements; raises unless these are whole blocks."""
        if columns % cls.block:
            raise HalfbyteError(
                f"{columns} columns is not a multiple of {cls.name}'s block of {cls.block}"
            )
        return columns // cls.block * cls.block_bytes

    @classmethod
    def rows(cls, data: U8, columns: int) -> U8:
        """All bytes of a matrix -> bytes [rows, row_bytes]: a view; of packed rows a copy."""
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
    def quantized(cls, rows: U8) -> QuantizedBlocks:
        """Integers, scales and minima of a block format."""
        raise NotImplementedError

    @classmethod
    def store_quantized(cls, blocks: Blocks, quantized: U8) -> None:
        """Store unsigned integers [..., block] of a block format, by its `planes`."""
        for name, shift, bits, run in cls.planes:
            shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
            runs = cls.block * bits // 8 // run
            q = quantized.reshape(*blocks.shape, runs, 8 // bits, run)
            parts = ((q >> np.uint8(shift)) & np.uint8(2**bits - 1)) << shifts
            field = blocks[name]
            field[...] = np.bitwise_or.reduce(parts, axis=-2).reshape(field.shape)

    @classmethod
    def converted(cls, rows: U8) -> U8:
        """The same numbers in the layout `in_memory`: bytes [rows, row_bytes of each]."""
        raise NotImplementedError

    @classmethod
    def fits(cls, values: F32Array) -> bool:
        """Whether all values are finite and stay finite when encoded (scales are F16)."""
        return bool(np.all(np.abs(values) < cls.limit))


class Layout(WeightFormat):
    """Rows of a format interleaved in groups, in as many bytes; ``rows`` separates them."""

    GROUP: ClassVar[int]  # rows of a group

    @classmethod
    def pack(cls, rows: U8) -> U8:
        """Bytes [rows, row_bytes] in the file's order -> all bytes in this order."""
        raise NotImplementedError


class BlockFormat(WeightFormat):
    """Integers with scales in blocks; subclasses define where the integers' bits are stored."""

    layout: ClassVar[np.dtype[np.void]]
    bits: ClassVar[int]  # of a stored integer
    packing: ClassVar[type[Layout] | None] = None  # how rows are interleaved

    @classmethod
    def get_quantized(cls, blocks: Blocks) -> U8:
        """The integers as stored, unsigned: [..., block]."""
        raise NotImplementedError

    @classmethod
    def decode(cls, rows: U8) -> F32Array:
        return cls._values(cls.quantized(rows))

    @staticmethod
    def _values(quantized: QuantizedBlocks) -> F32Array:
        """d q + m: [rows, columns]."""
        q, d, m = quantized
        values = q.astype(np.float32)
        with np.errstate(over="ignore", invalid="ignore"):  # 0 times an infinite scale
            values *= d[..., None]
            if m is not None:
                values += m[..., None]
        return values.reshape(len(q), q.shape[1] * q.shape[2])
