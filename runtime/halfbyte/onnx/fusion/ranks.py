"""How many dimensions values have, as far as a graph says it before any shape is known."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from halfbyte.core.interrupt import step
from halfbyte.onnx.files.model import Graph, Node

Ranks = dict[str, int | None]

_SAME = {
    "Identity", "Cast", "Dropout", "Relu", "LeakyRelu", "Sigmoid", "Tanh", "Erf", "Exp", "Sqrt",
    "Neg", "Abs", "Reciprocal", "Softmax", "Gelu", "Swish", "Clip", "HardSigmoid", "HardSwish",
    "LayerNormalization", "RMSNormalization", "BatchNormalization", "Slice", "Concat", "Split",
    "Pad", "Tile", "Conv", "FusedConv", "MaxPool", "AveragePool", "GlobalAveragePool", "Transpose",
    "Not", "SkipLayerNormalization", "Attention", "QuantizeLinear", "DequantizeLinear",
}  # fmt: skip
_BROADCAST = {
    "Add", "Sub", "Mul", "Div", "Pow", "Min", "Max", "Mod", "Where", "Equal", "Less", "Greater",
    "LessOrEqual", "GreaterOrEqual", "And", "Or", "Xor",
}  # fmt: skip
_PRODUCTS = {"MatMul", "Linear", "DynamicQuantizeMatMul"}
_TWO = {"Gemm", "Flatten"}
_REDUCTIONS = {f"Reduce{kind}" for kind in ("Mean", "Sum", "Max", "Min", "L2", "Prod")}


def ranks(graph: Graph) -> Ranks:
    """Rank of every value of the main graph; None, or no entry, where it is not known."""
    found: Ranks = {name: len(value.shape) for name, value in graph.initializers.items()}
    for info in (*graph.inputs, *graph.value_info.values()):
        if info.type is not None and info.type.kind == "tensor" and info.type.shape is not None:
            found.setdefault(info.name, len(info.type.shape))
    makers = {name: node for node in graph.nodes for name in node.outputs}
    for node in graph.nodes:
        step()
        rank = _of(node, graph, found, makers)
        for name in node.outputs:
            if found.get(name) is None:
                found[name] = rank
    return found


def _of(node: Node, graph: Graph, found: Ranks, makers: dict[str, Node]) -> int | None:
    """Rank of a node's outputs."""
    given = [found.get(name) for name in node.inputs]
    kind = node.op_type
    if not given:
        return None
    if kind in _SAME:
        return given[0]
    if kind in _TWO:
        return 2
    if kind == "Shape":
        return 1
    product = kind in _PRODUCTS and min(map(_least, given[:2])) >= 2
    if kind in _BROADCAST or product:
        given = given[:2] if product else given
        known = [rank for rank in given if rank is not None]
        return max(known) if len(known) == len(given) else None
    if kind in ("Reshape", "Expand") and len(given) > 1:
        length = _length(node.inputs[1], graph, found, makers)
        wider = kind == "Expand" and length is not None
        return length if not wider else _wider(given[0], length)
    return _changed(node, given, graph)


def _changed(node: Node, given: list[int | None], graph: Graph) -> int | None:
    """Of operators that add or take away axes."""
    first = given[0]
    if first is None:
        return None
    if node.op_type == "Gather" and len(given) > 1 and given[1] is not None:
        return first - 1 + given[1]
    if node.op_type in _REDUCTIONS and node.attributes.get("keepdims", 1):
        return first
    changes: dict[str, Callable[[int, int], int]] = {
        "Unsqueeze": lambda rank, axes: rank + axes,
        "Squeeze": lambda rank, axes: rank - axes,
    }
    change = changes.get(node.op_type)
    if change is None:
        return None
    axes = node.attributes.get("axes")
    if len(node.inputs) > 1:
        value = graph.initializers.get(node.inputs[1])
        axes = value.reshape(-1).tolist() if isinstance(value, np.ndarray) else None
    return change(first, len(axes)) if isinstance(axes, list) else None


def _length(
    name: str, graph: Graph, found: Ranks, makers: dict[str, Node], *, nested: bool = False
) -> int | None:
    """How many elements a vector has: a constant, or numbers put side by side, or a shape."""
    value = graph.initializers.get(name)
    if isinstance(value, np.ndarray):
        return value.size
    maker = makers.get(name)
    if maker is None or maker.domain:
        return None
    if maker.op_type == "Shape" and not maker.attributes and maker.inputs:
        return found.get(maker.inputs[0])
    if maker.op_type == "Unsqueeze" and found.get(name) == 1:
        return 1
    if maker.op_type == "Concat" and not nested:
        parts = [_length(part, graph, found, makers, nested=True) for part in maker.inputs]
        known = [length for length in parts if length is not None]
        return sum(known) if len(known) == len(parts) else None
    return None


def _least(rank: int | None) -> int:
    return -1 if rank is None else rank


def _wider(rank: int | None, length: int | None) -> int | None:
    return None if rank is None or length is None else max(rank, length)
