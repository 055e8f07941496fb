"""Searching each block's scale for the smallest weighted error: the definition, in NumPy.

Rounding to nearest takes the scale from a block's largest element. Here some scales around it are
tried; for the codes that each gives, the best scale has a closed form (least squares), and the
best pair is kept. No data is needed: the weights of the errors, `importance`, come from the model
itself (see `recipe`). The C kernels ``encode_search_*`` give the same bytes, so every sum has a
fixed order and nothing is fused.

Per block of 32 elements x with importance w, all in float32, for each factor c in turn:

    q = rint(x * (1 / d0 * c)), clipped            d0: plain rounding's scale, before F16
    a = sum w x q,  b = sum w q q
    the first c with the largest a^2 / b > 0 wins (at d = a / b the error is sum w x^2 - a^2 / b)

Then d = F16(a / b), codes are rounded anew with 1 / d, and the result is taken if its error
sum w (x - d q)^2 is smaller than that of plain rounding. Sums of 32 add element i and i + 16, then
halves: 16 -> 8 -> 4 -> 2 -> 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from halfbyte.weights import Q4_0, Q8_0, WeightFormat

F32 = npt.NDArray[np.float32]
U8 = npt.NDArray[np.uint8]

BLOCK = 32
# Each was chosen for what it adds to those before it, on normal numbers and on trained weights.
FACTORS_Q4_0 = (1.0, 1.075, 0.9, 1.025)
FACTORS_Q8_0 = (1.0, 0.986, 0.978, 0.962)


class Search(NamedTuple):
    """What differs between formats: how numbers become codes, and where the search begins."""

    format: type[WeightFormat]
    start: Callable[[F32], F32]  # blocks -> plain rounding's scale
    factors: tuple[float, ...]
    limits: tuple[np.float32, np.float32]  # of the codes
    round: Callable[[F32], F32]  # plain rounding of numbers over their scale


def _start_q4_0(blocks: F32) -> F32:
    largest = np.abs(blocks).argmax(axis=-1)[..., None]
    d: F32 = np.take_along_axis(blocks, largest, axis=-1)[..., 0] / np.float32(-8)
    return d


def _start_q8_0(blocks: F32) -> F32:
    d: F32 = np.abs(blocks).max(axis=-1) / np.float32(127)
    return d


def _round_q4_0(scaled: F32) -> F32:
    """Codes -8 ... 7: trunc(x + 8.5) - 8, clipped."""
    shifted = np.clip(scaled + np.float32(8.5), np.float32(0), np.float32(15))
    q: F32 = np.trunc(shifted) - np.float32(8)
    return q


def _round_q8_0(scaled: F32) -> F32:
    """Codes -127 ... 127: halves away from zero."""
    size: F32 = np.minimum(np.abs(scaled), np.float32(127))
    whole = np.trunc(size)
    whole = whole + ((size - whole) >= np.float32(0.5))
    return np.copysign(whole, scaled).astype(np.float32, copy=False)


def _limits(lowest: int, highest: int) -> tuple[np.float32, np.float32]:
    return np.float32(lowest), np.float32(highest)


SEARCHES = {
    "Q4_0": Search(Q4_0, _start_q4_0, FACTORS_Q4_0, _limits(-8, 7), _round_q4_0),
    "Q8_0": Search(Q8_0, _start_q8_0, FACTORS_Q8_0, _limits(-127, 127), _round_q8_0),
}


def _sum(values: F32) -> F32:
    """Sums over the last axis of 32 in the fixed order."""
    while values.shape[-1] > 1:
        half = values.shape[-1] // 2
        values = values[..., :half] + values[..., half:]
    return values[..., 0]


def _error(x: F32, w: F32, d: F32, q: F32) -> F32:
    off = x - d[..., None] * q
    return _sum((off * off) * w)


def search(x: F32, importance: F32, name: str) -> tuple[U8, F32]:
    """Encode with the search.

    Parameters
    ----------
    x : float32 [n, k]
        Rows; k is a multiple of 32.
    importance : float32 [k]
        Weight of each column's squared error, 0 or more.
    name : str
        "Q4_0" or "Q8_0".

    Returns
    -------
    (bytes [n, row_bytes], float32 [n, 2])
        The encoded rows; per row the weighted error of plain rounding and of the result, summed
        over blocks in order.
    """
    how = SEARCHES[name]
    n, k = x.shape
    plain = how.format.encode(np.ascontiguousarray(x))
    plain_q, plain_d, _ = how.format.codes(plain)
    with np.errstate(all="ignore"):
        blocks, w = x.reshape(n, -1, BLOCK), importance.reshape(-1, BLOCK)
        d, found = _best_scale(blocks, w, how)
        inverse = np.float32(1) / d
        inverse = np.where(np.isfinite(inverse), inverse, np.float32(0))
        q = how.round(blocks * inverse[..., None])
        before = _error(blocks, w, plain_d, plain_q.astype(np.float32))
        after = _error(blocks, w, d, q)
    better = found & (after < before)
    encoded = plain.reshape(n, -1, how.format.block_bytes).copy()
    encoded[better] = _pack(name, d, q).reshape(encoded.shape)[better]
    errors = np.zeros((n, 2), np.float32)
    after = np.where(better, after, before)
    for b in range(k // BLOCK):
        errors[:, 0] += before[:, b]
        errors[:, 1] += after[:, b]
    return encoded.reshape(n, -1), errors


def _best_scale(blocks: F32, w: F32, how: Search) -> tuple[F32, npt.NDArray[np.bool_]]:
    """The best d of each block, rounded to F16, and where there is one."""
    start = np.float32(1) / how.start(blocks)[..., None]
    usable = np.isfinite(start[..., 0])
    best = np.zeros(blocks.shape[:2], np.float32)
    d = np.zeros_like(best)
    weighted = w * blocks
    for factor in how.factors:
        q = np.clip(np.rint(blocks * (start * np.float32(factor))), *how.limits)
        a, b = _sum(weighted * q), _sum((w * q) * q)
        gain = (a * a) / b
        wins = gain > best
        best = np.where(wins, gain, best)
        d = np.where(wins, a / b, d)
    return d.astype(np.float16).astype(np.float32), usable & (best > 0)


def _pack(name: str, d: F32, q: F32) -> U8:
    """Blocks [n, blocks] of scales and codes as bytes [n, blocks, block_bytes]."""
    layout = SEARCHES[name].format.layout  # type: ignore[attr-defined]
    packed = np.empty(d.shape, layout)
    with np.errstate(over="ignore"):
        packed["d"] = d
    if name == "Q8_0":
        packed["qs"] = q
    else:
        codes = (q + np.float32(8)).astype(np.uint8)
        packed["qs"] = codes[..., :16] | (codes[..., 16:] << np.uint8(4))
    return packed.view(np.uint8).reshape(*d.shape, layout.itemsize)
