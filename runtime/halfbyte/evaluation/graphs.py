"""The workloads `validate` and `run` on ONNX graphs, and what all workloads on them share."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Collection, Mapping
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.core.backends import Executable, open_program, prefers_widened
from halfbyte.core.profile import Profile
from halfbyte.core.program import Program
from halfbyte.evaluation import onnx_runtime
from halfbyte.evaluation.compare import compare, json_number
from halfbyte.evaluation.dump import Dump
from halfbyte.evaluation.inputs import graph_feeds
from halfbyte.evaluation.report import comparison_rows, value_rows
from halfbyte.evaluation.settings import Evaluation, Result
from halfbyte.evaluation.tolerances import OUTPUT, OUTPUT_INT8
from halfbyte.onnx.evaluate import Evaluator
from halfbyte.onnx.files import open_onnx
from halfbyte.onnx.prepare import prepare
from halfbyte.onnx.runner import Runner, attention_products
from halfbyte.onnx.session.trace import Trace
from halfbyte.onnx.stages import Opener
from halfbyte.outputs import write_text

_INTEGER = re.compile("^Quantize|DynamicQuantize|QLinear|Integer|^QGemm|^QAttention")


class GraphUnderTest:
    """A graph with its feeds.

    Attributes
    ----------
    model, prepared : Model
        As in the file, and as it runs.
    feeds : dict of str to ndarray
    names : list of str
        Of the outputs.
    """

    def __init__(self, evaluation: Evaluation) -> None:
        e = self.evaluation = evaluation
        e.progress(f"reading {e.model}")
        self.model = open_onnx(e.model)
        self.feeds = graph_feeds(self.model, e.input, e.sizes, e.seed)
        self.prepared = prepare(self.model, optimize=e.passes)
        self.names = [v.name for v in self.model.graph.outputs]
        self.backend = e.backend  # its full name, as soon as a program was opened
        self.dump = Dump(e.dump)
        self.dump.graphs(self.model.graph, self.prepared.graph)
        self.dump.values("inputs", self.feeds)

    @cached_property
    def output_kind(self) -> str:
        """What stands for the operator of its outputs in tolerances' rules."""
        quantized = any(_INTEGER.search(node.op_type) for node in self.model.graph.nodes)
        return OUTPUT_INT8 if quantized or self.rounds_activations else OUTPUT

    @cached_property
    def rounds_activations(self) -> bool:
        """Whether products take activations in int8 that the graph has in floats."""
        return any(
            node.op_type == "MatMulNBits" and node.attributes.get("accuracy_level") == 4
            for node in self.model.graph.nodes
        )

    def runner(
        self, threads: int, keep: Collection[str] = (), opener: Opener | None = None
    ) -> Runner:
        """What runs it; `keep` are values beside the outputs."""

        def opened(program: Program) -> Executable:
            executable = open_program(program, self.evaluation.backend, threads)
            self.backend = executable.backend
            return executable

        return Runner(
            self.prepared, opener or opened,
            int8_attention=attention_products(self.model), cores=threads, keep=keep,
            wide_products=prefers_widened(self.evaluation.backend),
        )  # fmt: skip

    def shapes(self) -> str:
        """The feeds' shapes, in a line."""
        return ", ".join(f"{n} {list(v.shape)}" for n, v in self.feeds.items()) or "no inputs"


def default_reference() -> tuple[str, str]:
    """ONNX Runtime where it is, then NumPy; or the other way round."""
    choices = ("onnxruntime", "numpy")
    return choices if onnx_runtime.installed() else choices[::-1]


