"""Preparation: a graph is rewritten once, before any shape is known.

Functions are inlined, float16 becomes float32 (`fusion.halves`), constants are folded, equal nodes
merged, patterns fused (`halfbyte.onnx.fusion`) and unused nodes dropped. The result is an ONNX
graph again, with operators of the domain ai.halfbyte, so the definitions can run it too; the tests
compare both.

Folded constants take at most twice the bytes of the initializers (or 64 MB), and a fixed number of
operations; the rest is left to the run.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from halfbyte.core.interrupt import step
from halfbyte.errors import HalfbyteError, UnsupportedError
from halfbyte.onnx.calls import bound
from halfbyte.onnx.evaluate import resolved, subgraphs, used_names
from halfbyte.onnx.files.initializers import empty_like, is_stored_array, release, stored
from halfbyte.onnx.files.model import Function, Graph, Model, Node, SparseTensor, ValueInfo
from halfbyte.onnx.fusion import fuse
from halfbyte.onnx.fusion.convolution import SCALED_KERNEL
from halfbyte.onnx.fusion.half_types import has_halves
from halfbyte.onnx.fusion.halves import multiply_by_halves, widen_halves
from halfbyte.onnx.fusion.rewriter import drop_unused
from halfbyte.onnx.reference import find
from halfbyte.onnx.reference.arrays import Kept
from halfbyte.onnx.reference.constant import dense
from halfbyte.onnx.reference.types import check_types
from halfbyte.onnx.work import MAX_FOLDED, WORK, bytes_given, folded, work_of
from halfbyte.room import memory_for

AT_CAPTURE = (SCALED_KERNEL,)  # large results are computed and packed at capture, not kept
QUANTIZED = ("QuantizeLinear", "DequantizeLinear")  # weights stay integers until after fusion
MAX_DEPTH = 64  # of functions that call functions
CONSTANT_BYTES = 64 << 20  # of folded constants; or twice the bytes of the initializers


def prepare(
    model: Model,
    *,
    optimize: bool = True,
    replaced: frozenset[str] = frozenset(),
) -> Model:
    """An equivalent model for `Runner`, without functions and sparse initializers.

    Initializers become constants, except those that are `replaced` by inputs. Each node is a step
    that the caller can end; see `halfbyte.core.interrupt`.

    Raises
    ------
    OutOfMemoryError
        There is no memory for the result.
    """
    with memory_for(f"{model.path}: its constants"):
        allowed = _Allowed(model.path, stored(model.graph.initializers).values())
        nodes, initializers = _initializers(model.graph, allowed, replaced)
        graph = Graph(
            model.graph.name,
            [*nodes, *_inlined(model, model.graph.nodes, allowed)],
            initializers, model.graph.inputs, model.graph.outputs, model.graph.value_info,
        )  # fmt: skip
        prepared = replace(model, graph=graph, functions={})
        if optimize or has_halves(graph):
            widen_halves(prepared, check_types(prepared))
        if optimize:
            _fold_constants(prepared, allowed, kept=QUANTIZED)
            merge_equal(prepared)
            drop_unused(graph)
            fuse(prepared)
        multiply_by_halves(prepared)
        if optimize:
            _fold_constants(prepared, allowed)
        drop_unused(graph)
        release(model.graph.initializers)
        release(graph.initializers)
    return prepared


class _Allowed:
    """How many bytes all constants may take, and how many operations."""

    def __init__(self, path: Path, initializers: Iterable[Any]) -> None:
        total = sum(v.nbytes for v in initializers if is_stored_array(v))
        self.nbytes, self.work = max(CONSTANT_BYTES, 2 * total), WORK
        self.names = Kept(f"{path}: functions' nodes in place of their calls")


# Estimated bytes of a node, a name and a reference to one, with what is stored about them here
_NODE, _NAME, _REFERENCE = 1000, 100, 50


# ---- functions -----------------------------------------------------------------------------------


def _inlined(model: Model, nodes: list[Node], allowed: _Allowed, depth: int = 0) -> list[Node]:
    """The nodes, with the function's nodes in place of every call of a function."""
    if depth > MAX_DEPTH:
        raise UnsupportedError(
            f"{model.path}: functions call each other more than {MAX_DEPTH} deep"
        )
    inlined: list[Node] = []
    for node in nodes:
        step()
        function = model.functions.get((node.domain, node.op_type, node.overload))
        if function is not None:
            inlined += _inlined(model, _called(function, node, allowed.names), allowed, depth + 1)
        elif subgraphs(node):
            inlined.append(
                _with_graphs(node, lambda g: _inlined_graph(model, g, allowed, depth + 1))
            )
        else:
            inlined.append(node)
    return inlined


