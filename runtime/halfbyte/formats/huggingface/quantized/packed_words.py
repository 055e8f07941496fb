"""compressed-tensors whose integers are packed into words."""

from __future__ import annotations

import numpy as np

from halfbyte.errors import UnsupportedError
from halfbyte.formats.derived import DerivedTensor
from halfbyte.formats.huggingface.quantized.matrix import (
    Array,
    Matrix,
    Parts,
    as_tensor,
    check_groups,
    unpacked,
)


def read(parts: Parts) -> DerivedTensor:
    """compressed-tensors: words along the inputs, or whole bytes; a scale per group or row."""
    shape = parts.integers("weight_shape", "I64", 2)
    rows, columns = map(int, shape)
    words = parts.integers("weight_packed", "I32", rows, None)
    bits = next((b for b in (4, 8) if words.shape[1] == -(-columns // (32 // b))), 0)
    if rows < 1 or columns < 1 or not bits:
        raise parts.error(f"weight_packed of {words.shape[1]} words for shape {[rows, columns]}")
    scales = parts.scales("weight_scale", rows, None)
    groups = scales.shape[1]
    check_groups(parts, columns, groups)
    middle = 1 << (bits - 1)
    zeros = np.full((rows, groups), middle, np.int16)
    if f"{parts.name}.weight_zero_point" in parts.raw:
        packed = parts.integers("weight_zero_point", "I32", -(-rows * bits // 32), groups)
        zeros = unpacked(packed, bits, 0)[:rows]
    if f"{parts.name}.weight_g_idx" in parts.raw:
        raise UnsupportedError(f"{parts.where}: tensor {parts.name!r}: columns by activation order")

    def integers(first: int, count: int) -> Array:
        q = unpacked(words[first : first + count], bits, 1)[:, :columns]
        return q - np.repeat(zeros[first : first + count], columns // groups, axis=1)

    low, high = -int(zeros.max()), 2 * middle - 1 - int(zeros.min())
    return as_tensor(parts.name, Matrix(columns, scales, integers, low, high))
