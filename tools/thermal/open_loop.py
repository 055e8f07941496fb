"""A recording predicted from its load only: the power of a profile's clusters heats the network.

The package takes at rest what flowed off it in the first minutes. What ran was not recorded. A
cluster counts as loaded while its sensor is `LOADED_K` warmer than the package; nothing else is
taken from the sensors after the first minutes. How much of a cluster's highest power the load takes
is unknown, so each draw has a level of `LEVEL`. The trip points of the profile slow the clusters
down as in `halfbyte simulate`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from tools.thermal.fitting import (
    CAPACITIES,
    CONDUCTANCES,
    DIES,
    Predicted,
    network,
    predict,
    sensors,
)
from tools.thermal.part import drawn_of
from tools.thermal.traces import Recording

from halfbyte.device.electricity import SHUTDOWN_C, Supply
from halfbyte.device.governors import SENSOR_K, Firmware
from halfbyte.device.profile import Profile
from halfbyte.device.quantity import Draws

Floats = NDArray[np.float64]

LOADED_K = 8.0
LEVEL = (0.6, 1.0, 1.0)  # least, most likely, most


def loaded(recording: Recording, node: str) -> NDArray[np.bool_]:
    """Whether a cluster is loaded [ticks]."""
    by_node = sensors(recording)
    return np.asarray(by_node[node] - by_node["gpu"] >= LOADED_K)


def open_loop(recording: Recording, profile: Profile, draws: int, seed: int) -> Predicted:
    """Temperatures of all nodes for devices drawn from the profile's ranges."""
    random = np.random.default_rng(seed)
    drawn = Draws(random, draws)
    values = drawn_of(profile, drawn)
    known = predict(recording, values, "all sensors", random)
    supplies = [Supply(c, int(c.cores.value), drawn) for c in profile.clusters]
    firmware, whole = Firmware(profile, supplies, drawn), network(values)
    levels = random.triangular(*LEVEL, draws)
    loads = {die: loaded(recording, die) for die in DIES}
    columns = [whole.nodes.index(supply.cluster.node) for supply in supplies]
    package, rest_w = whole.nodes.index("gpu"), _package_w(recording, known, values)
    stepper, now = whole.stepper(recording.tick_s), _first(recording, known, whole.nodes)
    watts, own = np.zeros_like(now), [np.zeros(draws)] * len(supplies)
    course = np.empty((len(recording.air_c), *now.shape))
    course[0] = now
    for tick in range(1, len(course)):
        caps = firmware.caps(np.round(now / SENSOR_K) * SENSOR_K)
        caps = firmware.within(caps, stepper, now, watts, own, levels, known.start.air_c)
        watts, own = np.zeros_like(now), []
        watts[:, whole.nodes.index(profile.power.node)] = known.start.rest_w
        watts[:, package] += rest_w
        for supply, cap, column in zip(supplies, caps, columns, strict=True):
            on = loads[supply.cluster.node][tick] & (now[:, column] < SHUTDOWN_C)
            own.append(on * levels * supply.cores * supply.core_watts(cap))
            watts[:, column] += own[-1] + on * supply.leaked_watts(cap, now[:, column])
        now = stepper.step(now, watts, known.start.air_c)
        course[tick] = now
    by_node = {name: course[:, :, i] for i, name in enumerate(whole.nodes)}
    return Predicted(by_node, known.known, known.start)


def _package_w(recording: Recording, known: Predicted, values: Floats) -> Floats:
    """Watts [draws] that flowed from the package to its colder neighbours in the first minutes."""
    by_node = {name: zone[: known.known].mean() for name, zone in sensors(recording).items()}
    flow = np.zeros(len(values))
    for i, (a, b) in enumerate(CONDUCTANCES, len(CAPACITIES)):
        if a == "gpu":
            flow += values[:, i] * (by_node[a] - by_node[b])
    return np.maximum(flow, 0.0)


def _first(recording: Recording, known: Predicted, nodes: tuple[str, ...]) -> Floats:
    """[draws, nodes]: as measured, and the body as found."""
    by_node = sensors(recording)
    each = [
        known.start.body_c if name == "body"
        else np.full(len(known.start.body_c), by_node[name][:3].mean())
        for name in nodes
    ]  # fmt: skip
    return np.stack(each, axis=1)
