"""K-quants: 256 numbers in blocks of 32 or 16, whose scales are integers times one F16 number.

Source: GGUF's formats of these names.
"""

from __future__ import annotations

import numpy as np

from halfbyte.weights.base import U8, Blocks, F32Array, Preset, QuantizedBlocks
from halfbyte.weights.blocks import (
    Q5_0,
    Q5_1,
    Q8_0,
    ScaledFormat,
    first_largest,
    inverse,
    start_from_largest,
)
from halfbyte.weights.packed import Packed
from halfbyte.weights.plain import F16
from halfbyte.weights.registry import register


class KQuant(ScaledFormat):
    """256 weights (d s) q - (e m): eight blocks of 32 with six bits each of s and m.

    s[j] and m[j], j < 4, are the low six bits of bytes j and j + 4 of ``scales``; of s[j + 4] and
    m[j + 4] the low four bits are the halves of byte j + 8, the high two those of bytes j, j + 4.
    Byte 32 c + j of ``qs`` holds q[64 c + j] in its low four bits and q[64 c + j + 32] in its high
    ones.

    Encoding, all in float32: for a block of 32, lo = min(0, min x), scale = (max x - lo) / qmax.
    d = F16(largest scale / 63), s = round(scale (1 / d)), e and m likewise from -lo, and
    q = round((x + e m) (1 / (d s))), from 0 to qmax = 2^bits - 1; ties to even.
    """

    packing = Packed
    block = 256
    minimum = True
    negative = True

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
    def store_quantized(cls, blocks: Blocks, quantized: U8) -> None:
        low, high = np.moveaxis(quantized.reshape(*blocks.shape, 4, 2, 32), -2, 0)
        both = (low & np.uint8(15)) | (high << np.uint8(4))
        blocks["qs"] = both.reshape(*blocks.shape, 128)

    @classmethod
    def _parts(cls, rows: U8) -> tuple[U8, F32Array, F32Array]:
        """q [rows, blocks of 32, 32], d s and e m [rows, blocks of 32]."""
        blocks = rows.view(cls.layout)
        s, m = cls.get_scales(blocks)
        d, e = (blocks[name].astype(np.float32)[..., None] for name in ("d", "dmin"))
        with np.errstate(invalid="ignore"):  # 0 times an infinite scale
            scales, minima = d * s.astype(np.float32), e * m.astype(np.float32)
        q = cls.get_quantized(blocks).reshape(len(rows), -1, 32)
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

    @classmethod
    def start(cls, values: F32Array) -> tuple[F32Array, F32Array]:
        x = cls.split(values)
        low = np.minimum(x.min(axis=-1), np.float32(0))
        return (x.max(axis=-1) - low) / np.float32(2**cls.bits - 1), low

    @classmethod
    def fit(cls, values: F32Array, scales: F32Array, minima: F32Array) -> U8:
        x = cls.split(values)
        blocks = np.zeros(x.shape[:2], cls.layout)
        with np.errstate(over="ignore", invalid="ignore"):
            (d, s), (e, m) = _integers(scales), _integers(-minima)
            blocks["d"], blocks["dmin"] = d[..., 0], e[..., 0]
            shifted = (x + (e * m)[..., None]) * inverse(d * s)[..., None]
            q = np.clip(np.rint(shifted), np.float32(0), np.float32(2**cls.bits - 1))
        cls.store_scales(blocks, s.astype(np.uint8), m.astype(np.uint8))
        cls.store_quantized(blocks, q.astype(np.uint8).reshape(*blocks.shape, cls.block))
        return blocks.view(np.uint8)


def _integers(scales: F32Array) -> tuple[F32Array, F32Array]:
    """Scales [..., 8] as F16(d) [..., 1] times integers up to 63."""
    d = (scales.max(axis=-1, keepdims=True) / np.float32(63)).astype("<f2").astype(np.float32)
    return d, np.minimum(np.rint(scales * inverse(d)), np.float32(63))


