"""K-quants: 256 numbers in blocks of 32 or 16, whose scales are integers times one F16 number.

Source: GGUF's formats of these names.
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
from halfbyte.weights.blocks import Q4_0, Q5_0, Q5_1, Q8_0
from halfbyte.weights.codes import TWO_BITS, ThreeBits, two_bits
from halfbyte.weights.packed import Packed
from halfbyte.weights.plain import F16
from halfbyte.weights.registry import register
from halfbyte.weights.scaled import I8, Levels, PairedScales, SignedScales


class KQuant(PairedScales, BlockFormat):
    """256 weights (d s) q - (e m): eight blocks of 32 with six bits each of s and m.

    s[j] and m[j], j < 4, are the low six bits of bytes j and j + 4 of ``scales``; of s[j + 4] and
    m[j + 4] the low four bits are the halves of byte j + 8, the high two those of bytes j, j + 4.
    Byte 32 c + j of ``qs`` holds q[64 c + j] in its low four bits and q[64 c + j + 32] in its high
    ones.

    Encoding as for all `PairedScales`: q = round((x + e m) (1 / (d s))), all in float32.
    """

    packing = Packed
    block = 256
    planes: ClassVar[tuple[Plane, ...]] = (Plane("qs", 0, 4, 32),)
    largest = 63
    factors: ClassVar[tuple[float, ...]] = (1.0, 0.9, 0.933, 0.967, 1.033, 1.067, 1.1)

    @classmethod
    def get_scales(cls, blocks: Blocks) -> tuple[U8, U8]:
        """s and m, [..., 8] each."""
        s, m, low = np.split(blocks["scales"], 3, axis=-1)
        six, four, top = np.uint8(63), np.uint8(15), np.uint8(48)
        return (
            np.concatenate([s & six, (low & four) | ((s >> np.uint8(2)) & top)], axis=-1),
            np.concatenate([m & six, (low >> np.uint8(4)) | ((m >> np.uint8(2)) & top)], axis=-1),
        )

    @classmethod
    def store_scales(cls, blocks: Blocks, s: U8, m: U8) -> None:
        """The inverse of `get_scales`."""
        top, four = np.uint8(48), np.uint8(15)
        first, second = [v[..., :4] | ((v[..., 4:] & top) << np.uint8(2)) for v in (s, m)]
        low = (s[..., 4:] & four) | (m[..., 4:] << np.uint8(4))
        blocks["scales"] = np.concatenate([first, second, low], axis=-1)

    @classmethod
    def get_quantized(cls, blocks: Blocks) -> U8:
        qs = blocks["qs"].reshape(*blocks.shape, 4, 1, 32)
        both = np.concatenate([qs & np.uint8(15), qs >> np.uint8(4)], axis=-2)
        return both.reshape(*blocks.shape, cls.block)

    @classmethod
    def _parts(cls, rows: U8) -> tuple[U8, F32Array, F32Array]:
        """q [rows, parts, numbers of a part], d s and e m [rows, parts]."""
        blocks = rows.view(cls.layout)
        s, m = cls.get_scales(blocks)
        d, e = (blocks[name].astype(np.float32)[..., None] for name in ("d", "dmin"))
        with np.errstate(invalid="ignore"):  # 0 times an infinite scale
            scales, minima = d * s.astype(np.float32), e * m.astype(np.float32)
        q = cls.get_quantized(blocks).reshape(len(rows), -1, cls.part)
        return q, scales.reshape(q.shape[:2]), minima.reshape(q.shape[:2])

    @classmethod
    def quantized(cls, rows: U8) -> QuantizedBlocks:
        q, d, m = cls._parts(rows)
        return QuantizedBlocks(q.view(np.int8), d, -m)

    @classmethod
    def decode(cls, rows: U8) -> F32Array:
        q, d, m = cls._parts(rows)
        values = q.astype(np.float32)
        with np.errstate(invalid="ignore"):
            values *= d[..., None]
            values -= m[..., None]
        return values.reshape(len(rows), -1)


@register
class Q2_K(KQuant):
    """256 weights (d s) q - (e m): s and m, halves of a byte, for every 16; q in 0 ... 3."""

    name = "Q2_K"
    ggml_type = 10
    bits = 2
    layout = np.dtype([("scales", "u1", (16,)), ("qs", "u1", (64,)), ("d", "<f2"), ("dmin", "<f2")])
    block_bytes = layout.itemsize
    planes = (TWO_BITS,)
    part = 16
    levels = Levels(0, 3)
    largest = 15
    factors = (1.0, 0.75, 0.85, 1.1)
    limit = 15 * F16.limit
    like = "Q4_K"
    presets = (Preset("Q2_K", 10, head="Q6_K"),)
    wider = Q4_0

    @classmethod
    def get_scales(cls, blocks: Blocks) -> tuple[U8, U8]:
        return blocks["scales"] & np.uint8(15), blocks["scales"] >> np.uint8(4)

    @classmethod
    def store_scales(cls, blocks: Blocks, s: U8, m: U8) -> None:
        blocks["scales"] = s | m << np.uint8(4)

    @classmethod
    def get_quantized(cls, blocks: Blocks) -> U8:
        return two_bits(blocks["qs"])


@register
class Q3_K(SignedScales, ThreeBits):
    """256 weights d (s - 32) (q - 4), s of six bits for every 16, q of three bits.

    s[i] and s[i + 8], i < 8, have their low four bits in the halves of scales[i]; the high two of
    s[4 p + i] are bits 2 p and 2 p + 1 of scales[8 + i].
    """

    name = "Q3_K"
    ggml_type = 11
    layout = np.dtype(
        [("hmask", "u1", (32,)), ("qs", "u1", (64,)), ("scales", "u1", (12,)), ("d", "<f2")]
    )
    block_bytes = layout.itemsize
    part = 16
    levels = Levels(-4, 3)
    smallest = -32
    factors = (1.0, 0.85, 1.15, -0.75)
    limit = 4 * 32 * F16.limit
    like = "Q6_K"
    presets = (Preset("Q3_K", 11, head="Q6_K"),)
    wider = Q4_0

    @classmethod
    def get_scales(cls, blocks: Blocks) -> I8:
        """s - 32: [..., 16]."""
        low, high = blocks["scales"][..., :8], blocks["scales"][..., 8:]
        low = np.concatenate([low & np.uint8(15), low >> np.uint8(4)], axis=-1)
        high = high[..., None, :] >> np.arange(0, 8, 2, dtype=np.uint8)[:, None] & np.uint8(3)
        s: I8 = (low | high.reshape(low.shape) << np.uint8(4)).view(np.int8) - np.int8(32)
        return s

    @classmethod
    def store_scales(cls, blocks: Blocks, scales: I8) -> None:
        """The inverse of `get_scales`."""
        s = (scales + np.int8(32)).view("<u4")  # four in a word
        low, high = s & np.uint32(0x0F0F0F0F), s >> np.uint32(4) & np.uint32(0x03030303)
        high <<= np.arange(0, 8, 2, dtype=np.uint32)
        high = np.bitwise_or.reduce(high, axis=-1, keepdims=True)
        words = np.concatenate([low[..., :2] | low[..., 2:] << np.uint32(4), high], axis=-1)
        blocks["scales"] = words.view(np.uint8)

    @classmethod
    def quantized(cls, rows: U8) -> QuantizedBlocks:
        blocks = rows.view(cls.layout)
        q = cls.get_quantized(blocks).reshape(len(rows), -1, 16).view(np.int8) - np.int8(4)
        with np.errstate(invalid="ignore"):
            d = blocks["d"].astype(np.float32)[..., None] * cls.get_scales(blocks)
        return QuantizedBlocks(q, d.astype(np.float32).reshape(q.shape[:2]))


@register
class Q4_K(KQuant):
    """256 weights (d s) q - (e m): F16 numbers d and e ("dmin"), s and m, then q in 0 ... 15."""

    name = "Q4_K"
    ggml_type = 12
    bits = 4
    levels = Levels(0, 15)
    layout = np.dtype(
        [("d", "<f2"), ("dmin", "<f2"), ("scales", "u1", (12,)), ("qs", "u1", (128,))]
    )
    block_bytes = layout.itemsize
    limit = 63 * F16.limit
    presets = (Preset("Q4_K", 14, head="Q6_K"),)
    wider = Q5_0


@register
class Q5_K(KQuant):
    """256 weights (d s) q - (e m): as in Q4_K; the fifth bit of q[32 b + j] is bit b of qh[j]."""

    name = "Q5_K"
    ggml_type = 13
    bits = 5
    planes = (*KQuant.planes, Plane("qh", 4, 1, 32))
    levels = Levels(0, 31)
    layout = np.dtype(
        [("d", "<f2"), ("dmin", "<f2"), ("scales", "u1", (12,)), ("qh", "u1", (32,)),
         ("qs", "u1", (128,))]
    )  # fmt: skip
    block_bytes = layout.itemsize
    limit = 63 * F16.limit
    like = "Q4_K"
    presets = (Preset("Q5_K", 16, head="Q6_K"),)
    wider = Q5_1

    @classmethod
    def get_quantized(cls, blocks: Blocks) -> U8:
        fifth = np.unpackbits(blocks["qh"][..., None, :], axis=-2, bitorder="little")
        quantized: U8 = super().get_quantized(blocks)
        return quantized | (fifth.reshape(quantized.shape) << np.uint8(4))


@register
class Q6_K(SignedScales, BlockFormat):
    """256 weights (d s) (q - 32): an F16 scale d, an int8 s for every 16, q in 0 ... 63.

    The low four bits of q[128 h + 32 p + j] are in ``ql[64 h + 32 (p % 2) + j]``, in its low half
    for p < 2, and the high two are bits 2 p and 2 p + 1 of ``qh[32 h + j]``.

    Encoding, all in float32: the scale of 16 numbers is the first of the largest in magnitude over
    -32; d = F16(the first of the largest scales over -128), s = round(scale (1 / d)), at most 127,
    and q = round(x (1 / (d s))) + 32, from 0 to 63; ties to even.
    """

    name = "Q6_K"
    ggml_type = 14
    block = 256
    bits = 6
    planes = (Plane("ql", 0, 4, 64), Plane("qh", 4, 2, 32))
    part = 16
    levels = Levels(-32, 31)
    factors = (1.0, 0.98, 1.02, -0.97)
    smallest = -128
    packing = Packed
    layout = np.dtype(
        [("ql", "u1", (128,)), ("qh", "u1", (64,)), ("scales", "i1", (16,)), ("d", "<f2")]
    )
    block_bytes = layout.itemsize
    limit = 32 * 128 * F16.limit
    presets = (Preset("Q6_K", 18),)
    wider = Q8_0

    @classmethod
    def get_quantized(cls, blocks: Blocks) -> U8:
        low = blocks["ql"].reshape(*blocks.shape, 2, 1, 64)
        low = np.concatenate([low & np.uint8(15), low >> np.uint8(4)], axis=-2)
        high = blocks["qh"].reshape(*blocks.shape, 2, 1, 32)
        shifts = np.array([0, 2, 4, 6], np.uint8)[:, None]
        high = ((high >> shifts) & np.uint8(3)) << np.uint8(4)
        quantized: U8 = low.reshape(high.shape) | high
        return quantized.reshape(*blocks.shape, cls.block)

    @classmethod
    def quantized(cls, rows: U8) -> QuantizedBlocks:
        blocks = rows.view(cls.layout)
        q = cls.get_quantized(blocks).reshape(len(rows), -1, 16).view(np.int8) - np.int8(32)
        with np.errstate(invalid="ignore"):
            d = blocks["d"].astype(np.float32)[..., None] * blocks["scales"].astype(np.float32)
        return QuantizedBlocks(q, d.reshape(q.shape[:2]))

    @classmethod
    def store_scales(cls, blocks: Blocks, scales: I8) -> None:
        blocks["scales"] = scales
