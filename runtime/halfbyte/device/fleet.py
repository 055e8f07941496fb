"""Fleets: many devices of several profiles, in different air and with different batteries.

A file describes a fleet: shares of devices, and distributions as in profiles, each with its origin.
Every device has drawn numbers of its own; it is simulated as `halfbyte.device.simulate` does a
single one, with steps of a second, thousands at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np

from halfbyte.device import schema
from halfbyte.device.candidates import Candidate
from halfbyte.device.comparison import Conditions
from halfbyte.device.cost import F64
from halfbyte.device.processes import finished
from halfbyte.device.profile import Profile, load_profile
from halfbyte.device.quantity import Draws, Quantity
from halfbyte.device.recording import Simulation
from halfbyte.device.room import Room
from halfbyte.device.schema import Text, Where, number
from halfbyte.device.simulate import AIR_C, simulate
from halfbyte.device.stepping import Batteries
from halfbyte.device.summary import quantities
from halfbyte.device.workload import CONTINUOUS

STEP_S = 1.0
MAX_DEVICES = 1_000_000
_SAMPLES = 120  # of a device, which are enough for its speed in the first and in the last minutes
_AT_ONCE = 8000  # devices: more do not fit into a core's cache, fewer leave Python too much to do
_LEAST_HEALTH = 0.3  # of a battery's capacity: older ones were replaced
_SUM = 1e-6  # by which shares may miss 1

Progress = Callable[[int], None]  # devices that were just simulated


@dataclass(frozen=True)
class Share:
    """The part of a fleet that are devices of a profile: its name, or a .toml file's."""

    name: Annotated[str, schema.text]
    share: Annotated[float, schema.bare(0, 1)]


@dataclass(frozen=True)
class Fleet:
    """Shares of devices; air, charge and age of batteries, drawn for each device.

    The capacity of a battery falls by `battery_loss_per_year` of a new one's.
    """

    device: Annotated[tuple[Share, ...], schema.tables(Share, 1, 256)]
    air_c: Annotated[Quantity, number(*AIR_C)]
    battery_percent: Annotated[Quantity, number(1, 100)]
    battery_years: Annotated[Quantity, number(0, 20)]
    battery_loss_per_year: Annotated[Quantity, number(0, 0.5)]
    devices: Annotated[int, schema.integer(1, MAX_DEVICES)] = 100_000

    def check(self, where: Where) -> None:
        """Shares add up to 1."""
        total = sum(share.share for share in self.device)
        if abs(total - 1) > _SUM:
            raise where.at("device").error("shares that add up to 1", Text(f"{total:g}"))

    def counts(self) -> list[int]:
        """Devices of each share: whole numbers that add up to `devices`."""
        exact = [share.share * self.devices for share in self.device]
        counts = [int(value) for value in exact]
        rest = np.argsort([whole - value for whole, value in zip(counts, exact, strict=True)])
        for index in rest[: self.devices - sum(counts)]:
            counts[index] += 1
        return counts


def load_fleet(path: Path) -> tuple[Fleet, list[Profile]]:
    """A fleet's file, and the profiles of its devices; raises `ProfileError` and `OSError`."""
    fleet = schema.read_file(Fleet, path)
    profiles: list[Profile] = []
    for index, share in enumerate(fleet.device):
        profile = load_profile(share.name)
        if any(profile.name == other.name for other in profiles):
            where = Where(str(path)).at("device").item(index).at("name")
            raise where.error("another device", profile.name)
        profiles.append(profile)
    return fleet, profiles


@dataclass(frozen=True)
class Percentiles:
    """The values below which 5, 50 and 95 % of devices are."""

    p5: float
    p50: float
    p95: float

    @classmethod
    def of(cls, values: F64) -> Percentiles | None:
        """Of these values, each that of a device; None without devices."""
        known = values[~np.isnan(values)]
        if not len(known):
            return None
        quantiles = np.quantile(known, (0.05, 0.5, 0.95), method="inverted_cdf")
        return cls(*map(float, quantiles))


@dataclass(frozen=True)
class Group:
    """Devices of one profile, or all of a fleet.

    Attributes
    ----------
    devices : int
    fits : float
        Share of all devices.
    cold, hot : Percentiles or None
        Tokens/s, or runs/s, of those that fit, in the first minute and in the last fifth of the
        time; 0 for those that are off then.
    joules, percent : Percentiles or None
        Of an answer; percent of the battery, None without batteries.
    throttles, overheats, empties : float
        Shares of those that fit: slower by 5 % at some time, switched off by heat, and with an
        empty battery.
    """

    name: str
    title: str
    devices: int
    fits: float
    cold: Percentiles | None
    hot: Percentiles | None
    joules: Percentiles | None
    percent: Percentiles | None
    throttles: float
    overheats: float
    empties: float


@dataclass(frozen=True)
class FleetResult:
    """A candidate on a fleet: `total` of all devices, `groups` by profile.

    `counts` has the devices with a speed between each two of `edges` in the end.
    """

    model: str
    type: str
    unit: str
    answer: int
    total: Group
    groups: list[Group]
    edges: list[float]
    counts: list[int]


