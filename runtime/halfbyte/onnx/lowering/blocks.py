"""Weights of MatMulNBits in GGUF's block formats, for the kernels of these.

8-bit weights become Q8_0, 4-bit weights Q4_0, or Q4_1 if there are zero points. A larger block
becomes several of 32 with the same scale. Scales are rounded to F16, the type that GGUF has: those
that `quantize` writes are exact, others change by up to 1 part in 2048.
"""

from __future__ import annotations

import numpy as np

from halfbyte.core.buffer import Buffer
from halfbyte.onnx.capture import Capture
from halfbyte.onnx.values import Array
from halfbyte.weights import Q4_0, Q4_1, Q8_0, BlockFormat, Packed, Tensor
from halfbyte.weights.packed import packed_rows

BLOCK = 32
_SLICE = 1 << 10  # rows that are encoded at once, whole groups


def block_weight(
    c: Capture, data: Array, scales: Array, zeros: Array | None, shape: tuple[int, int],
    block_size: int, bits: int, *, packed: bool,
) -> Buffer | None:  # fmt: skip
    """The matrix [n, k] as a buffer; None if no block format can represent it."""
    n, k = shape
    if not _fits(data, scales, zeros, shape, block_size, bits):
        return None
    whole = -(-k // block_size)
    with np.errstate(over="ignore"):
        rounded = scales.astype(np.float32).reshape(n, whole).astype(np.float16)
    tiny = (rounded == 0) & (scales.reshape(n, whole) != 0)
    if not np.isfinite(rounded).all() or tiny.any():
        return None

    def make() -> Buffer:
        repeat = block_size // BLOCK
        d = np.repeat(rounded, repeat, axis=1)[:, : k // BLOCK]
        minima = None
        if zeros is not None and bits == 4:
            minima = -np.repeat(_zero_points(zeros, n, whole), repeat, axis=1)[:, : k // BLOCK]
        format_ = Q8_0 if bits == 8 else Q4_0 if minima is None else Q4_1
        layout: type[BlockFormat] = format_
        if packed and n >= Packed.GROUP:  # kernels take fewer rows as they are in a file
            layout = packed_rows(format_)
        stored, size = data.reshape(n, -1), format_.row_bytes(k)
        encoded = c.weights.room(n * size)
        for first in range(0, n, _SLICE):
            some = slice(first, min(first + _SLICE, n))
            quantized = _quantized(stored[some], k, bits)
            rows = _rows(format_, quantized, d[some], None if minima is None else minima[some])
            part = layout.pack(rows) if issubclass(layout, Packed) else rows.reshape(-1)
            encoded[first * size : some.stop * size] = part
        return c.weight(Tensor(c.weights.name(data) or "blocks", layout, shape, encoded))

    others = [c.weights.name(v) for v in (scales, zeros) if v is not None]
    if None in others:
        return make()
    return c.weights.get(data, f"blocks {packed} {bits} {block_size} {others}", make)


def _fits(
    data: Array, scales: Array, zeros: Array | None, shape: tuple[int, int], block_size: int,
    bits: int,
) -> bool:  # fmt: skip
    """Whether arrays have the sizes of MatMulNBits, and blocks and zero points of our formats."""
    n, k = shape
    if bits not in (4, 8) or block_size <= 0 or block_size % BLOCK or k % BLOCK:
        return False
    whole = -(-k // block_size)
    if data.dtype != np.uint8 or data.size * 8 != n * whole * block_size * bits:
        return False
    if scales.shape not in ((n * whole,), (n, whole)):
        return False
    if zeros is None:
        return True
    packed = zeros.dtype == np.uint8
    if zeros.size != n * (-(-whole * bits // 8) if packed else whole):
        return False
    return bits == 4 or (packed and bool((zeros == 128).all()))


def _quantized(rows: Array, k: int, bits: int) -> Array:
    """Integers as uint8 [n, k / 32, 32]; of two 4-bit ones in a byte, the low bits come first."""
    n = len(rows)
    if bits == 4:
        rows = np.stack([rows & np.uint8(15), rows >> np.uint8(4)], axis=-1).reshape(n, -1)
    return rows[:, :k].reshape(n, k // BLOCK, BLOCK)


def _zero_points(zeros: Array, n: int, blocks: int) -> Array:
    """Zero points as float32 [n, blocks]."""
    if zeros.dtype != np.uint8:
        return zeros.astype(np.float32).reshape(n, blocks)
    flat = zeros.reshape(n, -1)
    flat = np.stack([flat & np.uint8(15), flat >> np.uint8(4)], axis=-1).reshape(n, -1)
    return flat[:, :blocks].astype(np.float32)


def _rows(format_: type[BlockFormat], quantized: Array, d: Array, minima: Array | None) -> Array:
    """Bytes [n, row_bytes] of a block format."""
    blocks = np.zeros(quantized.shape[:2], format_.layout)
    blocks["d"] = d
    if minima is not None:
        blocks["m"] = minima * d.astype(np.float32)
    # Q8_0 stores signed integers; unsigned ones have their zero at 128
    stored = quantized ^ np.uint8(128) if format_ is Q8_0 else quantized
    format_.store_quantized(blocks, np.ascontiguousarray(stored))
    return blocks.view(np.uint8).reshape(len(quantized), -1)