@register
class Q4_K(KQuant):
    """256 weights (d s) q - (e m): F16 numbers d and e ("dmin"), s and m, then q in 0 ... 15."""

    name = "Q4_K"
    ggml_type = 12
    bits = 4
    layout = np.dtype(
        [("d", "<f2"), ("dmin", "<f2"), ("scales", "u1", (12,)), ("qs", "u1", (128,))]
    )
    block_bytes = layout.itemsize
    limit = 63 * F16.limit
    presets = (
        Preset("Q4_K", 14, head="Q6_K"),
        Preset("Q4_K_M", 15, head="Q6_K", some="Q6_K", fused="Q5_K"),
    )
    wider = Q5_0


@register
class Q5_K(KQuant):
    """256 weights (d s) q - (e m): as in Q4_K; the fifth bit of q[32 b + j] is bit b of qh[j]."""

    name = "Q5_K"
    ggml_type = 13
    bits = 5
    layout = np.dtype(
        [("d", "<f2"), ("dmin", "<f2"), ("scales", "u1", (12,)), ("qh", "u1", (32,)),
         ("qs", "u1", (128,))]
    )  # fmt: skip
    block_bytes = layout.itemsize
    limit = 63 * F16.limit
    like = "Q4_K"
    presets = (
        Preset("Q5_K", 16, head="Q6_K"),
        Preset("Q5_K_M", 17, head="Q6_K", some="Q6_K", fused="Q6_K"),
    )
    wider = Q5_1

    @classmethod
    def get_quantized(cls, blocks: Blocks) -> U8:
        fifth = np.unpackbits(blocks["qh"][..., None, :], axis=-2, bitorder="little")
        quantized: U8 = super().get_quantized(blocks)
        return quantized | (fifth.reshape(quantized.shape) << np.uint8(4))

    @classmethod
    def store_quantized(cls, blocks: Blocks, quantized: U8) -> None:
        super().store_quantized(blocks, quantized)
        fifth = (quantized >> np.uint8(4)).reshape(*blocks.shape, 8, 32)
        blocks["qh"] = np.packbits(fifth, axis=-2, bitorder="little")[..., 0, :]


@register
class Q6_K(ScaledFormat):
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
    part = 16
    minimum = False
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
    def store_quantized(cls, blocks: Blocks, quantized: U8) -> None:
        low, high = np.moveaxis(quantized.reshape(*blocks.shape, 2, 2, 64) & np.uint8(15), -2, 0)
        blocks["ql"] = (low | (high << np.uint8(4))).reshape(*blocks.shape, 128)
        shifts = np.array([0, 2, 4, 6], np.uint8)[:, None]
        top = (quantized >> np.uint8(4)).reshape(*blocks.shape, 2, 4, 32) << shifts
        blocks["qh"] = np.bitwise_or.reduce(top, axis=-2).reshape(*blocks.shape, 64)

    @classmethod
    def quantized(cls, rows: U8) -> QuantizedBlocks:
        blocks = rows.view(cls.layout)
        q = cls.get_quantized(blocks).reshape(len(rows), -1, 16).view(np.int8) - np.int8(32)
        with np.errstate(invalid="ignore"):
            d = blocks["d"].astype(np.float32)[..., None] * blocks["scales"].astype(np.float32)
        return QuantizedBlocks(q, d.reshape(q.shape[:2]))

    @classmethod
    def start(cls, values: F32Array) -> tuple[F32Array, F32Array]:
        return start_from_largest(cls.split(values), -32)

    @classmethod
    def fit(cls, values: F32Array, scales: F32Array, minima: F32Array) -> U8:
        del minima
        x = cls.split(values)
        blocks = np.zeros(x.shape[:2], cls.layout)
        with np.errstate(over="ignore", invalid="ignore"):
            blocks["d"] = (first_largest(scales) / np.float32(-128))[..., 0]
            d = blocks["d"].astype(np.float32)[..., None]
            s = np.minimum(np.rint(scales * inverse(d)), np.float32(127))
            scaled = np.rint(x * inverse(d * s)[..., None])
            q = np.clip(scaled, np.float32(-32), np.float32(31)) + np.float32(32)
        blocks["scales"] = s.astype(np.int8)
        cls.store_quantized(blocks, q.astype(np.uint8).reshape(*blocks.shape, cls.block))
        return blocks.view(np.uint8)
