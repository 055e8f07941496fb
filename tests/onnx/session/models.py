"""Small ONNX models as bytes, and ONNX Runtime and halfbyte under one interface."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from halfbyte.onnx.standin import PACKAGE, contents

ONNX_RUNTIME: ModuleType = onnxruntime
HALFBYTE: ModuleType = PACKAGE.modules(contents())["onnxruntime"]
ONNX_RUNTIME.set_default_logger_severity(4)

FLOAT, INT64, STRING, BOOL = (
    TensorProto.FLOAT,
    TensorProto.INT64,
    TensorProto.STRING,
    TensorProto.BOOL,
)
Shape = Sequence[int | str | None] | None


def tensor(name: str, kind: int = FLOAT, shape: Shape = (2,)) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def node(kind: str, inputs: str, outputs: str = "y", **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(kind, inputs.split(), outputs.split(), **attributes)


def weight(name: str, values: Any, dtype: Any = np.float32) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(values, dtype), name)


def proto(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto] = (tensor("x"),),
    outputs: Sequence[onnx.ValueInfoProto] = (tensor("y"),),
    weights: Sequence[onnx.TensorProto] = (),
    *,
    opset: int = 21,
    domains: Iterable[tuple[str, int]] = (),
    ir_version: int = 10,
    **fields: Any,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes, "a graph", inputs, outputs, list(weights), doc_string="of tests"
    )
    opsets = [helper.make_opsetid(*pair) for pair in (("", opset), *domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=ir_version, **fields)


def model(*arguments: Any, **keywords: Any) -> bytes:
    """A model as the bytes of a file."""
    return bytes(proto(*arguments, **keywords).SerializeToString())


def identity(kind: int = FLOAT, shape: Shape = (2,), **keywords: Any) -> bytes:
    return model(
        [node("Identity", "x")], [tensor("x", kind, shape)], [tensor("y", kind, shape)], **keywords
    )


def added(shape: Shape = ("n", 2)) -> bytes:
    """y = x + w, with w in the file."""
    return model(
        [node("Add", "x w", name="add")], [tensor("x", FLOAT, shape)], [tensor("y", FLOAT, shape)],
        [weight("w", [1, 2])],
    )  # fmt: skip


def session(api: ModuleType, data: Any, options: Any = None) -> Any:
    return api.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def arguments(described: Sequence[Any]) -> list[tuple[str, list[Any], str]]:
    return [(a.name, list(a.shape), a.type) for a in described]
