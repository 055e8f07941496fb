"""Checks that nodes are as their operators define them, as far as rewriting relies on it."""

from __future__ import annotations

import onnx
from onnx import AttributeProto, NodeProto

from halfbyte.errors import FormatError
from halfbyte.quantize.onnx.editor import Editor


def check_nodes(editor: Editor) -> None:
    """Check numbers of inputs and outputs, and types of attributes, by ONNX's schemas.

    Operators that ONNX does not define are not checked: ONNX Runtime has some of its own in the
    standard domain.

    Raises
    ------
    FormatError
        A node differs from the schema of its operator.
    """
    for scope in editor.scopes:
        for node in scope.graph.node:
            problem = _problem(node, editor.opset(node.domain))
            if problem:
                raise FormatError(
                    f"{editor.source.path}: node {node.name!r} ({node.op_type}): {problem}"
                )


def _problem(node: NodeProto, version: int) -> str:
    if not node.output:
        return "it has no outputs"
    try:
        domain = "" if node.domain == "ai.onnx" else node.domain
        schema = onnx.defs.get_schema(node.op_type, version, domain)
    except onnx.defs.SchemaError:
        return ""
    count = len(node.input)
    if not schema.min_input <= count <= schema.max_input:
        return f"expected {schema.min_input} to {schema.max_input} inputs, found {count}"
    needed = [p.option == onnx.defs.OpSchema.FormalParameterOption.Single for p in schema.inputs]
    for index, name in enumerate(node.input[: len(needed)]):
        if needed[index] and not name:
            return f"input {index} is missing"
    for item in node.attribute:
        known = schema.attributes.get(item.name)
        kind = AttributeProto.AttributeType.Name(item.type)
        if known is not None and not item.ref_attr_name and str(known.type) != f"AttrType.{kind}":
            return f"attribute {item.name!r}: expected {known.type}, found AttrType.{kind}"
    return ""
