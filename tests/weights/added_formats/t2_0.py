"""Two invented formats; this file has all that is known of them.

`test_added_format` adds this folder to the package's path.
"""

from __future__ import annotations

import numpy as np

from halfbyte.weights.base import U8, BlockFormat, Blocks, F32Array, Preset, QuantizedBlocks
from halfbyte.weights.blocks import Q4_0
from halfbyte.weights.plain import F16
from halfbyte.weights.registry import register


@register
class T2_0(BlockFormat):
    """Blocks of 32 weights d (q - 1.5): an F16 scale d, then q in 0 ... 3.

    Byte j has q[j], q[j + 8], q[j + 16] and q[j + 24], from its lowest bits on. Encoding: d =
    max|x| / 2, q = floor(x / d + 2).
    """

    name = "T2_0"
    ggml_type = 900
    block = 32
    bits = 2
    layout = np.dtype([("d", "<f2"), ("qs", "u1", (8,))])
    block_bytes = layout.itemsize
    limit = 2 * F16.limit
    presets = (Preset("T2_0", 900, head="Q8_0", embeddings="Q8_0"),)
    wider = Q4_0

    @classmethod
    def get_quantized(cls, blocks: Blocks) -> U8:
        shifts = np.array([0, 2, 4, 6], np.uint8)[:, None]
        q: U8 = (blocks["qs"][..., None, :] >> shifts) & np.uint8(3)
        return q.reshape(*blocks.shape, 32)

    @classmethod
    def store_quantized(cls, blocks: Blocks, quantized: U8) -> None:
        shifts = np.array([0, 2, 4, 6], np.uint8)[:, None]
        fours = quantized.reshape(*blocks.shape, 4, 8) << shifts
        blocks["qs"] = np.bitwise_or.reduce(fours, axis=-2)

    @classmethod
    def quantized(cls, rows: U8) -> QuantizedBlocks:
        blocks = rows.view(cls.layout)
        d = blocks["d"].astype(np.float32)
        return QuantizedBlocks(cls.get_quantized(blocks).view(np.int8), d, np.float32(-1.5) * d)

    @classmethod
    def encode(cls, values: F32Array) -> U8:
        x = values.reshape(len(values), -1, 32)
        blocks = np.zeros(x.shape[:2], cls.layout)
        blocks["d"] = np.abs(x).max(axis=-1) / 2
        d = blocks["d"].astype(np.float32)[..., None]
        q = np.floor(np.divide(x, d, out=np.zeros_like(x), where=d > 0) + 2)
        cls.store_quantized(blocks, np.clip(q, 0, 3).astype(np.uint8))
        return blocks.view(np.uint8)


@register
class N4_0(Q4_0):
    """Q4_0 under another name: with a packed layout, and the search of scales."""

    name = "N4_0"
    ggml_type = 901
    presets = (Preset("N4_0", 901),)
