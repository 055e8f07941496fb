"""Loading, ten times each: from storage (cold and warm), from memory and over a network."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from benches import prepare
from benches.case import Bench
from benches.figures import Series
from benches.turns import settled
from benches.yardstick import yardstick
from tests.support.http_server import in_thread

import halfbyte
from halfbyte.text.model import LanguageModel
from halfbyte.web.server import Server
from halfbyte.web.site import Site

TIMES = 10
NAME = "135M Q4_0"
pytestmark = pytest.mark.once


def drop_from_cache(path: Path) -> None:
    """Ask the system to forget the file, so that it is read from storage again."""
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def measure(
    bench: Bench, test: str, load: Callable[[], LanguageModel],
    before: Callable[[], object] = lambda: None,
) -> None:  # fmt: skip
    """From the call to the first token."""
    series = Series(NAME, "halfbyte", test, yardstick="memory")
    memory = yardstick("memory")

    def rounds() -> None:
        for _ in range(3 if bench.short else TIMES):
            before()
            series.beside.append(memory.seconds())
            start = time.perf_counter()
            with load() as model:
                model.feed([1])
                series.seconds.append(time.perf_counter() - start)

    settled([series], rounds)
    bench.keep(series)


@pytest.mark.short
def bench_from_storage_warm(bench: Bench) -> None:
    path = prepare.model(NAME)
    path.read_bytes()
    measure(bench, "storage, warm", lambda: halfbyte.load(path, threads=1))


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="cannot drop a file from the cache")
def bench_from_storage_cold(bench: Bench) -> None:
    path = prepare.model(NAME)
    measure(
        bench, "storage, cold", lambda: halfbyte.load(path, threads=1),
        lambda: drop_from_cache(path),
    )  # fmt: skip


def bench_from_memory(bench: Bench) -> None:
    data = prepare.model(NAME).read_bytes()
    measure(bench, "memory", lambda: halfbyte.load_bytes(data, threads=1))


def bench_from_network(bench: Bench) -> None:
    """From a server on this machine."""
    path = prepare.model(NAME)
    with in_thread(Server(Site({"model.gguf": path}))) as server:
        address = f"{server.address}model.gguf"
        measure(
            bench, "network", lambda: asyncio.run(halfbyte.load_url(address, keep=False, threads=1))
        )
