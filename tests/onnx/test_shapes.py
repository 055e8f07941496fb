"""Shapes that definitions infer before anything is computed are those of the results.

Each rule is compared with its definition wherever ONNX's own tests, or ours, call it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from tests.onnx.contrib_formulas import all_formulas
from tests.onnx.convert import model_from
from tests.onnx.node_cases import by_definition, exclusions, node_cases
from tests.onnx.test_contrib import CASES, built, feeds

from halfbyte.core.backends import open_program
from halfbyte.onnx import evaluate
from halfbyte.onnx.calls import Call
from halfbyte.onnx.evaluate import Evaluator
from halfbyte.onnx.files.model import Node
from halfbyte.onnx.prepare import prepare
from halfbyte.onnx.reference import lookup, operators
from halfbyte.onnx.reference._shapes import blank
from halfbyte.onnx.reference.arrays import Array
from halfbyte.onnx.reference.registry import Definition, versions
from halfbyte.onnx.reference.signatures import signature_of
from halfbyte.onnx.runner import Runner

RECURRENT = ("LSTM", "GRU", "RNN")


class Watch:
    """Compares rules with results of every node that runs by its definition."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wrong: list[str] = []
        self.unknown: set[str] = set()
        self.shapes: Counter[str] = Counter()
        self.ranks: Counter[str] = Counter()
        self._bound = evaluate.bound
        monkeypatch.setattr(evaluate, "bound", self.bound)

    def bound(self, definition: Definition, node: Node, *rest: Any) -> Callable[..., Any]:
        call = self._bound(definition, node, *rest)

        def run(inputs: Sequence[Any]) -> Sequence[Any]:
            results = call(inputs)
            if all(isinstance(v, np.ndarray) for v in results):
                self._compare(definition, node, call, inputs, results)
            return results

        return run

    def _compare(
        self, definition: Definition, node: Node, call: Any, inputs: Any, results: Any
    ) -> None:
        arrays = all(v is None or isinstance(v, np.ndarray) for v in inputs)
        if definition.infer.shapes is not None and arrays:
            zeros = [
                v if v is None or i in definition.decided_by else np.zeros(v.shape, v.dtype)
                for i, v in enumerate(inputs)
            ]
            inferred = call.infer(zeros)
            self.shapes[node.op_type] += inferred is not None
            if inferred is None:
                self.unknown.add(node.op_type)
            if inferred is not None and inferred != [(v.dtype, v.shape) for v in results]:
                self.wrong.append(f"{node}: {inferred}, expected {[v.shape for v in results]}")
        if definition.infer.rank is not None and arrays and inputs:
            given = [None if v is None else v.ndim for v in inputs]
            rank = definition.infer.rank(given, node, lambda i: _length(inputs[i]))
            self.ranks[node.op_type] += rank is not None
            if rank is not None and rank != results[0].ndim:
                self.wrong.append(f"{node}: rank {rank}, expected {results[0].ndim}")


def _length(value: Any) -> int | None:
    return None if value is None else int(value.size)


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    return Watch(monkeypatch)


def test_shapes_are_those_that_rules_say(watch: Watch) -> None:
    excluded = exclusions()
    for case in node_cases():
        if case.name not in excluded:
            model = case.model()
            names = [v.name for v in model.graph.inputs]
            for inputs, _ in case.data_sets():
                by_definition(model)(dict(zip(names, inputs, strict=False)))
    assert watch.wrong == []
    assert watch.unknown == set()
    assert len(watch.shapes) > 150
    assert len(watch.ranks) > 110
    others = (
        "Conv",
        "MatMul",
        "ReduceMean",
        "LinearAttention",
        "CausalConvWithState",
        "DeformConv",
    )
    assert all(watch.shapes[name] > 2 for name in (*RECURRENT, *others))


def test_shapes_of_onnx_runtime_s_operators(watch: Watch) -> None:
    for case in [*CASES, *(case for case, _ in all_formulas())]:
        Evaluator(model_from(built(case), "case.onnx")).run(feeds(case))
    assert watch.wrong == []
    assert watch.unknown == set()
    assert len(watch.shapes) > 80
    assert all(watch.shapes[f"DynamicQuantize{name}"] > 1 for name in ("MatMul", "LSTM"))
    assert watch.ranks["SkipLayerNormalization"] > 1


