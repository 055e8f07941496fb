"""Speeds that are measured in turns."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class Series:
    """One engine's speeds in one test, one per turn.

    Attributes
    ----------
    engine, test : str
    threads : int
    turn : callable
        Runs the test once and returns its speed.
    speeds : list of float
    """

    engine: str
    test: str
    threads: int
    turn: Callable[[], float]
    speeds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """The median of all turns."""
        return statistics.median(self.speeds)

    @property
    def spread(self) -> float:
        """The interquartile range; 0 of a single turn."""
        if len(self.speeds) < 2:
            return 0.0
        first, _, third = statistics.quantiles(self.speeds, n=4, method="inclusive")
        return third - first

    def ratio(self, other: Series) -> float:
        """The median of the turns' ratios: a change of the machine's speed affects both equally."""
        pairs = zip(self.speeds, other.speeds, strict=True)
        return statistics.median(ours / theirs for ours, theirs in pairs)


Pair = tuple[Series, Series | None]  # ours, and the reference's
