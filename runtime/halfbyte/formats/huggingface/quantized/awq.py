"""AWQ, as AutoAWQ stores it."""

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

_PLACES = (0, 2, 4, 6, 1, 3, 5, 7)  # of a word's outputs, from its lowest bits up


def read(parts: Parts) -> DerivedTensor:
    """AWQ: words along the outputs, whose places in a word are interleaved."""
    known_bits(parts, "bits", 4)
    version = parts.keys.text("version", "gemm").lower()
    if version != "gemm":
        raise UnsupportedError(f"{parts.keys.where}: version {version[:80]!r}: expected 'gemm'")
    words = parts.integers("qweight", "I32", None, None)
    columns, rows = words.shape[0], words.shape[1] * 8
    scales = parts.scales("scales", None, rows).T
    groups = scales.shape[1]
    check_groups(parts, columns, groups)
    zeros = np.full((groups, rows), 8, np.int16)
    if f"{parts.name}.qzeros" in parts.raw:
        zeros = _unpacked(parts.integers("qzeros", "I32", groups, words.shape[1]))
    zeros = zeros.T

    def integers(first: int, count: int) -> Array:
        low, high = first // 8, -(-(first + count) // 8)
        q = _unpacked(words[:, low:high])[:, first - 8 * low :][:, :count].T
        weights: Array = q - np.repeat(zeros[first : first + count], columns // groups, axis=1)
        return weights

    low, high = -int(zeros.max()), 15 - int(zeros.min())
    return as_tensor(parts.name, Matrix(columns, scales, integers, low, high))


def _unpacked(words: Array) -> Array:
    each = unpacked(words, 4, 1).reshape(len(words), -1, 8)
    result = np.empty_like(each)
    result[..., _PLACES] = each
    return result.reshape(len(words), -1)
