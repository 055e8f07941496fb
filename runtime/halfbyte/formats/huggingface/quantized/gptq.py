"""GPTQ, as AutoGPTQ and GPTQModel store it."""

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
    known_bits,
    unpacked,
)


def read(parts: Parts) -> DerivedTensor:
    """GPTQ: words along the inputs, zero points along the outputs, one less than they are."""
    bits = known_bits(parts, "bits", 2, 4, 8)
    per, largest = 32 // bits, (1 << bits) - 1
    words = parts.integers("qweight", "I32", None, None)
    columns, rows = words.shape[0] * per, words.shape[1]
    scales = parts.scales("scales", None, rows).T
    groups = scales.shape[1]
    check_groups(parts, columns, groups)
    packed = parts.integers("qzeros", "I32", groups, -(-rows // per))
    kind = parts.keys.text("checkpoint_format", "gptq")
    if kind not in ("gptq", "gptq_v2"):
        raise UnsupportedError(f"{parts.keys.where}: checkpoint_format {kind[:80]!r}")
    zeros = unpacked(packed, bits, 1)[:, :rows].T + np.int16(kind == "gptq")
    index = np.arange(columns) // (columns // groups)
    order = index
    if f"{parts.name}.g_idx" in parts.raw:
        order = parts.integers("g_idx", "I32", columns)
        if order.min() < 0 or order.max() >= groups:
            raise parts.error(f"g_idx: a group beyond the {groups} that there are")

    def integers(first: int, count: int) -> Array:
        q = unpacked(words[:, first : first + count], bits, 0).T
        return q - zeros[first : first + count][:, order]

    low, high = -int(zeros.max()), largest - int(zeros.min())
    groups_of = None if np.array_equal(order, index) else order
    return as_tensor(parts.name, Matrix(columns, scales, integers, low, high, groups_of))
