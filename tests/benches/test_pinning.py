"""Threads of tabs get processors of their own, by what /proc says of them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from benches.pinning import Pinner, assign, pinned

DRIVER, BROWSER, RENDERER, STRANGER = 10, 20, 30, 40


class Proc:
    """A folder like /proc: a bench, its browser with a renderer, and somebody else's renderer."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process(DRIVER, 1, "python")
        self.process(BROWSER, DRIVER, "chromium")
        self.process(RENDERER, BROWSER, "chromium --type=renderer")
        self.process(STRANGER, 1, "chromium --type=renderer")
        (folder / "meminfo").write_text("")

    def process(self, number: int, parent: int, command: str) -> None:
        folder = self.folder / str(number)
        (folder / "task").mkdir(parents=True)
        (folder / "cmdline").write_text(command.replace(" ", "\0"))
        (folder / "stat").write_text(f"{number} (a) b) (c) S {parent}" + 30 * " 0")

    def thread(self, process: int, number: int, name: str, seconds: float) -> None:
        folder = self.folder / f"{process}/task/{number}"
        folder.mkdir(exist_ok=True)
        (folder / "comm").write_text(f"{name}\n")
        ticks = round(seconds * os.sysconf("SC_CLK_TCK"))
        (folder / "stat").write_text(f"{number} ({name}) S 1" + 9 * " 0" + f" {ticks - 1} 1 0")


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    return Proc(tmp_path)


@pytest.fixture
def moves() -> list[tuple[int, list[int]]]:
    return []


@pytest.fixture
def pinner(proc: Proc, moves: list[tuple[int, list[int]]]) -> Pinner:
    def pin(thread: int, processors: list[int]) -> None:
        if thread == 99:
            raise ProcessLookupError(thread)
        moves.append((thread, processors))

    return Pinner([0, 1], pin, ancestor=DRIVER, proc=proc.folder)


def run(pinner: Pinner, proc: Proc, **used: float) -> None:
    """A second, in which threads t1, t2, ... use so many seconds more; t1 is the main one."""
    proc.thread(RENDERER, RENDERER, "chromium", 5 + used.get("t1", 0))
    for number, name in ((32, "DedicatedWorker"), (33, "DedicatedWorker"), (34, "ThreadPoolForeg")):
        proc.thread(RENDERER, number, name, 5 + used.get(f"t{number - 30}", 0))
    proc.thread(STRANGER, 42, "DedicatedWorker", 5 + max(used.values(), default=0))
    pinner.look(1.0)


def test_busy_threads_get_one_processor_each(
    pinner: Pinner, proc: Proc, moves: list[tuple[int, list[int]]]
) -> None:
    """Only threads of our own tabs that run a page's code; idle ones stay where they are."""
    run(pinner, proc)
    assert not moves
    run(pinner, proc, t1=0.1, t2=0.9, t3=0.8, t4=1.0)
    assert moves == [(32, [0]), (33, [1])]
    run(pinner, proc, t1=0.1, t2=1.7, t3=1.7, t4=2.0)
    assert len(moves) == 2, "they stay"


def test_a_main_thread_that_works_is_pinned_too(
    pinner: Pinner, proc: Proc, moves: list[tuple[int, list[int]]]
) -> None:
    """onnxruntime-web calls its kernels there; two that share a processor each get half of it."""
    run(pinner, proc)
    run(pinner, proc, t1=0.5, t2=0.45)
    assert moves == [(RENDERER, [0]), (32, [1])]
    run(pinner, proc, t1=0.5, t2=1.4, t3=0.9)
    assert moves[2:] == [(33, [0])], "the main thread is idle now"
    assert pinner.places == {RENDERER: 0, 32: 1, 33: 0}


def test_places() -> None:
    assert assign([5, 6], {}, [2, 3]) == {5: 2, 6: 3}
    assert assign([5, 6], {6: 2}, [2, 3]) == {5: 3}
    assert assign([5, 6], {5: 3, 6: 3}, [2, 3]) == {6: 2}
    assert assign([5, 6, 7], {7: 0}, [0]) == {}
    assert assign([5], {5: 9}, [0, 1]) == {5: 0}, "a processor that it may not have"


def test_a_thread_that_ends_is_forgotten(pinner: Pinner, proc: Proc) -> None:
    for seconds in (5, 6):
        proc.thread(RENDERER, 99, "DedicatedWorker", seconds)
        pinner.look(1.0)
    assert not pinner.places


def test_other_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    with pinned(False) as places:
        assert places == {}
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(SystemExit, match=r"--pin: expected Linux, .* found darwin"), pinned(True):
        pass
