"""What nodes take before a run, in operations and bytes, which are bounded."""

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
MAX_FOLDED = 1 << 20  # bytes of a constant that is larger than what it was made of
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


def bytes_given(node: Node, inputs: Sequence[Any]) -> int:
    """Bytes of the arrays that a node has, attributes among them."""
    given = (*inputs, *node.attributes.values())
    return sum(v.nbytes for v in given if isinstance(v, np.ndarray))


def folded(
    call: Callable[[Sequence[Any]], Sequence[Any]], inputs: Sequence[Any], most: int
) -> Sequence[Any] | None:
    """Results of a node whose inputs are known, if they have no more bytes than `most`."""
    try:
        with results_limited(most):
            results = call(inputs)
    except MemoryBudgetError:
        return None
    nbytes = sum(r.nbytes for r in results if isinstance(r, np.ndarray))
    return results if nbytes <= most else None


def _tensors(inputs: Iterable[Operand]) -> Sequence[Value | Array]:
    return [v for v in inputs if isinstance(v, Value | np.ndarray)]
