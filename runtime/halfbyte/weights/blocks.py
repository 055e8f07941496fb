"""Formats of blocks of 32 numbers: with a scale (Q4_0, Q5_0, Q8_0), and a minimum (Q4_1, Q5_1).

Quantized values of four bits are stored two to a byte: byte j holds q[j] in its low four bits and
q[j + 16] in its high ones. The fifth bit of q[j] is bit j of ``qh``.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from halfbyte.weights.base import U8, BlockFormat, Blocks, F32Array, Preset, QuantizedBlocks
from halfbyte.weights.packed import Packed
from halfbyte.weights.plain import F16
from halfbyte.weights.registry import register


class ScaledFormat(BlockFormat):
    """A format that is encoded in two steps: scales and minima, then integers for these."""

    part: ClassVar[int] = 32  # numbers with a scale of their own
    minimum: ClassVar[bool]  # whether they have a minimum too
    negative: ClassVar[bool] = False  # whether minima are at most 0

    # If kernels search scales: the multiples of plain rounding's scale that are tried, each chosen
    # for what it adds to those before it, and the smallest and the largest integer
    factors: ClassVar[tuple[float, ...]] = ()
    limits: ClassVar[tuple[int, int]]

    @classmethod
    def split(cls, values: F32Array) -> F32Array:
        """[rows, columns] -> [rows, blocks, parts of a block, numbers of a part]."""
        rows, columns = values.shape
        return values.reshape(rows, columns // cls.block, cls.block // cls.part, cls.part)

    @classmethod
    def start(cls, values: F32Array) -> tuple[F32Array, F32Array]:
        """Scales of plain rounding for all parts [rows, blocks, parts], and minima or zeros."""
        raise NotImplementedError

    @classmethod
    def fit(cls, values: F32Array, scales: F32Array, minima: F32Array) -> U8:
        """The blocks' bytes for these scales and minima, which are rounded as they are stored."""
        raise NotImplementedError

    @classmethod
    def encode(cls, values: F32Array) -> U8:
        return cls.fit(values, *cls.start(values))


class Nibbles(BlockFormat):
    """Integers of four bits."""

    packing = Packed
    block = 32
    bits = 4

    @classmethod
    def get_quantized(cls, blocks: Blocks) -> U8:
        return np.concatenate([blocks["qs"] & np.uint8(15), blocks["qs"] >> np.uint8(4)], axis=-1)

    @classmethod
    def store_quantized(cls, blocks: Blocks, quantized: U8) -> None:
        blocks["qs"] = (quantized[..., :16] & np.uint8(15)) | (quantized[..., 16:] << np.uint8(4))


class _FiveBits(Nibbles):
    """Integers of five bits: the fifth bits are stored together."""

    bits = 5

    @classmethod
    def get_quantized(cls, blocks: Blocks) -> U8:
        fifth = np.unpackbits(blocks["qh"], axis=-1, bitorder="little")
        return super().get_quantized(blocks) | (fifth << np.uint8(4))

    @classmethod
    def store_quantized(cls, blocks: Blocks, quantized: U8) -> None:
        super().store_quantized(blocks, quantized)
        blocks["qh"] = np.packbits(quantized >> np.uint8(4), axis=-1, bitorder="little")


class _Symmetric(ScaledFormat):
    """Weights d (q - offset), q in 0 ... 2 offset - 1.

    Encoding: m is the first of the weights that are largest in magnitude, d = m / -offset, q =
    trunc(x (1 / d) + offset + 0.5), at most 2 offset - 1; all in float32, q from d before d is
    rounded to F16.
    """

    offset: ClassVar[int]
    minimum = False

    @classmethod
    def quantized(cls, rows: U8) -> QuantizedBlocks:
        blocks = rows.view(cls.layout)
        q = cls.get_quantized(blocks).view(np.int8) - np.int8(cls.offset)
        return QuantizedBlocks(q, blocks["d"].astype(np.float32))

    @classmethod
    def start(cls, values: F32Array) -> tuple[F32Array, F32Array]:
        return start_from_largest(cls.split(values), -cls.offset)

    @classmethod
    def fit(cls, values: F32Array, scales: F32Array, minima: F32Array) -> U8:
        del minima
        x = cls.split(values)[:, :, 0]
        blocks = np.empty(x.shape[:2], cls.layout)
        with np.errstate(over="ignore"):
            blocks["d"] = scales[..., 0]
        shifted = x * inverse(scales) + np.float32(cls.offset + 0.5)
        q = np.clip(shifted, np.float32(0), np.float32(2 * cls.offset - 1))
        cls.store_quantized(blocks, q.astype(np.uint8))
        return blocks.view(np.uint8)


