"""The ranks of values, as far as they are known before any shape is."""

from __future__ import annotations

from halfbyte.core.interrupt import step
from halfbyte.onnx.files.initializers import is_stored_array, stored
from halfbyte.onnx.files.model import Graph, Node
from halfbyte.onnx.reference import find

Ranks = dict[str, int | None]

_NEWEST = 1 << 30  # version of any operator; versions agree in ranks


def ranks(graph: Graph) -> Ranks:
    """Ranks of all values of the main graph; None, or no entry, where one is not known."""
    known: Ranks = {name: len(v.shape) for name, v in stored(graph.initializers).items()}
    for info in (*graph.inputs, *graph.value_info.values()):
        if info.type is not None and info.type.kind == "tensor" and info.type.shape is not None:
            known.setdefault(info.name, len(info.type.shape))
    producers = {name: node for node in graph.nodes for name in node.outputs}
    for node in graph.nodes:
        step()
        rank = _of(node, graph, known, producers)
        for name in node.outputs:
            if known.get(name) is None:
                known[name] = rank
    return known


def _of(node: Node, graph: Graph, known: Ranks, producers: dict[str, Node]) -> int | None:
    """The rank of a node's outputs, by the rule of its operator's newest definition."""
    ranks = [known.get(name) for name in node.inputs]
    definition = find(node.domain, node.op_type, _NEWEST)
    if not ranks or definition is None or definition.infer.rank is None:
        return None
    return definition.infer.rank(
        ranks, node, lambda place: _length(node.inputs[place], graph, known, producers)
    )


def _length(
    name: str, graph: Graph, known_ranks: Ranks, producers: dict[str, Node], *, nested: bool = False
) -> int | None:
    """The length of a vector: a constant, a concatenation of numbers, or a shape."""
    value = stored(graph.initializers).get(name)
    if is_stored_array(value):
        return int(value.size)
    producer = producers.get(name)
    if producer is None or producer.domain:
        return None
    if producer.op_type == "Shape" and not producer.attributes and producer.inputs:
        return known_ranks.get(producer.inputs[0])
    if producer.op_type == "Unsqueeze" and known_ranks.get(name) == 1:
        return 1
    if producer.op_type == "Concat" and not nested:
        parts = [
            _length(part, graph, known_ranks, producers, nested=True) for part in producer.inputs
        ]
        known = [length for length in parts if length is not None]
        return sum(known) if len(known) == len(parts) else None
    return None
