"""Types of threes, and NVFP4: converted when a model is loaded. TQ2_0 is also written.

Source: GGUF's formats of these names.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from halfbyte.weights.base import U8, F32Array, Preset
from halfbyte.weights.blocks import Q4_0
from halfbyte.weights.codes import TWO_BITS, ConvertedFormat, Fp4, two_bits
from halfbyte.weights.kquants import Q2_K
from halfbyte.weights.plain import F16
from halfbyte.weights.registry import register
from halfbyte.weights.scaled import Levels, OneScale


class _Ternary(ConvertedFormat):
    """256 weights d q, q in -1, 0, 1 (of two bits also 2)."""

    block = 256
    in_memory = Q2_K

    @classmethod
    def digits(cls, blocks: npt.NDArray[np.void]) -> U8:
        """q + 1: [..., 256]."""
        raise NotImplementedError

    @classmethod
    def converted(cls, rows: U8) -> U8:
        """d (q + 1) - d."""
        blocks = rows.view(cls.layout)
        same = np.empty(blocks.shape, Q2_K.layout)
        same["d"] = same["dmin"] = blocks["d"]
        same["scales"] = 0x11
        Q2_K.store_quantized(same, cls.digits(blocks))
        return same.view(np.uint8)

    @classmethod
    def decode(cls, rows: U8) -> F32Array:
        blocks = rows.view(cls.layout)
        q = cls.digits(blocks).astype(np.float32) - np.float32(1)
        with np.errstate(invalid="ignore"):
            values: F32Array = blocks["d"].astype(np.float32)[..., None] * q
        return values.reshape(len(rows), -1)


@register
class TQ1_0(_Ternary):
    """Five digits in a byte: digit i is the integer part of 3 f, f the fraction of 3^i byte / 256.

    Of 32 bytes, 16 bytes, and four bytes with four digits: first all first digits, and so on.
    """

    name = "TQ1_0"
    ggml_type = 34
    layout = np.dtype([("qs", "u1", (48,)), ("qh", "u1", (4,)), ("d", "<f2")])
    block_bytes = layout.itemsize

    @classmethod
    def digits(cls, blocks: npt.NDArray[np.void]) -> U8:
        powers = np.array([1, 3, 9, 27, 81], np.uint8)[:, None]
        qs = blocks["qs"]
        parts = [(qs[..., :32], 5), (qs[..., 32:], 5), (blocks["qh"], 4)]
        fractions = [part[..., None, :] * powers[:count] for part, count in parts]
        flat = np.concatenate([f.reshape(*blocks.shape, -1) for f in fractions], axis=-1)
        return (flat.astype(np.uint16) * np.uint16(3) >> np.uint16(8)).astype(np.uint8)


@register
class TQ2_0(OneScale, _Ternary):
    """Two bits for a digit, in the order of Q2_K.

    Encoding: d is the largest magnitude, q = x (1 / d) to nearest, halves away from zero.
    """

    name = "TQ2_0"
    ggml_type = 35
    layout = np.dtype([("qs", "u1", (64,)), ("d", "<f2")])
    block_bytes = layout.itemsize
    planes = (TWO_BITS,)
    part = 256
    levels = Levels(-1, 1, away=True)
    factors = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0)
    limit = F16.limit
    presets = (Preset("TQ2_0", 37, head="Q6_K", embeddings="Q4_K"),)
    wider = Q4_0

    @classmethod
    def plain(cls, low: F32Array, high: F32Array, first: F32Array) -> tuple[F32Array, F32Array]:
        return np.abs(first), np.zeros_like(first)

    @classmethod
    def digits(cls, blocks: npt.NDArray[np.void]) -> U8:
        return two_bits(blocks["qs"])


def _ue4m3() -> npt.NDArray[np.float16]:
    """Half of what a byte is as an unsigned E4M3 number with bias 7, the eighth bit ignored.

    127, which is NaN there, is 0.
    """
    byte = np.arange(128)
    exponent, fraction = byte >> 3, byte & 7
    values = np.where(exponent, (8 + fraction) * 2.0 ** (exponent - 11), fraction * 2.0**-10)
    halves = np.tile(values, 2).astype("<f2")
    halves[127] = 0
    return halves


@register
class NVFP4(ConvertedFormat):
    """64 weights d v, v an E2M1 number times 2, d half an E4M3 number for every 16.

    Byte 8 i + j of ``qs`` holds v[16 i + j] in its low four bits and v[16 i + j + 8] above.
    """

    name = "NVFP4"
    ggml_type = 40
    block = 64
    layout = np.dtype([("d", "u1", (4,)), ("qs", "u1", (32,))])
    block_bytes = layout.itemsize
    in_memory = Fp4

    @classmethod
    def converted(cls, rows: U8) -> U8:
        blocks = rows.view(cls.layout)
        halves = np.empty((*blocks.shape, 2), Fp4.layout)
        halves["d"] = _ue4m3()[blocks["d"]].reshape(*blocks.shape, 2, 2)
        qs = blocks["qs"].reshape(*blocks.shape, 4, 1, 8)
        codes = np.concatenate([qs & np.uint8(15), qs >> np.uint8(4)], axis=-2)
        Fp4.store_quantized(halves, codes.reshape(*halves.shape, 32))
        return halves.reshape(len(rows), -1).view(np.uint8)
