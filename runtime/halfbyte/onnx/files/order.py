"""Checks of the relations between the parts of a model: names, order, functions, versions.

In a graph every name has one value, and a node reads values from before it: in its graph or in the
graphs around it. Nodes in another order are sorted, as ONNX Runtime does.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from pathlib import Path

from halfbyte.errors import ModelError, UnsupportedError, printable
from halfbyte.formats.protobuf import MAX_PROBLEM
from halfbyte.onnx.files.model import Graph, Model, Node, ValueInfo

OPSETS = range(7, 29)  # of the default domain
# Versions of the domains that a file need not declare
UNDECLARED = {"com.microsoft": 1, "ai.onnx.ml": 5}
_MAX_INLINED = 1 << 18  # nodes of a model with its functions inlined
_NAMES = 16  # names of a node that count as much as the node itself
_MAX_DEPTH = 64  # of functions that call functions

_Key = tuple[str, str, str]


def arrange_graph(path: Path, graph: Graph) -> None:
    """Sort the nodes of a main graph and of its subgraphs in place; the order is stable.

    Raises
    ------
    ModelError
        No node or several nodes compute a value, or nodes form a cycle.
    """
    _refuse_twice(path, graph.name, "output", [v.name for v in graph.outputs])
    for name, reader in _arrange(path, graph).items():
        raise _error(path, f"{reader}: nothing computes {name!r}")


def check_functions(model: Model) -> None:
    """Sort the nodes of functions, and refuse functions that are recursive or grow too large."""
    for function in model.functions.values():
        inputs = [ValueInfo(name) for name in function.inputs]
        outputs = [ValueInfo(name) for name in function.outputs]
        body = Graph(f"function {function.name}", function.nodes, {}, inputs, outputs)
        arrange_graph(model.path, body)
        function.nodes = body.nodes
    sizes: dict[_Key, int] = {}
    total = sum(_inlined(model, node, sizes, ()) for node in _all_nodes(model.graph.nodes))
    if total > _MAX_INLINED:
        raise UnsupportedError(
            f"{model.path}: with functions inlined, the model has more than {_MAX_INLINED} nodes"
        )


def check_opsets(model: Model) -> None:
    """Refuse unsupported versions of the default domain, and domains without a version.

    ONNX Runtime's own domains need no version in a file.
    """
    _check_opsets(model, model.opsets, model.graph.nodes, "model")
    for function in model.functions.values():
        _check_opsets(model, function.opsets, function.nodes, f"function {function.name!r}")


def _arrange(path: Path, graph: Graph) -> dict[str, str]:
    """Sort a graph; returns the names that it reads from outside, and their first readers."""
    inputs = [value.name for value in graph.inputs]
    _refuse_twice(path, graph.name, "input", inputs)
    available = graph.initializers.keys() | inputs
    makers: dict[str, int] = {}
    for index, node in enumerate(graph.nodes):
        for name in filter(None, node.outputs):
            if name in makers or name in available:
                raise _error(path, f"{node}: output {name!r} is a value already")
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
            elif name not in available:
                outside.setdefault(name, reader or str(node))
        before.append(needed)
    for value in graph.outputs:
        if value.name not in makers and value.name not in available:
            outside.setdefault(value.name, f"graph {graph.name!r}: outputs")
    if not ordered:
        graph.nodes = [graph.nodes[i] for i in _sorted(path, graph.nodes, before)]
    return outside


def _reads(path: Path, node: Node) -> Iterator[tuple[str, str]]:
    """Names that a node and its subgraphs read, each with its reader if that is an inner node."""
    for name in node.inputs:
        if name:
            yield name, ""
    for graph in node.graphs:
        yield from _arrange(path, graph).items()


def _sorted(path: Path, nodes: list[Node], before: list[set[int]]) -> list[int]:
    """A topological order; of the nodes that may come next, the first one comes."""
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
        raise _error(path, f"{len(cycle)} nodes form a cycle: {names}")
    return order


def _cycle(before: list[set[int]], waiting: list[int]) -> list[int]:
    """The nodes of one cycle among those that could not be sorted."""
    index = next(i for i, count in enumerate(waiting) if count)
    places: dict[int, int] = {}
    while index not in places:
        places[index] = len(places)
        index = min(maker for maker in before[index] if waiting[maker])
    return [i for i, place in places.items() if place >= places[index]]


def _refuse_twice(path: Path, graph: str, role: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise _error(path, f"graph {graph!r}: {role} {name!r} appears twice")
        seen.add(name)


def _all_nodes(nodes: Iterable[Node]) -> Iterator[Node]:
    """Nodes, and the nodes of their subgraphs."""
    for node in nodes:
        yield node
        for graph in node.graphs:
            yield from _all_nodes(graph.nodes)


def _key(node: Node) -> _Key:
    return node.domain, node.op_type, node.overload


def _inlined(model: Model, node: Node, sizes: dict[_Key, int], callers: tuple[_Key, ...]) -> int:
    """The number of nodes of a call when it is inlined; of an operator, about one."""
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


def _check_opsets(model: Model, opsets: dict[str, int], nodes: Iterable[Node], where: str) -> None:
    version = opsets.get("")
    if version is not None and version not in OPSETS:
        raise UnsupportedError(
            f"{model.path}: {where}: opset {version} of the default domain: expected "
            f"{OPSETS[0]} to {OPSETS[-1]}"
        )
    for node in _all_nodes(nodes):
        if node.domain in opsets or _key(node) in model.functions:
            continue
        if node.domain in UNDECLARED:
            opsets[node.domain] = UNDECLARED[node.domain]
        else:
            domain = node.domain or "ai.onnx"
            raise _error(model.path, f"{where}: {node}: domain {domain!r} has no version")


def _error(path: Path, problem: str) -> ModelError:
    return ModelError(f"{path}: {printable(problem, MAX_PROBLEM)}")
