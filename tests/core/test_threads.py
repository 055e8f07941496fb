"""Threads: results do not depend on their number, no wake is lost, nobody waits in vain."""

from __future__ import annotations

import ctypes
import gc
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tests.support.tools import until

from halfbyte.core.backends.cores import fast_cores
from halfbyte.core.backends.libraries import library
from halfbyte.core.backends.library import INSTRUCTION
from halfbyte.core.backends.native import Kernels
from halfbyte.core.backends.threads import Pool
from halfbyte.errors import HalfbyteError

ROWS, COLUMNS = 1000, 512  # 2 MB of weights: many chunks, the last incomplete


@pytest.fixture(autouse=True)
def native(native_backends: list[str]) -> None:
    assert native_backends


@pytest.fixture
def matrix() -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    random = np.random.default_rng(0)
    return random.standard_normal((ROWS, COLUMNS), np.float32), random.standard_normal(
        (1, COLUMNS), np.float32
    )


def product(kernels: Kernels, w: npt.NDArray[np.float32], x: npt.NDArray[np.float32]) -> bytes:
    y = np.full((1, len(w)), np.nan, np.float32)
    kernels.call("matmul_f32", y=y, w=w, x=x, n=1, k=w.shape[1], m=len(w))
    return y.tobytes()


def helpers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "halfbyte"]


@pytest.mark.parametrize("threads", [2, 3, 7])
def test_results_do_not_depend_on_the_number(
    matrix: tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]], threads: int
) -> None:
    single, shared = Kernels(), Kernels(threads=threads)
    expected = product(single, *matrix)
    for _ in range(200):
        assert product(shared, *matrix) == expected
    shared.close()


# Of a table of kernels (kernel.h): number of the kernel, its arguments, units from and to
RUN = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


class Recorded:
    """A program of instructions with one kernel, which `chunk(begin, end)` replaces."""

    def __init__(
        self, kernel: str, chunk: Callable[[int, int], None], count: int = 1, **slots: int
    ) -> None:
        found = library().kernels[kernel]
        self._run = RUN(lambda kernel, slots, begin, end: chunk(begin, end))
        self._table = ctypes.cast(self._run, ctypes.c_void_p)
        self._code = np.zeros(count, INSTRUCTION)
        self._code["kernel"] = found.index
        names = [field.name for field in found.fields]
        for name, value in slots.items():
            self._code["slot"][:, names.index(name)] = value

    def run(self, pool: Pool, first: int = 0) -> int:
        """Run from an instruction on, with all helpers of a pool that is announced."""
        until(lambda: library().pool_announce(pool.address) == pool.threads - 1)
        last, table = len(self._code), ctypes.addressof(self._table)
        rest = 0, 0, 0, pool.address, 0
        return int(library().run(table, self._code.ctypes.data, first, last, *rest))


def empty_run(pool: Pool) -> None:
    """A run of no instructions, which ends an announcement."""
    library().run(0, 0, 0, 0, 0, 0, 0, pool.address, 0)


@pytest.mark.parametrize("spins", range(0, 400, 10))
def test_no_wake_is_lost(spins: int) -> None:
    """Helpers take part in every announced run, even if they were about to leave.

    The run lasts until they do: a helper that counts as inside, but left, would never come. With so
    many different spins, some leave just as the next run is announced.
    """
    pool = Pool(library(), 3, spins=spins)
    for _ in range(200):
        pool.wake()
        until(lambda: library().pool_announce(pool.address) == 2)
        empty_run(pool)  # they may leave
    pool.close()


def test_idle_helpers_sleep() -> None:
    pool = Pool(library(), 3, spins=10)
    pool.wake()
    empty_run(pool)

    def all_gone() -> bool:
        inside = library().pool_announce(pool.address)
        empty_run(pool)
        time.sleep(0.001)
        return bool(inside == 0)

    until(all_gone)
    pool.close()


def test_an_absent_helper_blocks_nobody(
    matrix: tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]],
) -> None:
    """A pool whose helpers never come: the calling thread does all the work."""
    kernels = Kernels(threads=2)
    expected = product(Kernels(), *matrix)
    library().pool_stop(kernels._pool.address)
    for thread in helpers():
        for event in kernels._pool._events:
            event.set()
        thread.join(20)
    assert product(kernels, *matrix) == expected


