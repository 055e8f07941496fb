"""Operators of ONNX Runtime's optimizers become the nodes that they stand for.

Those have kernels, and are fused again where halfbyte has a kernel for the whole.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from halfbyte.onnx.files.model import Node
from halfbyte.onnx.fusion.rewriter import MICROSOFT, Rewriter, make_node

ACTIVATIONS = {"Relu": (), "Sigmoid": (), "Tanh": (), "LeakyRelu": ("alpha",)}
OPERATORS = (
    "FusedMatMul", "TransposeMatMul", "FusedGemm", "EmbedLayerNormalization",
    "QEmbedLayerNormalization",
)  # fmt: skip
INT32, FLOAT64 = 6, 11  # ONNX's numbers


def spell_out(r: Rewriter) -> None:
    """Every operator, where all of its forms that are needed are known."""
    if not _has_doubles(r):
        for node in r.nodes("FusedMatMul", "TransposeMatMul", domain=MICROSOFT):
            _fused_matmul(r, node)
        for node in r.nodes("FusedGemm", domain=MICROSOFT):
            _fused_gemm(r, node)
    for node in r.nodes("EmbedLayerNormalization", domain=MICROSOFT):
        _embedding(r, node, _padded(node.inputs, 9), None)
    for node in r.nodes("QEmbedLayerNormalization", domain=MICROSOFT):
        inputs = _padded(node.inputs, 18)
        _embedding(r, node, [*inputs[:8], ""], list(zip(inputs[8:13], inputs[13:], strict=True)))


def _has_doubles(r: Rewriter) -> bool:
    """Whether values may be float64: new constants are float32."""
    types = [0 if value.type is None else value.type.dtype for value in r.graph.inputs]
    if {0, FLOAT64} & set(types):
        return True
    if any(FLOAT64 in (n.attributes.get("to"), n.attributes.get("dtype")) for n in r.graph.nodes):
        return True
    constants = map(r.constant, r.graph.initializers)
    return any(value is not None and value.dtype == np.float64 for value in constants)


def _padded(names: tuple[str, ...], count: int) -> list[str]:
    return [*names, *[""] * (count - len(names))]


def _fused_matmul(r: Rewriter, node: Node) -> None:
    """Transpose of the last two axes, MatMul, Mul by alpha."""
    if node.attributes.get("transBatchA", 0) or node.attributes.get("transBatchB", 0):
        return
    nodes, operands = list[Node](), list[str]()
    for name, attribute in zip(node.inputs, ("transA", "transB"), strict=True):
        if node.attributes.get(attribute, 0):
            rank = r.rank(name)
            if rank is None:
                return
            if rank > 1:
                perm = [*range(rank - 2), rank - 1, rank - 2]
                nodes.append(make_node("Transpose", [name], [r.fresh(name)], perm=perm))
                name = nodes[-1].outputs[0]
        operands.append(name)
    alpha = float(node.attributes.get("alpha", 1.0))
    product = node.outputs[0] if alpha == 1 else r.fresh(node.outputs[0])
    nodes.append(make_node("MatMul", operands, [product], version=13, name=node.name))
    if alpha != 1:
        factor = r.add_constant(np.array(alpha, np.float32))
        nodes.append(make_node("Mul", [product, factor], node.outputs, version=14))
    r.replace(node, *nodes)


def _fused_gemm(r: Rewriter, node: Node) -> None:
    """Gemm, then an activation."""
    attributes = dict(node.attributes)
    kind = attributes.pop("activation", None)
    parameters = {
        name: attributes.pop(f"activation_{name}", None) for name in ("alpha", "beta", "gamma")
    }
    given = {name: value for name, value in parameters.items() if value is not None}
    if kind is not None and (kind not in ACTIVATIONS or not given.keys() <= set(ACTIVATIONS[kind])):
        return
    product = node.outputs[0] if kind is None else r.fresh(node.outputs[0])
    nodes = [
        make_node("Gemm", node.inputs, [product], version=13, name=node.name, **attributes),
    ]
    if kind is not None:
        nodes.append(make_node(kind, [product], node.outputs, version=13, **given))
    r.replace(node, *nodes)


def _embedding(
    r: Rewriter, node: Node, inputs: list[str], scales: list[tuple[str, str]] | None
) -> None:
    """Rows of tables, their sum, LayerNormalization, and the lengths of the mask.

    `scales` are those and the zero points of word, position and segment tables, gain and bias.
    """
    ids, segments, words, positions, kinds, gain, bias, mask, places = inputs
    outputs = _padded(node.outputs, 3)
    if outputs[1] and not mask and (r.consumers(outputs[1]) or r.is_output(outputs[1])):
        return
    table = r.constant(positions)
    if not places and (table is None or len(table) < 2):  # one row would be that of all tokens
        return
    nodes: list[Node] = []

    def add(kind: str, reads: list[str], version: int, result: str = "", **more: Any) -> str:
        name = result or r.fresh(outputs[0])
        nodes.append(make_node(kind, reads, [name], version=version, **more))
        return name

    def real(name: str, index: int) -> str:
        if scales is None:
            return name
        return add("DequantizeLinear", [name, *scales[index]], 13)

    rows = real(add("Gather", [words, ids], 13), 0)
    if places:
        added = add("Gather", [positions, places], 13)
    else:
        size = add("Shape", [ids], 15, start=1, end=2)
        zero = r.add_constant(np.zeros(1, np.int64))
        added = add("Slice", [positions, zero, size, zero], 13)
    total = [rows, real(added, 1)]
    if segments and kinds:
        total = [add("Add", total, 14), real(add("Gather", [kinds, segments], 13), 2)]
    whole = add("Add", total, 14, outputs[2])
    epsilon = float(node.attributes.get("epsilon", 1e-12))
    reads = [whole, real(gain, 3), real(bias, 4)]
    add("LayerNormalization", reads, 17, outputs[0], axis=-1, epsilon=epsilon)
    if outputs[1] and mask:
        one = r.add_constant(np.ones(1, np.int32))
        axis = r.add_constant(np.ones(1, np.int64))
        counted = add("Cast", [add("Equal", [mask, one], 13)], 13, to=INT32)
        add("ReduceSum", [counted, axis], 13, outputs[1], keepdims=0)
    r.replace(node, *nodes)
