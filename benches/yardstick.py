"""Yardsticks: fixed work that is timed beside every round of a case.

A case's time by that of its yardstick changes less with a machine's clock, its neighbours and its
make than the time itself, so such ratios are what is compared.

- memory: reading 128 MiB, more than any cache
- dot: the int8 dot product at its peak, from registers
- clock: a chain of additions, each of which waits for the one before
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import cache

import numpy as np

from halfbyte.core.backends.native import Kernels

Clock = Callable[[], float]  # seconds
NAMES = ("memory", "dot", "clock")
PARTS = 3
READ_BYTES = 128 << 20
DOT_UNITS = 128  # by thread, about a millisecond
ADDITIONS, CHAINS = 4096, 50


class Yardstick:
    """One of `NAMES`, on a number of threads."""

    def __init__(self, name: str, threads: int = 1) -> None:
        self.name, self.threads = name, threads
        self._work, self._clock = _WORK[name](threads), clock_of(threads)
        self._work()

    def seconds(self) -> float:
        """The median of some runs in a row."""
        return statistics.median(timed(self._work, 1, self._clock) for _ in range(PARTS))


@cache
def yardstick(name: str, threads: int = 1) -> Yardstick:
    """The same one for all cases of a process."""
    return Yardstick(name, threads)


def clock_of(threads: int) -> Clock:
    """This thread's time on the processor, which others do not change much; else the wall's."""
    return time.thread_time if threads == 1 else time.perf_counter


def timed(work: Callable[[], object], count: int = 1, clock: Clock | None = None) -> float:
    """Seconds per call of `count` calls in a row, by the wall's clock unless another is given."""
    clock = clock or time.perf_counter
    start = clock()
    for _ in range(count):
        work()
    return (clock() - start) / count


def _memory(threads: int) -> Callable[[], None]:
    kernels, values = Kernels(threads=threads), np.ones(READ_BYTES // 4, np.float32)
    sums = np.zeros(values.size // 4096, np.float32)
    return lambda: kernels.call("memory_read", s=sums, x=values, n=sums.size)


def _dot(threads: int) -> Callable[[], None]:
    w, x = np.full((4, 16, 4), 0x55, np.int8), np.ones((8, 8, 4), np.int8)
    kernels, sums = Kernels(threads=threads), np.zeros(DOT_UNITS * threads, np.int32)
    return lambda: kernels.call("dot_peak", s=sums, w=w, x=x, n=sums.size)


def _clock(threads: int) -> Callable[[], None]:
    values, sums = np.ones(ADDITIONS), np.empty(ADDITIONS)

    def chains() -> None:
        for _ in range(CHAINS):
            np.cumsum(values, out=sums)

    return chains


_WORK = {"memory": _memory, "dot": _dot, "clock": _clock}


def rate(name: str, seconds: float, threads: int = 1) -> float:
    """GB/s of `memory`; 10^9 operations/s of `dot` (a multiply and an add are two) or `clock`."""
    if name == "memory":
        return READ_BYTES / seconds / 1e9
    if name == "dot":
        return 2 * DOT_UNITS * threads * 512 * 8 * 2 * 256 / seconds / 1e9
    return ADDITIONS * CHAINS / seconds / 1e9
