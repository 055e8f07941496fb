"""What holds between the parts of a model: names, order, functions, versions.

Values are named once in a graph, and a node reads what stands before it: in its graph, or in those
around it. Nodes that are not in such an order are sorted, as ONNX Runtime does it.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from halfbyte.errors import ModelError, UnsupportedError, printable
from halfbyte.formats.protobuf import MAX_PROBLEM
from halfbyte.onnx.files.model import Graph, Model, Node, ValueInfo

OPSETS = range(7, 29)  # of the default domain
_MAX_CALLS = 1 << 18  # nodes of a model whose functions are put in place of their calls
_NAMES = 16  # of a node, that take as long as the node
_MAX_DEPTH = 64  # of functions that call functions

_Key = tuple[str, str, str]


def arrange_graph(path: Path, graph: Graph) -> None:
    """Sort the nodes of a main graph, and of the graphs in it, in place; the order is stable.

    Raises
    ------
    ModelError
        A value has two makers or none, or nodes wait for each other.
    """
    _refuse_twice(path, graph.name, "output", [v.name for v in graph.outputs])
    for name, reader in _arrange(path, graph).items():
        raise _error(path, f"{reader}: nothing makes {name!r}")


def check_functions(model: Model) -> None:
    """Sort functions' nodes, and refuse those that call themselves or grow without bound."""
    for function in model.functions.values():
        inputs = [ValueInfo(name) for name in function.inputs]
        outputs = [ValueInfo(name) for name in function.outputs]
        body = Graph(f"function {function.name}", function.nodes, {}, inputs, outputs)
        arrange_graph(model.path, body)
        function.nodes = body.nodes
    sizes: dict[_Key, int] = {}
    total = sum(_inlined(model, node, sizes, ()) for node in _all_nodes(model.graph.nodes))
    if total > _MAX_CALLS:
        raise UnsupportedError(
            f"{model.path}: with its functions in place of their calls, the model has more than "
            f"{_MAX_CALLS} nodes"
        )


def check_opsets(model: Model) -> None:
    """Refuse versions of the default domain that are not known, and domains without a version."""
    _check_opsets(model, model.opsets, model.graph.nodes, "model")
    for function in model.functions.values():
        _check_opsets(model, function.opsets, function.nodes, f"function {function.name!r}")


def subgraphs(node: Node) -> Iterator[Graph]:
    """The graphs among a node's attributes."""
    for value in node.attributes.values():
        if isinstance(value, Graph):
            yield value
        elif isinstance(value, list):
            yield from (graph for graph in value if isinstance(graph, Graph))


def _arrange(path: Path, graph: Graph) -> dict[str, str]:
    """Sort a graph; names that it takes from outside, and who reads them."""
    inputs = [value.name for value in graph.inputs]
    _refuse_twice(path, graph.name, "input", inputs)
    given = graph.initializers.keys() | inputs
    makers: dict[str, int] = {}
    for index, node in enumerate(graph.nodes):
        for name in filter(None, node.outputs):
            if name in makers or name in given:
                raise _error(path, f"{node}: output {name!r} has another maker")
            makers[name] = index
    outside: dict[str, str] = {}
    before: list[set[int]] = []
    ordered = True
    for index, node in enumerate(graph.nodes):
        needed: set[int] = set()
        for name, reader in _reads(path, node):
            maker = makers.get(name)
            if maker is not None:
                needed.add(maker)
                ordered = ordered and maker < index
            elif name not in given:
                outside.setdefault(name, reader or str(node))
        before.append(needed)
    for value in graph.outputs:
        if value.name not in makers and value.name not in given:
            outside.setdefault(value.name, f"graph {graph.name!r}: outputs")
    if not ordered:
        graph.nodes = [graph.nodes[i] for i in _sorted(path, graph.nodes, before)]
    return outside


def _reads(path: Path, node: Node) -> Iterator[tuple[str, str]]:
    """What a node and the graphs in it read; with whom, where that is not the node itself."""
    for name in node.inputs:
        if name:
            yield name, ""
    for graph in subgraphs(node):
        yield from _arrange(path, graph).items()


def _sorted(path: Path, nodes: list[Node], before: list[set[int]]) -> list[int]:
    """An order in which `before` stand before; of those that may come next, the first one does."""
    after: list[list[int]] = [[] for _ in nodes]
    for index, needed in enumerate(before):
        for maker in needed:
            after[maker].append(index)
    waiting = [len(needed) for needed in before]
    ready = [index for index, count in enumerate(waiting) if not count]
    order: list[int] = []
    while ready:
        index = heapq.heappop(ready)
        order.append(index)
        for follower in after[index]:
            waiting[follower] -= 1
            if not waiting[follower]:
                heapq.heappush(ready, follower)
    if len(order) < len(nodes):
        cycle = _cycle(before, waiting)
        names = ", ".join(str(nodes[i]) for i in cycle[:5])
        raise _error(path, f"{len(cycle)} nodes wait for each other: {names}")
    return order


def _cycle(before: list[set[int]], waiting: list[int]) -> list[int]:
    """Nodes in a circle, among those that wait: each of them waits for another one."""
    index = next(i for i, count in enumerate(waiting) if count)
    places: dict[int, int] = {}
    while index not in places:
        places[index] = len(places)
        index = min(maker for maker in before[index] if waiting[maker])
    return [i for i, place in places.items() if place >= places[index]]


def _refuse_twice(path: Path, graph: str, what: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise _error(path, f"graph {graph!r}: {what} {name!r} appears twice")
        seen.add(name)


def _all_nodes(nodes: Iterable[Node]) -> Iterator[Node]:
    """Nodes, and those of the graphs in them."""
    for node in nodes:
        yield node
        for graph in subgraphs(node):
            yield from _all_nodes(graph.nodes)


def _key(node: Node) -> _Key:
    return node.domain, node.op_type, node.overload


def _inlined(model: Model, node: Node, sizes: dict[_Key, int], callers: tuple[_Key, ...]) -> int:
    """How many nodes a call is, with all that it calls; of what is not a function, the node."""
    key = _key(node)
    function = model.functions.get(key)
    if function is None:
        return 1 + (len(node.inputs) + len(node.outputs) + len(node.attributes)) // _NAMES
    if key in callers or len(callers) > _MAX_DEPTH:
        problem = "calls itself" if key in callers else f"is called more than {_MAX_DEPTH} deep"
        raise _error(model.path, f"function {function.name!r} {problem}")
    if key not in sizes:
        inner = (*callers, key)
        sizes[key] = 1 + sum(
            _inlined(model, inside, sizes, inner) for inside in _all_nodes(function.nodes)
        )
    return sizes[key]


def _check_opsets(
    model: Model, opsets: Mapping[str, int], nodes: Iterable[Node], where: str
) -> None:
    version = opsets.get("")
    if version is not None and version not in OPSETS:
        raise UnsupportedError(
            f"{model.path}: {where}: opset {version} of the default domain: expected "
            f"{OPSETS[0]} to {OPSETS[-1]}, which halfbyte knows"
        )
    for node in _all_nodes(nodes):
        if node.domain not in opsets and _key(node) not in model.functions:
            domain = node.domain or "ai.onnx"
            raise _error(model.path, f"{where}: {node}: no version of domain {domain!r} is said")


def _error(path: Path, problem: str) -> ModelError:
    return ModelError(f"{path}: {printable(problem, MAX_PROBLEM)}")