# Versions and operators that neither ONNX's cases nor ours have.
def _others() -> Iterator[tuple[str, int, list[Array], dict[str, Any]]]:
    x, row = np.full((2, 3, 4), 0.5, np.float32), np.full(3, 0.5, np.float32)
    for name in ("Add", "Sub", "Mul", "Div", "Greater", "Less", "Equal"):
        yield name, 1, [x, row], {"axis": 1, "broadcast": 1}
        yield name, 1, [x, x[0]], {"broadcast": 1}
    for name in ("And", "Or", "Xor"):
        yield name, 1, [x > 0, row > 0], {"axis": 1, "broadcast": 1}
    for dtype in (0, 11):
        for name in ("Bernoulli", "RandomNormalLike", "RandomUniformLike"):
            yield name, 22, [x], {"dtype": dtype}
    yield "Multinomial", 7, [x[0]], {"sample_size": 5, "dtype": 7}
    yield "Dropout", 7, [x], {}
    yield "Resize", 10, [x, np.array([1, 2, 0.6], np.float32)], {}
    yield "Upsample", 7, [x], {"scales": [1.0, 2.0, 1.5]}
    yield "BatchNormalization", 7, [x, row, row, row, row], {}
    q, k, mask = x[None], x[None, :, :2], np.zeros((2, 1, 1, 2), np.float32)
    yield "ai.halfbyte:Attention", 1, [q, k, k[..., :3]], {"scale": 1.0}
    yield "ai.halfbyte:Attention", 1, [q, k, k, mask], {"scale": 1.0}
    yield "ai.halfbyte:ScaledKernel", 1, [x, np.ones(2)], {}
    yield "ai.onnx.ml:LabelEncoder", 1, [np.array([1, 0])], {"classes_strings": ["a", "b"]}


@pytest.mark.parametrize(("name", "version", "inputs", "attributes"), [*_others()])
def test_shapes_of_other_versions(
    name: str, version: int, inputs: list[Array], attributes: dict[str, Any]
) -> None:
    domain, _, operator = name.rpartition(":")
    definition = lookup(domain, operator, version, name)
    node = Node(operator, inputs=tuple(f"x{i}" for i in range(len(inputs))), outputs=("y",),
                attributes=attributes, domain=domain)  # fmt: skip
    call = evaluate.bound(definition, node, version, lambda graph: pytest.fail("a graph"), name)
    inferred = call.infer([blank(x.shape, x.dtype) if i not in definition.decided_by else x
                           for i, x in enumerate(inputs)])  # fmt: skip
    assert inferred == [(y.dtype, y.shape) for y in call(inputs)]


def test_every_definition_tells_shapes() -> None:
    """Or says that values decide them; of constants, results are computed before a run."""
    without = {
        definition.name
        for key in operators() for definition in versions(*key)
        if definition.infer.shapes is None and not definition.dynamic
        and len(definition.decided_by) < signature_of(definition).maximum
    }  # fmt: skip
    assert without == set()


@pytest.mark.parametrize("name", ["lstm_defaults", "gru_defaults", "simple_rnn_defaults"])
def test_recurrent_layers_run_once_a_run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They do not run once more to learn their shapes."""
    case = next(c for c in node_cases() if c.name == name)
    model, calls = case.model(), list[str]()
    call = Call.quietly
    monkeypatch.setattr(
        Call,
        "quietly",
        lambda self, x: calls.append(self.definition.name) or call(self, x),
    )
    runner = Runner(prepare(model), lambda program: open_program(program, "numpy", 1))
    inputs, _ = case.data_sets()[0]
    given = dict(zip((v.name for v in model.graph.inputs), inputs, strict=False))
    assert [i.operator.name for p in runner.plan(given) for i in p.instructions] == [
        model.graph.nodes[0].op_type
    ]
    assert calls == []
    runner.run(given, [v.name for v in model.graph.outputs])
    assert calls == [model.graph.nodes[0].op_type]
    runner.close()
