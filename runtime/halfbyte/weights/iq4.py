"""Types whose four bits are looked up in a table of sixteen numbers: IQ4_NL, IQ4_XS, MXFP4.

Products add the halves of a block of 32 one after the other, as those of types with a scale for
every 16 (`codes`), with which they share their kernels. Source: GGUF's formats of these names.
"""

from __future__ import annotations

import numpy as np

from halfbyte.weights.base import U8, Blocks, F32Array, Preset, QuantizedBlocks
from halfbyte.weights.blocks import Q8_0, Nibbles
from halfbyte.weights.codes import FP4, IQ4, WideNibbles, looked_up
from halfbyte.weights.plain import F16
from halfbyte.weights.registry import register
from halfbyte.weights.scaled import (
    I8,
    OneScale,
    Rounded,
    ScaledFormat,
    SignedScales,
    inverse,
    table,
)

_FACTORS = (1.0, 0.96, 1.04, 0.92, 1.08, -0.89, -0.93)


@register
class IQ4_NL(Nibbles, OneScale):
    """Blocks of 32 weights d values[q]: an F16 scale d, then q.

    Encoding: d = m / -127, m the first of the weights that are largest in magnitude; values[q] is
    the number nearest to x (1 / d), of two the smaller one; in float32, q from d before d is
    rounded to F16.
    """

    name = "IQ4_NL"
    ggml_type = 20
    levels = table(*IQ4.tolist())
    factors = _FACTORS
    layout = np.dtype([("d", "<f2"), ("qs", "u1", (16,))])
    block_bytes = layout.itemsize
    limit = 127 * F16.limit
    like = "Q6_K"
    presets = (Preset("IQ4_NL", 25, head="Q6_K"),)
    wider = Q8_0

    @classmethod
    def quantized(cls, rows: U8) -> QuantizedBlocks:
        blocks = rows.view(cls.layout)
        d = blocks["d"].astype(np.float32)
        return looked_up(IQ4, cls.get_quantized(blocks), d.repeat(2, axis=-1))


@register
class IQ4_XS(WideNibbles, SignedScales):
    """256 weights d (s - 32) values[q]: an F16 scale d, s of six bits for every 32, then q.

    The low four bits of s[b] are a half of scales_l[b / 2], the high two are bits 2 b and 2 b + 1
    of scales_h.

    Encoding, in float32: the scale of a block of 32 is m / -127, m the first of the weights largest
    in magnitude; d = F16(the first of the largest scales / -32), s - 32 = round(scale (1 / d)), at
    most 31, and values[q] is nearest to x (1 / (d (s - 32))), of two the smaller one.
    """

    name = "IQ4_XS"
    ggml_type = 23
    levels = table(*IQ4.tolist())
    factors = _FACTORS
    smallest = -32
    layout = np.dtype(
        [("d", "<f2"), ("scales_h", "<u2"), ("scales_l", "u1", (4,)), ("qs", "u1", (128,))]
    )
    block_bytes = layout.itemsize
    limit = 127 * 32 * F16.limit
    like = "Q6_K"
    presets = (Preset("IQ4_XS", 30, head="Q6_K"),)
    wider = IQ4_NL

    @classmethod
    def get_scales(cls, blocks: Blocks) -> I8:
        """s - 32: [..., 8]."""
        four, eight = np.arange(0, 8, 4, dtype=np.uint8), np.arange(0, 16, 2, dtype=np.uint16)
        low = (blocks["scales_l"][..., None] >> four & np.uint8(15)).reshape(*blocks.shape, 8)
        high = (blocks["scales_h"][..., None] >> eight & np.uint16(3)).astype(np.uint8)
        s: I8 = (low | high << np.uint8(4)).view(np.int8) - np.int8(32)
        return s

    @classmethod
    def store_scales(cls, blocks: Blocks, scales: I8) -> None:
        """The inverse of `get_scales`."""
        s = (scales + np.int8(32)).view(np.uint8)
        blocks["scales_l"] = s[..., ::2] & np.uint8(15) | s[..., 1::2] << np.uint8(4)
        high = (s >> np.uint8(4)).astype(np.uint16) << np.arange(0, 16, 2, dtype=np.uint16)
        blocks["scales_h"] = np.bitwise_or.reduce(high, axis=-1)

    @classmethod
    def quantized(cls, rows: U8) -> QuantizedBlocks:
        blocks = rows.view(cls.layout)
        with np.errstate(invalid="ignore"):
            d = blocks["d"].astype(np.float32)[..., None] * cls.get_scales(blocks)
        return looked_up(IQ4, cls.get_quantized(blocks), d.astype(np.float32).repeat(2, axis=-1))


@register
class MXFP4(Nibbles, ScaledFormat):
    """Blocks of 32 weights 2^(e - 128) v: a byte e, then v, an E2M1 number times 2.

    Encoding: e so that the largest magnitude is in [4, 8) times 2^(e - 127), at least 0; v is the
    nearest number, of two the first in the table.
    """

    name = "MXFP4"
    ggml_type = 39
    levels = table(*FP4[:8].tolist(), both=True)
    factors = (1.0, 0.5)
    powers = True
    layout = np.dtype([("e", "u1"), ("qs", "u1", (16,))])
    block_bytes = layout.itemsize
    limit = float("inf")
    like = "Q6_K"
    presets = (Preset("MXFP4", 38, head="Q8_0", embeddings="Q8_0"),)
    wider = Q8_0

    @staticmethod
    def _scales(e: U8) -> F32Array:
        wide = e.astype(np.int32)
        bits = np.where(wide < 2, 0x200000 << np.minimum(wide, 1), (wide - 1) << 23)
        return bits.astype(np.int32).view(np.float32)

    @classmethod
    def quantized(cls, rows: U8) -> QuantizedBlocks:
        blocks = rows.view(cls.layout)
        d = cls._scales(blocks["e"])
        return looked_up(FP4, cls.get_quantized(blocks), d.repeat(2, axis=-1))

    @classmethod
    def plain(cls, low: F32Array, high: F32Array, first: F32Array) -> tuple[F32Array, F32Array]:
        _, exponents = np.frexp(np.abs(first))
        e = np.where(first != 0, np.maximum(exponents + 124, 0), 0).astype(np.uint8)
        return cls._scales(e), np.zeros_like(first)

    @classmethod
    def rounded(cls, blocks: Blocks, scales: F32Array, minima: F32Array) -> Rounded:
        _, exponents = np.frexp(scales[..., 0])
        blocks["e"] = np.clip(exponents + 127, 0, 254)
        d = cls._scales(blocks["e"])[..., None]
        return Rounded(inverse(d), minima, d, np.zeros_like(d))

    @classmethod
    def finish(cls, rows: U8, values: F32Array) -> None:
        blocks = rows.view(cls.layout)
        tiny = blocks["e"] == 0  # 1 / d is infinite
        x = values.reshape(*blocks.shape, cls.block)[tiny] * np.float32(2.0**64)
        few = blocks[tiny]
        cls.store(few, cls.levels.stored(x * np.float32(2.0**64)))
        blocks[tiny] = few
