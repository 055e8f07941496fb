"""What a weight format is."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from halfbyte.errors import HalfbyteError

U8 = npt.NDArray[np.uint8]
F32Array = npt.NDArray[np.float32]
Blocks = npt.NDArray[np.void]


class QuantizedBlocks(NamedTuple):
    """A block format as integer products see it: weight = d q + m in every block.

    The blocks here are those with a scale of their own: a K-quant's are parts of the file's.
    """

    q: npt.NDArray[np.int8]  # [rows, blocks, columns of a block]
    d: F32Array  # [rows, blocks]
    m: F32Array | None = None  # [rows, blocks]; None where there are no minima


class Preset(NamedTuple):
    """A type of files that `quantize` writes; formats by name, or none: as of the other matrices.

    `head` is that of the head, and of the token embedding where that is the head too; `embeddings`
    that of the token embedding beside a head, and of position embeddings. In a mixture, `some` is
    that of ``attn_v`` and ``ffn_down`` in some layers, `fused` that of ``attn_qkv``.
    """

    name: str  # as llama.cpp has it
    file_type: int  # ``general.file_type``
    head: str = ""
    embeddings: str = ""
    some: str = ""
    fused: str = ""


class WeightFormat:
    """A storage format of matrix rows; subclasses are never instantiated.

    What a file may have is given to :func:`halfbyte.weights.registry.register`.
    """

    name: ClassVar[str]
    ggml_type: ClassVar[int]
    block: ClassVar[int]  # elements that share one scale; rows are whole blocks
    block_bytes: ClassVar[int]
    limit: ClassVar[float]  # magnitudes below it encode to finite numbers and scales
    dtype: ClassVar[str]  # of buffers and kernels: the name in small letters
    packed: ClassVar[type[Layout] | None] = None  # the same with rows laid together

    # For `quantize`: types of files (none: it is only read), and the format of what does not fit,
    # F32 unless another is named
    presets: ClassVar[tuple[Preset, ...]] = ()
    wider: ClassVar[type[WeightFormat]]
    like: ClassVar[str] = ""  # the format whose products take as long, where these are not measured

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
    def quantized(cls, rows: U8) -> QuantizedBlocks:
        """Integers, scales and minima of a block format."""
        raise NotImplementedError

    @classmethod
    def fits(cls, values: F32Array) -> bool:
        """Whether all values are finite and stay so when encoded (a scale is an F16)."""
        return bool(np.all(np.abs(values) < cls.limit))


class Layout(WeightFormat):
    """Rows of a format laid together in groups, in as many bytes; ``rows`` takes them apart."""

    GROUP: ClassVar[int]  # rows that lie together

    @classmethod
    def pack(cls, rows: U8) -> U8:
        """Bytes [rows, row_bytes] in the file's order -> all bytes in this one."""
        raise NotImplementedError


class BlockFormat(WeightFormat):
    """Integers with scales in blocks; subclasses say where the bits of the integers lie."""

    layout: ClassVar[np.dtype[np.void]]
    bits: ClassVar[int]  # of a stored code
    packing: ClassVar[type[Layout] | None] = None  # how rows are laid together

    @classmethod
    def get_quantized(cls, blocks: Blocks) -> U8:
        """The codes as stored, without a sign: [..., block]."""
        raise NotImplementedError

    @classmethod
    def store_quantized(cls, blocks: Blocks, codes: U8) -> None:
        """Store codes: the inverse of `get_quantized`."""
        raise NotImplementedError

    @classmethod
    def decode(cls, rows: U8) -> F32Array:
        return cls._values(cls.quantized(rows))

    @staticmethod
    def _values(codes: QuantizedBlocks) -> F32Array:
        """d q + m: [rows, columns]."""
        q, d, m = codes
        values = q.astype(np.float32)
        with np.errstate(invalid="ignore"):  # 0 times an infinite scale
            values *= d[..., None]
            if m is not None:
                values += m[..., None]
        return values.reshape(len(q), q.shape[1] * q.shape[2])
