"""How many dimensions values have, as far as a graph says it before any shape is known."""

from __future__ import annotations

import numpy as np

from halfbyte.core.interrupt import step
from halfbyte.onnx.files.model import Graph, Node
from halfbyte.onnx.reference import find

Ranks = dict[str, int | None]

_NEWEST = 1 << 30  # of an operator's versions, which agree in ranks


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
    """Rank of a node's outputs, by the rule of its operator's newest definition."""
    given = [found.get(name) for name in node.inputs]
    definition = find(node.domain, node.op_type, _NEWEST)
    if not given or definition is None or definition.infer.rank is None:
        return None
    return definition.infer.rank(
        given, node, lambda place: _length(node.inputs[place], graph, found, makers)
    )


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
