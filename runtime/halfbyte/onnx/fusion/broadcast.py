"""Nodes after a broadcast move before it, where there are fewer numbers."""

from __future__ import annotations

from halfbyte.onnx.fusion.rewriter import Rewriter, make_node


def fuse_expanded(r: Rewriter) -> None:
    """Cast of an Expand, as of a mask for a mean over tokens, becomes Expand of a Cast."""
    for node in r.nodes("Cast"):
        expand = r.producer(node.inputs[0], "Expand")
        if expand is None or not r.used_once(node.inputs[0]):
            continue
        x, shape = expand.inputs
        small = r.fresh(x)
        cast = make_node(
            "Cast", [x], [small], version=node.version, name=node.name, **node.attributes
        )
        r.replace(
            node, cast,
            make_node(
                "Expand", [small, shape], node.outputs, version=expand.version, name=expand.name
            ),
        )  # fmt: skip
