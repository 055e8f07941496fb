"""Speed of this tree beside another checkout of halfbyte, such as the commit before.

    python -m benches.builds CHECKOUT [-r 15] [--threshold 2]
    python -m benches.builds . -m "135M Q4_0"        how far apart two equal builds seem

CHECKOUT has a `.venv` with its own kernels, as `make` there sets it up. Every test has two
processes, one for each build. Both run the same files, which are this tree's, and take turns; the
order is reversed in every other round. Processes are started several times, because the places of
memory that a process gets change its speed. The table shows medians, and the ratios of medians and
of minima, above 1 where this tree is faster, with the quartiles of the rounds' ratios. The exit
code is 1 where both ratios say that this tree is slower by more than the threshold, in percent.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import numpy as np
from benches import prepare
from benches.figures import Series, add_json_option, digits, markdown, pytest_json, write_json
from benches.onnx.files import MODELS, PRECISIONS, contests
from benches.onnx.measure import TURN, inputs, test_name
from benches.peers.native import Process, Worker

ONNX_WORKER = Path(__file__).parent / "onnx/worker.py"
BUILDS = ("new", "old")
HEADER = [
    "model", "test", "threads", "old ms", "new ms", "medians", "minima", "quartiles", "",
]  # fmt: skip


class Job:
    """One test, which both builds can run: `runs` times in a row in each turn."""

    def __init__(self, model: str, test: str, threads: int, workers: dict[str, Process]) -> None:
        self._workers = workers
        self.series = {build: Series(model, build, test, threads) for build in BUILDS}
        self.asked = test
        self.runs = 1

    def warm_up(self) -> None:
        """Run both builds once or twice, and choose how often a turn runs them."""
        for build in BUILDS:
            self._seconds(build)
        slowest = max(self._seconds(build) for build in BUILDS)
        self.runs = max(1, min(50, int(TURN / slowest)))

    def take_turns(self, number: int) -> None:
        """One round; odd and even rounds have different orders."""
        for build in BUILDS if number % 2 else BUILDS[::-1]:
            values = [self._seconds(build) for _ in range(self.runs)]
            self.series[build].seconds.append(statistics.median(values))

    def _seconds(self, build: str) -> float:
        return float(self._workers[build].ask(self.asked))


def python_of(checkout: Path) -> Path:
    """The interpreter of a checkout; the one that runs this for this tree."""
    if checkout.resolve() == prepare.ROOT:
        return Path(sys.executable)
    python = checkout / ".venv/bin/python"
    if not python.exists():
        raise SystemExit(f"{checkout}: expected a checkout with {python.name} in .venv/bin")
    return python


@contextmanager
def text_jobs(
    options: argparse.Namespace, pythons: dict[str, Path], name: str, threads: int
) -> Iterator[list[Job]]:
    """The tests of a language model."""
    path, tests = prepare.model(name), ["tg64"] if name in prepare.LARGE else options.tests
    with ExitStack() as stack:
        workers: dict[str, Process] = {
            build: stack.enter_context(closing(Worker("halfbyte", path, threads, 640, python)))
            for build, python in pythons.items()
        }
        yield [Job(name, test, threads, workers) for test in tests]


@contextmanager
def graph_jobs(
    options: argparse.Namespace, pythons: dict[str, Path], name: str, threads: int
) -> Iterator[list[Job]]:
    """The shapes of an ONNX model, in all of its files."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        jobs = []
        for contest in contests([name], options.precisions, ["halfbyte", "onnxruntime"]):
            command = [str(ONNX_WORKER), str(contest.file("halfbyte")), str(threads)]
            workers = {
                build: stack.enter_context(closing(Process(build, [str(python), *command])))
                for build, python in pythons.items()
            }
            for shape in options.shapes if name == "minilm" else [(1, 0)]:
                path = folder / f"{test_name(*shape)}.npz"
                np.savez(path, **inputs(name, *shape))
                job = Job(name, f"{contest.name} {test_name(*shape)}", threads, workers)
                job.asked = str(path)
                jobs.append(job)
        yield jobs


