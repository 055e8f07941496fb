"""Rounding with compensation: each column's error is made up for in the columns after it (GPTQ).

A matrix W, whose rows' inputs have the Gram matrix H = X^T X, loses |(W - Q) X^T|^2 =
sum e H e^T over its rows' errors e = w - q. With H = R R^T, R upper triangular, that is
sum_j (e_j R_jj + sum_{i < j} e_i R_ij)^2: column j is rounded to the number nearest to
w_j + sum_{i < j} e_i R_ij / R_jj, and what remains is R_jj^2 times the square of this rounding's
error. So scales, which are found where a block begins, are searched with weights R_jj^2.

Source: Frantar et al. 2023, GPTQ; in the form of Chee et al. 2023, QuIP, which needs no inverse.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from halfbyte.quantize import scale_search
from halfbyte.quantize.steps import Steps
from halfbyte.weights import U8, F32Array, ScaledFormat
from halfbyte.weights.scaled import Levels, inverse

F64Array = npt.NDArray[np.float64]

DAMPING = 0.01  # of the mean of H's diagonal, which is added to it
_COLUMNS = 32  # rounded one after the other before the columns after them are updated


def factors(gram: F32Array, rows: int, damping: float = DAMPING) -> tuple[F32Array, F32Array]:
    """What columns feed forward, float32 [k, k], and the weight of each one's error [k].

    Element [i, j] is R_ij / R_jj. Few rows say little about pairs of channels, so products of two
    channels count less, by r^2 / (1 + r^2) with r = 4 k / rows. Damping doubles until the
    factorization succeeds, so a Gram matrix with channels that are always zero has one too.
    """
    h = gram.astype(np.float64)
    diagonal = np.einsum("ii->i", h).copy()
    mean = diagonal.mean()
    if not 0 < mean < np.inf:
        return np.zeros_like(gram), np.ones(len(gram), np.float32)
    ratio = 4 * len(h) / max(rows, 1)
    h *= 1 / (1 + ratio**2)
    np.fill_diagonal(h, diagonal)
    while True:
        damped = h + np.eye(len(h)) * (damping * mean)
        try:
            r = np.linalg.cholesky(damped[::-1, ::-1])[::-1, ::-1]
        except np.linalg.LinAlgError:
            damping *= 2
            continue
        scale = np.einsum("ii->i", r)
        weights = (scale / np.sqrt(mean)) ** 2
        return (r / scale).astype(np.float32), weights.astype(np.float32)


def compensated(
    x: F32Array,
    feedback: F32Array,
    weights: F32Array,
    format_: type[ScaledFormat],
    steps: Steps | None = None,
) -> U8:
    """Encode rows [n, k], with the results of `factors`; bytes [n, row_bytes]."""
    w = np.ascontiguousarray(x.T)
    targets, block = w.copy(), format_.block
    stored = []
    for first in range(0, len(w), block):
        end = first + block
        rows = np.ascontiguousarray(targets[first:end].T)
        found = scale_search.find(rows, weights[first:end], format_, steps)
        integers = np.empty((block, len(x)), np.uint8)
        for start in range(first, end, _COLUMNS):
            span = slice(start, min(start + _COLUMNS, end))
            errors = _round(w, targets, feedback, span, first, found, format_, integers)
            targets[span.stop :] += feedback[span, span.stop :].T @ errors
        blocks = found.blocks
        (steps or Steps()).store(format_, blocks, np.ascontiguousarray(integers.T)[:, None])
        stored.append(blocks)
    return np.concatenate(stored, axis=1).view(np.uint8)


def _round(
    w: F32Array,
    targets: F32Array,
    feedback: F32Array,
    span: slice,
    first: int,
    found: scale_search.Found,
    format_: type[ScaledFormat],
    integers: U8,
) -> F32Array:
    """Round some columns of a block that begins at `first`; returns their errors."""
    errors = np.empty((span.stop - span.start, w.shape[1]), np.float32)
    for row, j in enumerate(range(span.start, span.stop)):
        part = (j - first) // format_.part
        d, m = found.d[:, 0, part], found.m[:, 0, part]
        q = nearest(format_.levels, (targets[j] - m) * inverse(d))
        integers[j - first] = q
        errors[row] = w[j] - (format_.levels.numbers(q) * d + m)
        following = slice(j + 1, span.stop)
        targets[following] += feedback[j, following, None] * errors[row]
    return errors


def nearest(levels: Levels, x: F32Array) -> U8:
    """The integers from 0 on of the levels nearest to x."""
    if levels.values.size:
        return levels.stored(x)
    low, high = np.float32(levels.low), np.float32(levels.high)
    return (np.clip(np.rint(x), low, high) - low).astype(np.uint8)
