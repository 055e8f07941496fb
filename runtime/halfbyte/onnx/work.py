"""How many operations nodes take at most: what is computed before a run is bounded."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from halfbyte.onnx.files.model import Node
from halfbyte.onnx.reference import Definition
from halfbyte.onnx.reference.arrays import Array
from halfbyte.onnx.reference.linear import einsum_work
from halfbyte.onnx.values import Operand, Value

WORK = 1 << 33  # operations to compute constants, or shapes: some seconds
_MATRICES = {"Gemm", "MatMul", "MatMulInteger"}


def work_of(definition: Definition, node: Node, inputs: Iterable[Operand]) -> int:
    """Operations of a node, at most; of one whose result is larger than its inputs, fewer."""
    given = _tensors(inputs)
    if (exact := exact_work(node, given)) is not None:
        return exact
    sizes = [v.size for v in given]
    if node.op_type in _MATRICES and len(given) > 1 and given[0].shape:
        summed = given[0].shape[0 if node.attributes.get("transA") else -1]
        return math.prod(sizes[:2]) // max(summed, 1)
    return math.prod(sizes) if definition.product else sum(sizes)


def exact_work(node: Node, inputs: Iterable[Operand]) -> int | None:
    """Operations of a node whose work nothing else bounds: an Einsum; None of others."""
    if node.op_type != "Einsum" or node.domain:
        return None
    try:
        return einsum_work(str(node.attributes["equation"]), [v.shape for v in _tensors(inputs)])
    except (ValueError, KeyError):
        return 0  # it is refused before it does anything


def _tensors(inputs: Iterable[Operand]) -> Sequence[Value | Array]:
    return [v for v in inputs if isinstance(v, Value | np.ndarray)]
