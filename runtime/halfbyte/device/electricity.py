"""What computing takes from the battery, by cluster: P = C f V^2, and leakage."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from halfbyte.device.cost import F64
from halfbyte.device.profile import Cluster
from halfbyte.device.speed import Draws
from halfbyte.device.thermal import leakage

Indices = npt.NDArray[np.intp]

SHUTDOWN_C = 110.0  # a die as hot as that: phones and boards switch themselves off


class Supply:
    """One cluster's steps of frequency and voltage, and what it takes at them, for each draw."""

    def __init__(self, cluster: Cluster, cores: int, draws: Draws) -> None:
        self.cluster, self.cores = cluster, cores
        self.hertz = np.array(cluster.frequencies_mhz.values) * 1e6
        self.volts = np.array(cluster.voltages_mv.values) / 1e3
        self._unit = draws(cluster.dynamic_power_uw_per_mhz_v2) * 1e-12  # W for Hz and V^2
        self._leakage = draws(cluster.leakage_w), draws(cluster.leakage_doubling_k)

    @property
    def highest(self) -> int:
        """The fastest step."""
        return len(self.hertz) - 1

    def core_watts(self, steps: Indices) -> F64:
        """What a core takes that computes all the time, at these steps."""
        watts: F64 = self._unit * self.hertz[steps] * self.volts[steps] ** 2
        return watts

    def leaked_watts(self, steps: Indices, temperature: F64) -> F64:
        """What the whole cluster leaks, proportional to the voltage."""
        hot = np.minimum(temperature, SHUTDOWN_C)
        watts: F64 = leakage(*self._leakage, hot) * self.volts[steps] / self.volts[-1]
        return watts

    def step_below(self, hertz: F64) -> Indices:
        """The fastest step of at most that frequency, or the slowest."""
        # a hundredth of a millionth more, so that a step's own frequency is that step
        found = np.searchsorted(self.hertz, hertz * (1 + 1e-8), side="right") - 1
        return np.maximum(found, 0)


def by_cluster(threads: Indices, supplies: Sequence[Supply]) -> list[Indices]:
    """Cores of each cluster that compute, the first clusters' first, as [draws]."""
    counts, left = [], threads
    for supply in supplies:
        counts.append(np.minimum(left, supply.cores))
        left = left - counts[-1]
    return counts
