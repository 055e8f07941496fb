"""Formats of blocks of 32 numbers: with a scale (Q4_0, Q5_0, Q8_0), and a minimum (Q4_1, Q5_1).

Quantized values of four bits are stored two to a byte: byte j holds q[j] in its low four bits and
q[j + 16] in its high ones. The fifth bit of q[j] is bit j of ``qh``.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from halfbyte.weights.base import (
    U8,
    BlockFormat,
    Blocks,
    F32Array,
    Plane,
    Preset,
    QuantizedBlocks,
)
from halfbyte.weights.packed import Packed
from halfbyte.weights.plain import F16
from halfbyte.weights.registry import register
from halfbyte.weights.scaled import Levels, OneScale, Rounded, ScaledFormat, inverse

# Factors of the search are chosen on normal and long-tailed numbers, and on rows and columns of
# different sizes. With one below 0, the largest number is at the other end.


class Nibbles(BlockFormat):
    """Integers of four bits."""

    packing = Packed
    block = 32
    bits = 4
    planes: ClassVar[tuple[Plane, ...]] = (Plane("qs", 0, 4, 16),)

    @classmethod
    def get_quantized(cls, blocks: Blocks) -> U8:
        return np.concatenate([blocks["qs"] & np.uint8(15), blocks["qs"] >> np.uint8(4)], axis=-1)


class _FiveBits(Nibbles):
    """Integers of five bits: the fifth bits are stored together."""

    bits = 5
    planes = (*Nibbles.planes, Plane("qh", 4, 1, 1))

    @classmethod
    def get_quantized(cls, blocks: Blocks) -> U8:
        fifth = np.unpackbits(blocks["qh"], axis=-1, bitorder="little")
        return super().get_quantized(blocks) | (fifth << np.uint8(4))


class _Symmetric(OneScale, BlockFormat):
    """Weights d (q - offset), q in 0 ... 2 offset - 1.

    Encoding: m is the first of the weights that are largest in magnitude, d = m / -offset, q =
    trunc(x (1 / d) + offset + 0.5), at most 2 offset - 1; all in float32, q from d before d is
    rounded to F16.
    """

    offset: ClassVar[int]

    @classmethod
    def quantized(cls, rows: U8) -> QuantizedBlocks:
        blocks = rows.view(cls.layout)
        q = cls.get_quantized(blocks).view(np.int8) - np.int8(cls.offset)
        return QuantizedBlocks(q, blocks["d"].astype(np.float32))


class _WithMinimum(ScaledFormat, BlockFormat):
    """Weights d q + m.

    Encoding: m = min x, d = (max x - m) / qmax, q = trunc((x - m) (1 / d) + 0.5), at most qmax =
    2^bits - 1; all in float32, q from d and m before these are rounded to F16.
    """

    minimum = True

    @classmethod
    def quantized(cls, rows: U8) -> QuantizedBlocks:
        blocks = rows.view(cls.layout)
        q = cls.get_quantized(blocks).view(np.int8)
        return QuantizedBlocks(q, blocks["d"].astype(np.float32), blocks["m"].astype(np.float32))

    @classmethod
    def plain(cls, low: F32Array, high: F32Array, first: F32Array) -> tuple[F32Array, F32Array]:
        return (high - low) / np.float32(cls.levels.high), low

    @classmethod
    def rounded(cls, blocks: Blocks, scales: F32Array, minima: F32Array) -> Rounded:
        blocks["d"], blocks["m"] = scales[..., 0], minima[..., 0]
        d, m = (blocks[name].astype(np.float32)[..., None] for name in ("d", "m"))
        return Rounded(inverse(scales), minima, d, m)


@register
class Q8_0(OneScale, BlockFormat):
    """Blocks of 32 weights d q: an F16 scale d, then 32 int8 q.

    Encoding: d = max|x| / 127, q = x (1 / d) rounded to nearest, halves away from zero; all in
    float32, q from d before d is rounded to F16.
    """

    name = "Q8_0"
    ggml_type = 8
    block = 32
    bits = 8
    layout = np.dtype([("d", "<f2"), ("qs", "i1", (32,))])
    block_bytes = layout.itemsize
    limit = 127 * F16.limit
    levels = Levels(-127, 127, away=True)
    factors = (1.0, 0.986, 0.978, 0.962)
    packing = Packed
    presets = (Preset("Q8_0", 7),)
    wider = F16

    @classmethod
    def get_quantized(cls, blocks: Blocks) -> U8:
        return blocks["qs"].view(np.uint8)

    @classmethod
    def store_quantized(cls, blocks: Blocks, quantized: U8) -> None:
        blocks["qs"] = quantized.view(np.int8)

    @classmethod
    def quantized(cls, rows: U8) -> QuantizedBlocks:
        blocks = rows.view(cls.layout)
        return QuantizedBlocks(blocks["qs"], blocks["d"].astype(np.float32))

    @classmethod
    def plain(cls, low: F32Array, high: F32Array, first: F32Array) -> tuple[F32Array, F32Array]:
        scales: F32Array = np.divide(np.abs(first), np.float32(127))
        return scales, np.zeros_like(scales)

    @classmethod
    def store(cls, blocks: Blocks, integers: U8) -> None:
        signed = (integers.astype(np.int16) - np.int16(127)).astype(np.int8)
        cls.store_quantized(blocks, signed.reshape(*blocks.shape, cls.block).view(np.uint8))


@register
class Q4_0(_Symmetric, Nibbles):
    """Blocks of 32 weights d (q - 8): an F16 scale d, then q in 0 ... 15."""

    name = "Q4_0"
    ggml_type = 2
    offset = 8
    layout = np.dtype([("d", "<f2"), ("qs", "u1", (16,))])
    block_bytes = layout.itemsize
    limit = 8 * F16.limit
    levels = Levels(-8, 7, 8.5)
    factors = (1.0, 1.075, 0.9, 1.025)
    presets = (Preset("Q4_0", 2, head="Q8_0", embeddings="Q8_0"),)
    wider = Q8_0


@register
class Q4_1(_WithMinimum, Nibbles):
    """Blocks of 32 weights d q + m: F16 numbers d and m, then q in 0 ... 15."""

    name = "Q4_1"
    ggml_type = 3
    levels = Levels(0, 15, 0.5)
    factors = (1.04, 1.04, 0.94)
    added = (-0.5, 0.0, 0.0)
    layout = np.dtype([("d", "<f2"), ("m", "<f2"), ("qs", "u1", (16,))])
    block_bytes = layout.itemsize
    limit = F16.limit
    like = "Q4_K"
    presets = (Preset("Q4_1", 3, head="Q8_0", embeddings="Q8_0"),)
    wider = Q8_0


@register
class Q5_0(_Symmetric, _FiveBits):
    """Blocks of 32 weights d (q - 16): an F16 scale d, then q in 0 ... 31.

    Integer products treat them as Q5_1's: d q + m with m = -16 d.
    """

    name = "Q5_0"
    ggml_type = 6
    offset = 16
    levels = Levels(-16, 15, 16.5)
    factors = (1.0, 0.975, 1.02, -0.94)
    layout = np.dtype([("d", "<f2"), ("qh", "u1", (4,)), ("qs", "u1", (16,))])
    block_bytes = layout.itemsize
    limit = 16 * F16.limit
    like = "Q4_K"
    presets = (Preset("Q5_0", 8, head="Q8_0", embeddings="Q8_0"),)
    wider = Q8_0

    @classmethod
    def quantized(cls, rows: U8) -> QuantizedBlocks:
        q, d, _ = super().quantized(rows)
        return QuantizedBlocks(q + np.int8(cls.offset), d, np.float32(-cls.offset) * d)

    @classmethod
    def decode(cls, rows: U8) -> F32Array:
        return cls._values(super().quantized(rows))


@register
class Q5_1(_WithMinimum, _FiveBits):
    """Blocks of 32 weights d q + m: F16 numbers d and m, then q in 0 ... 31."""

    name = "Q5_1"
    ggml_type = 7
    levels = Levels(0, 31, 0.5)
    factors = (1.0, 1.0, 0.96, 0.94)
    added = (0.25, -0.25, 1.25, 1.0)
    layout = np.dtype([("d", "<f2"), ("m", "<f2"), ("qh", "u1", (4,)), ("qs", "u1", (16,))])
    block_bytes = layout.itemsize
    limit = F16.limit
    like = "Q4_K"
    presets = (Preset("Q5_1", 9, head="Q8_0", embeddings="Q8_0"),)
    wider = Q8_0
