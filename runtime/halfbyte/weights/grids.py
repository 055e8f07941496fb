"""IQ1, IQ2 and IQ3: groups of eight or four numbers, looked up in grids; files are only read.

A grid is a set of vectors, in the order of the numbers that their entries make as digits, the
first entry the lowest digit: eight digits from three magnitudes (IQ1: -1, 0, 1), four from eight.
So it is stored as one bit per vector that there could be, in ``data/grids.bin``, which
``tools/make_grids.py`` writes. Signs are apart, eight in a byte; of those with seven bits, the
eighth makes their number even. Source: GGUF's formats of these names.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from halfbyte.weights.base import U8, Blocks
from halfbyte.weights.codes import ONE, THREE_S, THREE_XXS, TWO, Codes, ConvertedFormat
from halfbyte.weights.registry import register

Integers = npt.NDArray[Any]

# name, digits of a vector, magnitudes that a digit stands for
GRIDS = (
    ("IQ2_XXS", 8, 3),
    ("IQ2_XS", 8, 3),
    ("IQ2_S", 8, 3),
    ("IQ1_S", 8, 3),
    ("IQ3_XXS", 4, 8),
    ("IQ3_S", 4, 8),
)
FILE = Path(__file__).parents[1] / "data" / "grids.bin"


@cache
def _grids() -> dict[str, U8]:
    """The digits of all vectors, [vectors, digits], by the first type that has the grid.

    Raises `ImportError` if a page has not unpacked the part of the package with their file.
    """
    if not FILE.exists():
        raise ImportError(f"{FILE.name} is not in the package", name="halfbyte")
    data, grids = np.frombuffer(FILE.read_bytes(), np.uint8), {}
    for name, digits, base in GRIDS:
        size = -(-(base**digits) // 8)
        numbers = np.flatnonzero(np.unpackbits(data[:size], bitorder="little"))
        grids[name] = (numbers[:, None] // base ** np.arange(digits) % base).astype(np.uint8)
        data = data[size:]
    return grids


def _fields(packed: Integers, shifts: range, bits: int) -> Integers:
    """Fields of `bits` bits at these shifts of every integer: [..., n] -> [..., n len(shifts)]."""
    fields: Integers = packed[..., None] >> np.array(shifts, packed.dtype) & packed.dtype.type(
        (1 << bits) - 1
    )
    flat: Integers = fields.reshape(*packed.shape[:-1], packed.shape[-1] * len(shifts))
    return flat


def _nibbles(packed: U8) -> Integers:
    return _fields(packed, range(0, 8, 4), 4)


def _even(signs: Integers) -> U8:
    """Seven signs, and an eighth so that their number is even."""
    folded = signs ^ signs >> np.array(4, signs.dtype)
    folded ^= folded >> np.array(2, signs.dtype)
    folded ^= folded >> np.array(1, signs.dtype)
    top = (folded & signs.dtype.type(1)) << np.array(7, signs.dtype)
    even: U8 = (signs | top).astype(np.uint8)
    return even


class _Grid(ConvertedFormat):
    """256 weights (d unit s) v, v from a grid with signs."""

    block = 256
    in_memory = Codes
    grid: ClassVar[str]
    kind: ClassVar[int]

    @classmethod
    def parts(cls, blocks: Blocks) -> tuple[Integers, U8, Integers]:
        """Indices of the grid, signs in bytes [..., 32], s for every 32 or 16 numbers."""
        raise NotImplementedError

    @classmethod
    def scales_of(cls, blocks: Blocks) -> npt.NDArray[Any]:
        """d."""
        d: npt.NDArray[Any] = blocks["d"]
        return d

    @classmethod
    def converted(cls, rows: U8) -> U8:
        blocks = rows.view(cls.layout)
        indices, signs, s = cls.parts(blocks)
        codes = _grids()[cls.grid][indices].reshape(*blocks.shape, 256)
        codes |= np.unpackbits(signs, axis=-1, bitorder="little") << np.uint8(3)
        scales = (2 * s + 1).astype(np.int8)
        scales = scales.repeat(16 // scales.shape[-1], axis=-1)
        return Codes.make(cls.kind, cls.scales_of(blocks), scales, codes)


@register
class IQ2_XXS(_Grid):
    """(d / 8) (2 s + 1) v: for every 32 four indices, then four times seven signs and s."""

    name = "IQ2_XXS"
    ggml_type = 16
    layout = np.dtype([("d", "<f2"), ("qs", [("indices", "u1", (4,)), ("signs", "<u4")], (8,))])
    block_bytes = layout.itemsize
    grid, kind = "IQ2_XXS", TWO

    @classmethod
    def parts(cls, blocks: Blocks) -> tuple[Integers, U8, Integers]:
        packed = np.ascontiguousarray(blocks["qs"]["signs"])
        indices = blocks["qs"]["indices"].reshape(*blocks.shape, 32)
        return indices, _even(_fields(packed, range(0, 28, 7), 7)), packed >> np.uint32(28)


@register
class IQ2_XS(_Grid):
    """(d / 8) (2 s + 1) v: indices of nine bits with seven signs, s for every 16."""

    name = "IQ2_XS"
    ggml_type = 17
    layout = np.dtype([("d", "<f2"), ("qs", "<u2", (32,)), ("scales", "u1", (8,))])
    block_bytes = layout.itemsize
    grid, kind = "IQ2_XS", TWO

    @classmethod
    def parts(cls, blocks: Blocks) -> tuple[Integers, U8, Integers]:
        qs = blocks["qs"]
        return qs & np.uint16(511), _even(qs >> np.uint16(9)), _nibbles(blocks["scales"])


@register
class IQ2_S(_Grid):
    """(d / 8) (2 s + 1) v: indices of ten bits, the highest two in ``qh``, s for every 16."""

    name = "IQ2_S"
    ggml_type = 22
    layout = np.dtype(
        [("d", "<f2"), ("qs", "u1", (32,)), ("signs", "u1", (32,)), ("qh", "u1", (8,)),
         ("scales", "u1", (8,))]
    )  # fmt: skip
    block_bytes = layout.itemsize
    grid, kind = "IQ2_S", TWO

    @classmethod
    def parts(cls, blocks: Blocks) -> tuple[Integers, U8, Integers]:
        high = _fields(blocks["qh"], range(0, 8, 2), 2)
        return _with_high(blocks["qs"], high), blocks["signs"], _nibbles(blocks["scales"])


@register
class IQ3_XXS(_Grid):
    """(d / 4) (2 s + 1) v in fours: indices of eight bits, then signs and s as in IQ2_XXS."""

    name = "IQ3_XXS"
    ggml_type = 18
    layout = np.dtype([("d", "<f2"), ("qs", "u1", (64,)), ("signs", "<u4", (8,))])
    block_bytes = layout.itemsize
    grid, kind = "IQ3_XXS", THREE_XXS

    @classmethod
    def parts(cls, blocks: Blocks) -> tuple[Integers, U8, Integers]:
        packed = blocks["signs"]
        return blocks["qs"], _even(_fields(packed, range(0, 28, 7), 7)), packed >> np.uint32(28)


@register
class IQ3_S(_Grid):
    """d (2 s + 1) v in fours: indices of nine bits, the highest in ``qh``, s for every 32."""

    name = "IQ3_S"
    ggml_type = 21
    layout = np.dtype(
        [("d", "<f2"), ("qs", "u1", (64,)), ("qh", "u1", (8,)), ("signs", "u1", (32,)),
         ("scales", "u1", (4,))]
    )  # fmt: skip
    block_bytes = layout.itemsize
    grid, kind = "IQ3_S", THREE_S

    @classmethod
    def parts(cls, blocks: Blocks) -> tuple[Integers, U8, Integers]:
        high = _fields(blocks["qh"], range(8), 1)
        return _with_high(blocks["qs"], high), blocks["signs"], _nibbles(blocks["scales"])


class _One(_Grid):
    """d (2 s + 1) (v + 1/8) or, where a bit is set, d (2 s + 1) (v - 1/8), v in -1, 0, 1.

    Below, signs are these bits.
    """

    grid, kind = "IQ1_S", ONE


@register
class IQ1_S(_One):
    """``qh`` has, for every 32, three more bits for each of four indices, s, and the bit."""

    name = "IQ1_S"
    ggml_type = 19
    layout = np.dtype([("d", "<f2"), ("qs", "u1", (32,)), ("qh", "<u2", (8,))])
    block_bytes = layout.itemsize

    @classmethod
    def parts(cls, blocks: Blocks) -> tuple[Integers, U8, Integers]:
        qh = blocks["qh"]
        signs = (qh >> np.uint16(15)).astype(np.uint8) * np.uint8(255)
        indices = _with_high(blocks["qs"], _fields(qh, range(0, 12, 3), 3))
        return indices, signs.repeat(4, axis=-1), qh >> np.uint16(12) & np.uint16(7)


@register
class IQ1_M(_One):
    """``qh`` has, for every eight, three more bits of the index, and the bit.

    A word of ``scales`` has s for four times 16, and, above, four bits of d.
    """

    name = "IQ1_M"
    ggml_type = 29
    layout = np.dtype([("qs", "u1", (32,)), ("qh", "u1", (16,)), ("scales", "<u2", (4,))])
    block_bytes = layout.itemsize

    @classmethod
    def scales_of(cls, blocks: Blocks) -> npt.NDArray[Any]:
        four = blocks["scales"] >> np.uint16(12) << np.arange(0, 16, 4, dtype=np.uint16)
        d: npt.NDArray[Any] = np.bitwise_or.reduce(four, axis=-1).view("<f2")
        return d

    @classmethod
    def parts(cls, blocks: Blocks) -> tuple[Integers, U8, Integers]:
        qh = _nibbles(blocks["qh"])
        signs = (qh >> np.uint8(3)) * np.uint8(255)
        s = _fields(blocks["scales"], range(0, 12, 3), 3)
        return _with_high(blocks["qs"], qh & np.uint8(7)), signs, s


def _with_high(low: U8, high: Integers) -> Integers:
    """Indices of eight low bits and those above."""
    return low | high.astype(np.uint16) << np.uint16(8)
