"""Operating points: threads and frequencies for computing a token or a run; the efficient ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from halfbyte.device.cooling import AMBIENT, Link, Node
from halfbyte.device.cost import F64
from halfbyte.device.electricity import Indices, Supply
from halfbyte.device.profile import Profile
from halfbyte.device.quantity import Draws, Quantity
from halfbyte.device.speed import Processor, Task
from halfbyte.device.thermal import Network

_MAX_POINTS = 4000  # for one number of threads: with more clusters, fewer steps of each are tried
_WHOLE = "device"  # the node of a lumped device
_WARM_C = 50.0  # the temperature at which leakage is counted


@dataclass(frozen=True)
class OperatingPoints:
    """Operating points from the fastest to the one that warms least; each warms less per unit of
    work (a token, a run) than all faster ones.

    Attributes
    ----------
    threads : int [points]
    steps : int [clusters, points]
        Steps of frequency.
    unit_s : float64 [points]
        Seconds of computing a unit.
    watts : float64 [points, nodes]
        Power while computing.
    kelvin_s : float64 [points]
        Kelvins by which one unit per second, up to the horizon, warms the node.
    """

    threads: Indices
    steps: Indices
    unit_s: F64
    watts: F64
    kelvin_s: F64


def network_of(profile: Profile, draws: Draws) -> Network:
    """The thermal network of devices of this profile."""
    thermal = profile.thermal
    return Network.from_resistances(
        {name: draws(node.heat_capacity_j_k) for name, node in thermal.nodes.items()},
        [(*link.between, draws(link.resistance_k_w)) for link in thermal.links],
    )


def lumped(profile: Profile) -> Profile:
    """The device as governors know it: one node with all of the heat capacity, which warms as the
    controlled node does in the end at the power of all cores. The device itself has more nodes."""
    thermal, network = profile.thermal, network_of(profile, Draws())
    nodes, watts = list(thermal.nodes), np.zeros((1, len(thermal.nodes)))
    for cluster in profile.clusters:
        watts[0, nodes.index(cluster.node)] += cluster.full_w
    rise = network.steady(watts, 0.0)[0, nodes.index(thermal.allocator.node)] / watts.sum()

    def known(value: float) -> Quantity:
        return Quantity(value, value, value, assumed="the whole device")

    return replace(
        profile,
        clusters=tuple(replace(cluster, node=_WHOLE) for cluster in profile.clusters),
        power=replace(profile.power, node=_WHOLE),
        thermal=replace(
            thermal, nodes={_WHOLE: Node(known(float(network.capacities.sum())))},
            links=(Link((_WHOLE, AMBIENT), known(float(rise))),), trips=(),
            allocator=replace(thermal.allocator, node=_WHOLE),
        ),
    )  # fmt: skip


def efficient_points(
    task: Task, profile: Profile, threads: int, node: int, horizon_s: float
) -> OperatingPoints:  # fmt: skip
    """The operating points of at most `threads` threads that no other beats in speed and heat."""
    count = len(profile.thermal.nodes)
    later = network_of(profile, Draws()).stepper(horizon_s)
    warmed = np.array([later.step(np.zeros(count), row, 0.0)[0, node] for row in np.eye(count)])
    parts = [_points(task, profile, n, warmed) for n in range(1, threads + 1)]
    clusters = max(len(part.steps) for part in parts)
    steps = [np.pad(part.steps, ((0, clusters - len(part.steps)), (0, 0))) for part in parts]
    every = OperatingPoints(
        np.concatenate([part.threads for part in parts]), np.concatenate(steps, axis=1),
        np.concatenate([part.unit_s for part in parts]),
        np.concatenate([part.watts for part in parts]),
        np.concatenate([part.kelvin_s for part in parts]),
    )  # fmt: skip
    order = np.lexsort((every.kelvin_s, every.unit_s))
    lowest = np.minimum.accumulate(every.kelvin_s[order])
    chosen = order[np.diff(lowest, prepend=np.inf) < 0]
    return OperatingPoints(
        every.threads[chosen], every.steps[:, chosen], every.unit_s[chosen],
        every.watts[chosen], every.kelvin_s[chosen],
    )  # fmt: skip


def _points(task: Task, profile: Profile, threads: int, warmed: F64) -> OperatingPoints:
    """All operating points of this number of threads."""
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
    threads_of_each = np.full(len(unit_s), threads)
    return OperatingPoints(threads_of_each, steps, unit_s, watts, watts @ warmed * unit_s)


def _thinned(used: Sequence[Supply]) -> Iterator[npt.NDArray[np.intp]]:
    """Some of each cluster's steps, always the fastest and the slowest."""
    limit = int(_MAX_POINTS ** (1 / len(used)))
    for supply in used:
        yield np.unique(np.linspace(0, supply.highest, min(limit, supply.highest + 1)).astype(int))
