"""Runs mutated files through the readers, each batch in its own process.

A format is a module of this folder with

    corpus() -> list[bytes]             files that are read without an error
    mutate(data, random) -> bytes       one of them, changed
    target(data) -> None                read and use it: raises HalfbyteError, or returns

A case may take 200 MB and four times its file, and a refused file 2 s of processor time and 10 µs a
byte. The same seed and number make the same case on every machine.
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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import IO, NamedTuple, Protocol, cast

REPOSITORY = Path(__file__).parents[2]
REPRODUCERS = REPOSITORY / "build" / "fuzz"
SECONDS = 30  # of one case; longer ones hang, even on a busy machine
GOOD = ("accepted", "refused")
BAD = ("foreign", "message", "memory", "slow", "crash", "hang")


class Format(Protocol):
    """A module of this folder."""

    def corpus(self) -> list[bytes]:
        """Files that are read without an error."""

    def mutate(self, data: bytes, random: random.Random) -> bytes:
        """A changed file."""

    def target(self, data: bytes) -> None:
        """Read and use it."""


class Line(NamedTuple):
    """A case: its number, the outcome, a detail of that, and CPU seconds."""

    index: int
    outcome: str
    detail: str
    seconds: float


@dataclass
class Report:
    """The outcomes of a format's cases.

    Attributes
    ----------
    failures : list of str
        For each bad case, its name, the outcome, and the detail.
    slowest : (float, str)
        CPU seconds and name of the refused file that took longest.
    """

    counts: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    slowest: tuple[float, str] = (0.0, "")

    def add(self, line: Line, which: str) -> None:
        """Add a case."""
        self.counts[line.outcome] += 1
        if line.outcome == "refused":
            self.slowest = max(self.slowest, (line.seconds, which))
        if line.outcome in BAD:
            self.failures.append(f"{which}: {line.outcome}: {line.detail}")

    def __iadd__(self, other: Report) -> Report:
        self.counts += other.counts
        self.failures += other.failures
        self.slowest = max(self.slowest, other.slowest)
        return self


def formats() -> list[str]:
    """The modules of this folder that are formats."""
    names = sorted(path.stem for path in Path(__file__).parent.glob("*.py"))
    own = {"__main__", "coverage", "folders", "mutators", "runner", "worker"}
    return [name for name in names if name not in own]


def module_of(name: str) -> Format:
    """A format by its name, or another module by its whole name."""
    return cast(Format, import_module(name if "." in name else f"tests.fuzz.{name}"))


def case(module: Format, corpus: list[bytes], seed: int, index: int) -> bytes:
    """The file of this number; the first ones are the unchanged corpus."""
    if index < len(corpus):
        return corpus[index]
    chance = random.Random(f"{seed}/{index}")
    data = chance.choice(corpus)
    for _ in range(chance.choice([1, 1, 2, 4])):
        data = module.mutate(data, chance)
    return data


def run(name: str, seed: int, first: int, last: int) -> Report:
    """Run cases [first, last) of a format."""
    report = Report()
    while first < last:
        log = REPRODUCERS / f"{name}-{seed}-{first}.stderr"
        arguments = ("tests.fuzz.worker", name, seed, first, last)
        for line in followed(arguments, log, SECONDS, first, last):
            first = line.index + 1
            report.add(line, f"{name} --seed {seed} --case {line.index}")
            if line.outcome in BAD:
                _keep(name, seed, line)
        log.unlink()
    return report


def run_all(
    names: Iterable[str], seed: int, count: int, jobs: int, batch: int = 100, until: float = 0.0
) -> dict[str, Report]:
    """Run `count` cases of each format on `jobs` cores; with `until`, further seeds up to then."""
    reports: dict[str, Report] = {name: Report() for name in names}

    def work(task: tuple[str, int, int]) -> tuple[str, Report]:
        name, with_seed, first = task
        return name, run(name, with_seed, first, min(first + batch, count))

    with ThreadPoolExecutor(jobs) as pool:
        while True:
            tasks = [(name, seed, at) for at in range(0, count, batch) for name in reports]
            for name, report in pool.map(work, tasks):
                reports[name] += report
            seed += 1
            if time.monotonic() >= until:
                return reports


def table(reports: Mapping[str, Report]) -> str:
    """Outcomes by format, in Markdown, and the seed and number of the slowest refused file."""
    columns = (*GOOD, *BAD)
    lines = [
        f"| format | cases | {' | '.join(columns)} | slowest refused |",
        f"|---|{'--:|' * (len(columns) + 2)}",
    ]
    for name, report in reports.items():
        numbers = [report.counts.total(), *(report.counts[column] for column in columns)]
        seconds, which = report.slowest
        cells = [*(f"{n:,}" for n in numbers), f"{seconds * 1000:,.0f} ms: {which}"]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


# ---- a process ---------------------------------------------------------------------------------


def followed(
    arguments: Sequence[object], log: Path, seconds: float, first: int = 0, last: int | None = None
) -> Iterator[Line]:
    """The lines that a module prints of its cases [first, last), and one of a case that ended it.

    Its stderr is in `log`. It hangs if there is no line for `seconds`.
    """
    environment = os.environ | {
        "PYTHONPATH": str(REPOSITORY), "OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2",
    }  # fmt: skip
    log.parent.mkdir(parents=True, exist_ok=True)
    at = first
    with log.open("w+b") as stderr, subprocess.Popen(
        [sys.executable, "-m", *map(str, arguments)],
        cwd=log.parent, env=environment, stdout=subprocess.PIPE, stderr=stderr,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        for line in _lines(process.stdout, seconds):
            if line is None:
                process.send_signal(signal.SIGKILL)
                yield Line(at, "hang", f"more than {seconds:.0f} s", 0.0)
                return
            case_line = Line(*json.loads(line))
            at = case_line.index + 1
            yield case_line
        if (status := process.wait()) != 0 or (last is not None and at < last):
            stderr.seek(0)
            output = stderr.read()[-2000:].decode(errors="replace")
            if at == first and status > 0:  # it never began
                raise RuntimeError(f"{arguments[1]}: ended with {status}: {output}")
            yield Line(at, "crash", f"exit status {status}: {output[-500:]}", 0.0)


def _lines(stream: IO[bytes], seconds: float) -> Iterator[bytes | None]:
    """Lines as they arrive; None, and then no more, if none arrives for too long."""
    descriptor, held = stream.fileno(), b""
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        while True:
            if not selector.select(seconds):
                yield None
                return
            piece = os.read(descriptor, 1 << 16)
            if not piece:
                return
            *lines, held = (held + piece).split(b"\n")
            yield from lines


def _keep(name: str, seed: int, line: Line) -> None:
    """Write the file and its outcome, for debugging."""
    module = module_of(name)
    data = case(module, module.corpus(), seed, line.index)
    path = REPRODUCERS / f"{name}-{seed}-{line.index}-{line.outcome}.bin"
    path.write_bytes(data)
    path.with_suffix(".txt").write_text(f"{line.detail}\n")
