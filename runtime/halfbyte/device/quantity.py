"""Numbers with an origin and a range of uncertainty."""

from __future__ import annotations

from dataclasses import dataclass, field

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
class Multiple(Quantity):
    """A number of times an uncertain factor, which is as much off in all of its multiples.

    The logarithm of the factor is drawn: it may be half of its value as well as twice.
    """

    factor: Quantity = field(kw_only=True)
    times: float = field(kw_only=True)

    @classmethod
    def of(cls, factor: Quantity, times: float = 1.0) -> Multiple:
        """A multiple of `factor`, with its range and origin."""
        value, low, high = (times * end for end in (factor.value, factor.low, factor.high))
        return cls(value, low, high, factor.source, factor.assumed, factor=factor, times=times)


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
    """Draws uncertain numbers: `count` values of each, or without `random` the nominal values.

    A factor is drawn once, for all of its multiples.
    """

    random: np.random.Generator | None = None
    count: int = 1
    _factors: dict[Quantity, npt.NDArray[np.float64]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __call__(self, quantity: Quantity) -> npt.NDArray[np.float64]:
        """[count] values."""
        if not isinstance(quantity, Multiple):
            return self.drawn(quantity)
        factor = quantity.factor
        if factor not in self._factors:
            logs = Quantity(*np.log((factor.value, factor.low, factor.high)))
            self._factors[factor] = np.exp(self.drawn(logs))
        return quantity.times * self._factors[factor]

    def drawn(self, quantity: Quantity) -> npt.NDArray[np.float64]:
        """[count] values of a number that is not a multiple."""
        return quantity.draw(self.random, self.count)
