"""Small graphs, and a way to plant a wrong kernel into one of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from halfbyte.core.ops.operator import Operator

FLOAT = TensorProto.FLOAT


def write_chain(path: Path) -> Path:
    """x [n, 4] -> product "a" -> Tanh "b" -> Relu "c" -> Softmax "y", with nodes of these names."""
    weight = np.random.default_rng(1).standard_normal((4, 4)).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], "product"),
        helper.make_node("Tanh", ["a"], ["b"], "squash"),
        helper.make_node("Relu", ["b"], ["c"], "cut"),
        helper.make_node("Softmax", ["c"], ["y"], "share"),
    ]
    graph = helper.make_graph(
        nodes, "chain",
        [helper.make_tensor_value_info("x", FLOAT, ["n", 4])],
        [helper.make_tensor_value_info("y", FLOAT, ["n", 4])],
        [numpy_helper.from_array(weight, "w")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, path)
    return path


def write_dynamic(path: Path) -> Path:
    """Sizes that depend on values, a sequence, a branch, scalars: nodes between programs."""
    branches = {
        f"{kind}_branch": helper.make_graph(
            [helper.make_node(operator, ["item"], [kind])], kind, [],
            [helper.make_tensor_value_info(kind, FLOAT, None)],
        )
        for kind, operator in (("then", "Exp"), ("else", "Neg"))
    }  # fmt: skip
    nodes = [
        helper.make_node("NonZero", ["x"], ["places"]),
        helper.make_node("Transpose", ["places"], ["transposed"]),
        helper.make_node("GatherND", ["x", "transposed"], ["taken"]),
        helper.make_node("Relu", ["taken"], ["cut"]),
        helper.make_node("SplitToSequence", ["cut"], ["list"], axis=0),
        helper.make_node("SequenceAt", ["list", "which"], ["item"]),
        helper.make_node("If", ["flag"], ["chosen"], **branches),
        helper.make_node("Tanh", ["cut"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "dynamic",
        [
            helper.make_tensor_value_info("x", FLOAT, ["a", "b"]),
            helper.make_tensor_value_info("flag", TensorProto.BOOL, []),
            helper.make_tensor_value_info("which", TensorProto.INT64, []),
        ],
        [helper.make_tensor_value_info(name, FLOAT, [None]) for name in ("y", "chosen")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, path)
    return path


def plant(
    monkeypatch: pytest.MonkeyPatch, operator: Operator, wrong: Callable[[Any, Any], Any]
) -> None:
    """Change an operator's meaning: `wrong` gets its result and its first operand."""
    right = operator.meaning

    def meaning(*operands: Any, **attributes: Any) -> Any:
        return wrong(right(*operands, **attributes), operands[0])

    monkeypatch.setitem(operator.__dict__, "meaning", meaning)
