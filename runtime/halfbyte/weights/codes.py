"""Layouts of memory for types of one to four bits: codes that stand for one of sixteen integers.

Kernels do not read these types as files have them: with grids, and signs apart. What a file's block
holds becomes codes of three or four bits and the scales of sixteen numbers, once, when the model is
loaded (`WeightFormat.in_memory`, `WeightFormat.converted`); no number changes.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from halfbyte.weights.base import (
    U8,
    BlockFormat,
    Blocks,
    F32Array,
    Plane,
    QuantizedBlocks,
    WeightFormat,
)
from halfbyte.weights.blocks import Nibbles
from halfbyte.weights.packed import Packed
from halfbyte.weights.registry import register_layout
from halfbyte.weights.scaled import I8

IQ4 = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.int8)
FP4 = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int8)


class Kind(NamedTuple):
    """How codes become weights, unit d s values[code]; scales are integers times d."""

    unit: float
    values: I8  # [16]


def _kind(unit: float, first: tuple[int, ...], second: tuple[int, ...] = ()) -> Kind:
    """Values of codes whose highest bit, the third or the fourth, is not set, and of those others.

    Without the second, that bit is the sign.
    """
    values = np.zeros(16, np.int8)
    size = 8 if len(first) == 8 else 4
    values[: len(first)] = first
    values[size : size + len(first)] = second or np.negative(first)
    return Kind(unit, values)


# The same as `kinds` in linear/blocks_codes.inc; the first two have codes of three bits.
TWO, ONE, THREE_XXS, THREE_S = range(4)
KINDS = (
    _kind(1 / 8, (8, 25, 43)),
    _kind(1 / 8, (-7, 1, 9), (-9, -1, 7)),
    _kind(1 / 4, (4, 12, 20, 28, 36, 44, 52, 62)),
    _kind(1.0, (1, 3, 5, 7, 9, 11, 13, 15)),
)


def looked_up(values: I8, codes: U8, scales: F32Array) -> QuantizedBlocks:
    """Blocks of sixteen from codes [rows, blocks, columns] and their scales."""
    rows = len(codes)
    return QuantizedBlocks(values[codes].reshape(rows, -1, 16), scales.reshape(rows, -1))


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


TWO_BITS = Plane("qs", 0, 2, 32)


def two_bits(qs: U8) -> U8:
    """Two bits: q[128 h + 32 p + j] is bits 2 p and 2 p + 1 of qs[32 h + j]; [..., 256]."""
    shifts = np.arange(0, 8, 2, dtype=np.uint8)[:, None]
    fields = qs.reshape(*qs.shape[:-1], 2, 1, 32) >> shifts & np.uint8(3)
    return fields.reshape(*qs.shape[:-1], 256)


class ThreeBits(BlockFormat):
    """256 integers of three bits: bit b of hmask[j] is the third bit of q[32 b + j]."""

    packing = Packed
    block = 256
    bits = 3
    planes = (TWO_BITS, Plane("hmask", 2, 1, 32))

    @classmethod
    def get_quantized(cls, blocks: Blocks) -> U8:
        third = np.unpackbits(blocks["hmask"][..., None, :], axis=-2, bitorder="little")
        return two_bits(blocks["qs"]) | third.reshape(*blocks.shape, 256) << np.uint8(2)


class Coded(BlockFormat):
    """256 weights (d unit s) values[q]: an F16 d, int8 s for every 16, and unit and values by kind.

    `kind` is the same in a whole matrix.
    """

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
class Codes(WideNibbles, Coded):
    """Codes of four bits."""

    name = "CODES"
    layout = np.dtype(
        [("d", "<f2"), ("kind", "<u2"), ("scales", "i1", (16,)), ("qs", "u1", (128,))]
    )
    block_bytes = layout.itemsize


@register_layout
class Codes3(ThreeBits, Coded):
    """Codes of three bits."""

    name = "CODES_3"
    layout = np.dtype(
        [("d", "<f2"), ("kind", "<u2"), ("scales", "i1", (16,)), ("hmask", "u1", (32,)),
         ("qs", "u1", (64,))]
    )  # fmt: skip
    block_bytes = layout.itemsize


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
