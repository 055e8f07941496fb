"""Runs mutated files through the readers, each batch in a process of its own.

A format is a module beside this one with

    corpus() -> list[bytes]             files that are read without an error
    mutate(data, random) -> bytes       one of them, changed
    target(data) -> None                read and use it: raises HalfbyteError, or returns

The same seed and number make the same case, wherever it runs.
"""

from __future__ import annotations

import json
import os
import random
import selectors
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import IO, Protocol, cast

REPOSITORY = Path(__file__).parents[2]
REPRODUCERS = REPOSITORY / "build" / "fuzz"
SECONDS = 30  # of one case; what takes so long hangs, on a busy machine too
GOOD = ("accepted", "refused")
BAD = ("foreign", "message", "memory", "crash", "hang")


class Format(Protocol):
    """A module of this folder."""

    def corpus(self) -> list[bytes]:
        """Files that are read without an error."""

    def mutate(self, data: bytes, random: random.Random) -> bytes:
        """A changed file."""

    def target(self, data: bytes) -> None:
        """Read it."""


@dataclass(frozen=True)
class Failure:
    """A case that must not be: crash, hang, memory, an error that is not ours, a bad message."""

    format: str
    seed: int
    index: int
    outcome: str
    detail: str

    def __str__(self) -> str:
        return (
            f"{self.format} --seed {self.seed} --case {self.index}: {self.outcome}: {self.detail}"
        )


@dataclass
class Report:
    """What became of a format's cases."""

    counts: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)


def formats() -> list[str]:
    """The modules of this folder that are formats."""
    names = sorted(path.stem for path in Path(__file__).parent.glob("*.py"))
    own = {"__main__", "coverage", "folders", "mutators", "runner", "worker"}
    return [name for name in names if name not in own]


def module_of(name: str) -> Format:
    """A format by its name, or another module by its whole name."""
    return cast(Format, import_module(name if "." in name else f"tests.fuzz.{name}"))


def case(module: Format, corpus: list[bytes], seed: int, index: int) -> bytes:
    """The file of this number; the first ones are the corpus itself."""
    if index < len(corpus):
        return corpus[index]
    chance = random.Random(f"{seed}/{index}")
    data = chance.choice(corpus)
    for _ in range(chance.choice([1, 1, 2, 4])):
        data = module.mutate(data, chance)
    return data


def run(name: str, seed: int, first: int, last: int) -> Report:
    """Cases [first, last) of a format."""
    report = Report()
    while first < last:
        for index, outcome, detail in _batch(name, seed, first, last):
            report.counts[outcome] += 1
            first = index + 1
            if outcome in BAD:
                failure = Failure(name, seed, index, outcome, detail)
                report.failures.append(failure)
                _keep(failure)
    return report


def run_all(
    names: Iterable[str], seed: int, count: int, jobs: int, batch: int = 100, until: float = 0.0
) -> dict[str, Report]:
    """So many cases of each format on `jobs` cores; with `until`, further seeds up to then."""
    reports: dict[str, Report] = {name: Report() for name in names}

    def work(task: tuple[str, int, int]) -> tuple[str, Report]:
        name, with_seed, first = task
        return name, run(name, with_seed, first, min(first + batch, count))

    with ThreadPoolExecutor(jobs) as pool:
        while True:
            tasks = [(name, seed, at) for at in range(0, count, batch) for name in reports]
            for name, found in pool.map(work, tasks):
                reports[name].counts += found.counts
                reports[name].failures += found.failures
            seed += 1
            if time.monotonic() >= until:
                return reports


def table(reports: dict[str, Report]) -> str:
    """Outcomes by format, in Markdown."""
    columns = (*GOOD, *BAD)
    lines = [f"| format | cases | {' | '.join(columns)} |", f"|---|{'--:|' * (len(columns) + 1)}"]
    for name, report in reports.items():
        numbers = [report.counts.total(), *(report.counts[column] for column in columns)]
        lines.append(f"| {name} | {' | '.join(f'{n:,}' for n in numbers)} |")
    return "\n".join(lines)


# ---- a process ---------------------------------------------------------------------------------


def _batch(name: str, seed: int, first: int, last: int) -> Iterator[tuple[int, str, str]]:
    """Number, outcome and detail of each case; ends early after one that ended the process."""
    command = [sys.executable, "-m", "tests.fuzz.worker", name, *map(str, (seed, first, last))]
    environment = os.environ | {
        "PYTHONPATH": str(REPOSITORY), "OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2",
    }  # fmt: skip
    REPRODUCERS.mkdir(parents=True, exist_ok=True)
    errors = REPRODUCERS / f"{name}-{seed}-{first}.stderr"
    with errors.open("w+b") as stderr, subprocess.Popen(
        command, cwd=REPRODUCERS, env=environment, stdout=subprocess.PIPE, stderr=stderr
    ) as process:  # fmt: skip
        assert process.stdout is not None
        at = first
        for line in _lines(process.stdout):
            if line is None:
                process.send_signal(signal.SIGKILL)
                yield at, "hang", f"more than {SECONDS} s"
                break
            index, outcome, detail = json.loads(line)
            at = index + 1
            yield index, outcome, detail
        else:
            if (status := process.wait()) != 0 or at < last:
                stderr.seek(0)
                last_words = stderr.read()[-2000:].decode(errors="replace")
                if at == first and status > 0:  # it never began
                    raise RuntimeError(f"{name}: the worker ended with {status}: {last_words}")
                yield at, "crash", f"exit status {status}: {last_words[-500:]}"
    errors.unlink(missing_ok=True)


def _lines(stream: IO[bytes]) -> Iterator[bytes | None]:
    """Lines as they come; None, and then no more, where none came for too long."""
    descriptor, held = stream.fileno(), b""
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        while True:
            if not selector.select(SECONDS):
                yield None
                return
            piece = os.read(descriptor, 1 << 16)
            if not piece:
                return
            *lines, held = (held + piece).split(b"\n")
            yield from lines


def _keep(failure: Failure) -> None:
    """Write the file and what happened, for who looks into it."""
    module = module_of(failure.format)
    data = case(module, module.corpus(), failure.seed, failure.index)
    name = f"{failure.format}-{failure.seed}-{failure.index}-{failure.outcome}"
    (REPRODUCERS / f"{name}.bin").write_bytes(data)
    (REPRODUCERS / f"{name}.txt").write_text(f"{failure}\n")
