"""The result of a simulation: series over time for each draw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.device.cost import F64
from halfbyte.device.electricity import Indices, Supply
from halfbyte.device.profile import Profile

MAX_SAMPLES = 1200

F32 = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Simulation:
    """All draws of a simulation.

    Attributes
    ----------
    model : str
        The model's name, for people.
    seconds : float64 [samples]
        The end of each sample's time.
    units, spent : float64 [samples, draws]
        Tokens of answers, or runs, in each sample, and the seconds that these took.
    unit : str
        The unit of work: "token" or "run".
    watts : float64 [samples, draws]
        Mean power of the device.
    on : bool [samples, draws]
        Whether the device was on at the end of the sample.
    temperatures : mapping of node to float32 [samples, draws]
    megahertz : mapping of cluster to float32 [samples, draws]
        0 if none of the cluster's cores computes.
    charge : float64 [samples, draws], optional
        Charge of the battery in percent, and at the start `full` [draws].
    taken_j, stored_j, given_j : float64 [draws]
        Energy taken, stored as heat, and given to the air.
    overheated : bool [draws]
        Whether heat switched the device off.
    """

    profile: Profile
    model: str
    unit: str
    governor: str
    workload: str
    ambient: float
    threads: int
    seed: int
    seconds: F64
    units: F64
    spent: F64
    watts: F64
    on: npt.NDArray[np.bool_]
    temperatures: Mapping[str, F32]
    megahertz: Mapping[str, F32]
    charge: F64 | None
    full: F64 | None
    taken_j: F64
    stored_j: F64
    given_j: F64
    overheated: npt.NDArray[np.bool_]

    @property
    def draws(self) -> int:
        """The number of devices."""
        return len(self.taken_j)

    @property
    def speed(self) -> F64:
        """Units per second of work [samples, draws]; the last value in pauses, 0 when off."""
        works = self.spent > 0
        speed = np.divide(self.units, self.spent, out=np.zeros_like(self.units), where=works)
        rows = np.where(works, np.arange(len(speed))[:, None], -1)
        last, first = np.maximum.accumulate(rows, axis=0), np.argmax(works, axis=0)
        speed = np.take_along_axis(speed, np.where(last < 0, first, last), axis=0)
        return np.where(self.on, speed, 0.0)


class Recorder:
    """Collects at most `most` samples of equal length; the last may be shorter."""

    def __init__(
        self, profile: Profile, steps: int, step: float, draws: int, supplies: Sequence[Supply],
        charge: F64 | None, most: int = MAX_SAMPLES,
    ) -> None:  # fmt: skip
        self._profile, self._steps, self._step = profile, steps, step
        self._every, self._supplies = ceil(steps / most), supplies
        self._full = None if charge is None else 100 * charge
        samples = ceil(steps / self._every)
        ends = np.minimum(np.arange(1, samples + 1) * self._every, steps)
        self._seconds = ends * step
        self._sums = np.zeros((3, samples, draws))  # units, spent, joules
        self._temperatures = np.zeros((len(profile.thermal.nodes), samples, draws), np.float32)
        self._megahertz = np.zeros((len(supplies), samples, draws), np.float32)
        self._charge = np.zeros((samples, draws))
        self._on = np.zeros((samples, draws), bool)

    def add(self, index: int, units: F64, spent: F64, watts: F64) -> None:
        """Add the work of step `index`, each [draws]."""
        sums = self._sums[:, index // self._every]
        sums += units, spent, watts * self._step

    def due(self, index: int) -> bool:
        """Whether a sample ends with this step."""
        return (index + 1) % self._every == 0 or index + 1 == self._steps

    def record(
        self, index: int, temperatures: F64, steps: Sequence[Indices], counts: Sequence[Indices],
        charge: F64 | None, on: npt.NDArray[np.bool_],
    ) -> None:  # fmt: skip
        """Record the state at the end of step `index`."""
        at = index // self._every
        self._temperatures[:, at] = temperatures.T
        for row, supply, step, count in zip(
            self._megahertz, self._supplies, steps, counts, strict=True
        ):
            row[at] = np.where(on & (count > 0), supply.hertz[step] / 1e6, 0)
        self._on[at] = on
        if charge is not None:
            self._charge[at] = 100 * charge

    def result(self, **more: Any) -> Simulation:
        """The recorded simulation; `more` are its other fields."""
        units, spent, joules = self._sums
        lengths = np.diff(self._seconds, prepend=0.0)
        return Simulation(
            profile=self._profile, seconds=self._seconds, units=units, spent=spent,
            watts=joules / lengths[:, None], on=self._on,
            temperatures=dict(zip(self._profile.thermal.nodes, self._temperatures, strict=True)),
            megahertz={
                s.cluster.name: row for s, row in zip(self._supplies, self._megahertz, strict=True)
            },
            charge=None if self._full is None else self._charge, full=self._full, **more,
        )  # fmt: skip
