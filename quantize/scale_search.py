"""Searching the scales of blocks for the smallest weighted error: the definition, in NumPy.

Rounding to nearest takes a scale from the largest number of a block. The search tries several
scales around it; for the integers of each, the best scale has a closed form (least squares), and
the best of all is kept. No data is needed: the weights of the errors, `importance`, come from the
model itself (see `quantizer`). All is float32; for a part x with importance w:

- without a minimum, x ~ a q: for each factor c, q = nearest(x (1 / d0 c)) with d0 of plain
  rounding; A = sum w q x, B = sum w q q, a = A / B, which lowers the error by A^2 / B. If scales
  are powers of two, a = d0 / c, and the error is lower by (2 A - a B) a.
- with one, x ~ a q + b: for each factor c and what is added to it, e, q = nearest((x - lo) (1 / d0)
  c + e) with lo and d0 of plain rounding; then a and b by least squares, with b <= 0 in K-quants;
  then once more with q = nearest((x - b) (1 / a)), in K-quants for all, otherwise for the best. The
  error is lower by a sum w q x + b sum w x.

The first that lowers it most is taken. Scales and minima are then rounded as in plain rounding, and
x is quantized again. A block of the file takes the result of the search if its error is smaller
than that of plain rounding. Errors are at most those of llama.cpp's quantizer.

The kernels ``encode_*`` produce the same bytes (:mod:`halfbyte.quantize.steps`), so every sum has a
fixed order and nothing is fused.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from halfbyte.quantize.steps import Steps
from halfbyte.weights import F32Array, ScaledFormat
from halfbyte.weights.scaled import Rounded

U8 = npt.NDArray[np.uint8]


class Encoded(NamedTuple):
    """Blocks with their scales, their integers, and errors."""

    blocks: npt.NDArray[np.void]  # [rows, blocks]
    by: Rounded  # [rows, blocks, parts] each, or with one part for all
    integers: U8  # [rows, blocks, columns of a block]
    errors: F32Array  # [rows, blocks]


class Found(NamedTuple):
    """Blocks with scales, and these as numbers: a weight is d q + m."""

    blocks: npt.NDArray[np.void]  # [rows, blocks]
    d: F32Array  # [rows, blocks, parts]
    m: F32Array


def search(
    x: F32Array, importance: F32Array, format_: type[ScaledFormat], steps: Steps | None = None
) -> tuple[U8, F32Array]:
    """Encode with the search.

    Parameters
    ----------
    x : float32 [n, k]
        Rows; k is a multiple of the format's block.
    importance : float32 [k]
        Weight of each column's squared error, 0 or more.
    format_ : ScaledFormat
    steps : Steps, optional
        What does the work; by default NumPy.

    Returns
    -------
    (bytes [n, row_bytes], float32 [n, 2])
        The encoded rows; and per row the weighted errors of plain rounding and of the result,
        summed over blocks in order.
    """
    x, steps = np.ascontiguousarray(x), steps or Steps()
    if (found := steps.search(format_, x, importance)) is not None:
        return found
    plain, fitted = _both(x, importance, format_, steps)
    keep = ~(fitted.errors < plain.errors)
    np.copyto(fitted.blocks, plain.blocks, where=keep)
    np.copyto(fitted.integers, plain.integers, where=keep[..., None])
    np.copyto(fitted.errors, plain.errors, where=keep)
    steps.store(format_, fitted.blocks, fitted.integers)
    errors = [np.cumsum(each.errors, axis=1)[:, -1] for each in (plain, fitted)]
    return fitted.blocks.view(np.uint8), np.stack(errors, axis=1)


def find(
    x: F32Array, importance: F32Array, format_: type[ScaledFormat], steps: Steps | None = None
) -> Found:
    """The scales that :func:`search` takes, without integers; for the arguments see there."""
    plain, fitted = _both(x, importance, format_, steps or Steps())
    wins = fitted.errors < plain.errors
    shape = (*wins.shape, format_.block // format_.part)

    def taken(better: F32Array, other: F32Array) -> F32Array:
        return np.where(wins[..., None], *(np.broadcast_to(v, shape) for v in (better, other)))

    blocks = np.where(wins, fitted.blocks, plain.blocks)
    return Found(blocks, taken(fitted.by.d, plain.by.d), taken(fitted.by.m, plain.by.m))


def _both(
    x: F32Array, importance: F32Array, format_: type[ScaledFormat], steps: Steps
) -> tuple[Encoded, Encoded]:
    """Rows by plain rounding, and by the best scales of the search."""
    x = np.ascontiguousarray(x)
    with np.errstate(all="ignore"):
        low, high, first = steps.extremes(format_, x)
        start = format_.plain(low + np.float32(0), high + np.float32(0), first)  # no -0
        scales, minima = steps.best(format_, x, importance, *start)
        if format_.part == format_.block and not format_.powers:  # stored as F16
            scales, minima = (v.astype(np.float16).astype(np.float32) for v in (scales, minima))
        return (
            _encoded(format_, x, importance, start, steps),
            _encoded(format_, x, importance, (scales, minima), steps),
        )


def encode(x: F32Array, format_: type[ScaledFormat], steps: Steps) -> U8:
    """Plain rounding as `ScaledFormat.encode`, by the steps."""
    x = np.ascontiguousarray(x)
    with np.errstate(all="ignore"):
        if (rows := steps.in_one_pass(format_, x)) is not None:
            return rows
        scales = format_.plain(*steps.extremes(format_, x))
        blocks = np.zeros(scales[0].shape[:2], format_.layout)
        rounded = format_.rounded(blocks, *scales)
        integers, _ = steps.quantized(format_, x, np.ones(x.shape[1], np.float32), rounded)
    steps.store(format_, blocks, integers.reshape(*blocks.shape, format_.block))
    rows = blocks.view(np.uint8)
    format_.finish(rows, x)
    return rows


def _encoded(
    format_: type[ScaledFormat],
    x: F32Array,
    importance: F32Array,
    scales: tuple[F32Array, F32Array],
    steps: Steps,
) -> Encoded:
    blocks = np.zeros(scales[0].shape[:2], format_.layout)
    rounded = format_.rounded(blocks, *scales)
    integers, parts = steps.quantized(format_, x, importance, rounded)
    return Encoded(
        blocks,
        rounded,
        integers.reshape(*blocks.shape, format_.block),
        np.cumsum(parts, axis=-1)[..., -1],
    )
