"""Layouts of memory for types of one to four bits: codes that stand for one of sixteen integers.

Kernels do not read these types as files have them: with grids, signs apart, or bits in threes.
What a file's block holds becomes 4-bit codes and the scales of sixteen numbers, once, when the
model is loaded (`WeightFormat.in_memory`, `WeightFormat.converted`); no number changes.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from halfbyte.weights.base import U8, BlockFormat, Blocks, F32Array, QuantizedBlocks, WeightFormat
from halfbyte.weights.blocks import Nibbles
from halfbyte.weights.registry import register_layout
from halfbyte.weights.scaled import I8

IQ4 = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.int8)
FP4 = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int8)


class Kind(NamedTuple):
    """How codes become weights, unit d s values[code]; scales are integers times d."""

    unit: float
    values: I8  # [16]


def _signed(unit: float, *magnitudes: int) -> Kind:
    """Magnitudes by the low three bits of a code; the fourth is the sign."""
    half = np.zeros(8, np.int8)
    half[: len(magnitudes)] = magnitudes
    return Kind(unit, np.concatenate([half, -half]))


# The same as `kinds` in linear/blocks_codes.inc
PLAIN, TWO, THREE_XXS, THREE_S, ONE = range(5)
KINDS = (
    Kind(1.0, np.arange(-8, 8, dtype=np.int8)),
    _signed(1 / 8, 8, 25, 43),
    _signed(1 / 4, 4, 12, 20, 28, 36, 44, 52, 62),
    _signed(1.0, 1, 3, 5, 7, 9, 11, 13, 15),
    Kind(1 / 8, np.array([-7, 1, 9, 0, 0, 0, 0, 0, -9, -1, 7, 0, 0, 0, 0, 0], np.int8)),
)


def looked_up(
    values: I8, codes: U8, scales: F32Array, minima: F32Array | None = None
) -> QuantizedBlocks:
    """Blocks of sixteen from codes [rows, blocks, columns], their scales and minima."""
    rows = len(codes)
    m = None if minima is None else minima.reshape(rows, -1)
    return QuantizedBlocks(values[codes].reshape(rows, -1, 16), scales.reshape(rows, -1), m)


class ConvertedFormat(WeightFormat):
    """A format of files that programs run in a layout of memory."""

    layout: ClassVar[np.dtype[np.void]]
    in_memory: ClassVar[type[BlockFormat]]
    like = "Q6_K"

    @classmethod
    def decode(cls, rows: U8) -> F32Array:
        return cls.in_memory.decode(cls.converted(rows))


class WideNibbles(Nibbles):
    """256 codes, 32 by 32 in the order of Q4_0."""

    block = 256

    @classmethod
    def get_quantized(cls, blocks: Blocks) -> U8:
        qs = blocks["qs"].reshape(*blocks.shape, 8, 1, 16)
        both = np.concatenate([qs & np.uint8(15), qs >> np.uint8(4)], axis=-2)
        return both.reshape(*blocks.shape, cls.block)


@register_layout
class Codes(WideNibbles):
    """256 weights (d unit s) values[q]: an F16 d, int8 s for every 16, and unit and values by kind.

    `kind` is the same in a whole matrix.
    """

    name = "CODES"
    layout = np.dtype(
        [("d", "<f2"), ("kind", "<u2"), ("scales", "i1", (16,)), ("qs", "u1", (128,))]
    )
    block_bytes = layout.itemsize
    like = "Q6_K"

    @classmethod
    def quantized(cls, rows: U8) -> QuantizedBlocks:
        blocks = rows.view(cls.layout)
        kind = KINDS[int(blocks["kind"].flat[0])]
        with np.errstate(invalid="ignore"):
            d = blocks["d"].astype(np.float32)[..., None] * np.float32(kind.unit)
            scales = d * blocks["scales"].astype(np.float32)
        return looked_up(kind.values, cls.get_quantized(blocks), scales)

    @classmethod
    def make(cls, kind: int, d: npt.NDArray[np.float16], scales: I8, codes: U8) -> U8:
        """Rows of d [rows, blocks], scales [rows, blocks, 16] and codes [rows, blocks, 256]."""
        blocks = np.empty(d.shape, cls.layout)
        blocks["kind"], blocks["d"], blocks["scales"] = kind, d, scales
        cls.store_quantized(blocks, codes)
        return blocks.view(np.uint8)


@register_layout
class CodesMin(WideNibbles):
    """256 weights (d s) q - (dmin m), with s and m for every 16 in the halves of a byte."""

    name = "CODES_MIN"
    layout = np.dtype(
        [("d", "<f2"), ("dmin", "<f2"), ("scales", "u1", (16,)), ("qs", "u1", (128,))]
    )
    block_bytes = layout.itemsize
    like = "Q6_K"

    @classmethod
    def _parts(cls, rows: U8) -> tuple[U8, F32Array, F32Array]:
        blocks = rows.view(cls.layout)
        d, e = (blocks[name].astype(np.float32)[..., None] for name in ("d", "dmin"))
        s, m = blocks["scales"] & np.uint8(15), blocks["scales"] >> np.uint8(4)
        with np.errstate(invalid="ignore"):
            return cls.get_quantized(blocks), d * s.astype(np.float32), e * m.astype(np.float32)

    @classmethod
    def quantized(cls, rows: U8) -> QuantizedBlocks:
        q, d, m = cls._parts(rows)
        return looked_up(np.arange(16, dtype=np.int8), q, d, -m)

    @classmethod
    def decode(cls, rows: U8) -> F32Array:
        q, d, m = cls._parts(rows)
        values = q.reshape(*d.shape, 16).astype(np.float32)
        with np.errstate(invalid="ignore"):
            values *= d[..., None]
            values -= m[..., None]
        return values.reshape(len(rows), -1)


@register_layout
class Fp4(Nibbles):
    """32 weights d values[q] with an F16 scale for every 16: NVFP4's, whose scales fit into F16."""

    name = "FP4"
    layout = np.dtype([("d", "<f2", (2,)), ("qs", "u1", (16,))])
    block_bytes = layout.itemsize
    like = "Q6_K"

    @classmethod
    def quantized(cls, rows: U8) -> QuantizedBlocks:
        blocks = rows.view(cls.layout)
        return looked_up(FP4, cls.get_quantized(blocks), blocks["d"].astype(np.float32))
