"""GGUF's blocks of 32 as com.microsoft's operators store them.

MatMulNBits takes quantized values [N, K / 32, bytes of a block] and scales [N, K / 32]; a weight is
(q - 2^(bits - 1)) scale. Two values of four bits share a byte, the first in the low bits, where
Q4_0 pairs values 16 apart. GatherBlockQuantized takes the same bytes as [rows, bytes of a row].
Blocks come from GGUF's codecs, and scales are F16 numbers, whatever their type: a runtime can
restore Q8_0 and Q4_0 from them without loss.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from halfbyte.weights import Q4_0, Q8_0, ScaledFormat

F32 = npt.NDArray[np.float32]
U8 = npt.NDArray[np.uint8]

BLOCK = 32
FORMATS: dict[int, type[ScaledFormat]] = {4: Q4_0, 8: Q8_0}


def block_count(columns: int) -> int:
    """Blocks in a row; the last one may be padded."""
    return -(-columns // BLOCK)


def padded(x: F32) -> F32:
    """Rows, padded with zeros to whole blocks."""
    n, k = x.shape
    width = block_count(k) * BLOCK
    if k == width:
        return np.ascontiguousarray(x)
    y = np.zeros((n, width), np.float32)
    y[:, :k] = x
    return y


def split(encoded: U8, bits: int) -> tuple[U8, F32]:
    """Rows of Q4_0 or Q8_0 -> quantized values [n, blocks, bytes] and scales [n, blocks]."""
    signed, d, _ = FORMATS[bits].quantized(encoded)
    q = (signed.astype(np.int16) + (1 << bits - 1)).astype(np.uint8)
    if bits == 4:
        q = q[..., 0::2] | q[..., 1::2] << np.uint8(4)
    return q, d
