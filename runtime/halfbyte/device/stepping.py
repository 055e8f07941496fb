"""A device that is simulated step by step: `halfbyte.device.simulate` has the rules.

In each step, the work that is asked for advances as fast as the frequencies allow, its power warms
the nodes, and once per period the governor decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

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
    Unlimited,
)  # fmt: skip
from halfbyte.device.operating_points import network_of
from halfbyte.device.profile import Profile
from halfbyte.device.quantity import Draws
from halfbyte.device.speed import Processor, Task
from halfbyte.errors import HalfbyteError


class Demand(Protocol):
    """What a device is asked to do: at most `per_s` units per second, and perhaps prompts."""

    name: str
    prompts: bool
    per_s: float

    def advance(self, seconds: F64, prompt_s: F64, unit_s: F64) -> tuple[F64, F64]:
        """The work of `seconds` [draws] in which a token of a prompt takes `prompt_s`, a unit
        `unit_s`: tokens of prompts and units, and the seconds of both, each [2, draws]."""


@dataclass(frozen=True)
class Batteries:
    """The state of batteries at the start: `charge` and `health` (the capacity, relative to that of
    a new one), each from 0 to 1, a number or [draws]."""

    charge: float | F64 = 1.0
    health: float | F64 = 1.0


@dataclass
class Done:
    """The work of one step, each [draws]."""

    units: F64
    spent: F64  # seconds on units
    computing: F64  # seconds in which cores are busy
    working: F64  # seconds on units and on prompts, in which clusters are powered
    read: F64  # bytes
    unit_s: F64  # seconds of computing one unit


class Device:
    """The state of devices of one profile, one for each draw."""

    def __init__(
        self, task: Task, profile: Profile, demand: Demand, threads: int, draws: Draws,
        ambient: F64, step: float, batteries: Batteries,
    ) -> None:  # fmt: skip
        thermal, power = profile.thermal, profile.power
        self.profile, self.draws, self.ambient, self.step = profile, draws.count, ambient, step
        self._processor = Processor(profile, threads, draws)
        self._each, prompt = task.passes(profile, draws)
        if demand.prompts and prompt is None:
            raise HalfbyteError(f"workload {demand.name}: {task.unit}s have no prompts")
        self._prompt = prompt if demand.prompts else None
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
            profile, task, threads, nominal, node, *control, per_s=demand.per_s
        )  # fmt: skip
        self._capacity, self._charge = None, batteries.charge
        if profile.battery:
            self._capacity = draws(profile.battery.capacity_wh) * 3600 * batteries.health
        self._demand = demand
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

    def advance(self, steps: Sequence[Indices], orders: Orders) -> tuple[Done, F64]:
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

    def seconds(self, steps: Sequence[Indices], orders: Orders) -> tuple[F64, F64]:
        """Seconds [draws] of a token of a prompt, and of a unit, at these frequencies."""
        counts = by_cluster(orders.threads, self.supplies)
        return self._whole(*self._computing(steps, counts), orders.least_s)

    def _computing(self, steps: Sequence[Indices], counts: Sequence[Indices]) -> tuple[F64, F64]:
        """The same, of computing only."""
        pairs = zip(self.supplies, steps, strict=True)
        rates = self._processor.rates([supply.hertz[at] for supply, at in pairs], counts)
        prompt_s = self._prompt.computing(rates) if self._prompt else np.ones(self.draws)
        return prompt_s, self._each.computing(rates)

    def _whole(self, prompt_s: F64, unit_s: F64, least_s: F64) -> tuple[F64, F64]:
        """The same with reading from storage, and with waiting."""
        prompt, each = self._prompt, self._each
        return (
            np.maximum(prompt_s, prompt.storage_s) if prompt else prompt_s,
            np.maximum(np.maximum(unit_s, each.storage_s), least_s),
        )  # fmt: skip

    def _work(self, steps: Sequence[Indices], counts: Sequence[Indices], least_s: F64) -> Done:
        prompt_s, unit_s = self._computing(steps, counts)
        (prompted, units), (prompting, spent) = self._demand.advance(
            np.where(self.on, self.step, 0.0), *self._whole(prompt_s, unit_s, least_s)
        )
        computing = prompted * prompt_s + units * unit_s
        read = units * self._each.bytes_read
        read = read + (prompted * self._prompt.bytes_read if self._prompt else 0)
        return Done(units, spent, computing, prompting + spent, read, unit_s)

    def _watts(self, done: Done, steps: Sequence[Indices], counts: Sequence[Indices]) -> F64:
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


class Run:
    """A device that a governor controls: `decide`, then `advance`, for each step."""

    def __init__(self, device: Device, governor: Governor) -> None:
        self.device, self._governor = device, governor
        self._unlimited = isinstance(governor, Unlimited)
        self._tops = [np.full(device.draws, supply.highest) for supply in device.supplies]
        self._period, self._index = round(PERIOD_S / device.step), 0
        self._busy, self._working, self._unit_s = np.zeros((3, device.draws))
        self.at: Sequence[Indices] = self._tops  # the step's frequencies
        self.orders: Orders

    def decide(self) -> None:
        """Choose the frequencies of the next step; once per period, the governor gives orders."""
        device = self.device
        seen = device.seen()
        caps = self._tops if self._unlimited else device.caps(seen)
        if self._index % self._period == 0:
            shares = self._busy / PERIOD_S, self._working / PERIOD_S
            self.orders = self._governor.decide(
                Observation(seen, *shares, caps, self.at, self._unit_s)
            )
            self._busy, self._working = np.zeros((2, device.draws))
        wanted = zip(self.orders.steps, caps, strict=True)
        self.at = [np.minimum(step, cap) for step, cap in wanted]

    def advance(self) -> tuple[Done, F64]:
        """One step: its work, and watts [draws]."""
        done, watts = self.device.advance(self.at, self.orders)
        self._unit_s = np.where(done.units > 0, done.unit_s, self._unit_s)
        self._busy = self._busy + done.computing
        self._working = self._working + done.working
        self._index += 1
        return done, watts
