"""Which parts of a graph are of float16, and the same parts in float32."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from halfbyte.onnx.files.initializers import is_stored_array, stored
from halfbyte.onnx.files.model import Graph, Node, SparseTensor, TypeInfo, ValueInfo

FLOAT, STRING, HALF = 1, 8, 10  # numbers of ONNX's types
# Attributes that name an element type
_TYPED = ("to", "dtype", "output_dtype", "output_datatype", "softmax_precision", "stash_type")
_EXACT = ("BitCast", "Optional")  # operators that need the type itself


def wide_node(node: Node, names: Mapping[str, str]) -> Node:
    """The node in float32, with its names translated."""
    return replace(
        node,
        inputs=tuple(names.get(name, name) for name in node.inputs),
        outputs=tuple(names.get(name, name) for name in node.outputs),
        attributes={k: _wide_attribute(k, v, names) for k, v in node.attributes.items()},
    )


def _wide_attribute(key: str, value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, list):
        return [_wide_attribute("", item, names) for item in value]
    if isinstance(value, Graph):
        return _wide_graph(value, names)
    if isinstance(value, TypeInfo):
        return _wide_type(value)
    return FLOAT if key in _TYPED and value == HALF else wide(value)


def _wide_graph(graph: Graph, names: Mapping[str, str]) -> Graph:
    """A subgraph in float32; names of its own values stay."""
    own = {*graph.initializers, *(v.name for v in graph.inputs)}
    own |= {name for node in graph.nodes for name in node.outputs}
    outer = {name: new for name, new in names.items() if name not in own}
    return replace(
        graph,
        nodes=[wide_node(node, outer) for node in graph.nodes],
        initializers={name: wide(value) for name, value in graph.initializers.items()},
        inputs=[_wide_info(v, {}) for v in graph.inputs],
        outputs=[_wide_info(v, outer) for v in graph.outputs],
        value_info={},
    )


def _wide_info(info: ValueInfo, names: Mapping[str, str]) -> ValueInfo:
    return ValueInfo(names.get(info.name, info.name), info.type and _wide_type(info.type))


def _wide_type(kind: TypeInfo) -> TypeInfo:
    element = kind.element and _wide_type(kind.element)
    return replace(kind, dtype=FLOAT if kind.dtype == HALF else kind.dtype, element=element)


def wide(value: Any) -> Any:
    """A constant, in float32 if it is of halves."""
    if isinstance(value, SparseTensor):
        return replace(value, values=wide(value.values))
    if isinstance(value, np.ndarray) and value.dtype == np.float16:
        return value.astype(np.float32)
    return value


def has_halves(graph: Graph) -> bool:
    """Whether a graph or a graph inside it declares, holds or makes halves."""
    infos = (*graph.inputs, *graph.outputs)
    constants = stored(graph.initializers).values()
    if any(_of_halves(v.type) for v in infos) or any(map(_is_array, constants)):
        return True
    for node in graph.nodes:
        if not node.attributes:
            continue
        typed = any(node.attributes.get(key) == HALF for key in _TYPED)
        if typed or any(map(_is_array, node.attributes.values())):
            return True
    return any(has_halves(inner) for node in graph.nodes for inner in node.graphs)


def _of_halves(kind: TypeInfo | None) -> bool:
    return kind is not None and (kind.dtype == HALF or _of_halves(kind.element))


def _is_array(value: Any) -> bool:
    array = value.values if isinstance(value, SparseTensor) else value
    return is_stored_array(array) and array.dtype == np.float16


def is_exact(graph: Graph) -> bool:
    """Whether the type of halves matters: to a node, to the caller or to the file."""
    infos = (*graph.inputs, *graph.outputs)
    others = (v.type for v in infos if v.type is not None and v.type.kind != "tensor")
    return any(map(_of_halves, others)) or any(
        node.op_type in _EXACT or node.attributes.get("to") == STRING
        for node in _all_nodes(graph.nodes)
    )


def _all_nodes(nodes: Iterable[Node]) -> Iterator[Node]:
    for node in nodes:
        yield node
        for graph in node.graphs:
            yield from _all_nodes(graph.nodes)
