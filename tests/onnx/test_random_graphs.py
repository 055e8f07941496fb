"""Random graphs have the same results by definition, in NumPy programs and in native ones."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tests.onnx.graphs import assert_close
from tests.onnx.random_graphs import SIZE, RandomGraph
from tests.support.sampled import sampled

from halfbyte.core.backends import open_program
from halfbyte.errors import HalfbyteError
from halfbyte.onnx.evaluate import Evaluator
from halfbyte.onnx.prepare import prepare
from halfbyte.onnx.runner import Runner

Array = npt.NDArray[Any]

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


@pytest.mark.parametrize("batch", sampled(range(BATCHES), BATCHES))
def test_random_graphs_of_several_shapes(batch: int) -> None:
    """One program for several shapes has the bits, and the errors, of a program for each."""
    named, done = 0, 0
    for seed in range(batch, GRAPHS // 4, BATCHES):
        graph, random = RandomGraph(seed), np.random.default_rng(seed)
        prepared = prepare(graph.model)
        runs = [
            Runner(prepared, lambda p: open_program(p, "native", 1), name_sizes=names)
            for names in (True, False)
        ]
        for feeds in (graph.feeds, *(_resized(graph.feeds, random, n) for n in range(7))):
            one, other = (_result(run, feeds) for run in runs)
            assert one == other, f"graph {seed}: {[v.shape for v in feeds.values()]}"
            done += not isinstance(one, str)
        named += any(program.sizes for program in runs[0].programs())
        for run in runs:
            run.close()
    assert named > 5
    assert done > 30


def _resized(feeds: dict[str, Array], random: np.random.Generator, number: int) -> dict[str, Array]:
    """Feeds with a longer first axis, or with other sizes, the same ones where they were."""
    sizes: dict[int, int] = {}
    resized = {}
    for name, array in feeds.items():
        shape = list(array.shape)
        for axis, size in enumerate(shape):
            if number < 3 and axis == 0:
                shape[axis] = size + number + 1
            elif number >= 3 and random.random() < 0.5:
                shape[axis] = sizes.setdefault(size, max(1, size + int(random.integers(-1, 5))))
        resized[name] = random.standard_normal(shape).astype(array.dtype)
    return resized


def _result(run: Runner, feeds: dict[str, Array]) -> Any:
    """What is equal for equal results; an error's type where there are none."""
    try:
        outputs = run.run(feeds, [v.name for v in run.model.graph.outputs])
    except HalfbyteError as error:
        return type(error).__name__
    return [(v.dtype, v.shape, v.tobytes()) for v in outputs.values()]


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
