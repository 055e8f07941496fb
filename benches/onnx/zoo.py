"""Many models beside ONNX Runtime: how fast, how equal, what NumPy computes, how soon they start.

    python -m benches.onnx.zoo [-m unet,yolo] [-p fp32,int8] [-t 1] [--json NEW.json]

`zoo.toml` lists the models: architectures that torch exports (`python -m benches.prepare --also
exports` makes an environment for that, gigabytes), and models that packages of PyPI carry. In int8
both engines run the file that `quantize` writes.

Each model has a process of its own, in which the engines take turns; one thread is timed by its
own clock. The ratio is the median of the rounds' ratios, above 1 where halfbyte is faster; the
difference is the largest one to ONNX Runtime's outputs, by the largest number of an output; NumPy's
is the share of the time spent in operators without a kernel; opening lasts from the file to the
first outputs. A model that fails says why.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import statistics
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np
from benches.arguments import Some, counts
from benches.figures import Series, add_json_option, digits, markdown, pytest_json, write_json
from benches.onnx import zoo_files
from benches.prepare import say
from benches.turns import Contender, take_turns
from benches.yardstick import clock_of, yardstick

ENGINES = ("halfbyte", "onnxruntime")
HEADER = [
    "model", "type", "halfbyte ms", "ORT ms", "ratio", "difference", "NumPy", "open ms", "ORT's",
]  # fmt: skip
REST = 0.3  # seconds before a turn of several threads
LIMIT = 60  # characters of a reason


@dataclass(frozen=True)
class Case:
    """A model in a precision on a number of threads."""

    name: str
    precision: str
    threads: int
    rounds: int

    def series(self, engine: str, test: str = "") -> Series:
        """Without times."""
        return Series(self.name, engine, f"{test}{self.precision}", self.threads)


# ---- one case, in a process of its own -----------------------------------------------------------


def measured(case: Case) -> list[Series]:
    """Runs and opening of both engines."""
    path = str(zoo_files.file(case.name, case.precision))
    results = {engine: case.series(engine) for engine in ENGINES}
    opened = {engine: case.series(engine, "open ") for engine in ENGINES}
    sessions, feeds, outputs = {}, {}, {}
    for engine in reversed(ENGINES):
        module = importlib.import_module(engine)
        start = time.perf_counter()
        session = sessions[engine] = module.InferenceSession(
            path, _options(module, case.threads), providers=["CPUExecutionProvider"]
        )
        seconds = time.perf_counter() - start
        if not feeds:
            feeds = zoo_files.feeds(case.name, {i.name: i.type for i in session.get_inputs()})
        start = time.perf_counter()
        outputs[engine] = session.run(None, feeds)
        opened[engine].seconds.append(seconds + time.perf_counter() - start)
    results["halfbyte"].more |= {
        "difference": difference(*(outputs[engine] for engine in ENGINES)),
        "numpy": _share_of_numpy(path, case.threads, feeds),
    }
    contenders = [
        Contender(
            results[engine],
            lambda s=session: s.run(None, feeds),
            clock=clock_of(case.threads),
            rest=REST if case.threads > 1 else 0,
        )
        for engine, session in sessions.items()
    ]
    take_turns(contenders, yardstick("clock", case.threads), case.rounds)
    return [*results.values(), *opened.values()]


def _options(module: Any, threads: int) -> Any:
    options = module.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    return options


def difference(ours: Sequence[Any], theirs: Sequence[Any]) -> float:
    """The largest one of all outputs; infinite where shapes, or places of NaN, differ."""
    worst = 0.0
    for own, other in zip(ours, theirs, strict=True):
        if own.shape != other.shape:
            return float("inf")
        if own.size == 0 or own.dtype.kind not in "fiu?":
            continue
        a, b = own.astype(np.float64), other.astype(np.float64)
        if not np.array_equal(np.isfinite(a), np.isfinite(b)):
            return float("inf")
        usable = np.isfinite(b)
        if usable.any():
            scale = np.abs(b[usable]).max() or 1.0
            worst = max(worst, float(np.abs(a[usable] - b[usable]).max() / scale))
    return worst


def _share_of_numpy(path: str, threads: int, feeds: zoo_files.Feeds) -> float:
    """Of the time of a run that is not its first, what instructions without a kernel take."""
    module = importlib.import_module("halfbyte")
    options = _options(module, threads)
    options.enable_profiling = True
    with module.InferenceSession(path, options) as session:
        session.run(None, feeds)
        before = {kernel: row.seconds for kernel, row in session.profile.rows.items()}
        session.run(None, feeds)
        rows = {k: row.seconds - before.get(k, 0) for k, row in session.profile.rows.items()}
    return sum(s for k, s in rows.items() if k.startswith("numpy:")) / (sum(rows.values()) or 1)


# ---- all cases -----------------------------------------------------------------------------------


def run(case: Case, limit: float) -> list[Series]:
    """As `measured`; of a model that fails, one series with the reason."""
    say(f"{case.name}: {case.precision}, threads: {case.threads}")
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        future = pool.submit(measured, case)
        try:
            return future.result(limit)
        except BrokenProcessPool:
            reason = "the process died"
        except TimeoutError:
            reason = f"more than {limit:.0f} s"
            for process in pool._processes.values():
                process.kill()
        except Exception as error:
            reason = " ".join(f"{type(error).__name__}: {error}".split())
    failed = case.series("halfbyte")
    failed.more["reason"] = reason
    say(f"{case.name}: {reason}")
    return [failed]


def table(series: Sequence[Series]) -> str:
    """A row for each model and precision, the slowest beside ONNX Runtime first."""
    by = {(s.model, s.engine, s.test, s.threads): s for s in series}
    ratios, rows, reasons = [], [], []
    for ours in series:
        if ours.engine != "halfbyte" or ours.test.startswith("open "):
            continue
        if not ours.seconds:
            reasons.append([ours.model, ours.test, ours.more["reason"][:LIMIT]])
            continue
        key = ours.test, ours.threads
        theirs = by[ours.model, "onnxruntime", *key]
        opened = [by[ours.model, e, f"open {ours.test}", ours.threads].median for e in ENGINES]
        ratio = ours.times_as_fast_as(theirs)
        ratios.append(ratio)
        cells = [
            ours.model, ours.test, *(digits(1000 * s.median) for s in (ours, theirs)),
            f"{ratio:.2f}", f"{ours.more['difference']:.0e}", f"{ours.more['numpy']:.0%}",
            *(digits(1000 * seconds) for seconds in opened),
        ]  # fmt: skip
        rows.append((ratio, cells))
    return summary(markdown(HEADER, [cells for _, cells in sorted(rows)], left=2), ratios, reasons)


def summary(text: str, ratios: Sequence[float], reasons: Sequence[list[str]]) -> str:
    """A table, with the ratios' mean and what failed after it."""
    if ratios:
        mean = statistics.geometric_mean(ratios)
        text += f"\n\n{len(ratios)} runs: geometric mean {mean:.2f}, worst {min(ratios):.2f}"
        text += f", {sum(r < 0.9 for r in ratios)} below 0.9"
    if reasons:
        text += f"\n\n{markdown(['model', 'type', 'failed'], reasons, left=3)}"
    return text


