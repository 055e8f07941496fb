"""Inlining: the nodes of functions in place of their calls, and of branches that are always taken.

Names inside get a prefix that makes them unique.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, MutableMapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from halfbyte.core.interrupt import step
from halfbyte.errors import UnsupportedError
from halfbyte.onnx.evaluate import outer_names, resolved
from halfbyte.onnx.files.initializers import empty_like, is_stored_array, stored
from halfbyte.onnx.files.model import Function, Graph, Model, Node, SparseTensor, ValueInfo
from halfbyte.onnx.reference.arrays import Kept
from halfbyte.onnx.reference.constant import dense
from halfbyte.onnx.work import WORK

MAX_DEPTH = 64  # of functions that call functions
CONSTANT_BYTES = 64 << 20  # of folded constants; or twice the bytes of the initializers


class Allowed:
    """How many bytes all constants may take, and how many operations."""

    def __init__(self, path: Path, initializers: Iterable[Any]) -> None:
        total = sum(v.nbytes for v in initializers if is_stored_array(v))
        self.nbytes, self.work = max(CONSTANT_BYTES, 2 * total), WORK
        self.names = Kept(f"{path}: functions' nodes in place of their calls")


# Estimated bytes of a node, a name and a reference to one, with what is stored about them here
_NODE, _NAME, _REFERENCE = 1000, 100, 50


def inlined(model: Model, nodes: list[Node], allowed: Allowed, depth: int = 0) -> list[Node]:
    """The nodes, with the function's nodes in place of every call of a function."""
    if depth > MAX_DEPTH:
        raise UnsupportedError(
            f"{model.path}: functions call each other more than {MAX_DEPTH} deep"
        )
    result: list[Node] = []
    for node in nodes:
        step()
        function = model.functions.get((node.domain, node.op_type, node.overload))
        if function is not None:
            result += inlined(model, _called(function, node, allowed.names), allowed, depth + 1)
        elif node.graphs:
            result.append(with_graphs(node, lambda g: _inlined_graph(model, g, allowed, depth + 1)))
        else:
            result.append(node)
    return result


def _inlined_graph(model: Model, graph: Graph, allowed: Allowed, depth: int) -> Graph:
    nodes, initializers = own_initializers(graph, allowed)
    nodes += inlined(model, graph.nodes, allowed, depth)
    return Graph(graph.name, nodes, initializers, graph.inputs, graph.outputs, graph.value_info)


def _called(function: Function, node: Node, kept: Kept) -> list[Node]:
    """The nodes of a function for one call.

    Names of inputs and outputs are the caller's; others get a prefix that makes them unique.
    `kept` counts the bytes of the nodes.
    """
    inputs = dict.fromkeys(function.inputs, "") | dict(
        zip(function.inputs, node.inputs, strict=False)
    )
    results = list(zip(function.outputs, node.outputs, strict=False))
    names = {formal: actual for formal, actual in results if actual} | inputs
    call = _Call(f"{next(filter(None, node.outputs), node.name)}/{function.name}/", function, kept)
    attributes = {**function.defaults, **node.attributes}
    nodes = [call.renamed(resolved(inner, attributes), names) for inner in function.nodes]
    nodes += [
        Node("Identity", (inputs[formal],), (actual,))
        for formal, actual in results
        if actual and formal in inputs  # an output that is an input
    ]
    return nodes


def branch_of(model: Model, node: Node, branch: Graph, kept: Kept) -> list[Node]:
    """The nodes of the branch that an If always takes, in its place.

    The branch's constants are put into the main graph. `kept` counts the bytes of the nodes.
    """
    results = [(v.name, actual) for v, actual in zip(branch.outputs, node.outputs, strict=False)]
    around = outer_names(branch)
    names = {name: name for name in around}
    own = {formal for formal, _ in results} - around - branch.initializers.keys()
    names |= {formal: actual for formal, actual in results if actual and formal in own}
    function = Function("", branch.name, "", (), (), (), {}, branch.nodes, model.opsets)
    prefix = f"{next(filter(None, node.outputs), node.name)}/{branch.name}/"
    call = _Call(prefix, function, kept)
    for name, value in branch.initializers.items():
        names[name] = prefix + name
        model.graph.initializers[names[name]] = value
    nodes = [call.renamed(inner, names) for inner in branch.nodes]
    nodes += [
        Node("Identity", (names[formal],), (actual,))
        for formal, actual in results
        if actual and formal not in own  # an output that the branch does not compute
    ]
    return nodes


class _Call:
    """One call of a function: the prefix of its names, and the versions of its operators."""

    def __init__(self, prefix: str, function: Function, kept: Kept) -> None:
        self.prefix, self.function, self._kept = prefix, function, kept

    def renamed(self, node: Node, names: dict[str, str]) -> Node:
        """The node with its names translated; a name not in `names` is added with the prefix."""

        def of(name: str) -> str:
            if name and name not in names:
                names[name] = self.prefix + name
                self._kept.add_bytes(len(names[name]) + _NAME)
            return names.get(name, "")

        references = len(node.inputs) + len(node.outputs) + len(node.attributes)
        self._kept.add_bytes(_NODE + len(self.prefix) + _REFERENCE * references)
        copied = with_graphs(node, lambda graph: self._graph(graph, names))
        return replace(
            copied, inputs=tuple(map(of, node.inputs)), outputs=tuple(map(of, node.outputs)),
            name=self.prefix + node.name,
            version=node.version or self.function.opsets.get(node.domain, 0),
        )  # fmt: skip

    def _graph(self, graph: Graph, names: dict[str, str]) -> Graph:
        inner = dict(names)
        for name in (*graph.initializers, *(v.name for v in graph.inputs)):
            inner[name] = self.prefix + name
        nodes = [self.renamed(node, inner) for node in graph.nodes]

        def of(infos: list[ValueInfo]) -> list[ValueInfo]:
            return [ValueInfo(inner.get(v.name, self.prefix + v.name), v.type) for v in infos]

        initializers = {inner[name]: value for name, value in graph.initializers.items()}
        return Graph(graph.name, nodes, initializers, of(graph.inputs), of(graph.outputs))


def with_graphs(node: Node, change: Callable[[Graph], Graph]) -> Node:
    """The node with `change` applied to every graph among its attributes."""
    attributes = {
        name: change(value)
        if isinstance(value, Graph)
        else [change(v) if isinstance(v, Graph) else v for v in value]
        if isinstance(value, list)
        else value
        for name, value in node.attributes.items()
    }
    return replace(node, attributes=attributes)


def own_initializers(
    graph: Graph, allowed: Allowed, replaced: frozenset[str] = frozenset()
) -> tuple[list[Node], MutableMapping[str, Any]]:
    """Initializers as arrays, and Constant nodes for sparse ones that are too large."""
    nodes, arrays = [], empty_like(graph.initializers)
    for name, value in stored(graph.initializers).items():
        if name in replaced:
            continue
        if not isinstance(value, SparseTensor):
            arrays[name] = value
        elif (nbytes := math.prod(value.shape) * value.values.itemsize) <= allowed.nbytes:
            allowed.nbytes -= nbytes
            arrays[name] = dense(value)
        else:
            nodes.append(Node("Constant", (), (name,), {"sparse_value": value}))
    return nodes, arrays
