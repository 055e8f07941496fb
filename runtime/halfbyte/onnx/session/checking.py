"""Whether a model's nodes are ones that their operators' definitions allow, before any runs.

What depends on values, shapes or types shows at the first run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from halfbyte.onnx.evaluate import subgraphs
from halfbyte.onnx.files.model import Function, Model, Node
from halfbyte.onnx.reference import Definition, find, operators
from halfbyte.onnx.reference.registry import MICROSOFT, ML
from halfbyte.onnx.reference.signatures import signature_of, wrong_attribute
from halfbyte.onnx.session import errors
from halfbyte.onnx.session.errors import Fail, InvalidGraph


def check_nodes(model: Model) -> None:
    """Look at every node, those of functions and subgraphs too.

    Raises
    ------
    InvalidGraph
        An operator that its domain does not have in this version, or inputs or attributes that it
        does not have.
    NotImplemented
        An operator of a domain of which halfbyte knows some.
    Fail
        An operator of any other domain.
    """
    _check(model, model.graph.nodes, model.opsets, None)
    for function in model.functions.values():
        _check(model, function.nodes, function.opsets, function)


def _check(
    model: Model, nodes: Iterable[Node], opsets: Mapping[str, int], inside: Function | None
) -> None:
    for node in nodes:
        where = f"{model.path}: {node}"
        if inside is not None:
            where = f"{model.path}: function {inside.name!r}: {node}"
        called = model.functions.get((node.domain, node.op_type, node.overload))
        if called is not None:
            _check_call(called, node, where)
        else:
            version = node.version or opsets.get(node.domain, 1)
            _check_node(_definition(node, version, where), node, where)
        for graph in subgraphs(node):
            _check(model, graph.nodes, opsets, inside)


def _check_call(function: Function, node: Node, where: str) -> None:
    if len(node.inputs) > len(function.inputs) or len(node.outputs) > len(function.outputs):
        raise InvalidGraph(
            f"{where}: {len(node.inputs)} inputs and {len(node.outputs)} outputs, expected at most "
            f"{len(function.inputs)} and {len(function.outputs)}, which the function has"
        )
    missing = sorted(set(function.attributes) - node.attributes.keys())
    if missing:
        raise InvalidGraph(f"{where}: attribute {missing[0]!r} is required")


def _definition(node: Node, version: int, where: str) -> Definition:
    found = find(node.domain, node.op_type, version)
    if found is not None:
        return found
    kind = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
    problem = f"{where}: operator {kind}: not an operator of version {version} of its domain"
    if not node.domain:
        raise InvalidGraph(problem)
    if node.domain in (MICROSOFT, ML) or node.domain in {domain for domain, _ in operators()}:
        raise errors.NotImplemented(f"{where}: operator {kind} (version {version}) is not built")
    raise Fail(f"{where}: operator {kind}: the domain is not known, nor a function of this name")


def _check_node(definition: Definition, node: Node, where: str) -> None:
    signature = signature_of(definition)
    count = len(node.inputs)
    if not signature.least <= count <= signature.most:
        most = signature.most if signature.most < 1 << 30 else "any number"
        raise InvalidGraph(f"{where}: {count} inputs, expected {signature.least} to {most}")
    unknown = sorted(set(node.attributes) - definition.attributes - definition.given)
    if unknown:
        raise InvalidGraph(
            f"{where}: attribute {unknown[0]!r}: expected one of {sorted(definition.attributes)}"
        )
    missing = sorted(signature.required - node.attributes.keys())
    if missing:
        raise InvalidGraph(f"{where}: attribute {missing[0]!r} is required")
    if problem := wrong_attribute(definition, node.attributes):
        raise InvalidGraph(f"{where}: {problem}")
