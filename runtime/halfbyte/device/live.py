"""Pacing of real runs: tokens at an even pace that keeps this machine below its limit.

The governor is the one that is simulated (`halfbyte.device.pacing`); its board is a profile, its
temperatures are those of this machine's sensors. The profile need not be exact: the governor learns
how the sensor's values follow from the modelled rise. Where the system slows the machine all the
same, which clocks and macOS's pressure show, `Backoff` slows the pace until it no longer does.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

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
_KEPT = 600  # readings of the battery
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


class Signal(Protocol):
    """What the system allows its processors."""

    def allowed(self) -> float | None:
        """The share of their highest speed; None if it is not said."""


class Backoff:
    """A pace that falls while the system slows the machine, and rises again slowly.

    Additive increase and multiplicative decrease, as networks do with losses: nothing is known of
    how much heat there is, only whether it is too much. What the system allowed at best so far
    counts as unslowed, since users may limit their clocks.
    """

    PERIOD_S = 5.0
    _LESS, _MORE, _SLOWEST = 0.85, 0.02, 0.05  # of the fastest pace, in each period
    _SLOWED = 0.98  # of what was allowed at best

    def __init__(self, signals: Sequence[Signal]) -> None:
        self._signals, self._best = signals, [signal.allowed() or 0.0 for signal in signals]
        self.pace = 1.0

    def decide(self) -> None:
        """Choose the pace for the next period."""
        slowed = False
        for index, signal in enumerate(self._signals):
            allowed = signal.allowed()
            if allowed is not None:
                self._best[index] = max(self._best[index], allowed)
                slowed |= allowed < self._SLOWED * self._best[index]
        pace = self.pace * self._LESS if slowed else self.pace + self._MORE
        self.pace = min(max(pace, self._SLOWEST), 1.0)


class Pacer:
    """Waits after tokens so that a sensor stays below the board's limit.

    Parameters
    ----------
    board : Board or None
        What the governor of temperatures plans for; None if there are none.
    celsius : callable
        The sensor's temperature; None while it has none.
    signals : sequence of Signal
        What shows whether the system slows this machine.
    watts : callable
        What the battery gives; None while it says nothing.
    """

    def __init__(
        self, board: Board | None, celsius: Callable[[], float | None], clock: Clock | None = None,
        signals: Sequence[Signal] = (), watts: Callable[[], float | None] = lambda: None,
    ) -> None:  # fmt: skip
        self._board, self._celsius, self._clock = board, celsius, clock or Clock()
        self._governor = None if board is None else Pacing(board, _TUNING)
        self._backoff, self._watts = Backoff(signals), watts
        self._decided = self._backed = self._clock.now()
        self._busy, self._token_s, self._least_s = 0.0, 0.0, 0.0
        self._fastest_s = math.inf
        self._drawn: list[float] = []
        self.waited_s = 0.0

    @property
    def battery_w(self) -> float | None:
        """What the battery gave while tokens were written, on average."""
        return math.fsum(self._drawn) / len(self._drawn) if self._drawn else None

    def paced(self, tokens: Iterable[T]) -> Iterator[T]:
        """The same tokens, each not before its turn; may be called again for other ones."""
        self._pause()
        begun, first = self._clock.now(), True
        for token in tokens:
            self._token_s = self._clock.now() - begun
            self._busy += self._token_s
            if not first:  # the first includes the prompt
                self._fastest_s = min(self._fastest_s, self._token_s)
            yield token
            self._decide()
            least_s = max(self._least_s, self._backed_off_s())
            rest = begun + least_s - self._clock.now()
            if rest > 0:
                self._clock.sleep(rest)
                self.waited_s += rest
            begun, first = self._clock.now(), False

    def _pause(self) -> None:
        """Take the time in which nothing was written for one of cooling."""
        passed = self._clock.now() - self._decided
        if self._governor is not None and passed > _TAKEN_UP * PERIOD_S:
            self._governor.pause(passed)
        self._decided, self._busy = self._clock.now(), 0.0

    def _backed_off_s(self) -> float:
        pace = self._backoff.pace
        return self._fastest_s / pace if pace < 1 and math.isfinite(self._fastest_s) else 0.0

    def _decide(self) -> None:
        """Ask the governors, once for each period that has passed."""
        now = self._clock.now()
        if now - self._backed >= Backoff.PERIOD_S:
            self._backoff.decide()
            self._backed = now
        passed = now - self._decided
        if passed < PERIOD_S:
            return
        if (watts := self._watts()) is not None:
            self._drawn = [*self._drawn[-_KEPT:], watts]
        celsius = self._celsius()
        if self._governor is not None and celsius is not None:
            self._govern(self._governor, passed, celsius)
        self._decided, self._busy = now, 0.0

    def _govern(self, governor: Pacing, passed: float, celsius: float) -> None:
        board = governor.board
        share = np.array([min(self._busy / passed, 1.0)])
        temperatures = np.full((1, len(board.profile.thermal.nodes)), celsius)
        tops = [np.array([supply.highest]) for supply in board.supplies]
        seen = Observation(
            temperatures, share, np.ones(1), tops, tops, np.array([self._token_s])
        )  # fmt: skip
        for _ in range(min(int(passed / PERIOD_S), _TAKEN_UP)):
            orders = governor.decide(seen)
        self._least_s = float(orders.least_s[0])
