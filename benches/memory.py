"""Memory of one process, for `benches/suite/bench_memory.py`.

    python -m benches.memory peak MODEL packed|mapped|streamed
    python -m benches.memory tokens|loads MODEL

It prints bytes: the peak of a load, a prompt and some tokens, or what the process has after many of
them, and how much of that it did not have after the first ones.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable

from benches.peers.worker import peak_bytes

import halfbyte


def resident() -> int:
    """Bytes of this process's own memory now, without pages of mapped files; on Linux."""
    gc.collect()
    with open("/proc/self/status", encoding="utf-8") as file:  # noqa: PTH123
        return 1024 * int(file.read().split("RssAnon:")[1].split()[0])


def peak(path: str, weights: str) -> tuple[int]:
    """Of a load, a prompt of 128 tokens and 16 more."""
    with halfbyte.load(path, weights=weights, threads=1, context=256) as model:
        model.feed(list(range(300, 428)))
        for token in range(16):
            model.feed([300 + token])
    return (peak_bytes(),)


def growth(warm_up: Callable[[], object], rest: Callable[[], object]) -> tuple[int, int]:
    """Bytes after the rest, and those of them that were not there after the warm-up."""
    warm_up()
    before = resident()
    rest()
    after = resident()
    return after, after - before


def tokens(path: str) -> tuple[int, int]:
    """Growth over 1,000 tokens, after as many have touched all of the cache."""
    with halfbyte.load(path, threads=1, context=1024) as model:

        def feed(count: int) -> None:
            model.reset()
            for token in range(count):
                model.feed([300 + token % 500])

        model.feed([300] * 1000)
        return growth(lambda: feed(100), lambda: feed(1000))


def loads(path: str) -> tuple[int, int]:
    """Growth over 20 loads after ten, in which the allocator's own memory grows."""

    def load(count: int) -> None:
        for _ in range(count):
            with halfbyte.load(path, threads=1, context=256) as model:
                model.feed([300])

    return growth(lambda: load(10), lambda: load(20))


if __name__ == "__main__":
    kind, *arguments = sys.argv[1:]
    print(*{"peak": peak, "tokens": tokens, "loads": loads}[kind](*arguments))
