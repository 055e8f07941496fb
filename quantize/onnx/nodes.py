"""Nodes and graphs of ONNX as messages: their names, attributes, bodies and types."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np
import onnx
from google.protobuf.message import Message
from onnx import GraphProto, NodeProto, TensorProto, helper

AnyMessage = TypeVar("AnyMessage", bound=Message)


def inner_graphs(node: NodeProto) -> list[GraphProto]:
    """The bodies of a node: of a branch, a loop, a scan."""
    graphs = []
    for item in node.attribute:
        graphs += [item.g] if item.HasField("g") else []
        graphs += item.graphs
    return graphs


def captured_names(node: NodeProto) -> set[str]:
    """Names that the bodies of a node read, including names of their own values."""
    names: set[str] = set()
    pending = inner_graphs(node)
    while pending:
        graph = pending.pop()
        names |= set(read_names(graph))
        pending += [body for inner in graph.node for body in inner_graphs(inner)]
    return names


def all_names(graph: GraphProto) -> Iterator[str]:
    """Names of everything in a graph, without its bodies."""
    yield from (t.name for t in graph.initializer)
    yield from (v.name for v in (*graph.input, *graph.output))
    for node in graph.node:
        yield from (node.name, *node.input, *node.output)


def read_names(graph: GraphProto) -> Iterator[str]:
    """Names that the nodes of a graph read, and its outputs, without its bodies."""
    for node in graph.node:
        yield from filter(None, node.input)
    yield from (value.name for value in graph.output)


def rename(graph: GraphProto, names: Mapping[str, str]) -> None:
    """Rename constants of a graph, where its nodes and their bodies read them too."""
    for tensor in graph.initializer:
        tensor.name = names.get(tensor.name, tensor.name)
    for value in (*graph.output, *graph.value_info):
        value.name = names.get(value.name, value.name)
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
        for body in inner_graphs(node):
            own = {t.name for t in body.initializer} | {v.name for v in body.input}
            own |= {name for inner in body.node for name in inner.output}
            rename(body, {name: new for name, new in names.items() if name not in own})


def is_op(node: NodeProto | None, *names: str) -> bool:
    """Whether a node is one of ONNX's own operators of these names."""
    return node is not None and node.op_type in names and node.domain in ("", "ai.onnx")


def input_of(node: NodeProto, index: int) -> str:
    """The name of an input; '' where it has none."""
    return str(node.input[index]) if index < len(node.input) else ""


def attribute(node: NodeProto, name: str, default: Any = None) -> Any:
    """The value of an attribute."""
    for item in node.attribute:
        if item.name == name:
            return helper.get_attribute_value(item)
    return default


def constant_value(node: NodeProto) -> TensorProto | None:
    """The tensor of a Constant node, named as its output; None where it is text or sparse."""
    for item in node.attribute:
        if item.name == "value":
            tensor: TensorProto = clone(item.t)
        elif item.name in ("value_float", "value_floats"):
            values = np.array(helper.get_attribute_value(item), np.float32)
            tensor = onnx.numpy_helper.from_array(values)
        elif item.name in ("value_int", "value_ints"):
            values = np.array(helper.get_attribute_value(item), np.int64)
            tensor = onnx.numpy_helper.from_array(values)
        else:
            continue
        tensor.name = node.output[0]
        return tensor
    return None


def replace_nodes(graph: GraphProto, nodes: Iterable[NodeProto]) -> None:
    """Give a graph other nodes; its own may be among them."""
    kept = [clone(node) for node in nodes]
    del graph.node[:]
    graph.node.extend(kept)


def clone(message: AnyMessage) -> AnyMessage:
    """A copy of a node, a tensor, a graph or a model."""
    copy: AnyMessage = type(message)()
    copy.CopyFrom(message)
    return copy


def value_types(model: onnx.ModelProto) -> dict[str, onnx.TypeProto]:
    """Types of values as far as ONNX's inference knows them, including values of bodies."""
    try:
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    except (RuntimeError, ValueError):  # a model that cannot be inferred
        inferred = model
    types: dict[str, onnx.TypeProto] = {}
    graphs = [inferred.graph]
    while graphs:
        graph = graphs.pop()
        for value in (*graph.input, *graph.value_info, *graph.output):
            types[value.name] = value.type
        for node in graph.node:
            graphs += inner_graphs(node)
    return types


def element_type(types: dict[str, onnx.TypeProto], name: str) -> int:
    """The type of a tensor's elements; 0 where it is not known or the value is not a tensor."""
    return types[name].tensor_type.elem_type if name in types else 0