class _WithMinimum(ScaledFormat):
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
    def start(cls, values: F32Array) -> tuple[F32Array, F32Array]:
        x = cls.split(values)
        m = x.min(axis=-1)
        return (x.max(axis=-1) - m) / np.float32(2**cls.bits - 1), m

    @classmethod
    def fit(cls, values: F32Array, scales: F32Array, minima: F32Array) -> U8:
        x = cls.split(values)[:, :, 0]
        blocks = np.empty(x.shape[:2], cls.layout)
        with np.errstate(over="ignore"):
            blocks["d"], blocks["m"] = scales[..., 0], minima[..., 0]
        shifted = (x - minima) * inverse(scales) + np.float32(0.5)
        q = np.clip(shifted, np.float32(0), np.float32(2**cls.bits - 1))
        cls.store_quantized(blocks, q.astype(np.uint8))
        return blocks.view(np.uint8)


@register
class Q8_0(ScaledFormat):
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
    minimum = False
    factors = (1.0, 0.986, 0.978, 0.962)
    limits = (-127, 127)
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
    def start(cls, values: F32Array) -> tuple[F32Array, F32Array]:
        scales = np.abs(cls.split(values)).max(axis=-1) / np.float32(127)
        return scales, np.zeros_like(scales)

    @classmethod
    def fit(cls, values: F32Array, scales: F32Array, minima: F32Array) -> U8:
        del minima
        scaled = cls.split(values)[:, :, 0] * inverse(scales)
        magnitude = np.minimum(np.abs(scaled), np.float32(127))
        whole = np.floor(magnitude)
        whole += (magnitude - whole) >= np.float32(0.5)
        blocks = np.empty(scaled.shape[:2], cls.layout)
        with np.errstate(over="ignore"):
            blocks["d"] = scales[..., 0]
        blocks["qs"] = np.copysign(whole, scaled)
        return blocks.view(np.uint8)


@register
class Q4_0(_Symmetric, Nibbles):
    """Blocks of 32 weights d (q - 8): an F16 scale d, then q in 0 ... 15."""

    name = "Q4_0"
    ggml_type = 2
    offset = 8
    layout = np.dtype([("d", "<f2"), ("qs", "u1", (16,))])
    block_bytes = layout.itemsize
    limit = 8 * F16.limit
    factors = (1.0, 1.075, 0.9, 1.025)
    limits = (-8, 7)
    presets = (Preset("Q4_0", 2, head="Q8_0", embeddings="Q8_0"),)
    wider = Q8_0


@register
class Q4_1(_WithMinimum, Nibbles):
    """Blocks of 32 weights d q + m: F16 numbers d and m, then q in 0 ... 15."""

    name = "Q4_1"
    ggml_type = 3
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
    layout = np.dtype([("d", "<f2"), ("m", "<f2"), ("qh", "u1", (4,)), ("qs", "u1", (16,))])
    block_bytes = layout.itemsize
    limit = F16.limit
    like = "Q4_K"
    presets = (Preset("Q5_1", 9, head="Q8_0", embeddings="Q8_0"),)
    wider = Q8_0


def inverse(d: F32Array) -> F32Array:
    """1 / d, or 0 where d is 0 or so small that 1 / d overflows: the block becomes zero."""
    with np.errstate(divide="ignore", over="ignore"):
        inverse: F32Array = np.float32(1) / d
    return np.where(np.isfinite(inverse), inverse, np.float32(0))


def first_largest(x: F32Array) -> F32Array:
    """The first of the numbers that are largest in magnitude: [..., n] -> [..., 1]."""
    return np.take_along_axis(x, np.abs(x).argmax(axis=-1, keepdims=True), axis=-1)


def start_from_largest(x: F32Array, whole: int) -> tuple[F32Array, F32Array]:
    """Scales with which the largest number of each part is `whole`, and minima of zero.

    [rows, blocks, parts, numbers] -> twice [rows, blocks, parts].
    """
    scales = first_largest(x)[..., 0] / np.float32(whole)
    return scales, np.zeros_like(scales)
