"""Types of two and three bits, of threes, and NVFP4: converted when a model is loaded.

Q2_K, Q3_K and TQ2_0 are also written.

Source: GGUF's formats of these names.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from halfbyte.weights.base import U8, Blocks, F32Array, Plane, Preset
from halfbyte.weights.blocks import Q4_0
from halfbyte.weights.codes import PLAIN, Codes, CodesMin, ConvertedFormat, Fp4
from halfbyte.weights.plain import F16
from halfbyte.weights.registry import register
from halfbyte.weights.scaled import I8, Levels, OneScale, PairedScales, SignedScales

_ZERO = np.uint8(8)  # the code of 0 among `PLAIN` values


def _twos(qs: U8) -> U8:
    """Two bits: q[128 h + 32 p + j] is bits 2 p and 2 p + 1 of qs[32 h + j]; [..., 256]."""
    shifts = np.arange(0, 8, 2, dtype=np.uint8)[:, None]
    fields = qs.reshape(*qs.shape[:-1], 2, 1, 32) >> shifts & np.uint8(3)
    return fields.reshape(*qs.shape[:-1], 256)


_TWOS = Plane("qs", 0, 2, 32)


@register
class Q2_K(PairedScales, ConvertedFormat):
    """256 weights (d s) q - (dmin m): s and m, halves of a byte, for every 16; q in 0 ... 3."""

    name = "Q2_K"
    ggml_type = 10
    block = 256
    layout = np.dtype([("scales", "u1", (16,)), ("qs", "u1", (64,)), ("d", "<f2"), ("dmin", "<f2")])
    block_bytes = layout.itemsize
    in_memory = CodesMin
    planes = (_TWOS,)
    part = 16
    levels = Levels(0, 3)
    largest = 15
    factors = (1.0, 0.75, 0.85, 1.1)
    limit = 15 * F16.limit
    presets = (Preset("Q2_K", 10, head="Q6_K"),)
    wider = Q4_0

    @classmethod
    def converted(cls, rows: U8) -> U8:
        blocks = rows.view(cls.layout)
        codes = np.empty(blocks.shape, CodesMin.layout)
        for name in ("d", "dmin", "scales"):
            codes[name] = blocks[name]
        CodesMin.store_quantized(codes, _twos(blocks["qs"]))
        return codes.view(np.uint8)

    @classmethod
    def store_scales(cls, blocks: Blocks, s: U8, m: U8) -> None:
        blocks["scales"] = s | m << np.uint8(4)


@register
class Q3_K(SignedScales, ConvertedFormat):
    """256 weights d (s - 32) (q - 4), s of six bits for every 16, q of three bits.

    Bit b of hmask[j] is the third bit of q[32 b + j]. s[i] and s[i + 8], i < 8, have their low four
    bits in the halves of scales[i]; the high two of s[4 p + i] are bits 2 p and 2 p + 1 of
    scales[8 + i].
    """

    name = "Q3_K"
    ggml_type = 11
    block = 256
    layout = np.dtype(
        [("hmask", "u1", (32,)), ("qs", "u1", (64,)), ("scales", "u1", (12,)), ("d", "<f2")]
    )
    block_bytes = layout.itemsize
    in_memory = Codes
    planes = (_TWOS, Plane("hmask", 2, 1, 32))
    part = 16
    levels = Levels(-4, 3)
    smallest = -32
    factors = (1.0, 0.85, 1.15, -0.75)
    limit = 4 * 32 * F16.limit
    presets = (Preset("Q3_K", 11, head="Q6_K"),)
    wider = Q4_0

    @classmethod
    def converted(cls, rows: U8) -> U8:
        blocks = rows.view(cls.layout)
        third = np.unpackbits(blocks["hmask"][..., None, :], axis=-2, bitorder="little")
        q = _twos(blocks["qs"]) | third.reshape(*blocks.shape, 256) << np.uint8(2)
        low, high = blocks["scales"][..., :8], blocks["scales"][..., 8:]
        low = np.concatenate([low & np.uint8(15), low >> np.uint8(4)], axis=-1)
        high = high[..., None, :] >> np.arange(0, 8, 2, dtype=np.uint8)[:, None] & np.uint8(3)
        s = low | high.reshape(low.shape) << np.uint8(4)
        return Codes.make(PLAIN, blocks["d"], s.view(np.int8) - np.int8(32), q + np.uint8(4))

    @classmethod
    def store_scales(cls, blocks: Blocks, scales: I8) -> None:
        s = (scales + np.int8(32)).view(np.uint8)
        low = s & np.uint8(15)
        high = (s >> np.uint8(4)).reshape(*blocks.shape, 4, 4)
        shifts = np.arange(0, 8, 2, dtype=np.uint8)[:, None]
        blocks["scales"][..., :8] = low[..., :8] | low[..., 8:] << np.uint8(4)
        blocks["scales"][..., 8:] = np.bitwise_or.reduce(high << shifts, axis=-2)


class _Ternary(ConvertedFormat):
    """256 weights d q, q in -1, 0, 1 (of two bits also 2)."""

    block = 256
    in_memory = Codes

    @classmethod
    def digits(cls, blocks: npt.NDArray[np.void]) -> U8:
        """q + 1: [..., 256]."""
        raise NotImplementedError

    @classmethod
    def converted(cls, rows: U8) -> U8:
        blocks = rows.view(cls.layout)
        ones = np.ones((*blocks.shape, 16), np.int8)
        return Codes.make(PLAIN, blocks["d"], ones, cls.digits(blocks) + _ZERO - np.uint8(1))


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
    planes = (_TWOS,)
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
        return _twos(blocks["qs"])


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
