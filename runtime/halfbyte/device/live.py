"""Pacing of real runs: tokens at an even pace that keeps this machine below its limit.

The governor is the one that is simulated (`halfbyte.device.pacing`); its board is a profile, its
temperatures are those of this machine's sensors. The profile need not be exact: the governor learns
how the sensor's values follow from the modelled rise.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from halfbyte.device.electricity import Supply
from halfbyte.device.governors import PERIOD_S, Board, Observation
from halfbyte.device.pacing import Pacing, Tuning
from halfbyte.device.profile import Profile
from halfbyte.device.quantity import Draws
from halfbyte.device.speed import Processor, Task

T = TypeVar("T")

# A sensor near a core warms within seconds, and the profile may be of another machine.
_TUNING = Tuning(horizon_s=300.0, rest_k=5.0, scale=1.0, smooth_s=20.0)
_TAKEN_UP = 5  # periods that are decided at once after a long token


def live_board(profile: Profile, task: Task, threads: int, control_c: float) -> Board:
    """The board of one device: this one, whose limit is `control_c`."""
    used = Processor(profile, threads, Draws()).used
    supplies = [Supply(cores.cluster, cores.count, Draws()) for cores in used]
    allocator, nodes = profile.thermal.allocator, list(profile.thermal.nodes)
    sustainable = np.array([allocator.sustainable_w.value])
    return Board(
        profile, task, threads, supplies, nodes.index(allocator.node), np.array([control_c]),
        sustainable,
    )  # fmt: skip


@dataclass(frozen=True)
class Clock:
    """Time and waiting."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


class Pacer:
    """Waits after tokens so that a sensor stays below the board's limit.

    Parameters
    ----------
    celsius : callable
        The sensor's temperature; None while it has none.
    """

    def __init__(
        self, board: Board, celsius: Callable[[], float | None], clock: Clock | None = None
    ) -> None:
        self._board, self._celsius, self._clock = board, celsius, clock or Clock()
        self._governor = Pacing(board, _TUNING)
        self._decided = self._clock.now()
        self._busy, self._token_s, self._least_s = 0.0, 0.0, 0.0
        self.waited_s = 0.0

    def paced(self, tokens: Iterable[T]) -> Iterator[T]:
        """The same tokens, each not before its turn."""
        begun = self._clock.now()
        for token in tokens:
            self._token_s = self._clock.now() - begun
            self._busy += self._token_s
            yield token
            self._decide()
            rest = begun + self._least_s - self._clock.now()
            if rest > 0:
                self._clock.sleep(rest)
                self.waited_s += rest
            begun = self._clock.now()

    def _decide(self) -> None:
        """Ask the governor, once for each period that has passed."""
        passed = self._clock.now() - self._decided
        celsius = self._celsius()
        if passed < PERIOD_S or celsius is None:
            return
        share = np.array([min(self._busy / passed, 1.0)])
        temperatures = np.full((1, len(self._board.profile.thermal.nodes)), celsius)
        tops = [np.array([supply.highest]) for supply in self._board.supplies]
        seen = Observation(
            temperatures, share, np.ones(1), tops, tops, np.array([self._token_s])
        )  # fmt: skip
        for _ in range(min(int(passed / PERIOD_S), _TAKEN_UP)):
            orders = self._governor.decide(seen)
        self._least_s = float(orders.least_s[0])
        self._decided, self._busy = self._clock.now(), 0.0
