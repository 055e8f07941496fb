"""Statistics of samples: quartiles, variation, and the change between two with its uncertainty.

A sample is a list of values by process: the places of memory that a process gets change its speed,
so values of one process are closer to each other than to those of the next.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

NOISY = 0.1  # coefficient of variation above which a case is not judged
FEWEST = 5  # values, below which there is no interval
DRAWS = 2000
Sample = Sequence[Sequence[float]]


@dataclass(frozen=True)
class Change:
    """new / old - 1, with the 95 % confidence interval."""

    value: float
    low: float
    high: float

    def beyond(self, threshold: float) -> bool:
        """Whether the change exceeds the threshold and the interval excludes 0."""
        return abs(self.value) > threshold and (self.low > 0 or self.high < 0)


def quartiles(values: Sequence[float]) -> tuple[float, float]:
    """The first and the third; of a single value, that value."""
    if len(values) < 2:
        return values[0], values[0]
    first, _, third = statistics.quantiles(values, n=4, method="inclusive")
    return first, third


def variation(values: Sequence[float]) -> float:
    """The coefficient of variation: standard deviation by mean; 0 of a single value."""
    return statistics.stdev(values) / statistics.fmean(values) if len(values) > 1 else 0.0


def change(old: Sample, new: Sample) -> Change | None:
    """Of the medians; None if a sample has fewer than `FEWEST` values.

    Bootstrap: processes are drawn, then values of each; the same samples give the same interval.
    """
    if min(sum(map(len, old)), sum(map(len, new))) < FEWEST:
        return None
    value = _median(new) / _median(old) - 1
    random = np.random.default_rng(0)
    ratios = _medians(new, random) / _medians(old, random) - 1
    low, high = np.quantile(ratios, [0.025, 0.975])
    return Change(value, float(low), float(high))


def _median(sample: Sample) -> float:
    return statistics.median(value for values in sample for value in values)


def _medians(sample: Sample, random: np.random.Generator) -> npt.NDArray[np.float64]:
    """Medians of resampled samples."""
    counts = np.array([len(values) for values in sample])
    padded = np.full((len(sample), counts.max()), np.nan)
    for row, values in zip(padded, sample, strict=True):
        row[: len(values)] = values
    drawn = random.integers(0, len(sample), (DRAWS, len(sample)))
    places = random.random((*drawn.shape, counts.max())) * counts[drawn][..., None]
    values = padded[drawn[..., None], places.astype(np.int64)]
    medians: npt.NDArray[Any] = np.median(values.reshape(DRAWS, -1), axis=1)
    return medians
