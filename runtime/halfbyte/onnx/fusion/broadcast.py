"""What is repeated by broadcasting is computed before, where it has fewer numbers."""

from __future__ import annotations

from halfbyte.onnx.fusion.rewriter import Rewriter, made


def fuse_expanded(r: Rewriter) -> None:
    """Cast of an Expand, as of a mask for a mean over tokens, becomes Expand of a Cast."""
    for node in r.nodes("Cast"):
        expand = r.maker(node.inputs[0], "Expand")
        if expand is None or not r.alone(node.inputs[0]):
            continue
        x, shape = expand.inputs
        small = r.fresh(x)
        cast = made("Cast", [x], [small], version=node.version, name=node.name, **node.attributes)
        r.replace(
            node, cast,
            made("Expand", [small, shape], node.outputs, version=expand.version, name=expand.name),
        )  # fmt: skip
