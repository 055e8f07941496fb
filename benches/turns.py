"""How a case is measured: its contenders and a yardstick take turns, round by round."""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benches.figures import Series
from benches.yardstick import Clock, Yardstick, timed

ROUND = 0.02  # seconds of a contender's turn
MAX_PARTS = 5  # of a turn, whose figure is their median


@dataclass
class Contender:
    """What is timed, and where its times go."""

    series: Series
    call: Callable[[], object]
    parts: int = 1
    calls: int = 1  # of each part
    clock: Clock | None = None  # the wall's by default

    def calibrate(self) -> None:
        """Warm up, and choose how much work is a turn."""
        self.call()
        seconds = self._timed(1)
        if seconds < ROUND:  # the second call may still have been slow
            seconds = self._timed(max(1, int(ROUND / 4 / seconds)))
        self.parts = max(1, min(MAX_PARTS, int(ROUND / seconds)))
        self.calls = max(1, int(ROUND / seconds / self.parts))

    def turn(self) -> float:
        """Seconds per call."""
        return statistics.median(self._timed(self.calls) for _ in range(self.parts))

    def _timed(self, calls: int) -> float:
        return timed(self.call, calls, self.clock)


def take_turns(contenders: Sequence[Contender], yardstick: Yardstick, rounds: int) -> None:
    """Measure; a contender whose rounds vary too much brings about a second measurement."""
    for contender in contenders:
        contender.calibrate()
        contender.series.yardstick = yardstick.name
    _rounds(contenders, yardstick, rounds)
    if any(contender.series.noisy for contender in contenders):
        for contender in contenders:
            contender.series.seconds.clear()
            contender.series.beside.clear()
        _rounds(contenders, yardstick, rounds)


def _rounds(contenders: Sequence[Contender], yardstick: Yardstick, rounds: int) -> None:
    gc.collect()
    gc.disable()
    try:
        for number in range(rounds):
            beside = yardstick.seconds()
            for contender in contenders if number % 2 else contenders[::-1]:
                contender.series.seconds.append(contender.turn())
                contender.series.beside.append(beside)
    finally:
        gc.enable()
