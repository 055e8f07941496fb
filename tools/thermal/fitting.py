"""A phone's thermal network with a few parameters, and its predictions against a recording.

The network is the one that a profile has and `halfbyte simulate` runs. Heat flows

    cpu_big, cpu_little -- gpu -- chassis -- body -- air      gpu, chassis -- battery -- body

The two CPUs are the dies under their sensors, which follow their power within a second. `gpu` is
the package around them, `chassis` the board's sensor, `battery` the sensor on the cell, and `body`
everything else: the cell, the frame and the screen, which no sensor measures. A phone at rest takes
some watts, which warm the board. MODEM, a second sensor of the package, is not used.

Recordings contain no power, so some sensors are prescribed as measured (`DRIVES`) and the others
are computed. Multiplying all capacities, conductances and watts by a number changes no temperature:
the guesses of the body's capacity (a phone's mass) and of its way to the air (a phone's surface)
fix the scale.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from tools.thermal.traces import Recording

from halfbyte.device.thermal import AMBIENT, Driven, Network
from halfbyte.errors import FormatError

Floats = NDArray[np.float64]

ZONES = {
    "cpu_big": "CPU_BIG", "cpu_little": "CPU_LITTLE", "gpu": "GPU", "chassis": "CHASSIS",
    "battery": "BATTERY",
}  # fmt: skip
DIES = ("cpu_big", "cpu_little")
DRIVES = {"all sensors": (*DIES, "gpu"), "CPU sensors": DIES}
# The parameters: guesses, and the standard deviations of their logarithms. J/K:
CAPACITIES = {
    "gpu": (6.0, 0.7), "chassis": (10.0, 0.7), "battery": (25.0, 0.7), "body": (110.0, 0.25),
}  # fmt: skip
# Between nodes, W/K; the air's: 10 W/m2K on 240 cm2
CONDUCTANCES = {
    ("cpu_big", "gpu"): (0.3, 0.7),
    ("cpu_little", "gpu"): (0.15, 0.7),
    ("gpu", "chassis"): (1.0, 0.7),
    ("gpu", "battery"): (0.05, 1.0),
    ("chassis", "battery"): (0.1, 0.7),
    ("chassis", "body"): (0.6, 0.7),
    ("battery", "body"): (0.3, 0.7),
    ("body", AMBIENT): (0.24, 0.25),
}
REST_W = (0.8, 0.25)  # of the phone at rest, into the board
_ALL = (*CAPACITIES.values(), *CONDUCTANCES.values(), REST_W)
GUESS: Floats = np.array([guess for guess, _ in _ALL])
WITHIN: Floats = np.array([within for _, within in _ALL])
DIE_S = 0.6  # a die reaches four fifths of a step within one tick of a second

READ_AGAIN_S = 30.0  # the interval at which the system reads the battery's sensor

# What the first minutes of a recording tell: sensors differ from the network by so many kelvins
# (standard deviation, differences within `ALIKE_S` count as one)
FIRST_S, ALIKE_S = 180.0, 60.0
DIFFER_K = {"gpu": 1.0, "chassis": 0.5, "battery": 0.15}
# and before that is known: the body is as warm as the battery, the air so much colder that the body
# keeps its temperature at rest, and the power at rest is the network's
BODY_K, AIR_K, MORE_W = 2.0, 2.0, 0.3


@dataclass(frozen=True)
class Start:
    """The state of a phone at the beginning, which no sensor measures, each [draws]: the body's and
    the air's temperature in Celsius, and the power at rest in watts."""

    body_c: Floats
    air_c: Floats
    rest_w: Floats


@dataclass(frozen=True)
class Predicted:
    """Temperatures [ticks, draws] by node, from `begin` seconds after the recording's first tick.

    `known` ticks were used to find the start.
    """

    temperatures: dict[str, Floats]
    known: int
    start: Start


def network(values: Floats) -> Network:
    """The network of `values` [draws, as in GUESS]."""
    count = len(CAPACITIES)
    between = {ends: values[:, count + i] for i, ends in enumerate(CONDUCTANCES)}
    capacities: dict[str, ArrayLike] = {die: DIE_S * between[die, "gpu"] for die in DIES}
    capacities |= {name: values[:, i] for i, name in enumerate(CAPACITIES)}
    return Network.from_resistances(capacities, [(*ends, 1 / g) for ends, g in between.items()])


