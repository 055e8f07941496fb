"""Random graphs give the same by definition, by NumPy programs and by native ones."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from tests.onnx.graphs import assert_close
from tests.onnx.random_graphs import SIZE, RandomGraph

from halfbyte.core.backends import open_program
from halfbyte.onnx.evaluate import Evaluator
from halfbyte.onnx.prepare import prepare
from halfbyte.onnx.runner import Runner

GRAPHS, BATCHES = 400, 8
BOUND = 2e-4  # of the largest: errors of up to 14 nodes, one behind the other


@pytest.mark.parametrize("batch", range(BATCHES))
def test_random_graphs(batch: int) -> None:
    for seed in range(batch, GRAPHS, BATCHES):
        made = RandomGraph(seed)
        names = [v.name for v in made.model.graph.outputs]
        prepared = prepare(made.model)
        runs = {
            backend: Runner(prepared, lambda p, backend=backend: open_program(p, backend, 2))
            for backend in ("native", "numpy")
        }
        for factor in (1, 0.5, 1):  # the same programs again, on other numbers
            feeds = {n: np.asarray(v * np.float32(factor)) for n, v in made.feeds.items()}
            wanted = Evaluator(made.model).run(feeds)
            for backend, run in runs.items():
                found = run.run(feeds, names)
                where = f"graph {seed} on {backend}:"
                assert_close(list(found.values()), list(wanted.values()), BOUND, where)
        for run in runs.values():
            run.close()


def test_graphs_are_of_all_kinds() -> None:
    """What is generated is large enough, of every operator, and mostly run by kernels."""
    found: Counter[str] = Counter()
    kernels: Counter[bool] = Counter()
    programs: Counter[int] = Counter()
    for seed in range(100):
        made = RandomGraph(seed)
        assert len(made.model.graph.nodes) >= SIZE
        found.update(node.op_type for node in made.model.graph.nodes)
        run = Runner(prepare(made.model), lambda program: open_program(program, "numpy"))
        run.run(made.feeds, [v.name for v in made.model.graph.outputs])
        programs[len(run.programs())] += 1
        for program in run.programs():
            kernels.update(not i.operator.host for i in program.instructions)
    for kind in ("Conv", "MatMul", "Gemm", "Transpose", "Slice", "ReduceSum", "NonZero", "Concat",
                 "Where", "LayerNormalization", "MaxPool", "Softmax", "Unique"):  # fmt: skip
        assert found[kind], kind
    assert kernels[True] > 2 * kernels[False]
    assert sum(programs[n] for n in programs if n > 1) > 10
