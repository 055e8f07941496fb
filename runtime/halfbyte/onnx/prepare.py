"""Rewriting a graph once, before any shape is known: functions inlined, constants folded, patterns
fused, what nothing reads dropped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from halfbyte.core.interrupt import step
from halfbyte.errors import HalfbyteError, UnsupportedError
from halfbyte.onnx.evaluate import bound, resolved, subgraphs, used_names
from halfbyte.onnx.files.model import Function, Graph, Model, Node, SparseTensor, ValueInfo
from halfbyte.onnx.fusion import fuse
from halfbyte.onnx.fusion.convolution import SCALED_KERNEL
from halfbyte.onnx.fusion.rewriter import drop_unused
from halfbyte.onnx.reference import find
from halfbyte.onnx.reference.arrays import Kept
from halfbyte.onnx.reference.constant import dense
from halfbyte.onnx.reference.types import check_types
from halfbyte.onnx.work import MAX_FOLDED, WORK, bytes_given, folded, work_of
from halfbyte.room import memory_for

AT_CAPTURE = (SCALED_KERNEL,)  # large results are packed where they are needed, and not kept
QUANTIZED = ("QuantizeLinear", "DequantizeLinear")  # weights stay integers until after fusion
DEPTH = 64  # functions that call functions
ROOM = 64 << 20  # bytes that constants may take beside initializers, or twice what those take


def prepare(
    model: Model,
    *,
    optimize: bool = True,
    given: frozenset[str] = frozenset(),
) -> Model:
    """A model that does the same, for `Runner`: no functions, no sparse initializers.

    Initializers are constants, but for those that are `given` as inputs. What would take much
    memory or time to compute is left to the run. Each node is a step that may be the last; see
    `interrupt`.

    Raises
    ------
    OutOfMemoryError
        There is no memory even for that.
    """
    with memory_for(f"{model.path}: its constants"):
        allowed = _Allowed(model.path, model.graph.initializers.values())
        nodes, initializers = _initializers(model.graph, allowed, given)
        graph = Graph(
            model.graph.name,
            [*nodes, *_inlined(model, model.graph.nodes, allowed)],
            initializers, model.graph.inputs, model.graph.outputs, model.graph.value_info,
        )  # fmt: skip
        made = replace(model, graph=graph, functions={})
        if optimize:
            check_types(made)
            _fold_constants(made, allowed, kept=QUANTIZED)
            merge_equal(made)
            drop_unused(graph)
            fuse(made)
            _fold_constants(made, allowed)
        drop_unused(graph)
    return made


class _Allowed:
    """How many bytes constants may take, and how many operations they may cost, in all."""

    def __init__(self, path: Path, initializers: Iterable[Any]) -> None:
        given = sum(v.nbytes for v in initializers if isinstance(v, np.ndarray))
        self.nbytes, self.work = max(ROOM, 2 * given), WORK
        self.names = Kept(f"{path}: functions' nodes in place of their calls")


# Bytes of nodes, of names and of where they stand, with what is known of them while graphs change
_NODE, _NAME, _REFERENCE = 1000, 100, 50


# ---- functions -----------------------------------------------------------------------------------


def _inlined(model: Model, nodes: list[Node], allowed: _Allowed, depth: int = 0) -> list[Node]:
    """The nodes with every call of a function replaced by the function's own nodes."""
    if depth > DEPTH:
        raise UnsupportedError(f"{model.path}: functions call each other more than {DEPTH} deep")
    made: list[Node] = []
    for node in nodes:
        step()
        function = model.functions.get((node.domain, node.op_type, node.overload))
        if function is not None:
            made += _inlined(model, _called(function, node, allowed.names), allowed, depth + 1)
        elif subgraphs(node):
            made.append(_with_graphs(node, lambda g: _inlined_graph(model, g, allowed, depth + 1)))
        else:
            made.append(node)
    return made


def _inlined_graph(model: Model, graph: Graph, allowed: _Allowed, depth: int) -> Graph:
    nodes, initializers = _initializers(graph, allowed)
    nodes += _inlined(model, graph.nodes, allowed, depth)
    return Graph(graph.name, nodes, initializers, graph.inputs, graph.outputs, graph.value_info)


def _called(function: Function, node: Node, kept: Kept) -> list[Node]:
    """A function's nodes for one call: names are the caller's, or made unique by its output's.

    `kept` counts the bytes that they take.
    """
    given = dict.fromkeys(function.inputs, "") | dict(
        zip(function.inputs, node.inputs, strict=False)
    )
    results = list(zip(function.outputs, node.outputs, strict=False))
    names = {formal: actual for formal, actual in results if actual} | given
    call = _Call(f"{next(filter(None, node.outputs), node.name)}/{function.name}/", function, kept)
    attributes = {**function.defaults, **node.attributes}
    made = [call.renamed(resolved(inner, attributes), names) for inner in function.nodes]
    made += [
        Node("Identity", (given[formal],), (actual,))
        for formal, actual in results
        if actual and formal in given  # an input passes through
    ]
    return made


