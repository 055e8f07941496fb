"""ONNX graphs as a subject of evaluation."""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from typing import Any

from halfbyte.core.backends import Executable, open_program, prefers_widened
from halfbyte.core.program import Program
from halfbyte.evaluation import onnx_runtime
from halfbyte.evaluation.evaluation import Evaluation
from halfbyte.evaluation.inputs import graph_feeds
from halfbyte.evaluation.series import Pair, Series
from halfbyte.evaluation.subject import ProfiledRuns, Subject, Values
from halfbyte.evaluation.tolerances import OUTPUT, OUTPUT_INT8
from halfbyte.onnx.evaluate import Evaluator
from halfbyte.onnx.files import open_onnx
from halfbyte.onnx.prepare import prepare
from halfbyte.onnx.runner import Runner, attention_products
from halfbyte.onnx.session import GraphOptimizationLevel, InferenceSession, SessionOptions
from halfbyte.onnx.session.trace import Trace
from halfbyte.onnx.stages import Opener

TURN = 0.05  # seconds that a turn takes at least
MAX_RUNS = 100  # in a turn
_INTEGER = re.compile("^Quantize|DynamicQuantize|QLinear|Integer|^QGemm|^QAttention")


class GraphSubject(Subject):
    """A graph with its feeds.

    Attributes
    ----------
    model, prepared : Model
        As in the file, and as it runs.
    feeds : dict of str to ndarray
    names : list of str
        Names of the outputs.
    """

    unit = "runs/s"

    def __init__(self, evaluation: Evaluation) -> None:
        super().__init__(evaluation)
        e = evaluation
        e.progress(f"reading {e.model}")
        self.model = open_onnx(e.model)
        self.feeds = graph_feeds(self.model, e.input, e.sizes, e.seed)
        self.prepared = prepare(self.model, optimize=e.passes)
        self.names = [v.name for v in self.model.graph.outputs]
        self.dump.graphs(self.model.graph, self.prepared.graph)
        self.dump.values("inputs", self.feeds)

    @classmethod
    def references(cls, workload: str) -> tuple[str, ...]:
        """`bench` prefers ONNX Runtime where it is installed."""
        if workload == "run":
            return ("none",)
        if workload == "bench":
            engines = ("onnxruntime", "numpy")
            return (*(engines if onnx_runtime.installed() else engines[::-1]), "none")
        return ("numpy", "onnxruntime")

    @property
    def inputs(self) -> str:
        """Names and shapes of the feeds."""
        return ", ".join(f"{n} {list(v.shape)}" for n, v in self.feeds.items()) or "no inputs"

    @cached_property
    def output_kind(self) -> str:
        """See `Subject`."""
        quantized = any(_INTEGER.search(node.op_type) for node in self.model.graph.nodes)
        return OUTPUT_INT8 if quantized or self.rounds_activations else OUTPUT

    @cached_property
    def rounds_activations(self) -> bool:
        """Whether products quantize activations to int8 that are floats in the graph."""
        return any(
            node.op_type == "MatMulNBits" and node.attributes.get("accuracy_level") == 4
            for node in self.model.graph.nodes
        )

    @contextmanager
    def runner(
        self, threads: int, keep: Collection[str] = (), opener: Opener | None = None
    ) -> Iterator[Runner]:
        """The graph's runner, which keeps the values `keep` beside the outputs."""

        def default_opener(program: Program) -> Executable:
            executable = open_program(program, self.evaluation.backend, threads)
            self.backend = executable.backend
            return executable

        runner = Runner(
            self.prepared, opener or default_opener,
            int8_attention=attention_products(self.model), cores=threads, keep=keep,
            wide_products=prefers_widened(self.evaluation.backend),
        )  # fmt: skip
        try:
            yield runner
        finally:
            runner.close()
        self.dump.programs(runner.programs())

    def outputs(self, threads: int) -> Values:
        """See `Subject`."""
        with self.runner(threads) as runner:
            return runner.run(self.feeds, self.names)

    def reference_outputs(self, reference: str) -> Values:
        """See `Subject`."""
        if reference == "numpy":
            return Evaluator(self.model).run(self.feeds)
        e = self.evaluation
        return onnx_runtime.Session(e.model, e.thread_counts[0]).run(self.feeds)

    @contextmanager
    def profiled(self, threads: int) -> Iterator[ProfiledRuns]:
        """See `Subject`."""
        with self.runner(threads) as runner:
            runner.run(self.feeds, self.names)
            trace = Trace()
            yield ProfiledRuns(
                run=lambda: runner.run(self.feeds, self.names, trace),
                profile=trace.profile,
                span="model_run",
                events=lambda: trace.events(self.backend, threads),
            )

    def step_through(self, opener: Callable[[Program], Executable]) -> None:
        """See `Subject`."""
        with self.runner(self.evaluation.one_thread_count, opener=opener) as runner:
            runner.run(self.feeds, self.names)

    @contextmanager
    def pairs(self, reference: str) -> Iterator[list[Pair]]:
        """Runs of a session with the default options, as users run the graph."""
        e = self.evaluation
        sessions = {threads: self._session(threads) for threads in e.thread_counts}
        pairs: list[Pair] = []
        for threads in e.thread_counts:
            run = partial(sessions[threads].run, None, self.feeds)
            other = self._reference_run(reference, threads)
            pairs.append(
                (
                    Series(e.backend, "run", threads, _turn(run)),
                    other and Series(reference, "run", threads, _turn(other)),
                )
            )
        yield pairs
        self.dump.programs([p for session in sessions.values() for p in session.programs()])
        for session in sessions.values():
            session.close()

    def _session(self, threads: int) -> InferenceSession:
        levels = GraphOptimizationLevel
        level = levels.ORT_ENABLE_ALL if self.evaluation.passes else levels.ORT_DISABLE_ALL
        options = SessionOptions(
            threads, backend=self.evaluation.backend, graph_optimization_level=level
        )
        return InferenceSession(self.evaluation.model, options)

    def _reference_run(self, reference: str, threads: int) -> Callable[[], Any] | None:
        if reference == "none":
            return None
        if reference == "numpy":
            return partial(Evaluator(self.model).run, self.feeds)
        session = onnx_runtime.Session(self.evaluation.model, threads, optimize=True)
        return partial(session.run, self.feeds)


def _turn(run: Callable[[], Any]) -> Callable[[], float]:
    """A turn: as many runs in a row as fill `TURN` seconds; returns their median speed."""
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