def _inlined_graph(model: Model, graph: Graph, allowed: _Allowed, depth: int) -> Graph:
    nodes, initializers = _initializers(graph, allowed)
    nodes += _inlined(model, graph.nodes, allowed, depth)
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
        copied = _with_graphs(node, lambda graph: self._graph(graph, names))
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


def _with_graphs(node: Node, change: Any) -> Node:
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


def _initializers(
    graph: Graph, allowed: _Allowed, replaced: frozenset[str] = frozenset()
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


# ---- constants -----------------------------------------------------------------------------------


def _fold_constants(model: Model, allowed: _Allowed, kept: tuple[str, ...] = ()) -> None:
    """Replace every node whose inputs are constants by its results, except the operators `kept`.

    A large result stays a node if it is larger than the node's inputs: weights are not unpacked
    here.
    """
    graph = model.graph
    constants = graph.initializers
    remaining = []
    for node in graph.nodes:
        step()
        results = None if node.op_type in kept else _folded(model, node, constants, allowed)
        if results is None:
            remaining.append(node)
            continue
        named = {n: r for n, r in zip(node.outputs, results, strict=False) if n}
        constants.update(named)
    graph.nodes[:] = remaining


def _folded(
    model: Model, node: Node, constants: Mapping[str, Any], allowed: _Allowed
) -> list[Any] | None:
    """A node's results, if they are constants and within the limits."""
    if subgraphs(node) or any(name and name not in constants for name in node.inputs):
        return None
    version = node.version or model.opsets.get(node.domain, 1)
    definition = find(node.domain, node.op_type, version)
    if definition is None or not definition.pure:
        return None
    inputs = [constants[name] if name else None for name in node.inputs]
    if (work := work_of(definition, node, inputs)) > allowed.work:
        return None
    where = f"{model.path}: {node}"
    try:
        opset = model.opsets.get("", 1) if node.domain else version
        call = bound(definition, node, opset, _no_body, where)
        limit = MAX_FOLDED
        if node.op_type not in AT_CAPTURE:
            limit = max(limit, bytes_given(node, inputs))
        results = folded(call, inputs, min(limit, allowed.nbytes))
    except HalfbyteError:
        return None  # the node may never run; if it does, the run reports the error
    if results is None or not all(isinstance(r, np.ndarray) for r in results):
        return None
    allowed.work -= work
    allowed.nbytes -= sum(r.nbytes for r in results if not _shares(r, inputs))
    return list(results)


def _shares(result: Any, inputs: Iterable[Any]) -> bool:
    """Whether a result is a view of an input, which takes no memory."""
    return any(isinstance(v, np.ndarray) and np.may_share_memory(result, v) for v in inputs)


def merge_equal(model: Model) -> None:
    """Merge, in place, nodes that compute the same from the same values."""
    first_of: dict[tuple[Any, ...], Node] = {}
    same: dict[str, str] = {}
    outputs = {v.name for v in model.graph.outputs}
    remaining = []
    for node in model.graph.nodes:
        step()
        if not subgraphs(node):
            node = replace(node, inputs=tuple(same.get(n, n) for n in node.inputs))
        key = _identity(model, node)
        first = None if key is None else first_of.setdefault(key, node)
        if first is None or first is node or outputs.intersection(node.outputs):
            remaining.append(node)
            continue
        same.update(zip(node.outputs, first.outputs, strict=True))
    if any(subgraphs(node) and used_names(node) & same.keys() for node in remaining):
        return  # names in subgraphs are not changed
    model.graph.nodes[:] = remaining


def _identity(model: Model, node: Node) -> tuple[Any, ...] | None:
    """A key that is equal for nodes that compute the same; None for nodes without one."""
    version = node.version or model.opsets.get(node.domain, 1)
    definition = find(node.domain, node.op_type, version)
    plain = all(isinstance(v, int | float | str | list) for v in node.attributes.values())
    if definition is None or not definition.pure or subgraphs(node) or not plain:
        return None
    attributes = repr(sorted(node.attributes.items()))
    used = tuple(bool(name) for name in node.outputs)
    return node.domain, node.op_type, version, node.inputs, attributes, used


def _no_body(graph: Graph) -> Any:
    raise UnsupportedError(f"graph {graph.name!r}: a constant has no subgraphs")