def joined(jobs: list[Job]) -> list[Job]:
    """Jobs of the same test, from several starts, as one."""
    tests: dict[tuple[str, str, int], Job] = {}
    for job in jobs:
        new = job.series["new"]
        first = tests.setdefault((new.model, new.test, new.threads), job)
        if first is not job:
            for build in BUILDS:
                first.series[build].seconds += job.series[build].seconds
    return list(tests.values())


def table(jobs: list[Job], threshold: float) -> tuple[str, int]:
    """One row per test, and how many are slower by more than the threshold."""
    rows, slower = [], 0
    for job in jobs:
        new, old = (job.series[build] for build in BUILDS)
        ratios = old.median / new.median, min(old.seconds) / min(new.seconds)
        rounds = [b / a for a, b in zip(new.seconds, old.seconds, strict=True)]
        quartiles = statistics.quantiles(rounds, n=4, method="inclusive") if rounds[1:] else rounds
        verdict = "slower" if max(ratios) < 1 - threshold / 100 else ""
        slower += bool(verdict)
        times = digits(1000 * old.median), digits(1000 * new.median)
        name = new.model, new.test, str(new.threads)
        figures = (
            *(f"{ratio:.3f}" for ratio in ratios),
            f"{quartiles[0]:.3f} to {quartiles[-1]:.3f}",
        )
        rows.append([*name, *times, *figures, verdict])
    return markdown(HEADER, rows, left=2), slower


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benches.builds", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    known = [*prepare.MODELS, *prepare.LARGE, *MODELS]
    default = [*prepare.MODELS, *MODELS]
    parser.add_argument("checkout", type=Path, metavar="CHECKOUT", help="the other build")
    parser.add_argument("-r", "--rounds", type=int, default=15, help="(default 15)")
    parser.add_argument("--starts", type=int, default=3, help="of the processes (default 3)")
    parser.add_argument(
        "-m", "--models", default=",".join(default), help=f"from {', '.join(known)}"
    )
    parser.add_argument("-p", "--precisions", default=",".join(PRECISIONS), help="of ONNX models")
    parser.add_argument("-t", "--threads", default="1,2", help="(default 1,2)")
    parser.add_argument("--threshold", type=float, default=2, help="percent (default 2)")
    add_json_option(parser)
    options = parser.parse_args()
    options.models = [name.strip() for name in options.models.split(",")]
    if wrong := set(options.models) - set(known):
        parser.error(f"argument -m: expected some of {', '.join(known)}; found {', '.join(wrong)}")
    options.threads = [int(part) for part in options.threads.split(",")]
    options.precisions = options.precisions.split(",")
    options.tests, options.shapes = ["pp128", "tg64"], [(1, 16), (1, 128), (32, 16), (32, 128)]
    return options


def measure(
    options: argparse.Namespace, pythons: dict[str, Path], name: str, threads: int, start: int
) -> list[Job]:
    """All tests of a model, on processes that are started once."""
    make_jobs = graph_jobs if name in MODELS else text_jobs
    with make_jobs(options, pythons, name, threads) as jobs:
        for job in jobs:
            job.warm_up()
        for number in range(start, options.rounds, options.starts):
            prepare.say(f"{name}, {threads} threads: round {number + 1} of {options.rounds}")
            for job in jobs:
                job.take_turns(number // options.starts)
    return jobs


def main() -> int:
    """Measure and print."""
    options = parse()
    pythons = {"new": Path(sys.executable), "old": python_of(options.checkout)}
    jobs: list[Job] = []
    for name in options.models:
        for threads in options.threads:
            for start in range(options.starts):
                jobs += measure(options, pythons, name, threads, start)
                pythons = dict(reversed(pythons.items()))  # who starts first
    done = joined(jobs)
    text, slower = table(done, options.threshold)
    ratios = [job.series["old"].median / job.series["new"].median for job in done]
    mean = statistics.geometric_mean(ratios)
    print(
        f"{text}\n\n{slower} of {len(done)} slower by more than {options.threshold:g} %; "
        f"geometric mean of the medians' ratios {mean:.3f}"
    )
    series = [series for job in done for series in job.series.values()]
    write_json(options.json, pytest_json(series, "benches/builds"))
    return 1 if slower else 0


if __name__ == "__main__":
    raise SystemExit(main())
