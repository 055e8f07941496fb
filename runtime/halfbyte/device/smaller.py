"""Graphs as `quantize` would make them smaller; shapes and types alone, no number is computed."""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.formats.onnx.dtypes import NUMBERS
from halfbyte.formats.onnx.model import Graph, Model, Node

_BLOCK = 32
_MICROSOFT = "com.microsoft"
_WORTH = 0.95  # of its weights, or quantizing once more is not worth its errors


def smaller_graphs(model: Model) -> Iterator[tuple[str, Model]]:
    """The model with products and tables in smaller types, and what `quantize` is told for them.

    Products of the main graph with constant float32 matrices, and rows of such tables, change as
    weights alone do (the quantizer's `weight_only` and `halves`); a head, which `--int4` leaves in
    int8, is not known as one here.
    """
    now = _nbytes(model.graph)
    for option, bits in (("--int8", 8), ("--int4", 4), ("--fp16", 16)):
        graph = _Rewritten(model.graph, bits).graph()
        if _nbytes(graph) < _WORTH * now:
            opsets = {_MICROSOFT: 1, **model.opsets}
            yield f"quantize {model.path.name} {option}", replace(model, graph=graph, opsets=opsets)


def _nbytes(graph: Graph) -> int:
    return sum(a.nbytes for a in graph.initializers.values() if isinstance(a, np.ndarray))


@dataclass
class _Rewritten:
    """A graph whose weights are replaced, node by node."""

    before: Graph
    bits: int
    made: dict[str, Any] = field(default_factory=dict)

    def graph(self) -> Graph:
        """All of it, without initializers that nothing reads any more."""
        nodes = [made for node in self.before.nodes for made in self._node(node)]
        read = {name for node in nodes for name in node.inputs}
        inner = any(isinstance(v, Graph) for n in nodes for v in n.attributes.values())
        kept = {k: v for k, v in self.before.initializers.items() if inner or k in read}
        return replace(self.before, nodes=nodes, initializers={**kept, **self.made})

    def _node(self, node: Node) -> Sequence[Node]:
        if node.domain or node.op_type not in ("MatMul", "Gemm", "Gather"):
            return (node,)
        table = node.op_type == "Gather"
        weight = self.before.initializers.get(node.inputs[0 if table else 1])
        if not isinstance(weight, np.ndarray) or weight.ndim != 2 or weight.dtype != np.float32:
            return (node,)
        by_rows = table or bool(node.attributes.get("transB", 0))
        n, k = weight.shape if by_rows else weight.shape[::-1]
        if table and node.attributes.get("axis", 0):
            return (node,)
        if self.bits == 16:
            return self._half(node, 0 if table else 1, weight.shape)
        if k % _BLOCK or node.attributes.get("transA", 0):
            return (node,)
        return self._table(node, n, k) if table else self._product(node, n, k)

    def _table(self, node: Node, n: int, k: int) -> Sequence[Node]:
        codes = self._unread(node.inputs[0], "codes", (n, k), np.uint8)
        scales = self._unread(node.inputs[0], "scales", (n, k // _BLOCK), np.float32)
        attributes = {"bits": 8, "block_size": _BLOCK, "gather_axis": 0, "quantize_axis": 1}
        inputs = (codes, node.inputs[1], scales)
        return (
            replace(
                node, op_type="GatherBlockQuantized", domain=_MICROSOFT, inputs=inputs,
                attributes=attributes,
            ),
        )  # fmt: skip

    def _product(self, node: Node, n: int, k: int) -> Sequence[Node]:
        weight, size = node.inputs[1], _BLOCK * self.bits // 8
        codes = self._unread(weight, "codes", (n, k // _BLOCK, size), np.uint8)
        scales = self._unread(weight, "scales", (n, k // _BLOCK), np.float32)
        inputs: tuple[str, ...] = (node.inputs[0], codes, scales)
        if len(node.inputs) > 2 and node.inputs[2]:
            inputs += ("", "", node.inputs[2])
        attributes = {
            "K": k, "N": n, "bits": self.bits, "block_size": _BLOCK, "accuracy_level": 4,
        }  # fmt: skip
        return (
            replace(
                node, op_type="MatMulNBits", domain=_MICROSOFT, inputs=inputs, attributes=attributes
            ),
        )

    def _half(self, node: Node, place: int, shape: tuple[int, ...]) -> Sequence[Node]:
        """The node on float16, between casts."""
        half = self._unread(node.inputs[place], "half", shape, np.float16)
        inputs, before = list(node.inputs), []
        inputs[place] = half
        for index, name in enumerate(inputs):
            if index != place and name and node.op_type != "Gather":
                inputs[index] = f"{node.title} {index} in float16"
                before.append(_cast(name, inputs[index], np.float16))
        result = f"{node.title} in float16"
        middle = replace(node, inputs=tuple(inputs), outputs=(result,))
        return (*before, middle, _cast(result, node.outputs[0], np.float32))

    def _unread(self, of: str, what: str, shape: tuple[int, ...], dtype: npt.DTypeLike) -> str:
        """An initializer that lies in pages like a file's, which nobody has read."""
        name, kind = f"{of} {what}", np.dtype(dtype)
        if name not in self.made:
            pages = mmap.mmap(-1, max(math.prod(shape) * kind.itemsize, 1))
            self.made[name] = np.frombuffer(pages, kind, math.prod(shape)).reshape(shape)
        return name


def _cast(given: str, made: str, dtype: npt.DTypeLike) -> Node:
    return Node("Cast", (given,), (made,), {"to": NUMBERS[np.dtype(dtype)]})
