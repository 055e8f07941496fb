"""The power that computing takes, by cluster: P = C f V^2, and leakage."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from halfbyte.device.cost import F64
from halfbyte.device.profile import Cluster
from halfbyte.device.quantity import Draws
from halfbyte.device.thermal import leakage

Indices = npt.NDArray[np.intp]

SHUTDOWN_C = 110.0  # at this temperature of a die, phones and boards switch themselves off


class Supply:
    """One cluster's steps of frequency and voltage, and the power at each, for each draw."""

    def __init__(self, cluster: Cluster, cores: int, draws: Draws) -> None:
        self.cluster, self.cores = cluster, cores
        self.hertz = np.array(cluster.frequencies_mhz.values) * 1e6
        self.volts = np.array(cluster.voltages_mv.values) / 1e3
        self._unit = draws(cluster.dynamic_power_uw_per_mhz_v2) * 1e-12  # W for Hz and V^2
        self._square = self.hertz * self.volts**2
        self.every_watts: F64 = self._unit * self._square[:, None]  # of a core [steps, draws]
        self._leakage = draws(cluster.leakage_w), draws(cluster.leakage_doubling_k)

    @property
    def highest(self) -> int:
        """The fastest step."""
        return len(self.hertz) - 1

    def core_watts(self, steps: Indices) -> F64:
        """Watts of a core that computes all the time, at these steps."""
        watts: F64 = self._unit * self._square[steps]
        return watts

    def leaked_watts(self, steps: Indices, temperature: F64) -> F64:
        """Watts that the whole cluster leaks, proportional to the voltage."""
        hot = np.minimum(temperature, SHUTDOWN_C)
        watts: F64 = leakage(*self._leakage, hot) * self.volts[steps] / self.volts[-1]
        return watts

    def step_below(self, hertz: F64) -> Indices:
        """The fastest step of at most that frequency, or the slowest."""
        # slightly more, so that rounding does not exclude a step's own frequency
        steps = np.searchsorted(self.hertz, hertz * (1 + 1e-8), side="right") - 1
        return np.maximum(steps, 0)


def by_cluster(threads: Indices, supplies: Sequence[Supply]) -> list[Indices]:
    """The number of computing cores of each cluster [draws], filling the first clusters first."""
    counts, left = [], threads
    for supply in supplies:
        counts.append(np.minimum(left, supply.cores))
        left = left - counts[-1]
    return counts
