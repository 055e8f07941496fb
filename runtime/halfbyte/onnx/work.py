"""Bounds of what is computed before a run, in operations and bytes.

Folded constants take at most twice the initializers' bytes (or 64 MB) and a fixed number of
operations; the rest is left to the run. There, sizes are compared with the memory that is left
(`room`) before arrays, programs, functions' nodes or what loops scan take it, and the refusal names
the node. A plan does not compare sizes with this machine's memory, and computes no Einsum of more
than `WORK` operations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from halfbyte.errors import MemoryBudgetError
from halfbyte.onnx.files.model import Node
from halfbyte.onnx.reference import Definition
from halfbyte.onnx.reference.arrays import Array, results_limited
from halfbyte.onnx.reference.linear import einsum_work
from halfbyte.onnx.values import Operand, Value

WORK = 1 << 33  # operations to compute constants, or shapes: some seconds
MAX_FOLDED = 1 << 20  # bytes of a constant that is larger than its inputs
_MATRICES = {"Gemm", "MatMul", "MatMulInteger"}


def work_of(definition: Definition, node: Node, inputs: Iterable[Operand]) -> int:
    """Upper bound of a node's operations, unless its result is larger than its inputs."""
    tensors = _tensors(inputs)
    if (exact := exact_work(node, tensors)) is not None:
        return exact
    sizes = [v.size for v in tensors]
    if node.op_type in _MATRICES and len(tensors) > 1 and tensors[0].shape:
        summed = tensors[0].shape[0 if node.attributes.get("transA") else -1]
        return math.prod(sizes[:2]) // max(summed, 1)
    return math.prod(sizes) if definition.product else sum(sizes)


def exact_work(node: Node, inputs: Iterable[Operand]) -> int | None:
    """Operations of a node whose work has no other bound: an Einsum; None for other nodes."""
    if node.op_type != "Einsum" or node.domain:
        return None
    try:
        return einsum_work(str(node.attributes["equation"]), [v.shape for v in _tensors(inputs)])
    except (ValueError, KeyError):
        return 0  # the run refuses it first


def bytes_given(node: Node, inputs: Sequence[Any]) -> int:
    """Bytes of a node's input arrays and attributes."""
    tensors = (*inputs, *node.attributes.values())
    return sum(v.nbytes for v in tensors if isinstance(v, np.ndarray))


def folded(
    call: Callable[[Sequence[Any]], Sequence[Any]], inputs: Sequence[Any], maximum: int
) -> Sequence[Any] | None:
    """Results of a node whose inputs are known, if they have at most `maximum` bytes."""
    try:
        with results_limited(maximum):
            results = call(inputs)
    except MemoryBudgetError:
        return None
    nbytes = sum(r.nbytes for r in results if isinstance(r, np.ndarray))
    return results if nbytes <= maximum else None


def _tensors(inputs: Iterable[Operand]) -> Sequence[Value | Array]:
    return [v for v in inputs if isinstance(v, Value | np.ndarray)]
