"""Formats of single numbers."""

from __future__ import annotations

import numpy as np

from halfbyte.weights.base import U8, F32Array, Preset, WeightFormat
from halfbyte.weights.registry import register


@register
class F32(WeightFormat):
    """IEEE binary32, little-endian."""

    name = "F32"
    ggml_type = 0
    block = 1
    block_bytes = 4
    limit = float("inf")
    presets = (Preset("F32", 0),)

    @classmethod
    def decode(cls, rows: U8) -> F32Array:
        """A view, not a copy."""
        return rows.view("<f4")

    @classmethod
    def encode(cls, values: F32Array) -> U8:
        """A view, not a copy, unless the numbers of a row are apart."""
        return np.ascontiguousarray(values, "<f4").view(np.uint8)


WeightFormat.wider = F32  # takes every number


@register
class F16(WeightFormat):
    """IEEE binary16; encoded to nearest, ties to even."""

    name = "F16"
    ggml_type = 1
    block = 1
    block_bytes = 2
    limit = 65520.0  # halfway from the largest F16 to the next power of two: rounds to infinity
    presets = (Preset("F16", 1),)

    @classmethod
    def decode(cls, rows: U8) -> F32Array:
        return rows.view("<f2").astype(np.float32)

    @classmethod
    def encode(cls, values: F32Array) -> U8:
        with np.errstate(over="ignore"):
            return values.astype("<f2", order="C").view(np.uint8)


@register
class BF16(WeightFormat):
    """The upper half of an IEEE binary32; encoded to nearest, ties to even, NaNs made quiet."""

    name = "BF16"
    ggml_type = 30
    block = 1
    block_bytes = 2
    limit = 2.0**127 * (2 - 2.0**-8)
    like = "F16"
    presets = (Preset("BF16", 32),)

    @classmethod
    def decode(cls, rows: U8) -> F32Array:
        return (rows.view("<u2").astype(np.uint32) << np.uint32(16)).view(np.float32)

    @classmethod
    def encode(cls, values: F32Array) -> U8:
        bits = values.view(np.uint32)
        quiet = (bits & np.uint32(0xFFFF0000)) | np.uint32(0x00400000)
        bits = np.where(np.isnan(values), quiet, bits)
        odd = (bits >> np.uint32(16)) & np.uint32(1)
        rounded = (bits + np.uint32(0x7FFF) + odd) >> np.uint32(16)
        return rounded.astype("<u2", order="C").view(np.uint8)
