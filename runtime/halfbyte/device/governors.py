"""Governors, which decide on frequencies: Linux's thermal governors, and a device's trip points.

Governors decide once every `PERIOD_S`, from what a device's sensors report, for all draws at once.
`none` lets cores run as fast as they can. `step-wise` and `power-allocator` follow Linux:
gov_step_wise.c, gov_power_allocator.c and cpufreq_cooling.c.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Protocol

import numpy as np
import numpy.typing as npt

from halfbyte.device.cost import F64
from halfbyte.device.electricity import Indices, Supply
from halfbyte.device.profile import Profile
from halfbyte.device.quantity import Draws
from halfbyte.device.speed import Task
from halfbyte.device.thermal import Stepper, Trip

PERIOD_S = 1.0  # Linux polls a cool zone each second; a device's surface warms in minutes
SENSOR_K = 0.1  # the steps in which governors see temperatures


@dataclass(frozen=True)
class Board:
    """What software can know of the device that it runs on.

    It knows the nominal numbers of the profile, without ranges. `supplies` (the clusters that
    compute, with as many cores as the threads allow) have the vendor's power of each step.
    `control_c` and `sustainable_w` [draws] are the vendor's settings for node number `node`. At
    most `per_s` tokens or runs are asked for per second.
    """

    profile: Profile
    task: Task
    threads: int
    supplies: Sequence[Supply]
    node: int
    control_c: F64
    sustainable_w: F64
    per_s: float = inf

    @property
    def draws(self) -> int:
        """The number of devices."""
        return len(self.control_c)


@dataclass(frozen=True)
class Observation:
    """What a governor observes in a period.

    `temperatures` [draws, nodes] at its end; the shares of time in which cores were `busy`, and in
    which there was work (`working`); for each cluster the fastest step that trip points allow
    (`caps`) and the step that it ran at; `unit_s`, the computing time of the last token or run (0
    if there was none).
    """

    temperatures: F64
    busy: F64
    working: F64
    caps: Sequence[Indices]
    steps: Sequence[Indices]
    unit_s: F64


@dataclass(frozen=True)
class Orders:
    """A governor's decision: a frequency step [draws] for each cluster, the number of computing
    cores, and the least time of a token or run: one that finishes earlier waits."""

    steps: Sequence[Indices]
    threads: Indices
    least_s: F64


class Governor(Protocol):
    """Decides once every period."""

    def decide(self, seen: Observation) -> Orders:
        """The orders for the next period."""


def highest(board: Board) -> Orders:
    """The orders for the highest speed."""
    draws = board.draws
    return Orders(
        [np.full(draws, supply.highest) for supply in board.supplies],
        np.full(draws, board.threads), np.zeros(draws),
    )  # fmt: skip


class Unlimited:
    """`none`: ignores even the device's trip points."""

    def __init__(self, board: Board) -> None:
        self._orders = highest(board)

    def decide(self, seen: Observation) -> Orders:
        """The highest speed."""
        return self._orders


class StepWise:
    """`step-wise`: every cluster goes one step slower while the node is above the control
    temperature and warming, one step faster while it is below and cooling."""

    def __init__(self, board: Board) -> None:
        self._board, self._orders = board, highest(board)
        self._state = np.zeros(board.draws, np.intp)
        self._last: F64 | None = None

    def decide(self, seen: Observation) -> Orders:
        """At most one step up or down."""
        board, now = self._board, seen.temperatures[:, self._board.node]
        change = now - (now if self._last is None else self._last)
        self._last = now
        hot = now >= board.control_c
        self._state += (hot & (change > 0)).astype(np.intp) - (~hot & (change < 0))
        limit = max(supply.highest for supply in board.supplies)
        self._state = np.clip(self._state, 0, limit)
        steps = [np.maximum(supply.highest - self._state, 0) for supply in board.supplies]
        return Orders(steps, self._orders.threads, self._orders.least_s)