def main() -> None:
    """Measure, print, write."""
    names, types = list(zoo_files.entries()), zoo_files.PRECISIONS
    parser = argparse.ArgumentParser(
        prog="python -m benches.onnx.zoo", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    add = parser.add_argument
    add("-m", "--models", type=Some(names), default=names, help="(default: all)")
    add("-p", "--precisions", type=Some(types), default=list(types), help="from fp32, int8")
    add("-t", "--threads", type=counts, default=[1], help="(default 1)")
    add("-r", "--rounds", type=int, default=7, help="(default 7)")
    add("--limit", type=float, default=300, metavar="S", help="seconds of a model (default 300)")
    add("--prepare", action="store_true", help="only make the files")
    add_json_option(parser)
    options = parser.parse_args()
    if options.prepare:
        for name in options.models:
            for precision in options.precisions:
                try:
                    zoo_files.file(name, precision)
                except Exception as error:
                    say(f"{name}: {precision}: {error}")
        return
    series = []
    for threads in options.threads:
        for name in options.models:
            for precision in options.precisions:
                series += run(Case(name, precision, threads, options.rounds), options.limit)
    for threads in options.threads:
        print(f"\nThreads: {threads}\n\n{table([s for s in series if s.threads == threads])}")
    versions = {"onnxruntime": f"ONNX Runtime {version('onnxruntime')}"}
    write_json(options.json, pytest_json(series, "benches/onnx/zoo", versions=versions))
    sys.exit(0)


if __name__ == "__main__":
    main()
