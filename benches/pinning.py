"""A processor for each working thread of an engine, chosen from outside while it is measured.

Some virtual machines pack threads onto few of their processors (Linux's `sched_vcpu_pack` there):
two busy threads then take turns on one while another is idle, and what is measured is that. A page
cannot choose its processors, so this gives all engines' threads one each, in the same way: in every
process, those of the page's main thread and its workers that have just been busy. An engine that
runs natively could pin its threads itself, so native processes are left alone.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

HELP = (
    "give each busy thread of a tab a processor of its own, chosen from outside: on virtual "
    "machines whose kernels pack threads onto few processors, two threads would share one (Linux)"
)
SECONDS = 0.25  # between two looks
BUSY = 0.2  # part of the time between two looks from which a thread is busy
WORKERS = "DedicatedWorker"  # begins the names of their threads in Chromium
_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


def add_pin_option(parser: argparse.ArgumentParser) -> None:
    """The option of all benches with tabs."""
    parser.add_argument("--pin", action="store_true", help=HELP)


def assign(
    busy: Iterable[int], places: Mapping[int, int], processors: Iterable[int]
) -> dict[int, int]:
    """Processors for the busy threads of a process, the busiest first, that have to move.

    A thread stays where it is unless a busier one is there. With more threads than processors, the
    others stay too.
    """
    free, waiting = list(processors), []
    for thread in busy:
        if (place := places.get(thread)) in free:
            free.remove(place)
        else:
            waiting.append(thread)
    return dict(zip(waiting, free, strict=False))


@dataclass
class Pinner:
    """Looks for busy threads of tabs that descend from a process, and pins them.

    Attributes
    ----------
    pin : callable
        Takes a thread, and a list of its processors: `os.sched_setaffinity`.
    places : dict of int to int
        The processor of each thread that was pinned.
    """

    processors: list[int]
    pin: Callable[[int, list[int]], None]
    ancestor: int = field(default_factory=os.getpid)
    proc: Path = Path("/proc")
    places: dict[int, int] = field(default_factory=dict)
    _used: dict[int, float] = field(default_factory=dict)  # seconds of each thread so far

    def look(self, seconds: float) -> None:
        """Pin the threads that were busy in the seconds since the last look."""
        for process in self._tabs():
            used = self._threads(process)
            spent = {t: s - self._used[t] for t, s in used.items() if t in self._used}
            self._used |= used
            busy = [t for t in sorted(spent, key=spent.__getitem__, reverse=True)
                    if spent[t] >= BUSY * seconds]  # fmt: skip
            for thread, place in assign(busy, self.places, self.processors).items():
                try:
                    self.pin(thread, [place])
                except OSError:  # it has ended
                    continue
                self.places[thread] = place

    def _tabs(self) -> list[int]:
        """Renderers among the descendants."""
        parents = {}
        for folder in self.proc.iterdir():
            if folder.name.isdigit() and (fields := _stat(folder)):
                parents[int(folder.name)] = int(fields[1])
        return [p for p in parents if self._descends(p, parents) and self._renders(p)]

    def _descends(self, process: int, parents: Mapping[int, int]) -> bool:
        while process and process != self.ancestor:
            process = parents.get(process, 0)
        return bool(process)

    def _renders(self, process: int) -> bool:
        try:
            return b"--type=renderer" in (self.proc / f"{process}/cmdline").read_bytes()
        except OSError:
            return False

    def _threads(self, process: int) -> dict[int, float]:
        """Seconds that the main thread and each worker have used."""
        seconds = {}
        tasks = self.proc / f"{process}/task"
        for folder in tasks.iterdir() if tasks.exists() else ():
            if (fields := _stat(folder)) and _works(folder, process):
                seconds[int(folder.name)] = (int(fields[11]) + int(fields[12])) / _TICKS
        return seconds


def _stat(folder: Path) -> list[str]:
    """The fields of a process or thread after its name, which may contain anything."""
    try:
        return (folder / "stat").read_text().rpartition(")")[2].split()
    except OSError:  # it has ended
        return []


def _works(folder: Path, process: int) -> bool:
    try:
        name = (folder / "comm").read_text()
    except OSError:
        return False
    return folder.name == str(process) or name.startswith(WORKERS)


@contextmanager
def pinned(wanted: bool) -> Iterator[dict[int, int]]:
    """Pin threads of tabs of this process meanwhile, if wanted; yields the places of those pinned.

    Raises
    ------
    SystemExit
        It is wanted, and this system has no processors to choose.
    """
    if not wanted:
        yield {}
        return
    if not sys.platform.startswith("linux"):
        raise SystemExit("--pin: expected Linux, whose threads can be pinned from outside, found "
                         f"{sys.platform}")  # fmt: skip
    pinner = Pinner(sorted(os.sched_getaffinity(0)), os.sched_setaffinity)
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(SECONDS):
            pinner.look(SECONDS)

    thread = threading.Thread(target=watch, name="pinner", daemon=True)
    thread.start()
    try:
        yield pinner.places
    finally:
        ended.set()
        thread.join()
