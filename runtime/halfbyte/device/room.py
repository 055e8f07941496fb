"""What a device offers an app or a tab, and the verdict on what a model takes there.

Both fitters, `halfbyte.device.fit` for language models and `halfbyte.device.graphs` for graphs,
return a `Fit` from a `Room`, which has the rules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from halfbyte.device.cost import F64, Rates
from halfbyte.device.profile import Profile
from halfbyte.device.quantity import Draws, Quantity
from halfbyte.device.speed import Processor, fast_cores
from halfbyte.device.tab import WIDE_BYTES, in_tab
from halfbyte.download.transfer import ARRAY_BYTES, HEAP_BYTES
from halfbyte.errors import HalfbyteError
from halfbyte.text import footprint
from halfbyte.text.footprint import FILE

DRAWS = 200  # of the profile's uncertain numbers


@dataclass(frozen=True)
class Spread:
    """The median, 10 % and 90 % quantiles of draws."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: F64) -> Spread:
        """The spread of draws."""
        low, median, high = np.percentile(values, (10, 50, 90))
        return cls(float(median), float(low), float(high))


@dataclass(frozen=True)
class Verdict:
    """Whether one choice of settings fits, and why.

    Attributes
    ----------
    settings : str
        The settings as options of the command line.
    memory : dict of str to int
        Bytes by kind.
    private : int
        The part of the memory that the system cannot drop and read again, which must fit.
    fits : bool
        Whether it fits the most likely limit of the device.
    sure : bool
        Whether the verdict is the same over the whole range of the limit.
    from_storage : bool
        Whether weights are read from storage in every run: on purpose, or because their pages are
        dropped.
    """

    settings: str
    memory: dict[str, int]
    total: int
    private: int
    fits: bool
    sure: bool
    from_storage: bool

    def within(self, limits_mb: F64) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Whether it fits these limits, and whether weights are then read from storage."""
        streamed = self.from_storage and self.private == self.total  # nothing is mapped
        return self.private <= limits_mb * 1e6, streamed | _dropped(self, limits_mb)


N = TypeVar("N", bound=Verdict)


@dataclass(frozen=True)
class Fit(Generic[N]):
    """Whether a model fits, with the numbers, and what would fit.

    `numbers` counts those of the device that have a source and those that are assumed.
    `asked` is the need of the given settings. `levels` has the needs of all levels by name (graphs
    have none). If the model does not fit, `would` lists changes that suffice, one at a time.
    """

    model: str
    device: str
    place: str
    limit_mb: Quantity
    threads: int
    numbers: dict[str, int]
    asked: N
    levels: dict[str, N]
    would: list[N]

    @property
    def fits(self) -> bool:
        """The verdict."""
        return self.asked.fits

    def as_json(self) -> dict[str, Any]:
        """All of it as plain data."""
        return {"fits": self.fits, **asdict(self)}


class Room:
    """The memory and cores that a device offers an app, or a tab of its browser.

    Parameters
    ----------
    threads : int, optional
        Cores that compute; by default the fast ones. A tab has one.
    seed : int
        Seed of the draws.
    array : bool
        A tab holds the file as one array of NumPy, and all else in the same heap.

    Raises
    ------
    HalfbyteError
        The device has fewer cores than threads.
    """

    def __init__(
        self, profile: Profile, threads: int | None, seed: int, *, tab: bool, array: bool = False
    ) -> None:
        addressed = HEAP_BYTES if array else WIDE_BYTES
        self.profile = in_tab(profile, addressed) if tab else profile
        self.tab, self._array, self._seed = tab, array, seed
        self.place = "tab" if tab else "app"
        self.limit = self.profile.memory.tab_mb if tab else self.profile.memory.app_mb
        self.threads = 1 if tab else fast_cores(profile) if threads is None else threads
        if not 1 <= self.threads <= profile.cores:
            raise HalfbyteError(f"threads {self.threads}: expected 1 to {profile.cores}")

    def fits(self, memory: Mapping[str, int]) -> bool:
        """Whether these bytes by kind fit, including the limit on a tab's file."""
        return self.verdict("", memory).fits

    def verdict(
        self, settings: str, memory: Mapping[str, int], *, streamed: bool = False
    ) -> Verdict:
        """The verdict on these bytes; weights may be streamed."""
        memory = memory if self.tab else footprint.in_app(memory)
        total, private = sum(memory.values()), _private(memory)
        verdict = Verdict(
            settings, dict(memory), total, private,
            fits=private <= self.limit.value * 1e6 and not self._too_large(memory),
            sure=self._too_large(memory)
            or private <= self.limit.low * 1e6
            or private > self.limit.high * 1e6,
            from_storage=streamed,
        )  # fmt: skip
        return replace(
            verdict, from_storage=streamed or bool(_dropped(verdict, np.array(self.limit.value)))
        )

    def _too_large(self, memory: Mapping[str, int]) -> bool:
        """Whether a tab's file is larger than the largest array of a browser."""
        return self._array and memory.get(FILE, 0) > ARRAY_BYTES

    def draws(self) -> tuple[Draws, Rates]:
        """Draws of the uncertain numbers, and the cores' rates with them; the same each time."""
        draws = Draws(np.random.default_rng(self._seed), DRAWS)
        return draws, Processor(self.profile, self.threads, draws).rates()


def largest(fits: Callable[[int], bool], limit: int) -> int:
    """The largest number from 1 to `limit` that fits, if all smaller ones do; 0 for none."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low


def _dropped(verdict: Verdict, limits_mb: F64) -> npt.NDArray[np.bool_]:
    """Whether the system drops pages of mapped weights."""
    mapped = verdict.private < verdict.total
    dropped: npt.NDArray[np.bool_] = mapped & (verdict.total > limits_mb * 1e6)
    return dropped


def _private(memory: Mapping[str, int]) -> int:
    return sum(memory.values()) - memory.get("weights (mapped)", 0)