class _Call:
    """One call of a function: what makes its names unique, and versions of its operators."""

    def __init__(self, prefix: str, function: Function, kept: Kept) -> None:
        self.prefix, self.function, self._kept = prefix, function, kept

    def renamed(self, node: Node, names: dict[str, str]) -> Node:
        """The node with its values' names translated; others get the prefix, and are remembered."""

        def of(name: str) -> str:
            if name and name not in names:
                names[name] = self.prefix + name
                self._kept.add_bytes(len(names[name]) + _NAME)
            return names.get(name, "")

        references = len(node.inputs) + len(node.outputs) + len(node.attributes)
        self._kept.add_bytes(_NODE + len(self.prefix) + _REFERENCE * references)
        made = _with_graphs(node, lambda graph: self._graph(graph, names))
        return replace(
            made, inputs=tuple(map(of, node.inputs)), outputs=tuple(map(of, node.outputs)),
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
    """The node with every graph among its attributes changed."""
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
    graph: Graph, allowed: _Allowed, given: frozenset[str] = frozenset()
) -> tuple[list[Node], dict[str, Any]]:
    """Initializers, sparse ones as arrays; those that are too large, as nodes that make them."""
    nodes, arrays = [], dict[str, Any]()
    for name, value in graph.initializers.items():
        if name in given:
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
    """Compute, in place, every node whose inputs are initializers, but operators that are kept.

    A result that is larger than what it is made of stays a node, unless it is small:
    weights are not unpacked here.
    """
    graph = model.graph
    fixed = dict(graph.initializers)
    left = []
    for node in graph.nodes:
        step()
        results = None if node.op_type in kept else _folded(model, node, fixed, allowed)
        if results is None:
            left.append(node)
            continue
        made = {n: r for n, r in zip(node.outputs, results, strict=False) if n}
        fixed.update(made)
        graph.initializers.update(made)
    graph.nodes[:] = left


def _folded(
    model: Model, node: Node, fixed: Mapping[str, Any], allowed: _Allowed
) -> list[Any] | None:
    """A node's results, if they are constants worth keeping."""
    if subgraphs(node) or any(name and name not in fixed for name in node.inputs):
        return None
    version = node.version or model.opsets.get(node.domain, 1)
    definition = find(node.domain, node.op_type, version)
    if definition is None or not definition.pure:
        return None
    inputs = [fixed[name] if name else None for name in node.inputs]
    if (work := work_of(definition, node, inputs)) > allowed.work:
        return None
    where = f"{model.path}: {node}"
    try:
        opset = model.opsets.get("", 1) if node.domain else version
        call = bound(definition, node, opset, _no_body, where)
        least = 0 if node.op_type in AT_CAPTURE else bytes_given(node, inputs)
        results = folded(call, inputs, min(max(least, MAX_FOLDED), allowed.nbytes))
    except HalfbyteError:
        return None  # it may never be reached; where it is, the run says what is wrong
    if results is None or not all(isinstance(r, np.ndarray) for r in results):
        return None
    allowed.work -= work
    allowed.nbytes -= sum(r.nbytes for r in results if not _shares(r, inputs))
    return list(results)


def _shares(result: Any, inputs: Iterable[Any]) -> bool:
    """Whether a result lies where an input does: a view costs nothing."""
    return any(isinstance(v, np.ndarray) and np.may_share_memory(result, v) for v in inputs)


def merge_equal(model: Model) -> None:
    """Compute, in place, what several nodes compute from the same values only once."""
    known: dict[tuple[Any, ...], Node] = {}
    same: dict[str, str] = {}
    outputs = {v.name for v in model.graph.outputs}
    left = []
    for node in model.graph.nodes:
        step()
        if not subgraphs(node):
            node = replace(node, inputs=tuple(same.get(n, n) for n in node.inputs))
        key = _identity(model, node)
        first = None if key is None else known.setdefault(key, node)
        if first is None or first is node or outputs.intersection(node.outputs):
            left.append(node)
            continue
        same.update(zip(node.outputs, first.outputs, strict=True))
    if any(subgraphs(node) and used_names(node) & same.keys() for node in left):
        return  # names inside subgraphs stay as they are
    model.graph.nodes[:] = left


def _identity(model: Model, node: Node) -> tuple[Any, ...] | None:
    """What two nodes have in common that compute the same; None where that cannot be said."""
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
