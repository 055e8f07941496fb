"""Shapes that definitions infer before anything is computed are those of the results.

Each rule is compared with its definition wherever ONNX's own tests, or ours, call it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from tests.onnx import contrib_cases
from tests.onnx.convert import model_from
from tests.onnx.node_cases import by_definition, exclusions, node_cases
from tests.onnx.test_contrib import built, feeds

from halfbyte.core.backends import open_program
from halfbyte.onnx import evaluate
from halfbyte.onnx.calls import Call
from halfbyte.onnx.evaluate import Evaluator
from halfbyte.onnx.files.model import Node
from halfbyte.onnx.prepare import prepare
from halfbyte.onnx.reference.registry import Definition
from halfbyte.onnx.runner import Runner

RECURRENT = ("LSTM", "GRU", "RNN")


class Watch:
    """Compares rules with results of every node that runs by its definition."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wrong: list[str] = []
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
    assert len(watch.shapes) > 100
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
    for case in contrib_cases.all_cases():
        Evaluator(model_from(built(case), "case.onnx")).run(feeds(case))
    assert watch.wrong == []
    assert all(watch.shapes[f"DynamicQuantize{name}"] > 1 for name in ("MatMul", "LSTM"))
    assert watch.ranks["SkipLayerNormalization"] > 1


@pytest.mark.parametrize("name", ["lstm_defaults", "gru_defaults", "simple_rnn_defaults"])
def test_recurrent_layers_run_once_a_run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They do not run once more to learn their shapes."""
    case = next(c for c in node_cases() if c.name == name)
    model, calls = case.model(), list[str]()
    call = Call.__call__
    monkeypatch.setattr(
        Call,
        "__call__",
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
