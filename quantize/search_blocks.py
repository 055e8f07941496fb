"""Searching scales and minima of formats with minima and of K-quants, in NumPy.

As in `scale_search`, no data is needed: several scales are tried, least squares improves each for
its quantized values, and the best is kept. All is float32. For a block x with importance w:

- with a minimum, x ~ a q + b: for each factor c, q = round((x - lo) c / d0) with lo and d0 of plain
  rounding; then a and b by least squares, with b <= 0 in K-quants; then q = round((x - b) / a) and
  least squares again. The weighted error is sum w x^2 - (a sum w q x + b sum w x).
- without one, x ~ a q: q = round(x c / d0), a = sum w q x / sum w q q, and the weighted error is
  sum w x^2 - a sum w q x.

Scales and minima of K-quants are then rounded as in plain rounding, and x is quantized again. A
block of the file takes the result of the search if its error is smaller than that of plain
rounding. Errors are at most those of llama.cpp's quantizer.
"""

from __future__ import annotations

import numpy as np

from halfbyte.quantize.scale_search import F32, U8
from halfbyte.weights import ScaledFormat
from halfbyte.weights.blocks import inverse

# Chosen on normal and long-tailed numbers, and on rows and columns of different sizes.
WITH_MINIMA = (1.0, 0.9, 0.933, 0.967, 1.033, 1.067, 1.1)
WITHOUT = (1.0, 0.97, 0.985, 1.015, 1.03)


def search(x: F32, importance: F32, format_: type[ScaledFormat]) -> tuple[U8, F32]:
    """Encode with the search; see :func:`halfbyte.quantize.scale_search.search` for the arguments.

    The errors of a row are summed in float32.
    """
    x = np.ascontiguousarray(x)
    blocks, w = format_.split(x), format_.split(importance[None])
    plain = format_.encode(x)
    with np.errstate(all="ignore"):
        scales, minima = format_.start(x)
        if format_.minimum:
            scales, minima = _lines(blocks, w, scales, minima, format_)
        else:
            scales = _slopes(blocks, w, scales, format_.bits)
        if format_.part == format_.block:  # stored as F16
            scales, minima = (v.astype(np.float16).astype(np.float32) for v in (scales, minima))
        fitted = format_.fit(x, scales, minima)
        before, after = (_errors(format_, blocks, w, rows) for rows in (plain, fitted))
    better = after < before
    chosen = np.where(better, fitted.view(format_.layout), plain.view(format_.layout))
    errors = np.stack([before.sum(axis=1), np.where(better, after, before).sum(axis=1)], axis=1)
    return chosen.view(np.uint8), errors.astype(np.float32, copy=False)


def _slopes(x: F32, w: F32, scales: F32, bits: int) -> F32:
    """The best scales of parts x [..., n]; the given ones where none is better."""
    first = inverse(scales)
    limit = np.float32(2 ** (bits - 1))
    best, slopes, weighted = np.zeros_like(scales), scales.copy(), w * x
    for factor in WITHOUT:
        q = np.clip(np.rint(x * (first * np.float32(factor))[..., None]), -limit, limit - 1)
        a, b = (weighted * q).sum(axis=-1), ((w * q) * q).sum(axis=-1)
        gain = (a * a) / b
        wins = gain > best
        best, slopes = np.where(wins, gain, best), np.where(wins, a / b, slopes)
    return slopes


def _lines(
    x: F32, w: F32, scales: F32, minima: F32, format_: type[ScaledFormat]
) -> tuple[F32, F32]:
    """The best scales and minima of parts x [..., n]; the given ones where none is better."""
    first, low = inverse(scales), minima
    limit = np.float32(2**format_.bits - 1)
    weighted = w * x
    sum_w, sum_x = np.broadcast_to(w, x.shape).sum(axis=-1), weighted.sum(axis=-1)
    best = np.zeros_like(scales)
    for factor in WITH_MINIMA:
        step, offset = first * np.float32(factor), low
        for _ in range(2):
            q = np.clip(np.rint((x - offset[..., None]) * step[..., None]), 0, limit)
            wq = w * q
            sum_q, sum_qq = wq.sum(axis=-1), (wq * q).sum(axis=-1)
            sum_qx = (weighted * q).sum(axis=-1)
            det = sum_w * sum_qq - sum_q * sum_q
            a = (sum_w * sum_qx - sum_x * sum_q) / det
            b = (sum_qq * sum_x - sum_q * sum_qx) / det
            if format_.negative:
                a, b = np.where(b > 0, sum_qx / sum_qq, a), np.minimum(b, np.float32(0))
            gain = a * sum_qx + b * sum_x
            wins = (det > 0) & (gain > best) & (a > 0)
            best = np.where(wins, gain, best)
            scales, minima = np.where(wins, a, scales), np.where(wins, b, minima)
            step, offset = inverse(a), b
    return scales, minima


def _errors(format_: type[ScaledFormat], x: F32, w: F32, rows: U8) -> F32:
    """Weighted squared errors of blocks: [rows, blocks]."""
    off = x - format_.split(format_.decode(rows))
    errors: F32 = ((off * off) * w).sum(axis=(-2, -1))
    return errors
