"""How a case is measured: its contenders and a yardstick take turns, round by round."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from benches.figures import PEERS, Series
from benches.peers.errors import PeerError, reason
from benches.prepare import say
from benches.yardstick import Clock, Yardstick, timed

ROUND = 0.02  # seconds of a contender's turn
MAX_PARTS = 5  # of a turn, whose figure is their median
T = TypeVar("T")


@dataclass
class Contender:
    """What is timed, and where its times go."""

    series: Series
    call: Callable[[], Any]
    parts: int = 1
    calls: int = 1  # of each part
    clock: Clock | None = None  # the wall's by default
    rest: float = 0.0  # seconds before a turn, in which threads of the one before stop spinning

    @classmethod
    def of(
        cls, series: Series, make: Callable[[], Callable[[], object]], clock: Clock | None = None
    ) -> Contender:
        """What `make` prepares; a peer may fail at that, too."""
        return cls(series, attempt([series], make) or (lambda: None), clock=clock)

    def calibrate(self) -> None:
        """Warm up, and choose how much work is a turn."""
        time.sleep(self.rest)
        self.call()
        seconds = self._timed(1)
        if seconds < ROUND:  # the second call may still have been slow
            seconds = self._timed(max(1, int(ROUND / 4 / seconds)))
        self.parts = max(1, min(MAX_PARTS, int(ROUND / seconds)))
        self.calls = max(1, int(ROUND / seconds / self.parts))

    def turn(self) -> float:
        """Seconds per call."""
        time.sleep(self.rest)
        return statistics.median(self._timed(self.calls) for _ in range(self.parts))

    def _timed(self, calls: int) -> float:
        return timed(self.call, calls, self.clock)


def take_turns(contenders: Sequence[Contender], yardstick: Yardstick, rounds: int) -> None:
    """Measure; a peer that fails has no more turns."""
    for contender in contenders:
        attempt([contender.series], contender.calibrate)
        contender.series.yardstick = yardstick.name
    settled([c.series for c in contenders], lambda: _rounds(contenders, yardstick, rounds))


def attempt(series: Sequence[Series], step: Callable[[], T]) -> T | None:
    """The step's result; a peer that fails has the reason in place of figures, and no more steps.

    halfbyte may not fail.
    """
    if any("reason" in one.more for one in series):
        return None
    try:
        return step()
    except (Exception, PeerError) as error:
        if not {one.engine for one in series} <= {*PEERS}:
            raise
        say(f"{series[0].engine}: {error}")
        for one in series:
            one.more["reason"] = reason(error)
            one.seconds.clear()
            one.beside.clear()
        return None


def settled(series: Sequence[Series], rounds: Callable[[], None]) -> None:
    """Measure all rounds; if a series varies too much, all are measured once more."""
    rounds()
    if any(one.noisy for one in series):
        for one in series:
            one.seconds.clear()
            one.beside.clear()
        rounds()


def _rounds(contenders: Sequence[Contender], yardstick: Yardstick, rounds: int) -> None:
    gc.collect()
    gc.disable()
    try:
        for number in range(rounds):
            beside = yardstick.seconds()
            for contender in contenders if number % 2 else contenders[::-1]:
                if seconds := attempt([contender.series], contender.turn):
                    contender.series.seconds.append(seconds)
                    contender.series.beside.append(beside)
    finally:
        gc.enable()
