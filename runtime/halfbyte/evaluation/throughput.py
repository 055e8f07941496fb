"""The workload `bench`: speed beside a reference, in turns, in one process."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from halfbyte.evaluation import onnx_runtime
from halfbyte.evaluation.columns import table
from halfbyte.evaluation.evaluation import Evaluation, Result
from halfbyte.evaluation.graphs import GraphUnderTest, default_reference
from halfbyte.onnx.evaluate import Evaluator
from halfbyte.onnx.session import GraphOptimizationLevel, InferenceSession, SessionOptions
from halfbyte.text import bench
from halfbyte.text.loading import load
from halfbyte.text.model import LanguageModel

TURN = 0.05  # seconds that a turn of a graph takes at least
MAX_RUNS = 100  # in a turn
REST = 0.02  # seconds between turns: threads of the other engine may still be spinning


@dataclass
class Series:
    """One engine's speeds in one test, a turn each; `turn` runs it once and returns the speed."""

    engine: str
    test: str
    threads: int
    turn: Callable[[], float]
    speeds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """Of all turns."""
        return statistics.median(self.speeds)

    @property
    def spread(self) -> float:
        """The interquartile range; 0 of a single turn."""
        if len(self.speeds) < 2:
            return 0.0
        first, _, third = statistics.quantiles(self.speeds, n=4, method="inclusive")
        return third - first

    def ratio(self, other: Series) -> float:
        """Median of the turns' ratios of speed: a change of the machine's meets both alike."""
        pairs = zip(self.speeds, other.speeds, strict=True)
        return statistics.median(ours / theirs for ours, theirs in pairs)


Pair = tuple[Series, Series | None]  # ours, and the reference's


def bench_graph(e: Evaluation) -> Result:
    """Runs/s of a graph."""
    reference = e.reference_of(*default_reference(), "none")
    graph = GraphUnderTest(e)
    pairs: list[Pair] = []
    sessions = []
    for threads in e.thread_counts:
        session = _session(e, threads)
        sessions.append(session)
        test = "run"
        ours = Series(e.backend, test, threads, _graph_turn(_session_run(session, graph)))
        other = _reference_run(graph, reference, threads)
        pairs.append((ours, other and Series(reference, test, threads, _graph_turn(other))))
    _measure(e, pairs)
    graph.dump.programs([program for session in sessions for program in session.programs()])
    for session in sessions:
        session.close()
    return _result(e, pairs, "runs/s", f"{e.model.name}; {graph.shapes()}")


def _session(e: Evaluation, threads: int) -> InferenceSession:
    levels = GraphOptimizationLevel
    level = levels.ORT_ENABLE_ALL if e.passes else levels.ORT_DISABLE_ALL
    options = SessionOptions(threads, backend=e.backend, graph_optimization_level=level)
    return InferenceSession(e.model, options)


def _session_run(session: InferenceSession, graph: GraphUnderTest) -> Callable[[], Any]:
    return lambda: session.run(None, graph.feeds)


def _reference_run(graph: GraphUnderTest, reference: str, threads: int) -> Callable[[], Any] | None:
    if reference == "none":
        return None
    if reference == "numpy":
        evaluator = Evaluator(graph.model)
        return lambda: evaluator.run(graph.feeds)
    session = onnx_runtime.Session(graph.evaluation.model, threads, optimize=True)
    return lambda: session.run(graph.feeds)


def _graph_turn(run: Callable[[], Any]) -> Callable[[], float]:
    """A turn: as many runs in a row as take `TURN`; its median speed."""
    runs = 0

    def turn() -> float:
        nonlocal runs
        seconds = [_seconds(run) for _ in range(runs or 2)]
        if not runs:  # the first one plans and packs
            runs = max(1, min(MAX_RUNS, int(TURN / max(seconds[1], 1e-9))))
        return 1 / max(statistics.median(seconds), 1e-9)

    return turn


def _seconds(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def bench_language_model(e: Evaluation) -> Result:
    """Tokens/s of prompts (pp) and of generation (tg), as `halfbyte bench` has them."""
    reference = e.reference_of("numpy", "none")
    models: list[LanguageModel] = []

    def opened(backend: str, threads: int) -> LanguageModel:
        e.progress(f"loading {e.model} ({backend}, {threads} threads)")
        model = load(
            e.model, tokenizer=e.tokenizer, context=e.context, cache=e.cache, backend=backend,
            threads=threads, passes=e.passes,
        )  # fmt: skip
        models.append(model)
        return model

    slow = None if reference == "none" else opened("numpy", 1)
    pairs: list[Pair] = []
    for threads in e.thread_counts:
        model = opened(e.backend, threads)
        for kind, counts in (("pp", e.prompts), ("tg", e.decodes)):
            for count in counts:
                ours = _test(model, kind, count, e.backend, threads)
                other = None if slow is None else _test(slow, kind, count, reference, 1)
                pairs.append((ours, other))
    _measure(e, pairs)
    for model in models:
        model.close()
    return _result(e, pairs, "tokens/s", e.model.name)


def _test(model: LanguageModel, kind: str, count: int, engine: str, threads: int) -> Series:
    return Series(engine, f"{kind}{count}", threads, bench.Test(model, kind, count).run)


def _measure(e: Evaluation, pairs: Sequence[Pair]) -> None:
    """One turn of each to warm up, then repetitions in which all take turns."""
    series = [one for pair in pairs for one in pair if one is not None]
    for number in range(-1, e.repetitions):
        e.progress("warming up" if number < 0 else f"turn {number + 1} of {e.repetitions}")
        for one in series:
            time.sleep(REST)
            speed = one.turn()
            if number >= 0:
                one.speeds.append(speed)


def _result(e: Evaluation, pairs: Sequence[Pair], unit: str, head: str) -> Result:
    rows, data = [], []
    for ours, other in pairs:
        cells = [ours.test, str(ours.threads), f"{ours.median:.2f}", f"{ours.spread:.2f}"]
        made: dict[str, Any] = {
            "test": ours.test, "threads": ours.threads, "engine": ours.engine, "unit": unit,
            "median": ours.median, "iqr": ours.spread, "speeds": ours.speeds,
        }  # fmt: skip
        if other is not None:
            ratio = ours.ratio(other)
            cells += [f"{other.median:.2f}", f"{other.spread:.2f}", f"{ratio:.2f}"]
            made["reference"] = {
                "engine": other.engine, "threads": other.threads, "median": other.median,
                "iqr": other.spread, "speeds": other.speeds,
            }  # fmt: skip
            made["ratio"] = ratio
        rows.append(cells)
        data.append(made)
    heads = ["test", "threads", f"{e.backend} {unit}", "IQR"]
    reference = pairs[0][1]
    if reference is not None:
        heads += [f"{reference.engine} {unit}", "IQR", "ratio"]
    best = max(pair[0].median for pair in pairs)
    ratios = f", {max(d['ratio'] for d in data):.2f} x reference" if reference else ""
    lines = [f"{head}; medians of {e.repetitions} turns", *table(heads, rows)]
    return Result(e, None, f"{best:.1f} {unit}{ratios}", lines, {"tests": data})
