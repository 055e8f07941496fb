"""GGUF's blocks of 32 as com.microsoft's operators hold them.

MatMulNBits takes codes [N, K / 32, bytes of a block] and scales [N, K / 32]: a weight is
(code - 2^(bits - 1)) scale. Codes of four bits lie two to a byte, the first in the low bits; Q4_0
has codes 16 apart in a byte. GatherBlockQuantized takes the same bytes as [rows, bytes of a row].
Scales are F16 numbers, in whatever type: so Q8_0 and Q4_0 can be made of them again without loss.
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
    """Blocks of a row; the last one may be filled up."""
    return -(-columns // BLOCK)


def padded(x: F32) -> F32:
    """Rows filled up with zeros to whole blocks."""
    n, k = x.shape
    wide = block_count(k) * BLOCK
    if k == wide:
        return np.ascontiguousarray(x)
    y = np.zeros((n, wide), np.float32)
    y[:, :k] = x
    return y


def split(encoded: U8, bits: int) -> tuple[U8, F32]:
    """Rows of Q4_0 or Q8_0 -> codes [n, blocks, bytes] and scales [n, blocks]."""
    q, d, _ = FORMATS[bits].quantized(encoded)
    codes = (q.astype(np.int16) + (1 << bits - 1)).astype(np.uint8)
    if bits == 4:
        codes = codes[..., 0::2] | codes[..., 1::2] << np.uint8(4)
    return codes, d
