"""Numbers with an origin and a range of uncertainty."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


class Sourced:
    """Something with an origin: who measured or published it, or why it is assumed."""

    source: str
    assumed: str

    @property
    def origin(self) -> str:
        """The origin, for people."""
        return self.source or f"assumed: {self.assumed}"


@dataclass(frozen=True)
class Quantity(Sourced):
    """A number of a profile, in the unit that its key names.

    Either `source` says who measured or published it, or `assumed` says why it is assumed; the
    other is empty. Without a range, `low` and `high` equal `value`.
    """

    value: float
    low: float
    high: float
    source: str = ""
    assumed: str = ""

    @property
    def shown(self) -> str:
        """The value, for people."""
        return f"{self.value:g}"

    @property
    def span(self) -> str:
        """The range, for people."""
        return "-" if self.low == self.high else f"{self.low:g} to {self.high:g}"

    def draw(
        self, random: np.random.Generator | None = None, count: int = 1
    ) -> npt.NDArray[np.float64]:
        """[count] values from a triangular distribution over the range, with its peak at `value`.

        Without `random`, or without a range, all are `value`.
        """
        if random is None or self.low == self.high:
            return np.full(count, self.value)
        return random.triangular(self.low, self.value, self.high, count)


@dataclass(frozen=True)
class Steps(Sourced):
    """Numbers that belong together, such as the frequencies that a processor can run at."""

    values: tuple[float, ...]
    source: str = ""
    assumed: str = ""

    @property
    def shown(self) -> str:
        """First and last value, for people."""
        return f"{self.values[0]:g} to {self.values[-1]:g}"

    @property
    def span(self) -> str:
        """The number of values, for people."""
        return f"{len(self.values)} steps"


@dataclass(frozen=True)
class Draws:
    """Draws uncertain numbers: `count` values of each, or without `random` the nominal values."""

    random: np.random.Generator | None = None
    count: int = 1

    def __call__(self, quantity: Quantity) -> npt.NDArray[np.float64]:
        """[count] values."""
        return quantity.draw(self.random, self.count)