def test_threads_end_with_their_pool() -> None:
    gc.collect()
    before = len(helpers())
    kernels = Kernels(threads=4)
    assert len(helpers()) == before + 3
    del kernels
    gc.collect()
    assert len(helpers()) == before


def test_a_helper_may_collect_its_own_pool() -> None:
    """Any thread may collect the garbage; one that joined itself would never end."""

    class Collecting:
        def __getattr__(self, name: str) -> Any:
            return getattr(library(), name)

        def help(self, address: int, spins: int) -> int:
            gc.collect()
            return library().help(address, spins)

    gc.collect()
    before = len(helpers())
    gc.disable()
    try:
        pool = Pool(Collecting(), 3)  # type: ignore[arg-type]
        pool.circle = pool  # type: ignore[attr-defined] # so that only the garbage collector frees it
        pool.wake()
        del pool
        until(lambda: len(helpers()) == before)
    finally:
        gc.enable()


def test_number_is_checked() -> None:
    with pytest.raises(HalfbyteError, match="0 threads: expected 1 to 4096"):
        Pool(library(), 0)


def test_more_threads_than_the_system_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    before, start = len(helpers()), threading.Thread.start

    def limited(self: threading.Thread) -> None:
        if len(helpers()) - before == 2:
            raise RuntimeError("can't start new thread")
        start(self)

    monkeypatch.setattr(threading.Thread, "start", limited)
    with pytest.raises(HalfbyteError, match="5 threads: can't start new thread; expected fewer"):
        Pool(library(), 5)
    assert len(helpers()) == before


def test_a_slow_core_does_not_hold_the_others_back() -> None:
    """A helper four times slower than the calling thread does at most a fifth of the work."""
    here, done, units = threading.get_ident(), [], 100

    def chunk(begin: int, end: int) -> None:
        main = threading.get_ident() == here
        time.sleep((end - begin) * (0.001 if main else 0.004))
        done.append((main, begin, end))

    pool = Pool(library(), 2)
    pool.wake()
    Recorded("memory_read", chunk, n=units).run(pool)
    pool.close()
    covered = sorted((begin, end) for _, begin, end in done)
    assert [begin for begin, _ in covered] == [0, *(end for _, end in covered[:-1])]
    assert covered[-1][1] == units
    helped = sum(end - begin for main, begin, end in done if not main)
    assert 0.1 * units <= helped <= 0.3 * units


def test_a_late_helper_is_waited_for() -> None:
    """C returns to Python meanwhile, where Ctrl-C can end the run; the result is complete."""
    here, done, waits = threading.get_ident(), list[tuple[int, int]](), list[int]()
    claimed = threading.Event()

    def chunk(begin: int, end: int) -> None:
        if threading.get_ident() == here:
            claimed.wait(10)  # until the helper has its part
        else:
            claimed.set()
            until(lambda: len(waits) == 2, 60)
        done.append((begin, end))

    pool, program = Pool(library(), 2), Recorded("memory_read", chunk, 2, n=100)
    pool.wake()
    assert program.run(pool) == 0  # the first instruction is not complete
    while not library().pool_wait(pool.address):
        waits.append(len(done))
    assert program.run(pool, 1) == 2
    pool.close()
    covered = sorted(done)
    assert [begin for begin, _ in covered[::2]] == [begin for begin, _ in covered[1::2]]
    assert sum(end - begin for begin, end in done) == 200


LAYER = {"d": 1, "n": 24, "t": 6, "k": 512, "width": 512, "cell": 3}  # 32 units in each of 8 stages
STAGES, UNITS = 8, 32