class PowerAllocator:
    """`power-allocator`: a budget of watts, computed from the distance e to the control
    temperature, which clusters share in proportion to their demand.

    With S sustainable watts and D the kelvins from the switch-on to the control temperature, the
    budget is S + k e + i. k is S/D for e < 0 (too hot) and 2 S/D for e > 0. i is the sum of k_i e,
    k_i = S/(5 D), over the time in which the node is too hot (the default cut-off of the integral),
    up to the most that clusters take. Below the switch-on temperature nothing is limited and i is
    reset.
    """

    SWITCH_ON_K = 7.0  # below the control temperature, as on Arm's Juno board, the first to use it
    INTEGRAL = 0.2  # k_i / (S/D)

    def __init__(self, board: Board) -> None:
        self._board, self._orders = board, highest(board)
        self._integral = np.zeros(board.draws)
        tops = zip(board.supplies, self._orders.steps, strict=True)
        self._most = np.stack([s.cores * s.core_watts(top) for s, top in tops])

    def decide(self, seen: Observation) -> Orders:
        """The fastest steps within the granted power."""
        board = self._board
        now = seen.temperatures[:, board.node]
        error, cool = board.control_c - now, now < board.control_c - self.SWITCH_ON_K
        busy = np.maximum(seen.busy, 0.01)  # something always runs
        granted = self._granted(self._budget(error, cool), seen.steps, busy)
        steps = []
        for supply, watts, top in zip(board.supplies, granted, self._orders.steps, strict=True):
            table = supply.core_watts(np.arange(len(supply.hertz)))
            each = watts / (busy * supply.cores) * (1 + 1e-8)  # against rounding, as in step_below
            step = np.searchsorted(table, each, side="right") - 1
            steps.append(np.where(cool, top, np.maximum(step, 0)))
        return Orders(steps, self._orders.threads, self._orders.least_s)

    def _budget(self, error: F64, cool: npt.NDArray[np.bool_]) -> F64:
        per_kelvin, maximum = self._board.sustainable_w / self.SWITCH_ON_K, self._most.sum(axis=0)
        added = self._integral + self.INTEGRAL * per_kelvin * error
        integrates = (error < 0) & (np.abs(added) < maximum)
        self._integral = np.where(cool, 0, np.where(integrates, added, self._integral))
        proportional = np.where(error < 0, 1, 2) * per_kelvin * error
        budget = self._board.sustainable_w + proportional + self._integral
        clipped: F64 = np.clip(budget, 0, maximum)
        return clipped

    def _granted(self, budget: F64, steps: Sequence[Indices], busy: F64) -> F64:
        """Watts [clusters, draws]: shared by demand; what one cannot use goes to the others."""
        supplies = self._board.supplies
        asked = np.stack(
            [s.cores * s.core_watts(at) * busy for s, at in zip(supplies, steps, strict=True)]
        )  # fmt: skip
        total = asked.sum(axis=0)
        share = budget * asked / total
        granted = np.minimum(share, self._most)
        extra, room = (share - granted).sum(axis=0), self._most - granted
        spare = room.sum(axis=0)
        part = np.divide(room, spare, out=np.zeros_like(room), where=spare > 0)
        watts: F64 = np.minimum(granted + part * extra, self._most)
        return watts


class Firmware:
    """The device's trip points. A trip at a node that clusters warm slows these clusters, a trip at
    any other node slows all."""

    def __init__(self, profile: Profile, supplies: Sequence[Supply], draws: Draws) -> None:
        nodes, warmed = tuple(profile.thermal.nodes), {c.node for c in profile.clusters}
        self._supplies, self._trips = supplies, []
        self._nodes = [nodes.index(supply.cluster.node) for supply in supplies]
        for trip in profile.thermal.trips:
            slowed = [trip.node in (s.cluster.node, *{trip.node} - warmed) for s in supplies]
            drawn = Trip(*map(draws, (trip.start_c, trip.full_c, trip.floor, trip.hysteresis_k)))
            self._trips.append((nodes.index(trip.node), drawn, slowed))

    def caps(self, temperatures: F64) -> list[Indices]:
        """The fastest step of each cluster at temperatures [draws, nodes]."""
        factors = np.ones((len(self._supplies), len(temperatures)))
        for node, trip, slowed in self._trips:
            factors[slowed] = np.minimum(factors[slowed], trip.update(temperatures[:, node]))
        pairs = zip(self._supplies, factors, strict=True)
        return [supply.step_below(factor * supply.hertz[-1]) for supply, factor in pairs]

    def within(
        self, caps: Sequence[Indices], stepper: Stepper, temperatures: F64, watts: F64,
        own: Sequence[F64], busy: F64, air: F64,
    ) -> list[Indices]:  # fmt: skip
        """The fastest steps of at most `caps` that trip points allow at the end of `stepper`'s
        step too, since a die is hot sooner than that.

        `watts` [draws, nodes] are the last step's, `own` [draws] what each cluster took of them,
        `busy` the share of time in which its cores computed.
        """
        after = stepper.step(temperatures, watts, air)
        result = []
        for at, (supply, cap) in enumerate(zip(self._supplies, caps, strict=True)):
            for node, trip, _ in self._trips:
                if node == self._nodes[at]:
                    allows = partial(
                        _allows, supply, trip, after[:, node], stepper.gain(node), own[at], busy
                    )
                    cap = _fastest(allows, cap)
            result.append(cap)
        return result


def _allows(
    supply: Supply, trip: Trip, celsius: F64, gain: F64, own: F64, busy: F64, steps: Indices
) -> npt.NDArray[np.bool_]:
    """Whether a trip point allows these steps at the temperature that they lead to.

    `celsius` is that of the present power, of which the cluster takes `own` watts.
    """
    more = supply.cores * supply.core_watts(steps) * busy - own
    share = trip.ahead(celsius + gain * more)
    allowed: npt.NDArray[np.bool_]
    allowed = supply.hertz[steps] <= share * supply.hertz[-1] * (1 + 1e-8)
    return allowed


def _fastest(allows: Callable[[Indices], npt.NDArray[np.bool_]], limit: Indices) -> Indices:
    """The fastest steps of at most `limit` that are allowed, or the slowest.

    Faster steps are warmer, so those that are allowed come first.
    """
    low, high = np.where(allows(limit), limit, 0), limit - 1
    while np.any(search := low < high):
        middle = (low + high + 1) // 2
        allowed = allows(middle)
        low = np.where(search & allowed, middle, low)
        high = np.where(search & ~allowed, middle - 1, high)
    return low
