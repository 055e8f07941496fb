"""Checks of a model's nodes against the definitions of their operators, before anything runs.

Errors that depend on values, shapes or types are raised in the first run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from halfbyte.onnx.files.model import Function, Model, Node
from halfbyte.onnx.reference import Definition, find, operators
from halfbyte.onnx.reference.registry import MICROSOFT, ML
from halfbyte.onnx.reference.signatures import signature_of, wrong_attribute
from halfbyte.onnx.session import errors
from halfbyte.onnx.session.errors import Fail, InvalidGraph


def check_nodes(model: Model) -> None:
    """Check every node, also in functions and subgraphs.

    Raises
    ------
    InvalidGraph
        An operator does not exist in this version of its domain, or has no such input or attribute.
    NotImplemented
        An operator is missing here, of a domain that halfbyte has operators of.
    Fail
        An operator belongs to any other domain.
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
        for graph in node.graphs:
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
    definition = find(node.domain, node.op_type, version)
    if definition is not None:
        return definition
    kind = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
    problem = f"{where}: operator {kind}: not an operator of version {version} of its domain"
    if not node.domain:
        raise InvalidGraph(problem)
    if node.domain in (MICROSOFT, ML) or node.domain in {domain for domain, _ in operators()}:
        raise errors.NotImplemented(
            f"{where}: operator {kind} (version {version}) is not implemented"
        )
    raise Fail(f"{where}: operator {kind}: unknown domain, and no function of this name")


def _check_node(definition: Definition, node: Node, where: str) -> None:
    signature = signature_of(definition)
    count = len(node.inputs)
    if not signature.minimum <= count <= signature.maximum:
        limit = signature.maximum if signature.maximum < 1 << 30 else "any number"
        raise InvalidGraph(f"{where}: {count} inputs, expected {signature.minimum} to {limit}")
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
