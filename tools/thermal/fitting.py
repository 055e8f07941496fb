"""A thermal model of a phone with a few parameters, and its predictions against a recording.

Recordings contain no power, so watts cannot be determined. What can be determined is how chassis
and battery follow the temperatures of the chips and the air. The chips (CPU_BIG, CPU_LITTLE, GPU,
MODEM) are prescribed as measured. The chassis sensor, the battery and a hidden body (frame, screen,
and the surface under the phone) are computed from their first temperatures; later ones are unused:

    chips -- chassis -- body -- air        chassis -- battery -- body

The battery also takes heat in proportion to the square of the load's power, since its current heats
every resistance on its way. The load is measured as the difference of the small cores' temperature
from that of the GPU next to them. Multiplying all capacities, conductances and watts by a number
changes no temperature: the battery's published 75 J/K fixes the scale.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from tools.thermal.traces import Recording

from halfbyte.device.thermal import AMBIENT, Network
from halfbyte.errors import FormatError

Floats = NDArray[np.float64]

CHIPS = {"cpu_big": "CPU_BIG", "cpu_little": "CPU_LITTLE", "gpu": "GPU", "modem": "MODEM"}
MEASURED = {"chassis": "CHASSIS", "battery": "BATTERY"}
BATTERY_J_K = 75.0  # published with the recordings, as are 40 for the chassis
# The parameters, with initial guesses. J/K:
CAPACITIES = {"chassis": 40.0, "body": 60.0}
# Between nodes, W/K:
CONDUCTANCES = {
    ("cpu_big", "chassis"): 0.1,
    ("cpu_little", "chassis"): 0.1,
    ("gpu", "chassis"): 0.5,
    ("modem", "chassis"): 0.5,
    ("chassis", "battery"): 0.2,
    ("chassis", "body"): 0.3,
    ("battery", "body"): 0.3,
    ("body", AMBIENT): 0.2,
}
# The battery's watts when the small cores are this much warmer than the GPU
LOAD_W, LOAD_K = 1.0, 50.0
GUESS: Floats = np.array([*CAPACITIES.values(), *CONDUCTANCES.values(), LOAD_W])

READ_AGAIN_S = 30.0  # the interval at which the system reads the battery's sensor


def network(values: Floats) -> Network:
    """The network of `values` [draws, as in GUESS]; the chips' own capacities are never used."""
    chassis, body = values[:, 0], values[:, 1]
    held: dict[str, ArrayLike] = dict.fromkeys(CHIPS, 1.0)
    between = [(*ends, 1 / values[:, 2 + i]) for i, ends in enumerate(CONDUCTANCES)]
    held |= {"chassis": chassis, "battery": BATTERY_J_K, "body": body}
    return Network.from_resistances(held, between)


def predict(recording: Recording, values: Floats, air_c: ArrayLike) -> Floats:
    """Temperatures [ticks, draws, 3] of chassis, battery and body, for `values` [draws, as in
    GUESS] in air of `air_c` (a number or [draws]).

    The body, which was not measured, begins at the temperature that keeps the battery's constant.
    """
    zones = recording.zones
    chips = np.stack([_zone(recording, name) for name in CHIPS.values()], axis=1)
    load = np.maximum(zones["CPU_LITTLE"] - zones["GPU"], 0) / LOAD_K
    power = np.zeros((len(load), len(values), 3))
    power[:, :, 1] = values[:, -1] * load[:, None] ** 2
    whole = network(values)
    flow = whole.laplacian[:, whole.nodes.index("battery")]
    first = [*chips[0], *(_zone(recording, name)[0] for name in MEASURED.values())]
    air = np.broadcast_to(np.asarray(air_c, np.float64), (len(values),))
    above = np.asarray(first) - air[:, None]
    body = air + (power[0, :, 1] - (flow[:, :-1] * above).sum(axis=1)) / flow[:, -1]
    start = np.stack([np.full(len(body), first[-2]), np.full(len(body), first[-1]), body], axis=1)
    driven = whole.driven(tuple(CHIPS), recording.tick_s)
    return driven.run(start, chips, air, power)


def errors(recording: Recording, values: Floats) -> dict[str, tuple[float, float]]:
    """Mean absolute errors over a whole file, in kelvins, by zone: of the prediction by `values`
    [as in GUESS], and of always predicting the zone's first temperature.

    The air has the temperature that the recorder estimated at the first tick.
    """
    predicted = predict(recording, values[None], recording.air_c[0])[:, 0]
    result = {}
    for i, zone in enumerate(MEASURED.values()):
        measured = recording.zones[zone]
        ours, holding = np.abs(predicted[:, i] - measured), np.abs(measured[0] - measured)
        result[zone] = float(ours.mean()), float(holding.mean())
    return result


def between_readings(recording: Recording) -> Floats:
    """The battery's temperature [ticks], interpolated between the rare readings of its sensor.

    A change is a new reading; the reading before it was READ_AGAIN_S earlier, or before that.
    """
    stairs = _zone(recording, "BATTERY")
    known = [0]
    for change in (np.flatnonzero(np.diff(stairs)) + 1).tolist():
        before = change - round(READ_AGAIN_S / recording.tick_s)
        known += [before, change] if before > known[-1] else [change]
    return np.asarray(np.interp(np.arange(len(stairs)), known, stairs[known]))


def _zone(recording: Recording, name: str) -> Floats:
    if name not in recording.zones:
        raise FormatError(
            f"{recording.path}: expected a zone {name}, found {', '.join(recording.zones)}"
        )
    return recording.zones[name]
