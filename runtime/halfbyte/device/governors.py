"""What decides on frequencies: Linux's governors of heat, and the device's own trip points.

All are asked once in `PERIOD_S` with what a device's sensors say, and answer for all draws at once.
`none` lets cores run as fast as they can. `step-wise` and `power-allocator` follow Linux:
gov_step_wise.c, gov_power_allocator.c and cpufreq_cooling.c.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Protocol

import numpy as np
import numpy.typing as npt

from halfbyte.device.cost import F64
from halfbyte.device.electricity import Indices, Supply
from halfbyte.device.profile import Profile
from halfbyte.device.speed import Draws, Task
from halfbyte.device.thermal import Trip

PERIOD_S = 1.0  # Linux polls a cool zone each second; a skin's temperature takes minutes
SENSOR_K = 0.1  # governors see temperatures in steps of it


@dataclass(frozen=True)
class Board:
    """What software can know of the device it runs on.

    Numbers of the profile without their ranges; `supplies` (clusters that compute, all of whose
    `cores` are as many as the threads allow) have the vendor's power of each step. `control_c` and
    `sustainable_w` [draws] are what the vendor set, of node number `node`. Of tokens or runs at
    most `per_s` are asked for in a second.
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
        """How many devices there are."""
        return len(self.control_c)


@dataclass(frozen=True)
class Seen:
    """What it sees, of the last period or at its end.

    `temperatures` [draws, nodes]; the shares of the time in which cores were `busy`, and in which
    something was asked for (`working`); for each cluster the fastest step that the device's own
    trips leave (`caps`), and the step that it ran at; `unit_s`, what the last token or
    run took to compute (0: there was none).
    """

    temperatures: F64
    busy: F64
    working: F64
    caps: Sequence[Indices]
    steps: Sequence[Indices]
    unit_s: F64


@dataclass(frozen=True)
class Orders:
    """For each cluster the step of frequency [draws]; cores that compute, and the least time that
    a token or run takes: one that was computed before waits."""

    steps: Sequence[Indices]
    threads: Indices
    least_s: F64


class Governor(Protocol):
    """Asked once a period."""

    def decide(self, seen: Seen) -> Orders:
        """What holds until it is asked again."""


def highest(board: Board) -> Orders:
    """As fast as it can be."""
    draws = board.draws
    return Orders(
        [np.full(draws, supply.highest) for supply in board.supplies],
        np.full(draws, board.threads), np.zeros(draws),
    )  # fmt: skip


class Unlimited:
    """`none`: not even the device's own trips hold."""

    def __init__(self, board: Board) -> None:
        self._orders = highest(board)

    def decide(self, seen: Seen) -> Orders:
        """As fast as it can be."""
        return self._orders


class StepWise:
    """Above the control temperature and warming, every cluster one step slower; below and cooling,
    one step faster; else as before."""

    def __init__(self, board: Board) -> None:
        self._board, self._orders = board, highest(board)
        self._state = np.zeros(board.draws, np.intp)
        self._last: F64 | None = None

    def decide(self, seen: Seen) -> Orders:
        """One step further at most."""
        board, now = self._board, seen.temperatures[:, self._board.node]
        change = now - (now if self._last is None else self._last)
        self._last = now
        hot = now >= board.control_c
        self._state += (hot & (change > 0)).astype(np.intp) - (~hot & (change < 0))
        most = max(supply.highest for supply in board.supplies)
        self._state = np.clip(self._state, 0, most)
        steps = [np.maximum(supply.highest - self._state, 0) for supply in board.supplies]
        return Orders(steps, self._orders.threads, self._orders.least_s)


class PowerAllocator:
    """A budget of watts from the distance to the control temperature, shared among clusters as
    they ask for it.

    With S sustainable watts and D the kelvins from switching on to the control temperature, the
    budget is S + k e + i: k is S/D for e < 0 (too hot) and 2 S/D for e > 0, and i sums k_i e,
    k_i = S/(5 D), where it is too hot (the default cut-off of the integral), within the most that
    clusters take. Below the switch-on temperature nothing is limited and i is forgotten.
    """

    SWITCH_ON_K = 7.0  # below the control temperature, as on Arm's Juno board, the rule's first
    INTEGRAL = 0.2  # k_i of S/D

    def __init__(self, board: Board) -> None:
        self._board, self._orders = board, highest(board)
        self._integral = np.zeros(board.draws)
        tops = zip(board.supplies, self._orders.steps, strict=True)
        self._most = np.stack([s.cores * s.core_watts(top) for s, top in tops])

    def decide(self, seen: Seen) -> Orders:
        """Steps whose power is granted."""
        board = self._board
        now = seen.temperatures[:, board.node]
        error, cool = board.control_c - now, now < board.control_c - self.SWITCH_ON_K
        busy = np.maximum(seen.busy, 0.01)  # something always runs
        granted = self._granted(self._budget(error, cool), seen.steps, busy)
        steps = []
        for supply, watts, top in zip(board.supplies, granted, self._orders.steps, strict=True):
            table = supply.core_watts(np.arange(len(supply.hertz)))
            each = watts / (busy * supply.cores) * (1 + 1e-8)  # a step's own power is that step
            found = np.searchsorted(table, each, side="right") - 1
            steps.append(np.where(cool, top, np.maximum(found, 0)))
        return Orders(steps, self._orders.threads, self._orders.least_s)

    def _budget(self, error: F64, cool: npt.NDArray[np.bool_]) -> F64:
        per_kelvin, most = self._board.sustainable_w / self.SWITCH_ON_K, self._most.sum(axis=0)
        added = self._integral + self.INTEGRAL * per_kelvin * error
        integrates = (error < 0) & (np.abs(added) < most)
        self._integral = np.where(cool, 0, np.where(integrates, added, self._integral))
        proportional = np.where(error < 0, 1, 2) * per_kelvin * error
        budget = self._board.sustainable_w + proportional + self._integral
        clipped: F64 = np.clip(budget, 0, most)
        return clipped

    def _granted(self, budget: F64, steps: Sequence[Indices], busy: F64) -> F64:
        """[clusters, draws] watts: by what they ask for, then what one cannot use to the others."""
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
        found: F64 = np.minimum(granted + part * extra, self._most)
        return found


class Firmware:
    """The device's own trips. One at a node that clusters warm slows these, any other slows all."""

    def __init__(self, profile: Profile, supplies: Sequence[Supply], draws: Draws) -> None:
        nodes, warmed = tuple(profile.thermal.nodes), {c.node for c in profile.clusters}
        self._supplies, self._trips = supplies, []
        for trip in profile.thermal.trips:
            slowed = [trip.node in (s.cluster.node, *{trip.node} - warmed) for s in supplies]
            made = Trip(*map(draws, (trip.start_c, trip.full_c, trip.floor, trip.hysteresis_k)))
            self._trips.append((nodes.index(trip.node), made, slowed))

    def caps(self, temperatures: F64) -> list[Indices]:
        """The fastest step of each cluster at temperatures [draws, nodes]."""
        factors = np.ones((len(self._supplies), len(temperatures)))
        for node, trip, slowed in self._trips:
            factors[slowed] = np.minimum(factors[slowed], trip.update(temperatures[:, node]))
        pairs = zip(self._supplies, factors, strict=True)
        return [supply.step_below(factor * supply.hertz[-1]) for supply, factor in pairs]