def predict(
    recording: Recording, values: Floats, drive: str, random: np.random.Generator | None = None
) -> Predicted:
    """The temperatures of the nodes that `drive` (of `DRIVES`) does not prescribe, for `values`
    [draws, as in GUESS].

    The body, the air and the power at rest follow from the first three minutes, or from the first
    half of a shorter recording; with `random` each draw has a start that is as likely.
    """
    course = _Course(recording, values, drive)
    start = course.start(random)
    whole = course.run(start, len(recording.air_c))
    return Predicted({name: whole[:, :, i] for i, name in enumerate(course.free)},
                     course.known, start)  # fmt: skip


class _Course:
    """A recording driven by some of its sensors."""

    def __init__(self, recording: Recording, values: Floats, drive: str) -> None:
        names = DRIVES[drive]
        self._sensors = sensors(recording)
        self._rest = values[:, -1]
        self._network = network(values)
        self._driven: Driven = self._network.driven(names, recording.tick_s)
        self.free = self._driven.free
        self._forced = np.stack([self._sensors[name] for name in names], axis=1)
        ticks, self._tick_s = len(self._forced), recording.tick_s
        self.known = max(2, min(round(FIRST_S / self._tick_s), ticks // 2))

    def run(self, start: Start, ticks: int) -> Floats:
        """Temperatures [ticks, draws, free]."""
        draws, body = len(self._rest), self.free.index("body")
        first = np.empty((draws, len(self.free)))
        for i, name in enumerate(self.free):
            first[:, i] = start.body_c if i == body else self._sensors[name][:3].mean()
        power = np.zeros((ticks, draws, len(self.free)))
        power[:, :, self.free.index("chassis")] = start.rest_w
        return self._driven.run(first, self._forced[:ticks], start.air_c, power)

    def start(self, random: np.random.Generator | None) -> Start:
        """The most likely start given the first minutes; temperatures are linear in it."""
        rest, body = self._rest, np.full(len(self._rest), self._sensors["battery"][0])
        away = self._network.to_ambient[:, self._network.nodes.index("body")]
        prior = np.stack([body, body - rest / away, rest])  # [3, draws]
        seen = [name for name in self.free if name in DIFFER_K]
        columns = [self.free.index(name) for name in seen]
        weights = np.sqrt(self._tick_s / ALIKE_S) / np.array([DIFFER_K[name] for name in seen])

        def weighed(start: Floats) -> Floats:
            course = self.run(Start(*start), self.known)[:, :, columns] * weights
            return np.asarray(course.swapaxes(0, 1).reshape(len(rest), -1))  # [draws, ticks x seen]

        middle = weighed(prior)
        slopes = np.stack([weighed(prior + one[:, None]) - middle for one in np.eye(3)], axis=2)
        measured = np.stack([self._sensors[name][: self.known] for name in seen], axis=1) * weights
        own = np.array([[1 / BODY_K, 0, 0], [-1 / AIR_K, 1 / AIR_K, 0], [0, 0, 1 / MORE_W]])
        precision = slopes.swapaxes(1, 2) @ slopes + own.T @ own
        change = np.linalg.solve(
            precision, np.einsum("dti,dt->di", slopes, measured.ravel() - middle)[..., None]
        )[..., 0]
        if random is not None:  # of the distribution with this precision
            lower = np.linalg.cholesky(precision).swapaxes(1, 2)
            change += np.linalg.solve(lower, random.normal(size=(*change.shape, 1)))[..., 0]
        body, air, more = prior + change.T
        return Start(body, air, np.maximum(more, 0.0))


def sensors(recording: Recording) -> dict[str, Floats]:
    """The measured temperatures [ticks] by node."""
    for zone in ZONES.values():
        if zone not in recording.zones:
            raise FormatError(
                f"{recording.path}: expected a zone {zone}, found {', '.join(recording.zones)}"
            )
    by_node = {name: recording.zones[zone] for name, zone in ZONES.items()}
    return by_node | {"battery": between_readings(recording)}


def between_readings(recording: Recording) -> Floats:
    """The battery's temperature [ticks], interpolated between the rare readings of its sensor.

    A change is a new reading; the reading before it was READ_AGAIN_S earlier, or before that.
    """
    stairs = recording.zones[ZONES["battery"]]
    known = [0]
    for change in (np.flatnonzero(np.diff(stairs)) + 1).tolist():
        before = change - round(READ_AGAIN_S / recording.tick_s)
        known += [before, change] if before > known[-1] else [change]
    return np.asarray(np.interp(np.arange(len(stairs)), known, stairs[known]))
