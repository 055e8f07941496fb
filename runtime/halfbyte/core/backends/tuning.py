"""The number of threads with which a program is fastest, found by measuring its runs.

More threads are not always faster: they have to meet after every instruction, they share memory,
and slow cores keep fast ones waiting. Runs of one token and of many differ in that, so each kind
has its own answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

LASTS = 500  # runs, after which the machine may have changed: other work, heat
ROUNDS = 4  # of runs with each number of threads, the first of which does not count
GAIN = 0.97  # of the time of fewer threads, above which more are not worth their heat
KINDS = {False: "token", True: "prompt"}


class AtMost(int):
    """A number of threads that a browser's user did not choose: fewer are used where faster."""


class Tuner:
    """Chooses numbers of threads for the runs of one executable.

    Parameters
    ----------
    maximum : int
        Threads that there are.

    Attributes
    ----------
    on_answer : callable
        Called with all answers, by the names of `KINDS`, when there is a new one.
    """

    def __init__(self, maximum: int) -> None:
        self._candidates = candidates(maximum)
        self._times: dict[bool, list[list[float]]] = {}
        self._chosen: dict[bool, int] = {}
        self._runs: dict[bool, int] = {}  # since then
        self.on_answer: Callable[[dict[str, int]], object] = dict

    def adopt(self, answers: Mapping[str, Any]) -> None:
        """Begin with answers of an earlier visit; those that cannot be right are ignored."""
        for kind, name in KINDS.items():
            if kind not in self._chosen and answers.get(name) in self._candidates:
                self._choose(kind, int(answers[name]))

    def _choose(self, kind: bool, threads: int) -> None:
        self._chosen[kind], self._runs[kind] = threads, 0
        self._times.pop(kind, None)

    def threads(self, kind: bool) -> int:
        """How many threads the next run of a kind is to have."""
        if kind in self._chosen:
            return self._chosen[kind]
        times = self._times.setdefault(kind, [[] for _ in self._candidates])
        return self._candidates[min(range(len(times)), key=lambda index: len(times[index]))]

    def add(self, kind: bool, threads: int, seconds: float) -> None:
        """Count the time of a run with this many threads."""
        if kind in self._chosen:
            self._runs[kind] += 1
            if self._runs[kind] == LASTS:
                del self._chosen[kind]
            return
        times = self._times[kind]
        times[self._candidates.index(threads)].append(seconds)
        if all(len(some) >= ROUNDS for some in times):
            self._choose(kind, self._fastest([min(some[1:]) for some in times]))
            self.on_answer({KINDS[kind]: threads for kind, threads in self._chosen.items()})

    def _fastest(self, times: list[float]) -> int:
        best, limit = 1, math.inf
        for threads, seconds in sorted(zip(self._candidates, times, strict=True)):
            if seconds < GAIN * limit:
                best, limit = threads, seconds
        return best


def candidates(maximum: int) -> list[int]:
    """Numbers of threads to try: `maximum`, and halves of it."""
    numbers = {maximum, 1}
    while (maximum := -(-maximum // 2)) > 1:
        numbers.add(maximum)
    return sorted(numbers, reverse=True)
