"""Ranges of activations, from the values of a model on samples.

minmax      the smallest and the largest value
percentile  the range without the outermost 0.005 % of the values on either side (99.99 %)
entropy     clipped where the clipped and rounded distribution differs least from that of all values
            (Kullback-Leibler divergence)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

F64 = npt.NDArray[np.float64]

PERCENTILE = 99.99
BINS = 8192  # of each sign
_LEVELS = 128  # to which magnitudes are rounded where values have both signs
_MIN_COUNT = 64  # values per bin, on average, for a distribution


class Histogram:
    """Counts of values in bins of equal width on both sides of 0.

    The range is a power of two; where a value exceeds it, it is doubled and pairs of bins are
    merged. So the result does not depend on the order of the values. Without `counts` only the
    smallest and the largest value are known.
    """

    def __init__(self, *, counts: bool = True) -> None:
        self._has_counts = counts
        self.low, self.high = np.inf, -np.inf
        self.top = 0.0  # limit of the range; 0: there were only zeros
        self.counts = np.zeros(2 * BINS)
        self.zeros = 0  # counted separately: they are exact in any range

    def add(self, values: npt.NDArray[Any]) -> None:
        """Count values, except those that are not finite."""
        x = values.astype(np.float32, copy=False).reshape(-1)
        x = x[np.isfinite(x)]
        if not x.size:
            return
        low, high = float(x.min()), float(x.max())
        self.low, self.high = min(self.low, low), max(self.high, high)
        if not self._has_counts:
            return
        size = max(-low, high)
        self.zeros += int(x.size - np.count_nonzero(x))
        if size == 0:
            return
        if self.top == 0:
            self.top = 2.0 ** math.ceil(math.log2(size))
        while size > self.top:
            self._double()
        x = x[x != 0]
        bins = np.floor(x * np.float64(BINS / self.top)).astype(np.intp) + BINS
        self.counts += np.bincount(np.minimum(bins, 2 * BINS - 1), minlength=2 * BINS)

    def _double(self) -> None:
        pairs = self.counts.reshape(-1, 2).sum(axis=1)
        self.counts = np.zeros(2 * BINS)
        self.counts[BINS // 2 : BINS // 2 + BINS] = pairs
        self.top *= 2

    def minmax(self) -> tuple[float, float]:
        """The smallest and the largest value."""
        return (self.low, self.high) if self.low <= self.high else (0.0, 0.0)

    def percentile(self) -> tuple[float, float]:
        """The range without the outermost values, half of them on either side."""
        total = self.counts.sum() + self.zeros
        counts = self.counts.copy()
        counts[BINS] += self.zeros
        cut = total * (1 - PERCENTILE / 100) / 2
        sums = np.cumsum(counts)
        first = int(np.searchsorted(sums, cut, side="right"))
        last = int(np.searchsorted(sums, total - cut, side="left"))
        width, (low, high) = self.top / BINS, self.minmax()
        return max(low, float((first - BINS) * width)), min(high, float((last + 1 - BINS) * width))

    def entropy(self) -> tuple[float, float]:
        """The range, clipped where the rounded distribution is closest to the original one."""
        low, high = self.minmax()
        levels = _LEVELS if low < 0 < high else 2 * _LEVELS
        counts, width = self.counts[BINS:] + self.counts[:BINS][::-1], self.top / BINS
        while len(counts) > 2 * levels and counts.sum() < _MIN_COUNT * np.count_nonzero(counts):
            counts, width = counts.reshape(-1, 2).sum(axis=1), 2 * width  # else noise would decide
        used = int(np.flatnonzero(counts)[-1]) + 1 if counts.any() else 0
        if used <= levels:
            return low, high
        starts = range(levels, used + 1, max(1, (used - levels) // 256))
        best = min((*starts, used), key=lambda bins: _divergence(counts[:used], bins, levels))
        limit = float(best * width)
        return max(low, -limit), min(high, limit)


METHODS: dict[str, Callable[[Histogram], tuple[float, float]]] = {
    "minmax": Histogram.minmax, "percentile": Histogram.percentile, "entropy": Histogram.entropy,
}  # fmt: skip


def _divergence(counts: F64, bins: int, levels: int) -> float:
    """Divergence of magnitudes clipped to `bins` bins from the same rounded to levels."""
    clipped = counts[:bins].copy()
    clipped[-1] += counts[bins:].sum()
    level = np.arange(bins) * levels // bins
    there = counts[:bins] > 0
    sums = np.bincount(level, counts[:bins], levels)
    filled = np.bincount(level, there, levels)
    rounded = np.where(there, (sums / np.maximum(filled, 1))[level], 0)
    p, q = clipped / clipped.sum(), rounded / max(rounded.sum(), 1e-30)
    both = p > 0
    with np.errstate(divide="ignore"):
        terms = p[both] * np.log(p[both] / np.maximum(q[both], 1e-12))
    return float(terms.sum())
