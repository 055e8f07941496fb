"""Random graphs have the same results by definition, in NumPy programs and in native ones."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from tests.onnx.graphs import assert_close
from tests.onnx.random_graphs import SIZE, RandomGraph
from tests.support.sampled import sampled

from halfbyte.core.backends import open_program
from halfbyte.onnx.evaluate import Evaluator
from halfbyte.onnx.prepare import prepare
from halfbyte.onnx.runner import Runner

GRAPHS, BATCHES = 400, 8
BOUND = 2e-4  # of the largest number: errors of up to 14 nodes in a row


@pytest.mark.parametrize("batch", sampled(range(BATCHES), BATCHES))
def test_random_graphs(batch: int) -> None:
    for seed in range(batch, GRAPHS, BATCHES):
        graph = RandomGraph(seed)
        names = [v.name for v in graph.model.graph.outputs]
        prepared = prepare(graph.model)
        runs = {
            backend: Runner(prepared, lambda p, backend=backend: open_program(p, backend, 2))
            for backend in ("native", "numpy")
        }
        for factor in (1, 0.5, 1):  # the same programs again, on other numbers
            feeds = {n: np.asarray(v * np.float32(factor)) for n, v in graph.feeds.items()}
            wanted = Evaluator(graph.model).run(feeds)
            for backend, run in runs.items():
                outputs = run.run(feeds, names)
                where = f"graph {seed} on {backend}:"
                assert_close(list(outputs.values()), list(wanted.values()), BOUND, where)
        for run in runs.values():
            run.close()


def test_graphs_are_of_all_kinds() -> None:
    """Graphs are large enough, have every operator, and mostly run by kernels."""
    operators: Counter[str] = Counter()
    kernels: Counter[bool] = Counter()
    programs: Counter[int] = Counter()
    for seed in range(100):
        graph = RandomGraph(seed)
        assert len(graph.model.graph.nodes) >= SIZE
        operators.update(node.op_type for node in graph.model.graph.nodes)
        run = Runner(prepare(graph.model), lambda program: open_program(program, "numpy"))
        run.run(graph.feeds, [v.name for v in graph.model.graph.outputs])
        programs[len(run.programs())] += 1
        for program in run.programs():
            kernels.update(not i.operator.host for i in program.instructions)
    for kind in ("Conv", "MatMul", "Gemm", "Transpose", "Slice", "ReduceSum", "NonZero", "Concat",
                 "Where", "LayerNormalization", "MaxPool", "Softmax", "Unique"):  # fmt: skip
        assert operators[kind], kind
    assert kernels[True] > 2 * kernels[False]
    assert sum(programs[n] for n in programs if n > 1) > 10