def validate(e: Evaluation) -> Result:
    """Outputs beside those of a reference, within tolerances."""
    reference = e.reference_of("numpy", "onnxruntime")
    graph = GraphUnderTest(e)
    e.progress(f"running {reference}")
    wanted = _reference_outputs(graph, reference)
    graph.dump.values("reference", wanted)
    rows = []
    for threads in e.thread_counts:
        e.progress(f"running {e.backend}, {threads} threads")
        runner = graph.runner(threads)
        found = runner.run(graph.feeds, graph.names)
        runner.close()
        graph.dump.programs(runner.programs())
        graph.dump.values("values", found)
        for name in graph.names:
            tolerance = e.tolerance(graph.output_kind, graph.backend, wanted[name])
            rows.append((name, threads, compare(found[name], wanted[name], tolerance)))
    passed = all(comparison.passed for _, _, comparison in rows)
    worst = max((c.max_rel for _, _, c in rows), default=0.0)
    lines = [
        f"{e.model.name}: {graph.backend} beside {reference}; {graph.shapes()}",
        *comparison_rows(rows),
    ]
    data = {
        "reference": reference, "backend": graph.backend,
        "outputs": [{"name": n, "threads": t, **c.as_json()} for n, t, c in rows],
    }  # fmt: skip
    return Result(e, passed, f"max rel error {worst:.1e}", lines, data)


def _reference_outputs(graph: GraphUnderTest, reference: str) -> dict[str, Any]:
    e = graph.evaluation
    if reference == "numpy":
        return Evaluator(graph.model).run(graph.feeds)
    return onnx_runtime.Session(e.model, e.thread_counts[0]).run(graph.feeds)


def run(e: Evaluation) -> Result:
    """Outputs' summaries and a profile; the first run, which plans and packs, is not in it."""
    e.reference_of("none")
    graph = GraphUnderTest(e)
    threads = e.one_thread_count
    runner = graph.runner(threads)
    trace = Trace()
    runner.run(graph.feeds, graph.names)
    for number in range(e.repetitions):
        e.progress(f"run {number + 1} of {e.repetitions}")
        start = time.perf_counter()
        found = runner.run(graph.feeds, graph.names, trace)
        trace.span("model_run", start)
    runner.close()
    graph.dump.programs(runner.programs())
    graph.dump.values("values", found)
    if e.trace is not None:
        write_text(e.trace, json.dumps(trace.events(graph.backend, threads)))
    summaries = {name: summary(value) for name, value in found.items()}
    return run_result(e, graph.backend, threads, graph.shapes(), summaries, trace.profile)


def run_result(
    e: Evaluation, backend: str, threads: int, fed: str,
    summaries: Mapping[str, dict[str, Any]], profile: Profile,
) -> Result:  # fmt: skip
    """What `run` says, of graphs and of language models."""
    seconds = sum(row.seconds for row in profile.rows.values())
    lines = [
        f"{e.model.name}: {backend}, {threads} threads, {e.repetitions} runs; {fed}",
        *value_rows(summaries), "", *profile.table().splitlines(),
    ]  # fmt: skip
    kernels = {
        name: {
            "calls": row.calls, "seconds": row.seconds, "bytes": row.bytes,
            "operations": row.operations,
        }
        for name, row in profile.rows.items()
    }  # fmt: skip
    data = {"backend": backend, "threads": threads, "outputs": summaries, "kernels": kernels}
    return Result(e, None, f"{seconds / e.repetitions * 1e3:.2f} ms a run", lines, data)


def summary(value: Any) -> dict[str, Any]:
    """What a value is, and for numbers their range, mean, deviation and how many are not finite."""
    if not isinstance(value, np.ndarray):
        return {"type": type(value).__name__}
    kind = value.dtype.names[0] if value.dtype.names else str(value.dtype)
    made: dict[str, Any] = {"type": kind, "shape": list(value.shape)}
    if value.dtype.kind not in "fiub" or not value.size:
        return made
    numbers: npt.NDArray[np.float64] = value.astype(np.float64)
    finite = numbers[np.isfinite(numbers)]
    made["not_finite"] = int(numbers.size - finite.size)
    if finite.size:
        figures = (finite.min(), finite.max(), finite.mean(), finite.std())
        names = ("min", "max", "mean", "deviation")
        made.update(zip(names, (json_number(float(f)) for f in figures), strict=True))
    return made
