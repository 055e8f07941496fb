"""Preparation: a graph is rewritten once, before any shape is known.

Functions are inlined, float16 becomes float32 (`fusion.halves`), constants are folded, branches of
which one is always taken are inlined, equal nodes merged, patterns fused (`halfbyte.onnx.fusion`)
and unused nodes dropped; then the same happens inside the bodies of If, Loop and Scan. The result
is an ONNX graph again, with operators of the domain ai.halfbyte, so the definitions can run it too;
the tests compare both.

Folded constants take at most twice the bytes of the initializers (or 64 MB), and a fixed number of
operations; the rest is left to the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from halfbyte.core.interrupt import step
from halfbyte.errors import HalfbyteError, UnsupportedError
from halfbyte.onnx.calls import bound
from halfbyte.onnx.evaluate import outer_names, used_names
from halfbyte.onnx.files.initializers import release, some_of, stored
from halfbyte.onnx.files.model import Graph, Model, Node, TypeInfo, ValueInfo
from halfbyte.onnx.fusion import fuse
from halfbyte.onnx.fusion.convolution import SCALED_KERNEL
from halfbyte.onnx.fusion.half_types import has_halves
from halfbyte.onnx.fusion.halves import multiply_by_halves, widen_halves
from halfbyte.onnx.fusion.ranks import Ranks, ranks
from halfbyte.onnx.fusion.rewriter import drop_unused
from halfbyte.onnx.inlining import Allowed, branch_of, inlined, own_initializers, with_graphs
from halfbyte.onnx.reference import Definition, find
from halfbyte.onnx.reference.types import check_types
from halfbyte.onnx.work import MAX_FOLDED, bytes_given, folded, work_of
from halfbyte.room import memory_for

AT_CAPTURE = (SCALED_KERNEL,)  # large results are computed and packed at capture, not kept
QUANTIZED = ("QuantizeLinear", "DequantizeLinear")  # weights stay integers until after fusion


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
        allowed = Allowed(model.path, stored(model.graph.initializers).values())
        nodes, initializers = own_initializers(model.graph, allowed, replaced)
        graph = Graph(
            model.graph.name,
            [*nodes, *inlined(model, model.graph.nodes, allowed)],
            initializers, model.graph.inputs, model.graph.outputs, model.graph.value_info,
        )  # fmt: skip
        prepared = replace(model, graph=graph, functions={})
        if optimize or has_halves(graph):
            widen_halves(prepared, check_types(prepared))
        if optimize:
            _optimize(prepared, allowed)
        else:
            multiply_by_halves(prepared)
        drop_unused(graph)
        release(model.graph.initializers)
        release(graph.initializers)
    return prepared


def simplified(model: Model, constants: frozenset[str]) -> Model:
    """An equivalent model of ONNX's own operators: without functions, unused nodes and nodes whose
    results are constants, and with one node of those that compute the same.

    Only the initializers `constants` are taken for constants: a caller may replace others.
    """
    with memory_for(f"{model.path}: its constants"):
        before = dict(stored(model.graph.initializers))
        allowed = Allowed(model.path, before.values())
        others = {name: value for name, value in before.items() if name not in constants}
        nodes, initializers = own_initializers(model.graph, allowed, frozenset(others))
        graph = Graph(
            model.graph.name, [*nodes, *inlined(model, model.graph.nodes, allowed)], initializers,
            model.graph.inputs, model.graph.outputs, model.graph.value_info,
            metadata=model.graph.metadata, doc_string=model.graph.doc_string,
        )  # fmt: skip
        simple = replace(model, graph=graph, functions={})
        _fold_constants(simple, allowed, kept=QUANTIZED)
        while _choose_branches(simple, allowed):
            _fold_constants(simple, allowed, kept=QUANTIZED)
        merge_equal(simple)
        drop_unused(graph)
        graph.initializers.update(others)
        outputs = {name for node in graph.nodes for name in node.outputs}
        graph.value_info = {n: v for n, v in graph.value_info.items() if n in outputs}
    return simple


def _optimize(model: Model, allowed: Allowed, *, is_body: bool = False) -> None:
    """Rewrite the main graph in place, then the bodies inside its nodes in the same way.

    Bodies have no matrices that stay halves.
    """
    _fold_constants(model, allowed, kept=QUANTIZED)
    while _choose_branches(model, allowed):
        _fold_constants(model, allowed, kept=QUANTIZED)
    merge_equal(model)
    drop_unused(model.graph)
    fuse(model)
    if not is_body:
        multiply_by_halves(model)
    _fold_constants(model, allowed)
    if any(node.graphs for node in model.graph.nodes):
        drop_unused(model.graph)
        _prepare_bodies(model, allowed)
    model.graph.nodes[:] = _early(model)


def _early(model: Model) -> list[Node]:
    """The nodes, each before those ends of programs (see `capture`) that it does not need.

    Ends that need none of each other follow one another, so that one program computes what follows
    from all of them: boxes are often selected in the same way for each of many classes. Random
    nodes stay in their order.
    """
    nodes: list[list[Node]] = [[]]  # by the number of ends that they need one after the other
    ends: list[list[Node]] = [[]]
    after: dict[str, int] = {}  # by values
    impure = 0
    for node in model.graph.nodes:
        step()
        at = max((after.get(name, 0) for name in used_names(node)), default=0)
        if is_end := _ends_program(node, model):
            if not _is_pure(node, model):
                at = impure = max(at, impure)
            ends[at].append(node)
            if at + 1 == len(ends):
                nodes.append([])
                ends.append([])
        else:
            nodes[at].append(node)
        for name in node.outputs:
            after[name] = at + is_end
    groups = zip(nodes, ends, strict=True)
    return [node for before, last in groups for node in (*before, *last)]


def _ends_program(node: Node, model: Model) -> bool:
    definition = _definition(node, model)
    return definition is None or definition.dynamic or not definition.pure


def _is_pure(node: Node, model: Model) -> bool:
    definition = _definition(node, model)
    return definition is not None and definition.pure and not node.graphs


def _definition(node: Node, model: Model) -> Definition | None:
    return find(node.domain, node.op_type, node.version or model.opsets.get(node.domain, 1))


# ---- bodies of control flow ----------------------------------------------------------------------


def _choose_branches(model: Model, allowed: Allowed) -> bool:
    """Put the nodes of a branch in the place of every If with a constant condition."""
    nodes: list[Node] = []
    for node in model.graph.nodes:
        step()
        condition = model.graph.initializers.get(node.inputs[0]) if _is_if(node) else None
        if isinstance(condition, np.ndarray) and condition.size == 1:
            branch = node.attributes["then_branch" if condition.item() else "else_branch"]
            nodes += branch_of(model, node, branch, allowed.names)
        else:
            nodes.append(node)
    changed = nodes != model.graph.nodes
    model.graph.nodes[:] = nodes
    return changed


def _is_if(node: Node) -> bool:
    """Whether a node is an If with both branches."""
    graphs = [node.attributes.get(name) for name in ("then_branch", "else_branch")]
    known = node.op_type == "If" and not node.domain and len(node.inputs) == 1
    return known and all(
        isinstance(graph, Graph) and not graph.inputs and len(graph.outputs) >= len(node.outputs)
        for graph in graphs
    )


def _prepare_bodies(model: Model, allowed: Allowed) -> None:
    around = ranks(model.graph)
    model.graph.nodes[:] = [
        with_graphs(node, lambda body: _prepared_body(model, body, around, allowed))
        if node.graphs
        else node
        for node in model.graph.nodes
    ]


def _prepared_body(model: Model, body: Graph, around: Ranks, allowed: Allowed) -> Graph:
    """A body, rewritten as a main graph whose inputs include the values around it.

    Constants around it are its constants too. The types that it declares are not relied on: nothing
    checks what it is given.
    """
    outside = outer_names(body)
    constants = some_of(model.graph.initializers, outside)
    inputs = [ValueInfo(v.name) for v in body.inputs]
    inputs += [_ranked(name, around.get(name)) for name in sorted(outside - constants.keys())]
    initializers = some_of(model.graph.initializers, constants)
    initializers.update(body.initializers)
    inner = Graph(body.name, list(body.nodes), initializers, inputs, body.outputs)
    _optimize(replace(model, graph=inner), allowed, is_body=True)
    drop_unused(inner)
    before, after = stored(constants), stored(inner.initializers)
    own = some_of(inner.initializers, [n for n in after if before.get(n) is not after[n]])
    return Graph(body.name, inner.nodes, own, body.inputs, body.outputs)


def _ranked(name: str, rank: int | None) -> ValueInfo:
    return ValueInfo(name, None if rank is None else TypeInfo("tensor", shape=(None,) * rank))


# ---- constants -----------------------------------------------------------------------------------


def _fold_constants(model: Model, allowed: Allowed, kept: tuple[str, ...] = ()) -> None:
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
    model: Model, node: Node, constants: Mapping[str, Any], allowed: Allowed
) -> list[Any] | None:
    """A node's results, if they are constants and within the limits."""
    if node.graphs or any(name and name not in constants for name in node.inputs):
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
        if not node.graphs and not same.keys().isdisjoint(node.inputs):
            node = replace(node, inputs=tuple(same.get(n, n) for n in node.inputs))
        key = _identity(model, node)
        first = None if key is None else first_of.setdefault(key, node)
        if first is None or first is node or outputs.intersection(node.outputs):
            remaining.append(node)
            continue
        same.update(zip(node.outputs, first.outputs, strict=True))
    if any(node.graphs and used_names(node) & same.keys() for node in remaining):
        return  # names in subgraphs are not changed
    model.graph.nodes[:] = remaining


def _identity(model: Model, node: Node) -> tuple[Any, ...] | None:
    """A key that is equal for nodes that compute the same; None for nodes without one."""
    version = node.version or model.opsets.get(node.domain, 1)
    definition = find(node.domain, node.op_type, version)
    plain = all(isinstance(v, int | float | str | list) for v in node.attributes.values())
    if definition is None or not definition.pure or node.graphs or not plain:
        return None
    attributes = repr(sorted(node.attributes.items())) if node.attributes else ""
    used = tuple(bool(name) for name in node.outputs)
    return node.domain, node.op_type, version, node.inputs, attributes, used


def _no_body(graph: Graph) -> Any:
    raise UnsupportedError(f"graph {graph.name!r}: a constant has no subgraphs")