def test_stages_follow_one_another() -> None:
    """Both threads share each stage of a recurrent layer, and none begins before the last ends."""
    here, begun, done = threading.get_ident(), list[tuple[bool, int, int]](), list[int]()

    def chunk(begin: int, end: int) -> None:
        begun.append((threading.get_ident() == here, begin, len(done)))
        time.sleep(0.005)
        done.extend(range(begin, end))

    pool = Pool(library(), 2)
    pool.wake()
    assert Recorded("recurrent_layer", chunk, **LAYER).run(pool) == 1
    pool.close()
    assert sorted(done) == list(range(STAGES * UNITS))
    assert sorted(begin for _, begin, _ in begun) == list(range(0, STAGES * UNITS, UNITS // 2))
    assert all(before >= begin // UNITS * UNITS for _, begin, before in begun)
    assert {begin // UNITS for main, begin, _ in begun if main} == set(range(STAGES))


@pytest.mark.parametrize("stage", [0, 3, STAGES - 1])
def test_a_late_helper_of_a_stage_is_waited_for(stage: int) -> None:
    """The caller goes on with the stage that follows, or with the next instruction."""
    here, done, waits = threading.get_ident(), list[int](), list[int]()
    claimed = threading.Event()

    def chunk(begin: int, end: int) -> None:
        if begin // UNITS == stage and not waits:
            if threading.get_ident() == here:
                claimed.wait(10)  # until the helper has its part
            else:
                claimed.set()
                until(lambda: bool(waits), 60)
        done.extend(range(begin, end))

    pool, program = Pool(library(), 2), Recorded("recurrent_layer", chunk, **LAYER)
    pool.wake()
    first = program.run(pool)
    assert first == (0 if stage == STAGES - 1 else -1)
    while not library().pool_wait(pool.address):
        waits.append(len(done))
    assert program.run(pool, first + 1) == 1
    pool.close()
    assert sorted(done) == list(range(STAGES * UNITS))


def test_a_single_kernel_waits_for_a_late_helper(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a program does, where C returns before a helper has finished its part."""
    kernels, steps = Kernels(threads=2), list[Any]()
    run, wait = library().run, kernels._pool.wait

    def late(table: int, program: int, first: int, last: int, *rest: int) -> int:
        steps.append((first, last))
        return first if len(steps) == 1 else int(run(table, program, first, last, *rest))

    monkeypatch.setattr(library(), "run", late)
    monkeypatch.setattr(kernels._pool, "wait", lambda: (steps.append("wait"), wait()))
    kernels.call(
        "matmul_f32", **{name: np.ones((1, 1), np.float32) for name in "ywx"}, n=1, k=1, m=1
    )
    kernels.close()
    assert steps == [(0, 1), "wait", (1, 1)]


def test_fewer_helpers_may_take_part() -> None:
    kernels = library()
    pool = Pool(kernels, 4)
    kernels.pool_announce(pool.address)  # so that helpers that come before this thread looks stay
    for limit, expected in ((1, 1), (2, 2), (0, 3)):
        kernels.pool_limit(pool.address, limit)
        for event in pool._events:
            event.set()

        def inside() -> int:
            return int(kernels.pool_announce(pool.address))

        until(lambda: inside() == expected)  # noqa: B023 - called in this round
        time.sleep(0.05)
        assert inside() == expected
    pool.close()


def sysfs(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return folder


def test_threads_are_as_many_as_fast_cores(tmp_path: Path) -> None:
    topology = "system/cpu/cpu{}/topology/thread_siblings_list"
    assert fast_cores([0, 1, 2], tmp_path / "none") == 3
    twins = sysfs(
        tmp_path / "twins", {topology.format(i): f"{i % 2},{i % 2 + 2}" for i in range(4)}
    )
    assert fast_cores(range(4), twins) == 2
    assert fast_cores([0, 2], twins) == 1
    hybrid = sysfs(tmp_path / "hybrid", {"cpu_core/cpus": "0-1,4", "cpu_atom/cpus": "2-3"})
    assert fast_cores(range(5), hybrid) == 3
    assert fast_cores([2, 3], hybrid) == 2  # the process may use no faster one
    capacity = "system/cpu/cpu{}/cpu_capacity"
    phone = {capacity.format(i): str(c) for i, c in enumerate([250, 250, 250, 250, 760, 760, 1024])}
    assert fast_cores(range(7), sysfs(tmp_path / "phone", phone)) == 3
    assert fast_cores(range(4), tmp_path / "phone") == 4
