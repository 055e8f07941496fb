"""Stacked matrices of experts in MXFP4, as in gpt-oss: blocks of GGUF's type in another order."""

from __future__ import annotations

import numpy as np

from halfbyte.formats.derived import DerivedTensor
from halfbyte.formats.huggingface.quantized.matrix import Parts
from halfbyte.weights import MXFP4, U8


def read(parts: Parts) -> DerivedTensor:
    """Matrices [experts, rows, columns] from ``_blocks`` [..., groups, 16] and ``_scales``.

    A byte holds two neighbouring numbers, the first in its low bits; in GGUF's blocks they are 16
    numbers apart. A scale is the exponent of two plus 127, as there.
    """
    blocks, scales = (parts.raw.pop(f"{parts.name}_{part}", None) for part in ("blocks", "scales"))
    if blocks is None or blocks.values.ndim != 4 or blocks.values.shape[3] != 16:
        raise parts.error("expected blocks of 16 bytes in four dimensions")
    shape = blocks.values.shape[:3]
    if scales is None or scales.values.shape != shape or {blocks.dtype, scales.dtype} != {"U8"}:
        raise parts.error(f"expected bytes and scales in bytes of shape {list(shape)}")
    halves, exponents = blocks.values.reshape(-1, shape[2], 16), scales.values.reshape(-1, shape[2])

    def make(first: int, count: int) -> U8:
        pairs = halves[first : first + count]
        numbers = np.stack([pairs & 15, pairs >> 4], axis=-1)
        rows = np.empty(pairs.shape[:2], MXFP4.layout)
        rows["e"] = exponents[first : first + count]
        MXFP4.store_quantized(rows, numbers.reshape(*pairs.shape[:2], 32))
        data: U8 = rows.view(np.uint8).reshape(len(pairs), -1)
        return data

    return DerivedTensor(f"{parts.name}.weight", MXFP4, (*shape[:2], 32 * shape[2]), make)
