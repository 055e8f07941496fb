"""Rounding with compensation: each column's error is made up for in the columns after it (GPTQ).

A matrix W, whose rows' inputs have the Gram matrix H = X^T X, loses |(W - Q) X^T|^2 =
sum e H e^T over its rows' errors e = w - q. With H = R R^T, R upper triangular, that is
sum_j (e_j R_jj + sum_{i < j} e_i R_ij)^2: column j is rounded to the number nearest to
w_j + sum_{i < j} e_i R_ij / R_jj, and what remains is R_jj^2 times the square of this rounding's
error. So scales, which are found where a block begins, are searched with weights R_jj^2.

Then every integer is chosen again, one column after the other, with all others as they are:
the best error of column j is e_j - (e H)_j / H_jj. So is a block's scale, where it has one of its
own: d grows by (e H)_b q_b / (q_b H_bb q_b). None of these steps makes the sum larger.

Sources: Frantar et al. 2023, GPTQ; in the form of Chee et al. 2023, QuIP, which needs no inverse.
Behdin et al. 2023, QuantEase, for the second part.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from halfbyte.quantize import scale_search
from halfbyte.quantize.steps import Steps
from halfbyte.weights import U8, F32Array, ScaledFormat
from halfbyte.weights.base import Blocks
from halfbyte.weights.scaled import Levels, OneScale, inverse

F64Array = npt.NDArray[np.float64]

DAMPING = 0.01  # of the mean of H's diagonal, which is added to it
SWEEPS = 2  # in which all integers are chosen again
_ROWS, _NUMBERS = 256, 1 << 22  # rows at a time, and their numbers: several copies take memory
_COLUMNS = 32  # rounded one after the other before the columns after them are updated


class Gram(NamedTuple):
    """X^T X of rows X, float32 [k, k], and their number."""

    matrix: F32Array
    rows: int


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
        return np.eye(len(gram), dtype=np.float32), np.ones(len(gram), np.float32)
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


@dataclass(frozen=True)
class _Rounded:
    """Rows that were rounded, as columns.

    Attributes
    ----------
    targets : float32 [k, n]
        What they should be.
    blocks : Blocks [n, blocks]
        With their scales.
    d, m : float32 [parts, n]
        A weight is d q + m.
    integers : uint8 [k, n]
    """

    targets: F32Array
    blocks: Blocks
    d: F32Array
    m: F32Array
    integers: U8


def compensated(
    x: F32Array,
    feedback: F32Array,
    weights: F32Array,
    format_: type[ScaledFormat],
    steps: Steps | None = None,
    sweeps: int = SWEEPS,
) -> U8:
    """Encode rows [n, k], with the results of `factors`; bytes [n, row_bytes]."""
    steps, gram = steps or Steps(), None
    if sweeps:
        gram = ((feedback * weights) @ feedback.T).astype(np.float32, copy=False)
    count = max(_ROWS, _NUMBERS // x.shape[1])
    parts = []
    for first in range(0, max(len(x), 1), count):
        rounded = _fed_forward(x[first : first + count], feedback, weights, format_, steps)
        if gram is not None:
            for _ in range(sweeps):
                _choose_again(rounded, gram, format_)
        parts.append(_stored(rounded, format_, steps))
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _stored(rounded: _Rounded, format_: type[ScaledFormat], steps: Steps) -> U8:
    """Their bytes [n, row_bytes]."""
    if issubclass(format_, OneScale):
        rounded.blocks["d"] = rounded.d.T
    integers = np.ascontiguousarray(rounded.integers.T)
    steps.store(format_, rounded.blocks, integers.reshape(*rounded.blocks.shape, format_.block))
    return rounded.blocks.view(np.uint8)


def _fed_forward(
    x: F32Array,
    feedback: F32Array,
    weights: F32Array,
    format_: type[ScaledFormat],
    steps: Steps,
) -> _Rounded:
    """Round column by column, each to what makes up for the errors before it."""
    w = np.ascontiguousarray(x.T)
    targets, block = w.copy(), format_.block
    integers = np.empty(w.shape, np.uint8)
    found = []
    for first in range(0, len(w), block):
        end = first + block
        rows = np.ascontiguousarray(targets[first:end].T)
        found.append(scale_search.find(rows, weights[first:end], format_, steps))
        for start in range(first, end, _COLUMNS):
            span = slice(start, min(start + _COLUMNS, end))
            errors = _round(w, targets, feedback, span, first, found[-1], format_, integers)
            targets[span.stop :] += feedback[span, span.stop :].T @ errors
    d, m = (
        np.ascontiguousarray(np.concatenate([part[:, 0].T for part in parts]))
        for parts in ([f.d for f in found], [f.m for f in found])
    )
    return _Rounded(w, np.concatenate([f.blocks for f in found], axis=1), d, m, integers)


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
        integers[j] = q
        errors[row] = w[j] - (format_.levels.numbers(q) * d + m)
        following = slice(j + 1, span.stop)
        targets[following] += feedback[j, following, None] * errors[row]
    return errors


def _choose_again(rounded: _Rounded, gram: F32Array, format_: type[ScaledFormat]) -> None:
    """Choose scales and integers again, each with all others as they are."""
    d, m = (np.repeat(each, format_.part, axis=0) for each in (rounded.d, rounded.m))
    errors = rounded.targets - (format_.levels.numbers(rounded.integers) * d + m)
    pulls = gram @ errors
    size = format_.part if issubclass(format_, OneScale) else _COLUMNS
    for start in range(0, len(errors), size):
        span = slice(start, min(start + size, len(errors)))
        before, local = errors[span].copy(), gram[span, span]
        if issubclass(format_, OneScale):
            _scale_again(rounded, span, local, errors, pulls, format_)
        for j in range(span.start, span.stop):
            part = j // format_.part
            d, m = rounded.d[part], rounded.m[part]
            best = rounded.targets[j] - (errors[j] - pulls[j] / gram[j, j])
            q = nearest(format_.levels, (best - m) * inverse(d))
            change = rounded.targets[j] - (format_.levels.numbers(q) * d + m) - errors[j]
            rounded.integers[j] = q
            errors[j] += change
            pulls[j + 1 : span.stop] += local[j + 1 - start :, j - start, None] * change
        pulls[span.stop :] += gram[span.stop :, span] @ (errors[span] - before)


def _scale_again(
    rounded: _Rounded,
    span: slice,
    local: F32Array,
    errors: F32Array,
    pulls: F32Array,
    format_: type[ScaledFormat],
) -> None:
    """Move the scales of a block to the numbers of F16 that are nearest to their best."""
    part = span.start // format_.part
    q, d = format_.levels.numbers(rounded.integers[span]), rounded.d[part]
    slope, curve = (q * pulls[span]).sum(axis=0), (q * (local @ q)).sum(axis=0)
    with np.errstate(all="ignore"):
        better = (d + slope / curve).astype(np.float16).astype(np.float32)
    change = np.where(np.isfinite(better), better - d, np.float32(0))
    rounded.d[part] += change
    errors[span] -= q * change
    pulls[span] -= local @ (q * change)


def nearest(levels: Levels, x: F32Array) -> U8:
    """The integers from 0 on of the levels nearest to x."""
    if levels.values.size:
        return levels.stored(x)
    low, high = np.float32(levels.low), np.float32(levels.high)
    return (np.clip(np.rint(x), low, high) - low).astype(np.uint8)
