"""Simulates the speed of a model on a device over time, while the device warms up and slows down.

All draws of a profile's uncertain numbers are simulated at once. In each `step`, the workload
advances as fast as the frequencies allow, its power warms the nodes, and once per period the
governor decides. A device begins as warm as its screen and radio keep it. A device that heat or an
empty battery has switched off stays off.

Energy is conserved: the energy taken (`taken_j`) is the energy stored plus that given to the air.
Losses in the battery and in regulators are left out. Work is counted in units: a language model's
tokens or a graph's runs. A full context is assumed to be emptied at no cost: the speed is that of
its middle throughout.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from halfbyte.device.cost import F64
from halfbyte.device.electricity import SHUTDOWN_C, Indices, Supply, by_cluster
from halfbyte.device.governors import (
    PERIOD_S,
    SENSOR_K,
    Board,
    Firmware,
    Governor,
    Observation,
    Orders,
    PowerAllocator,
    StepWise,
    Unlimited,
)  # fmt: skip
from halfbyte.device.operating_points import network_of
from halfbyte.device.pacing import Pacing
from halfbyte.device.profile import Profile
from halfbyte.device.quantity import Draws
from halfbyte.device.recording import MAX_SAMPLES, Recorder, Simulation
from halfbyte.device.speed import Processor, Task, fast_cores
from halfbyte.device.workload import CONTINUOUS, Progress, Workload
from halfbyte.errors import HalfbyteError

Maker = Callable[[Board], Governor]
GOVERNORS: dict[str, Maker] = {
    "none": Unlimited, "step-wise": StepWise, "power-allocator": PowerAllocator,
    "pacing": Pacing,
}  # fmt: skip
STEP_S = 0.5
MAX_MINUTES, MAX_DRAWS = 600.0, 10_000
AIR_C = (-30.0, 80.0)


@dataclass(frozen=True)
class Batteries:
    """The state of batteries at the start: `charge` and `health` (the capacity, relative to that of
    a new one), each from 0 to 1, a number or [draws]."""

    charge: float | F64 = 1.0
    health: float | F64 = 1.0


def simulate(
    task: Task,
    profile: Profile,
    workload: Workload = CONTINUOUS,
    governor: str | Maker = "power-allocator",
    *,
    minutes: float = 10.0,
    ambient: float | F64 | None = None,
    threads: int | None = None,
    draws: int | Draws = 200,
    seed: int = 0,
    step: float = STEP_S,
    model: str = "",
    batteries: Batteries | None = None,
    samples: int = MAX_SAMPLES,
) -> Simulation:
    """A model's speed on a device over time.

    Parameters
    ----------
    task : Task
        The work: :class:`~halfbyte.device.speed.Tokens` of a plan, or
        :class:`~halfbyte.device.graphs.Runs`.
    governor : str or callable
        A name in `GOVERNORS`, or a function that creates a governor for a board.
    ambient : float or float64 [draws], optional
        Temperature of the air in degrees Celsius; the profile's by default.
    threads : int, optional
        Cores that may compute; one per fast core by default.
    draws : int or Draws
        Devices whose numbers are drawn from the profile's ranges with `seed`.
    step : float
        Length of a step in seconds; a governor's period is a whole number of steps.
    model : str
        The model's name in the result.
    batteries : Batteries, optional
        State of the batteries; new and full by default.
    samples : int
        The most samples that are recorded.

    Raises
    ------
    HalfbyteError
        A number is out of its bounds, there is no such governor, or a workload has prompts and
        the task does not.
    """
    air = np.asarray(profile.thermal.ambient_c.value if ambient is None else ambient)
    threads = fast_cores(profile) if threads is None else threads
    _check(governor, minutes, air, threads, profile.cores, draws, seed, step)
    if isinstance(draws, int):
        draws = Draws(np.random.default_rng(seed), draws)
    device = _Device(task, profile, workload, threads, draws, air, step, batteries or Batteries())
    name, make = (governor, GOVERNORS[governor]) if isinstance(governor, str) else ("", governor)
    recorder = _run(device, make(device.board), max(1, round(minutes * 60 / step)), samples)
    return recorder.result(
        model=model, unit=task.unit, governor=name or "own", workload=workload.name,
        ambient=float(air.mean()), threads=threads, seed=seed, taken_j=device.taken_j,
        stored_j=device.stored_j, given_j=device.given_j, overheated=device.hot,
    )  # fmt: skip


def _check(
    governor: str | Maker, minutes: float, air: F64, threads: int, cores: int,
    draws: int | Draws, seed: int, step: float,
) -> None:  # fmt: skip
    if isinstance(governor, str) and governor not in GOVERNORS:
        raise HalfbyteError(f"governor {governor!r}: expected one of {', '.join(GOVERNORS)}")
    periods = PERIOD_S / step if step > 0 else inf
    if not 1 <= periods < inf or abs(periods - round(periods)) > 1e-9:
        raise HalfbyteError(f"step of {step} s: expected {PERIOD_S:g} s or a whole part of it")
    for celsius in (air.min(), air.max()):
        check_bounds(minutes, celsius, draws if isinstance(draws, int) else draws.count, seed, step)
    _bounded("threads", threads, 1, cores)


def check_bounds(
    minutes: float, ambient: float | None, draws: int, seed: int, step: float = STEP_S
) -> None:
    """Raise `HalfbyteError` for numbers that `simulate` does not take."""
    _bounded("minutes", minutes, step / 60, MAX_MINUTES)
    if ambient is not None:
        _bounded("ambient", ambient, *AIR_C)
    _bounded("draws", draws, 1, MAX_DRAWS)
    if seed < 0:
        raise HalfbyteError(f"seed {seed}: expected 0 or more")


def _bounded(name: str, value: float, minimum: float, maximum: float) -> None:
    if not minimum <= value <= maximum:
        raise HalfbyteError(f"{name} {value:g}: expected {minimum:g} to {maximum:g}")


@dataclass
class _Done:
    """The work of one step, each [draws]."""

    units: F64
    spent: F64  # seconds on units
    computing: F64  # seconds in which cores are busy
    working: F64  # seconds on units and on prompts, in which clusters are powered
    read: F64  # bytes
    unit_s: F64  # seconds of computing one unit


class _Device:
    """The state of devices of one profile, one for each draw."""

    def __init__(
        self, task: Task, profile: Profile, workload: Workload, threads: int, draws: Draws,
        ambient: F64, step: float, batteries: Batteries,
    ) -> None:  # fmt: skip
        thermal, power = profile.thermal, profile.power
        self.profile, self.draws, self.ambient, self.step = profile, draws.count, ambient, step
        self._processor = Processor(profile, threads, draws)
        self._each, prompt = task.passes(profile, draws)
        if workload.prompts and prompt is None:
            raise HalfbyteError(f"workload {workload.name}: {task.unit}s have no prompts")
        self._prompt = prompt if workload.prompts else None
        self.supplies = [Supply(c.cluster, c.count, draws) for c in self._processor.used]
        self.network = network_of(profile, draws)
        self._stepper = self.network.stepper(step)
        self.firmware = Firmware(profile, self.supplies, draws)
        nodes = list(thermal.nodes)
        self._nodes = [nodes.index(s.cluster.node) for s in self.supplies]
        self._dies = sorted({nodes.index(c.node) for c in profile.clusters})
        self._rest = nodes.index(power.node)
        self._idle = draws(power.idle_w)
        self._per_byte = draws(power.memory_pj_per_byte) * 1e-12
        control = draws(thermal.allocator.control_c), draws(thermal.allocator.sustainable_w)
        nominal = [Supply(c.cluster, c.count, Draws()) for c in self._processor.used]
        node = nodes.index(thermal.allocator.node)
        self.board = Board(
            profile, task, threads, nominal, node, *control, per_s=workload.per_s
        )  # fmt: skip
        self._capacity, self._charge = None, batteries.charge
        if profile.battery:
            self._capacity = draws(profile.battery.capacity_wh) * 3600 * batteries.health
        self._progress = Progress(workload, self.draws)
        self.temperatures = self.network.steady(self._watts_at_rest(), ambient)
        self._start = self.network.stored_heat(self.temperatures)
        self._last = self._watts_at_rest()  # watts of the last step, and of them each cluster's
        self._own = [np.zeros(self.draws) for _ in self.supplies]
        self._busy = np.ones(self.draws)
        self.on = np.ones(self.draws, bool)
        self.hot = np.zeros(self.draws, bool)
        self.taken_j, self.given_j = np.zeros((2, self.draws))

    def _watts_at_rest(self) -> F64:
        watts = np.zeros(self.network.capacities.shape)
        watts[:, self._rest] = self._idle
        return watts

    @property
    def stored_j(self) -> F64:
        """Heat gained since the start."""
        return self.network.stored_heat(self.temperatures) - self._start

    @property
    def charge(self) -> F64 | None:
        """The charge of the battery, from 1 to 0."""
        if self._capacity is None:
            return None
        return np.maximum(self._charge - self.taken_j / self._capacity, 0)

    def seen(self) -> F64:
        """Temperatures as sensors report them."""
        return np.round(self.temperatures / SENSOR_K) * SENSOR_K

    def caps(self, seen: F64) -> list[Indices]:
        """The fastest steps that the trip points allow, now and at the end of the next step."""
        return self.firmware.within(
            self.firmware.caps(seen), self._stepper, self.temperatures, self._last, self._own,
            self._busy, self.ambient,
        )  # fmt: skip

    def advance(self, steps: Sequence[Indices], orders: Orders) -> tuple[_Done, F64]:
        """One step at these frequencies: its work, and watts [draws]."""
        self.hot |= (self.temperatures[:, self._dies] >= SHUTDOWN_C).any(axis=1)
        self.on = ~self.hot
        if (charge := self.charge) is not None:
            self.on &= charge > 0
        counts = by_cluster(orders.threads, self.supplies)
        done = self._work(steps, counts, orders.least_s)
        watts = self._watts(done, steps, counts)
        self.temperatures, air = self._stepper.advance(self.temperatures, watts, self.ambient)
        total: F64 = watts.sum(axis=1)
        self.taken_j += total * self.step
        self.given_j += air
        return done, total

    def _work(self, steps: Sequence[Indices], counts: Sequence[Indices], minimum: F64) -> _Done:
        pairs = zip(self.supplies, steps, strict=True)
        rates = self._processor.rates([supply.hertz[at] for supply, at in pairs], counts)
        each, prompt = self._each, self._prompt
        unit_s = each.computing(rates)
        prompt_s = prompt.computing(rates) if prompt else np.ones(self.draws)
        (prompted, units), (prompting, spent) = self._progress.advance(
            np.where(self.on, self.step, 0.0),
            np.maximum(prompt_s, prompt.storage_s) if prompt else prompt_s,
            np.maximum(np.maximum(unit_s, each.storage_s), minimum),
        )
        computing = prompted * prompt_s + units * unit_s
        read = units * each.bytes_read + (prompted * prompt.bytes_read if prompt else 0)
        return _Done(units, spent, computing, prompting + spent, read, unit_s)

    def _watts(self, done: _Done, steps: Sequence[Indices], counts: Sequence[Indices]) -> F64:
        """Watts [draws, nodes]; a cluster leaks between units, and is switched off in pauses."""
        watts = np.zeros(self.network.capacities.shape)
        busy, powered = done.computing / self.step, done.working / self.step
        self._busy, self._own = np.where(busy > 0, busy, 1.0), []
        for supply, node, at, count in zip(self.supplies, self._nodes, steps, counts, strict=True):
            leaked = supply.leaked_watts(at, self.temperatures[:, node]) * (count > 0)
            self._own.append(count * supply.core_watts(at) * busy)
            watts[:, node] += self._own[-1] + leaked * powered
        memory = self._per_byte * done.read / self.step
        watts[:, self._rest] += np.where(self.on, self._idle + memory, 0.0)
        self._last = watts
        return watts


def _run(device: _Device, governor: Governor, steps: int, samples: int) -> Recorder:
    """Simulate all steps."""
    recorder = Recorder(
        device.profile, steps, device.step, device.draws, device.supplies, device.charge, samples
    )  # fmt: skip
    period, draws = round(PERIOD_S / device.step), device.draws
    unlimited = isinstance(governor, Unlimited)
    tops = [np.full(draws, supply.highest) for supply in device.supplies]
    at, (busy, working, unit_s) = tops, np.zeros((3, draws))
    for index in range(steps):
        seen = device.seen()
        caps = tops if unlimited else device.caps(seen)
        if index % period == 0:
            shares = busy / PERIOD_S, working / PERIOD_S
            orders = governor.decide(Observation(seen, *shares, caps, at, unit_s))
            busy, working = np.zeros((2, draws))
        at = [np.minimum(wanted, cap) for wanted, cap in zip(orders.steps, caps, strict=True)]
        done, watts = device.advance(at, orders)
        unit_s = np.where(done.units > 0, done.unit_s, unit_s)
        busy, working = busy + done.computing, working + done.working
        recorder.add(index, done.units, done.spent, watts)
        if recorder.due(index):
            counts = by_cluster(orders.threads, device.supplies)
            recorder.record(
                index, device.temperatures, at, counts, device.charge, device.on
            )  # fmt: skip
    return recorder
