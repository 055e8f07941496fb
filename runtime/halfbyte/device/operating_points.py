"""Ways to compute a token or a run: threads and frequencies, and which are worth taking."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from halfbyte.device.cost import F64
from halfbyte.device.electricity import Indices, Supply
from halfbyte.device.profile import Profile
from halfbyte.device.speed import Draws, Processor, Task
from halfbyte.device.thermal import Network

_MAX_SETTINGS = 4000  # settings of as many threads: of more clusters, fewer steps
_WARM_C = 50.0  # at which leakage is counted


@dataclass(frozen=True)
class Ways:
    """Settings from the fastest to the one that warms least, each warming less for a unit of work
    (a token, a run) than all faster ones.

    Attributes
    ----------
    threads : int [settings]
    steps : int [clusters, settings]
    unit_s : float64 [settings]
        Seconds that a unit takes to compute.
    watts : float64 [settings, nodes]
        What is taken meanwhile.
    kelvin_s : float64 [settings]
        Of one unit: one of them a second, up to the horizon, warms a node by so many kelvins.
    """

    threads: Indices
    steps: Indices
    unit_s: F64
    watts: F64
    kelvin_s: F64


def network_of(profile: Profile, draws: Draws) -> Network:
    """How devices of this profile pass heat on."""
    thermal = profile.thermal
    return Network.from_resistances(
        {name: draws(node.heat_capacity_j_k) for name, node in thermal.nodes.items()},
        [(*link.between, draws(link.resistance_k_w)) for link in thermal.links],
    )


def worthwhile(
    task: Task, profile: Profile, threads: int, node: int, horizon_s: float
) -> Ways:  # fmt: skip
    """The ways that are worth taking with at most so many threads, to keep a node cool."""
    count = len(profile.thermal.nodes)
    later = network_of(profile, Draws()).stepper(horizon_s)
    warmed = np.array([later.step(np.zeros(count), row, 0.0)[0, node] for row in np.eye(count)])
    parts = [_ways(task, profile, n, warmed) for n in range(1, threads + 1)]
    clusters = max(len(part.steps) for part in parts)
    steps = [np.pad(part.steps, ((0, clusters - len(part.steps)), (0, 0))) for part in parts]
    every = Ways(
        np.concatenate([part.threads for part in parts]), np.concatenate(steps, axis=1),
        np.concatenate([part.unit_s for part in parts]),
        np.concatenate([part.watts for part in parts]),
        np.concatenate([part.kelvin_s for part in parts]),
    )  # fmt: skip
    order = np.lexsort((every.kelvin_s, every.unit_s))
    least = np.minimum.accumulate(every.kelvin_s[order])
    chosen = order[np.diff(least, prepend=np.inf) < 0]
    return Ways(
        every.threads[chosen], every.steps[:, chosen], every.unit_s[chosen],
        every.watts[chosen], every.kelvin_s[chosen],
    )  # fmt: skip


def _ways(task: Task, profile: Profile, threads: int, warmed: F64) -> Ways:
    """All settings of so many threads."""
    used = [Supply(c.cluster, c.count, Draws()) for c in Processor(profile, threads, Draws()).used]
    steps = np.stack([axis.ravel() for axis in np.meshgrid(*_thinned(used), indexing="ij")])
    draws = Draws(None, steps.shape[1])
    processor, (each, _) = Processor(profile, threads, draws), task.passes(profile, draws)
    hertz = [supply.hertz[at] for supply, at in zip(used, steps, strict=True)]
    rates = processor.rates(hertz)
    busy, unit_s = each.computing(rates), each.seconds(rates)
    nodes = list(profile.thermal.nodes)
    watts = np.zeros((steps.shape[1], len(nodes)))
    for supply, at in zip(used, steps, strict=True):
        computing = supply.cores * supply.core_watts(at) * busy / unit_s
        leaked = supply.leaked_watts(at, np.full(len(at), _WARM_C))
        watts[:, nodes.index(supply.cluster.node)] += computing + leaked
    power = profile.power
    read_j = power.memory_pj_per_byte.value * 1e-12 * each.bytes_read
    watts[:, nodes.index(power.node)] += read_j / unit_s
    return Ways(np.full(len(unit_s), threads), steps, unit_s, watts, watts @ warmed * unit_s)


def _thinned(used: Sequence[Supply]) -> Iterator[npt.NDArray[np.intp]]:
    """Each cluster's steps, with the fastest and the slowest, so that there are not too many."""
    most = int(_MAX_SETTINGS ** (1 / len(used)))
    for supply in used:
        yield np.unique(np.linspace(0, supply.highest, min(most, supply.highest + 1)).astype(int))
