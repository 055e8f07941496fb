"""Types whose four bits are looked up in a table of sixteen numbers: IQ4_NL, IQ4_XS, MXFP4.

Products add the halves of a block of 32 one after the other, as those of types with a scale for
every 16 (`codes`), with which they share their kernels. Source: GGUF's formats of these names.
"""

from __future__ import annotations

import numpy as np

from halfbyte.weights.base import U8, Blocks, F32Array, QuantizedBlocks
from halfbyte.weights.blocks import (
    Nibbles,
    ScaledFormat,
    first_largest,
    inverse,
    start_from_largest,
)
from halfbyte.weights.codes import FP4, I8, IQ4, WideNibbles, looked_up
from halfbyte.weights.plain import F16
from halfbyte.weights.registry import register

_BETWEEN = (IQ4[1:].astype(np.float32) + IQ4[:-1]) / np.float32(2)  # of two numbers each


def _nearest(x: F32Array) -> U8:
    """The codes of the numbers of `IQ4` nearest to x, of two the smaller one."""
    return np.searchsorted(_BETWEEN, x).astype(np.uint8)


@register
class IQ4_NL(Nibbles, ScaledFormat):
    """Blocks of 32 weights d values[q]: an F16 scale d, then q.

    Encoding: d = m / -127, m the first of the weights that are largest in magnitude; values[q] is
    the number nearest to x (1 / d), of two the smaller one; in float32, q from d before d is
    rounded to F16.
    """

    name = "IQ4_NL"
    ggml_type = 20
    minimum = False
    layout = np.dtype([("d", "<f2"), ("qs", "u1", (16,))])
    block_bytes = layout.itemsize
    limit = 127 * F16.limit
    like = "Q6_K"

    @classmethod
    def quantized(cls, rows: U8) -> QuantizedBlocks:
        blocks = rows.view(cls.layout)
        d = blocks["d"].astype(np.float32)
        return looked_up(IQ4, cls.get_quantized(blocks), d.repeat(2, axis=-1))

    @classmethod
    def start(cls, values: F32Array) -> tuple[F32Array, F32Array]:
        return start_from_largest(cls.split(values), -127)

    @classmethod
    def fit(cls, values: F32Array, scales: F32Array, minima: F32Array) -> U8:
        del minima
        x = cls.split(values)[:, :, 0]
        blocks = np.empty(x.shape[:2], cls.layout)
        with np.errstate(over="ignore"):
            blocks["d"] = scales[..., 0]
        cls.store_quantized(blocks, _nearest(x * inverse(scales)))
        return blocks.view(np.uint8)


@register
class IQ4_XS(WideNibbles, ScaledFormat):
    """256 weights d (s - 32) values[q]: an F16 scale d, s of six bits for every 32, then q.

    The low four bits of s[b] are a half of scales_l[b / 2], the high two are bits 2 b and 2 b + 1
    of scales_h.

    Encoding, in float32: the scale of a block of 32 is m / -127, m the first of the weights largest
    in magnitude; d = F16(the first of the largest scales / -32), s - 32 = round(scale (1 / d)), at
    most 31, and values[q] is nearest to x (1 / (d (s - 32))), of two the smaller one.
    """

    name = "IQ4_XS"
    ggml_type = 23
    minimum = False
    layout = np.dtype(
        [("d", "<f2"), ("scales_h", "<u2"), ("scales_l", "u1", (4,)), ("qs", "u1", (128,))]
    )
    block_bytes = layout.itemsize
    limit = 127 * 32 * F16.limit
    like = "Q6_K"

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

    @classmethod
    def start(cls, values: F32Array) -> tuple[F32Array, F32Array]:
        return start_from_largest(cls.split(values), -127)

    @classmethod
    def fit(cls, values: F32Array, scales: F32Array, minima: F32Array) -> U8:
        del minima
        x = cls.split(values)
        blocks = np.zeros(x.shape[:2], cls.layout)
        with np.errstate(over="ignore", invalid="ignore"):
            blocks["d"] = (first_largest(scales) / np.float32(-32))[..., 0]
            d = blocks["d"].astype(np.float32)[..., None]
            s = np.clip(np.rint(scales * inverse(d)), np.float32(-32), np.float32(31))
            q = _nearest(x * inverse(d * s)[..., None])
        cls.store_scales(blocks, s.astype(np.int8))
        cls.store_quantized(blocks, q.reshape(*blocks.shape, cls.block))
        return blocks.view(np.uint8)


@register
class MXFP4(Nibbles):
    """Blocks of 32 weights 2^(e - 128) v: a byte e, then v, an E2M1 number times 2.

    Encoding: e so that the largest magnitude is in [4, 8) times 2^(e - 127), at least 0; v is the
    nearest number, of two the first in the table.
    """

    name = "MXFP4"
    ggml_type = 39
    layout = np.dtype([("e", "u1"), ("qs", "u1", (16,))])
    block_bytes = layout.itemsize
    limit = float("inf")
    like = "Q6_K"

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
    def encode(cls, values: F32Array) -> U8:
        x = values.reshape(len(values), -1, cls.block)
        blocks = np.empty(x.shape[:2], cls.layout)
        top = np.abs(x).max(axis=-1)
        _, exponent = np.frexp(top)
        blocks["e"] = np.where(top > 0, np.maximum(exponent + 124, 0), 0)
        d = cls._scales(blocks["e"])
        errors = np.abs(d[..., None, None] * FP4.astype(np.float32) - x[..., None])
        cls.store_quantized(blocks, errors.argmin(axis=-1).astype(np.uint8))
        return blocks.view(np.uint8)
