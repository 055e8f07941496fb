"""Tensor operations of ONNX graphs, beside ONNX Runtime on one thread, taking turns."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import onnx
import pytest
from benches.case import Bench
from benches.figures import Series
from benches.turns import Contender
from benches.yardstick import clock_of
from onnx import TensorProto, helper

X = (1, 64, 56, 56)  # an image in a network
ROWS = (128, 768)  # tokens in an encoder


@dataclass(frozen=True)
class Node:
    """An operator, the shape of its input, and those of constants, which are random."""

    operator: str
    shape: tuple[int, ...] = ROWS
    constants: tuple[tuple[int, ...] | tuple[list[int]], ...] = ()
    attributes: dict[str, Any] = field(default_factory=dict)


CONV = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
NODES = {
    "add": Node("Add", constants=((768,),)),
    "multiply": Node("Mul", constants=((128, 768),)),
    "exponential": Node("Exp"),
    "sigmoid": Node("Sigmoid"),
    "error function": Node("Erf"),
    "tanh": Node("Tanh"),
    "GELU": Node("Gelu"),
    "softmax": Node("Softmax"),
    "layer norm": Node("LayerNormalization", constants=((768,), (768,))),
    "mean of rows": Node("ReduceMean", attributes={"keepdims": 0}, constants=(([1],),)),
    "transpose": Node("Transpose", attributes={"perm": [1, 0]}),
    "slice": Node("Slice", constants=(([0, 64],), ([128, 704],))),
    "gather rows": Node("Gather", constants=(([5, 3, 99] * 40,),)),
    "product": Node("MatMul", constants=((768, 768),)),
    "convolution 3x3": Node("Conv", X, ((64, 64, 3, 3), (64,)), CONV),
    "convolution 1x1": Node("Conv", X, ((64, 64, 1, 1), (64,))),
    "depthwise 3x3": Node("Conv", X, ((64, 1, 3, 3), (64,)), {**CONV, "group": 64}),
    "max pool": Node("MaxPool", X, (), {**CONV, "strides": [2, 2]}),
    "mean pool": Node("GlobalAveragePool", X),
}
SHORT = {"add", "softmax", "layer norm", "product", "convolution 3x3", "transpose"}


def model(node: Node) -> bytes:
    """A graph of this node only."""
    random = np.random.default_rng(0)
    names, constants = ["x"], []
    for number, each in enumerate(node.constants):
        name = f"c{number}"
        first = each[0]
        values = (
            np.array(first, np.int64)
            if isinstance(first, list)
            else random.standard_normal(each, np.float32)
        )
        names.append(name)
        constants.append(onnx.numpy_helper.from_array(values, name))
    graph = helper.make_graph(
        [helper.make_node(node.operator, names, ["y"], **node.attributes)], "case",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, node.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], constants,
    )  # fmt: skip
    opset = helper.make_opsetid("", 20)
    return bytes(helper.make_model(graph, opset_imports=[opset], ir_version=10).SerializeToString())


def session(engine: str, node: Node) -> Callable[[], object]:
    """A run of the graph by an engine on one thread."""
    module = importlib.import_module(engine)
    options = module.SessionOptions()
    options.intra_op_num_threads = 1
    opened = module.InferenceSession(model(node), options, providers=["CPUExecutionProvider"])
    x = np.random.default_rng(1).standard_normal(node.shape, np.float32)
    return partial(opened.run, None, {"x": x})


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.short] if n in SHORT else [], id=n) for n in NODES],
)
def bench_operator(bench: Bench, name: str) -> None:
    node = NODES[name]
    shape = "x".join(map(str, node.shape))
    contenders = [
        Contender.of(Series(name, engine, shape), partial(session, engine, node), clock_of(1))
        for engine in ("halfbyte", "onnxruntime")
    ]
    bench.measure(contenders, "clock")
