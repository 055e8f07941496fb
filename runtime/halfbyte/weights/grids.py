"""IQ1, IQ2 and IQ3: groups of eight or four numbers, looked up in grids; files are only read.

A grid is a set of vectors, in the order of the numbers that their entries make as digits, the
first entry the lowest digit: eight digits from three magnitudes (IQ1: -1, 0, 1), four from eight.
So it is stored as one bit per vector that there could be, in ``data/grids.bin``, which
``tools/make_grids.py`` writes. Signs are apart. Source: GGUF's formats of these names.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from halfbyte.weights.base import U8
from halfbyte.weights.codes import (
    ONE,
    THREE_S,
    THREE_XXS,
    TWO,
    Coded,
    Codes,
    Codes3,
    ConvertedFormat,
)
from halfbyte.weights.registry import register

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


class Field(NamedTuple):
    """Numbers in a block: each is `bits` bits of its little-endian bits, from a position on.

    `steps` are nested: number (a, b) of (8, 64), (4, 7) is at start + 64 a + 7 b.
    """

    bits: int
    start: int
    steps: tuple[tuple[int, int], ...]

    @property
    def positions(self) -> npt.NDArray[np.int64]:
        """Of the first bits."""
        positions = np.array([self.start])
        for count, step in self.steps:
            positions = (positions[:, None] + step * np.arange(count)).reshape(-1)
        return positions

    def words(self, block_bytes: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint16]]:
        """The first of two bytes of a block that have a number, and its first bit in them."""
        places = np.minimum(self.positions // 8, block_bytes - 2)
        return places, (self.positions - 8 * places).astype(np.uint16)

    def read(self, blocks: U8) -> npt.NDArray[np.uint16]:
        """The numbers of blocks [..., bytes]: [..., count]."""
        places, shifts = self.words(blocks.shape[-1])
        words = blocks[..., places] | blocks[..., places + 1].astype(np.uint16) << np.uint16(8)
        numbers: npt.NDArray[np.uint16] = words >> shifts & np.uint16((1 << self.bits) - 1)
        return numbers


def _field(bits: int, start: int, *steps: tuple[int, int]) -> Field:
    return Field(bits, start, steps)


class Conversion(NamedTuple):
    """What the kernel `convert_grids` is told of a type; described in kernels.h."""

    grid: U8
    fields: npt.NDArray[np.int16]
    digits: int
    kind: int
    bits: int


class Grid(ConvertedFormat):
    """256 weights (d unit (2 s + 1)) v, v from a grid with signs.

    Of seven signs, an eighth makes their number even; a single bit is that of eight numbers.
    """

    block = 256
    in_memory: ClassVar[type[Coded]] = Codes3
    grid: ClassVar[str]
    kind: ClassVar[int]
    d: ClassVar[Field] = _field(16, 0)
    low: ClassVar[Field]  # bits of indices
    high: ClassVar[Field | None] = None  # those above them
    signs: ClassVar[Field]  # of eight numbers
    scales: ClassVar[Field]  # s for every 16 or 32 numbers

    @classmethod
    def conversion(cls) -> Conversion:
        """Tables for the kernel that does what `converted` does."""
        grid, fields = _grids()[cls.grid], []
        for field in (cls.d, cls.low, cls.high, cls.signs, cls.scales):
            if field is None:
                fields.append(np.zeros(2, np.int64))
                continue
            places, shifts = field.words(cls.block_bytes)
            fields += [np.array([len(places), field.bits]), 16 * places + shifts]
        flat = np.concatenate(fields).astype(np.int16)
        return Conversion(grid, flat, grid.shape[1], cls.kind, cls.in_memory.bits)

    @classmethod
    def converted(cls, rows: U8) -> U8:
        blocks = rows.reshape(len(rows), -1, cls.block_bytes)
        indices = cls.low.read(blocks)
        if cls.high is not None:
            indices |= cls.high.read(blocks) << np.uint16(cls.low.bits)
        codes = _grids()[cls.grid][indices].reshape(*indices.shape[:2], cls.block)
        signs = np.unpackbits(_signs(cls.signs.read(blocks), cls.signs.bits), -1, bitorder="little")
        codes |= signs << np.uint8(cls.in_memory.bits - 1)
        scales = (2 * cls.scales.read(blocks) + 1).astype(np.int8)
        d = cls.d.read(blocks) << np.arange(0, 16, cls.d.bits, dtype=np.uint16)
        return cls.in_memory.make(
            cls.kind, np.bitwise_or.reduce(d, axis=-1).view("<f2"),
            scales.repeat(16 // scales.shape[-1], axis=-1), codes,
        )  # fmt: skip


def _signs(signs: npt.NDArray[np.uint16], bits: int) -> U8:
    """A byte of signs for every eight numbers: [..., 32]."""
    if bits == 1:
        signs = signs * np.uint16(255)
    if bits == 7:
        folded = signs ^ signs >> np.uint16(4)
        folded ^= folded >> np.uint16(2)
        signs = signs | ((folded ^ folded >> np.uint16(1)) & np.uint16(1)) << np.uint16(7)
    return signs.astype(np.uint8).repeat(32 // signs.shape[-1], axis=-1)


@register
class IQ2_XXS(Grid):
    """(d / 8) (2 s + 1) v: for every 32 four indices, then four times seven signs and s."""

    name = "IQ2_XXS"
    ggml_type = 16
    layout = np.dtype([("d", "<f2"), ("qs", [("indices", "u1", (4,)), ("signs", "<u4")], (8,))])
    block_bytes = layout.itemsize
    grid, kind = "IQ2_XXS", TWO
    low, signs, scales = (
        _field(8, 16, (8, 64), (4, 8)), _field(7, 48, (8, 64), (4, 7)), _field(4, 76, (8, 64)),
    )  # fmt: skip


@register
class IQ2_XS(Grid):
    """(d / 8) (2 s + 1) v: indices of nine bits with seven signs, s for every 16."""

    name = "IQ2_XS"
    ggml_type = 17
    layout = np.dtype([("d", "<f2"), ("qs", "<u2", (32,)), ("scales", "u1", (8,))])
    block_bytes = layout.itemsize
    grid, kind = "IQ2_XS", TWO
    low, signs, scales = _field(9, 16, (32, 16)), _field(7, 25, (32, 16)), _field(4, 528, (16, 4))


@register
class IQ2_S(Grid):
    """(d / 8) (2 s + 1) v: indices of ten bits, the highest two in ``qh``, s for every 16."""

    name = "IQ2_S"
    ggml_type = 22
    layout = np.dtype(
        [("d", "<f2"), ("qs", "u1", (32,)), ("signs", "u1", (32,)), ("qh", "u1", (8,)),
         ("scales", "u1", (8,))]
    )  # fmt: skip
    block_bytes = layout.itemsize
    grid, kind = "IQ2_S", TWO
    low, high = _field(8, 16, (32, 8)), _field(2, 528, (32, 2))
    signs, scales = _field(8, 272, (32, 8)), _field(4, 592, (16, 4))


@register
class IQ3_XXS(Grid):
    """(d / 4) (2 s + 1) v in fours: indices of eight bits, then signs and s as in IQ2_XXS."""

    name = "IQ3_XXS"
    ggml_type = 18
    layout = np.dtype([("d", "<f2"), ("qs", "u1", (64,)), ("signs", "<u4", (8,))])
    block_bytes = layout.itemsize
    grid, kind, in_memory = "IQ3_XXS", THREE_XXS, Codes
    low, signs, scales = (
        _field(8, 16, (64, 8)), _field(7, 528, (8, 32), (4, 7)), _field(4, 556, (8, 32)),
    )  # fmt: skip


@register
class IQ3_S(Grid):
    """d (2 s + 1) v in fours: indices of nine bits, the highest in ``qh``, s for every 32."""

    name = "IQ3_S"
    ggml_type = 21
    layout = np.dtype(
        [("d", "<f2"), ("qs", "u1", (64,)), ("qh", "u1", (8,)), ("signs", "u1", (32,)),
         ("scales", "u1", (4,))]
    )  # fmt: skip
    block_bytes = layout.itemsize
    grid, kind, in_memory = "IQ3_S", THREE_S, Codes
    low, high = _field(8, 16, (64, 8)), _field(1, 528, (64, 1))
    signs, scales = _field(8, 592, (32, 8)), _field(4, 848, (8, 4))


class _One(Grid):
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
    low, high = _field(8, 16, (32, 8)), _field(3, 272, (8, 16), (4, 3))
    signs, scales = _field(1, 287, (8, 16)), _field(3, 284, (8, 16))


@register
class IQ1_M(_One):
    """``qh`` has, for every eight, three more bits of the index, and the bit.

    A word of ``scales`` has s for four times 16, and, above, four bits of d.
    """

    name = "IQ1_M"
    ggml_type = 29
    layout = np.dtype([("qs", "u1", (32,)), ("qh", "u1", (16,)), ("scales", "<u2", (4,))])
    block_bytes = layout.itemsize
    d = _field(4, 396, (4, 16))
    low, high = _field(8, 0, (32, 8)), _field(3, 256, (32, 4))
    signs, scales = _field(1, 259, (32, 4)), _field(3, 384, (4, 16), (4, 3))
