"""Models and types on devices: memory, time to the first token, speed cool and hot, and energy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np

from halfbyte.device.candidates import Candidate
from halfbyte.device.profile import Profile
from halfbyte.device.quantity import Quantity
from halfbyte.device.recording import Simulation
from halfbyte.device.room import Room, Spread, Verdict
from halfbyte.device.simulate import simulate
from halfbyte.device.summary import Band, band, quantities
from halfbyte.device.workload import CONTINUOUS

POINTS = 40  # of the series of speed
DRAWS = 100


@dataclass(frozen=True)
class Conditions:
    """What devices are exposed to: minutes of work without a pause in air of `ambient` degrees
    Celsius (by default the profile's), under a governor."""

    minutes: float = 10.0
    ambient: float | None = None
    governor: str = "power-allocator"
    draws: int = DRAWS
    seed: int = 0


@dataclass(frozen=True)
class Measured:
    """What is predicted of a model that fits; ranges are those of the draws.

    Attributes
    ----------
    first_s : Spread
        Seconds to the first token after the prompt, or of the first run, on a cool device.
    cold, hot : Spread
        Tokens/s, or runs/s, in the first minute and in the last fifth of the time.
    joules : Spread
        Energy of an answer, with screen and radio, as a mean of the whole time.
    percent : Spread or None
        The same in percent of the battery; None without a battery.
    slower_min : float
        The median of the minutes after which it is 5 % slower; infinite if it never is.
    off : float
        The share of draws that heat switches off.
    minutes : list of float
    speed : list of Spread
        Speed at these minutes.
    """

    first_s: Spread
    cold: Spread
    hot: Spread
    joules: Spread
    percent: Spread | None
    slower_min: float
    off: float
    minutes: list[float]
    speed: list[Spread]


@dataclass(frozen=True)
class Result:
    """A model in a type on a device. `measured` is None where it does not fit; `would` is a setting
    that fits there, if there is one. `numbers` counts the profile's by origin."""

    model: str
    type: str
    size: int
    device: str
    title: str
    kind: str
    unit: str
    answer: int
    threads: int
    memory: Verdict
    limit_mb: Quantity
    battery: bool
    numbers: Mapping[str, int]
    calibrated: str | None
    would: str
    measured: Measured | None

    def as_json(self) -> dict[str, Any]:
        """All of it as plain data; what is infinite or undefined is null."""
        data: dict[str, Any] = plain(self)
        return data


def compare(candidate: Candidate, profile: Profile, conditions: Conditions) -> Result:
    """One candidate on one device."""
    room = Room(profile, None, conditions.seed, tab=False)
    verdict = candidate.memory(room)
    task = candidate.task(room, verdict.from_storage)
    measured = None
    if verdict.fits:
        s = simulate(
            task, profile, CONTINUOUS, conditions.governor, minutes=conditions.minutes,
            ambient=conditions.ambient, threads=room.threads, draws=conditions.draws,
            seed=conditions.seed,
        )  # fmt: skip
        first = spread_of(band(candidate.first_s(room, verdict.from_storage)))
        measured = _measured(s, first, candidate.answer)
    return Result(
        candidate.model, candidate.type, candidate.size, profile.name, profile.title, profile.kind,
        task.unit, candidate.answer, room.threads, verdict, room.limit, profile.battery is not None,
        profile.origins(), profile.thermal.calibrated,
        "" if verdict.fits else candidate.would(room), measured,
    )  # fmt: skip


def _measured(s: Simulation, first: Spread, answer: int) -> Measured:
    by_name = quantities(s)
    percent = None
    if (per_percent := by_name.get(f"{s.unit}s_per_percent")) is not None:
        with np.errstate(divide="ignore"):
            percent = spread_of(band(answer / per_percent))
    ends = np.unique(np.linspace(0, len(s.seconds) - 1, POINTS + 1).astype(int))
    return Measured(
        first, spread_of(band(by_name[f"first_minute_{s.unit}s_s"])),
        spread_of(band(by_name[f"sustained_{s.unit}s_s"])),
        spread_of(band(answer * by_name[f"joules_per_{s.unit}"])), percent,
        float(band(by_name["throttle_s"]).median) / 60, float(s.overheated.mean()),
        (s.seconds[ends] / 60).tolist(), [spread_of(band(s.speed[at])) for at in ends],
    )  # fmt: skip


def spread_of(values: Band) -> Spread:
    """A band of one quantity."""
    return Spread(float(values.median), float(values.low), float(values.high))


def plain(value: Any) -> Any:
    """Dataclasses and mappings as dicts, floats with six digits, infinite ones as None."""
    if hasattr(value, "__dataclass_fields__"):
        return {name: plain(getattr(value, name)) for name in value.__dataclass_fields__}
    if isinstance(value, Mapping):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if isfinite(value) else None
    return value
