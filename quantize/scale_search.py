"""Searching each block's scale for the smallest weighted error: the definition, in NumPy.

Rounding to nearest takes the scale from a block's largest element. The search tries several scales
around it; for the quantized values of each, the best scale has a closed form (least squares), and
the best pair is kept. No data is needed: the weights of the errors, `importance`, come from the
model itself (see `quantizer`). The C kernels ``encode_search_*`` produce the same bytes, so every
sum has a fixed order and nothing is fused.

Per block of 32 elements x with importance w, all in float32, for each factor c in turn:

    q = rint(x * (1 / d0 * c)), clipped            d0: scale of plain rounding, before F16
    a = sum w x q,  b = sum w q q
    the first c with the largest a^2 / b > 0 wins (at d = a / b the error is sum w x^2 - a^2 / b)

Then d = F16(a / b), x is quantized again with 1 / d, and the result is taken if its error
sum w (x - d q)^2 is smaller than that of plain rounding. Sums of 32 add elements i and i + 16, and
so on: 16 -> 8 -> 4 -> 2 -> 1.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from halfbyte.weights import ScaledFormat

F32 = npt.NDArray[np.float32]
U8 = npt.NDArray[np.uint8]

BLOCK = 32


def _sum(values: F32) -> F32:
    """Sums over the last axis of 32 in the fixed order."""
    while values.shape[-1] > 1:
        half = values.shape[-1] // 2
        values = values[..., :half] + values[..., half:]
    return values[..., 0]


def _error(x: F32, w: F32, d: F32, q: F32) -> F32:
    off = x - d[..., None] * q
    return _sum((off * off) * w)


def search(x: F32, importance: F32, format_: type[ScaledFormat]) -> tuple[U8, F32]:
    """Encode with the search.

    Parameters
    ----------
    x : float32 [n, k]
        Rows; k is a multiple of 32.
    importance : float32 [k]
        Weight of each column's squared error, 0 or more.
    format_ : ScaledFormat
        With blocks of 32, and `factors`.

    Returns
    -------
    (bytes [n, row_bytes], float32 [n, 2])
        The encoded rows; and per row the weighted errors of plain rounding and of the result,
        summed over blocks in order.
    """
    x = np.ascontiguousarray(x)
    blocks, w = x.reshape(len(x), -1, BLOCK), importance.reshape(-1, BLOCK)
    plain = format_.encode(x)
    with np.errstate(all="ignore"):
        d, usable = _best_scale(blocks, w, format_.start(x)[0][..., 0], format_)
        fitted = format_.fit(x, d[..., None], np.zeros_like(d)[..., None])
        plain_q, plain_d, _ = format_.quantized(plain)
        before = _error(blocks, w, plain_d, plain_q.astype(np.float32))
        after = _error(blocks, w, d, format_.quantized(fitted).q.astype(np.float32))
    better = usable & (after < before)
    encoded = np.where(better, fitted.view(format_.layout), plain.view(format_.layout))
    errors = np.zeros((len(x), 2), np.float32)
    after = np.where(better, after, before)
    for b in range(blocks.shape[1]):
        errors[:, 0] += before[:, b]
        errors[:, 1] += after[:, b]
    return encoded.view(np.uint8), errors


def _best_scale(
    blocks: F32, w: F32, scales: F32, format_: type[ScaledFormat]
) -> tuple[F32, npt.NDArray[np.bool_]]:
    """The best d of each block, rounded to F16, and for which blocks there is one."""
    start = np.float32(1) / scales[..., None]
    usable = np.isfinite(start[..., 0])
    best = np.zeros(blocks.shape[:2], np.float32)
    d = np.zeros_like(best)
    weighted = w * blocks
    low, high = (np.float32(limit) for limit in format_.limits)
    for factor in format_.factors:
        q = np.clip(np.rint(blocks * (start * np.float32(factor))), low, high)
        a, b = _sum(weighted * q), _sum((w * q) * q)
        gain = (a * a) / b
        wins = gain > best
        best = np.where(wins, gain, best)
        d = np.where(wins, a / b, d)
    return d.astype(np.float16).astype(np.float32), usable & (best > 0)