@dataclass(frozen=True)
class Exposure:
    """What is drawn of each device besides its profile's numbers."""

    limit_mb: F64
    air_c: F64
    charge: F64
    health: F64

    @classmethod
    def drawn(cls, fleet: Fleet, room: Room, draws: Draws) -> Exposure:
        """One for each draw."""
        limit, air = draws(room.limit), draws(fleet.air_c)
        charge = draws(fleet.battery_percent) / 100
        lost = draws(fleet.battery_years) * draws(fleet.battery_loss_per_year)
        return cls(limit, air, charge, np.maximum(1 - lost, _LEAST_HEALTH))

    def of(self, chosen: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Exposure:
        """That of some devices."""
        return Exposure(*(values[chosen] for values in vars(self).values()))


def simulated(
    candidate: Candidate, room: Room, exposure: Exposure, draws: Draws, conditions: Conditions
) -> Simulation:
    """Devices of one profile that the candidate fits."""
    _, from_storage = candidate.memory(room).within(exposure.limit_mb)
    return simulate(
        candidate.task(room, from_storage), room.profile, CONTINUOUS, conditions.governor,
        minutes=conditions.minutes, ambient=exposure.air_c, threads=room.threads, draws=draws,
        step=STEP_S, batteries=Batteries(exposure.charge, exposure.health), samples=_SAMPLES,
    )  # fmt: skip


def on_fleet(
    candidate: Candidate, fleet: Fleet, profiles: Sequence[Profile], conditions: Conditions,
    progress: Progress = lambda devices: None, processes: int = 1,
) -> FleetResult:  # fmt: skip
    """A candidate on all devices of a fleet, the same for the same seed with any `processes`."""
    rooms = [Room(profile, None, conditions.seed, tab=False) for profile in profiles]
    unit = candidate.task(rooms[0], candidate.memory(rooms[0]).from_storage).unit
    jobs = [
        (index, number, count)
        for index, devices in enumerate(fleet.counts())
        for number, count in enumerate(_portions(devices))
    ]

    def run(job: tuple[int, int, int]) -> Mapping[str, F64]:
        index, number, count = job
        random = np.random.default_rng([conditions.seed, index, number])
        return _portion(candidate, fleet, rooms[index], Draws(random, count), conditions)

    parts: dict[int, Mapping[str, F64]] = {}
    for at, part in finished(run, jobs, processes):
        parts[at] = part
        progress(len(part["fits"]))
    groups, every = [], []
    for index, profile in enumerate(profiles):
        own = [parts[at] for at, (i, *_) in enumerate(jobs) if i == index]
        if own:
            every.append(joined := _joined(own))
            groups.append(_group(profile.name, profile.title, joined))
    whole = _joined(every)
    counts, edges = _histogram(whole["hot"])
    total = _group("all", "all devices", whole)
    return FleetResult(
        candidate.model, candidate.type, unit, candidate.answer, total, groups, edges, counts
    )


def _portions(devices: int) -> Iterator[int]:
    for first in range(0, devices, _AT_ONCE):
        yield min(_AT_ONCE, devices - first)


def _portion(
    candidate: Candidate, fleet: Fleet, room: Room, draws: Draws, conditions: Conditions
) -> Mapping[str, F64]:
    """Quantities of devices by name; NaN where the model does not fit, or there is no battery."""
    exposure = Exposure.drawn(fleet, room, draws)
    fits, _ = candidate.memory(room).within(exposure.limit_mb)
    names = ("cold", "hot", "joules", "percent", "throttles", "overheats", "empties")
    values = {name: np.full(draws.count, np.nan) for name in names}
    if fits.any():
        own = Draws(draws.random, int(fits.sum()))
        s = simulated(candidate, room, exposure.of(fits), own, conditions)
        for name, found in _of(s, candidate.answer).items():
            values[name][fits] = found
    return {"fits": fits.astype(np.float64), **values}


def _of(s: Simulation, answer: int) -> Mapping[str, F64]:
    by_name = quantities(s)
    values = {
        "cold": by_name[f"first_minute_{s.unit}s_s"],
        "hot": by_name[f"sustained_{s.unit}s_s"],
        "joules": answer * by_name[f"joules_per_{s.unit}"],
        "throttles": np.isfinite(by_name["throttle_s"]).astype(np.float64),
        "overheats": s.overheated.astype(np.float64),
        "empties": (~s.on[-1] & ~s.overheated).astype(np.float64),
    }
    if (per_percent := by_name.get(f"{s.unit}s_per_percent")) is not None:
        with np.errstate(divide="ignore"):
            values["percent"] = answer / per_percent
    return values


def _joined(parts: Sequence[Mapping[str, F64]]) -> Mapping[str, F64]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _group(name: str, title: str, values: Mapping[str, F64]) -> Group:
    fits = values["fits"].mean()

    def spread(key: str) -> Percentiles | None:
        return Percentiles.of(values[key])

    def share(key: str) -> float:
        return float(np.nanmean(values[key])) if fits else 0.0

    return Group(
        name, title, len(values["fits"]), float(fits), spread("cold"), spread("hot"),
        spread("joules"), spread("percent"), share("throttles"), share("overheats"),
        share("empties"),
    )  # fmt: skip


def _histogram(speed: F64, bins: int = 40) -> tuple[list[int], list[float]]:
    """Devices by speed; those that are off, or do not fit, are not counted."""
    running = speed[speed > 0]  # NaN is not
    if not len(running):
        return [], []
    counts, edges = np.histogram(running, bins)
    return counts.tolist(), edges.tolist()
