"""Values of float16 become float32 before fusion: kernels compute in float32.

ONNX Runtime does the same on processors, with casts around every node. Here only the graph's inputs
and outputs are cast: nothing is rounded, or becomes infinite, between two nodes. Large matrices
stay halves, in the file's pages, where products and lookups can read them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from halfbyte.core.interrupt import step
from halfbyte.onnx.evaluate import used_names
from halfbyte.onnx.files.model import Graph, Model, Node, ValueInfo
from halfbyte.onnx.fusion.half_types import FLOAT, HALF, has_halves, is_exact, wide, wide_node
from halfbyte.onnx.fusion.rewriter import OWN, make_node

MIN_BYTES = 1 << 14  # of a matrix that stays halves
_FLOATS = (np.dtype(np.float16), np.dtype(np.float32))
Types = Mapping[str, "np.dtype[Any] | None"]


def widen_halves(model: Model, types: Types) -> None:
    """Rewrite the main graph in place; `types` are those of its values, as far as known.

    Graphs stay as they are where a node reads the bits or digits of halves, or where inputs or
    outputs are sequences or optionals of them.
    """
    graph = model.graph
    if has_halves(graph) and not is_exact(graph):
        _Widening(graph, types).run()


def multiply_by_halves(model: Model) -> None:
    """After fusion, in place: products with matrices of halves become Linear, which takes them."""
    graph = model.graph
    zeros: dict[int, str] = {}
    for index, node in enumerate(graph.nodes):
        w = graph.initializers.get(node.inputs[1]) if _is_product(node) else None
        if not isinstance(w, np.ndarray) or w.dtype != np.float16:
            continue
        m = w.shape[1]
        if m not in zeros:
            zeros[m] = f"halfbyte/zeros/{m}"
            graph.initializers[zeros[m]] = np.zeros(m, np.float32)
        graph.nodes[index] = make_node(
            "Linear", [*node.inputs, zeros[m]], node.outputs, domain=OWN, name=node.name
        )


def _is_product(node: Node) -> bool:
    return node.op_type == "MatMul" and not node.domain


class _Widening:
    """The widening of one main graph."""

    def __init__(self, graph: Graph, types: Types) -> None:
        self.graph, self.types = graph, types
        self.names: dict[str, str] = {}  # a value of the graph -> its name now
        self.kept = _kept(graph)
        self.rounded = _rounded(graph, types)
        self._outputs = {v.name for v in graph.outputs}
        self._taken = {*types, *self._outputs, *graph.initializers}

    def run(self) -> None:
        """Rewrite the graph."""
        graph, nodes = self.graph, list[Node]()
        computed = {name for node in graph.nodes for name in node.outputs}
        outputs = [v.name for v in graph.outputs if self._is_half(v)]
        for name in outputs:
            if name in computed or name in graph.initializers:
                self.names[name] = self._fresh(name)
        for info in graph.inputs:
            if info.name not in graph.initializers and self._is_half(info):
                self.names[info.name] = self._fresh(info.name)
                nodes.append(make_node("Cast", [info.name], [self.names[info.name]], to=FLOAT))
        self._initializers()
        for node in graph.nodes:
            step()
            nodes += self._widened(node)
        nodes += [
            make_node("Cast", [self.names[name]], [name], to=HALF)
            for name in outputs
            if name in computed
        ]
        graph.nodes[:] = nodes

    def _is_half(self, info: ValueInfo) -> bool:
        """Whether a value of the graph is of halves, by its declaration or else by its maker."""
        if info.type is None or not info.type.dtype:
            return self.types.get(info.name) == np.float16
        return info.type.kind == "tensor" and info.type.dtype == HALF

    def _fresh(self, name: str) -> str:
        name += "/float32"
        while name in self._taken:
            name += "'"
        self._taken.add(name)
        return name

    def _initializers(self) -> None:
        """Widen constants; one that is an output too keeps its name as well."""
        initializers = self.graph.initializers
        for name in list(initializers):
            if name in self.kept:
                continue
            value, target = initializers[name], self.names.get(name, name)
            widened = wide(value)
            if widened is not value or target != name:
                initializers[target] = widened

    def _widened(self, node: Node) -> list[Node]:
        if _is_cast(node, HALF) and node.outputs[0] in self.rounded:
            return [replace(node, inputs=(self.names.get(node.inputs[0], node.inputs[0]),))]
        if self._keeps_numbers(node):
            return self._alias(node)
        if node.op_type == "Gather" and node.inputs[0] in self.kept:
            (output,) = node.outputs
            halves = self._fresh(f"{output}/halves")
            table, places = node.inputs
            return [
                replace(node, inputs=(table, self.names.get(places, places)), outputs=(halves,)),
                make_node("Cast", [halves], [self.names.get(output, output)], to=FLOAT),
            ]
        node = wide_node(node, self.names)
        if node.op_type == "Gemm" and node.inputs[1] in self.kept:
            return self._gemm(node)
        return [node]

    def _keeps_numbers(self, node: Node) -> bool:
        """Whether a node is a cast from halves or float32 to halves or float32."""
        if not _is_cast(node, FLOAT, HALF):
            return False
        source = node.inputs[0]
        stays = source in self.kept or source in self.rounded
        return not stays and self.types.get(source) in _FLOATS

    def _alias(self, node: Node) -> list[Node]:
        """Let readers of a cast's result read its operand."""
        (name,), (source,) = node.outputs, node.inputs
        operand = self.names.get(source, source)
        if name not in self.names and name in self._outputs:  # an output of float32
            return [make_node("Identity", [operand], [name], name=node.name)]
        self.names[name] = operand
        return []

    def _gemm(self, node: Node) -> list[Node]:
        """A Gemm with a matrix of halves as MatMul and Add, which are fused."""
        x, w, *bias = node.inputs
        if node.attributes.get("transB"):
            rows, w = self.graph.initializers[w], f"{w}/transposed"
            self.graph.initializers[w] = rows.T
        if not bias or not bias[0]:
            return [make_node("MatMul", [x, w], node.outputs, name=node.name)]
        product = self._fresh(f"{node.outputs[0]}/product")
        return [
            make_node("MatMul", [x, w], [product], name=node.name),
            make_node("Add", [product, bias[0]], node.outputs),
        ]


def _is_cast(node: Node, *types: int) -> bool:
    cast = node.op_type == "Cast" and not node.domain and len(node.outputs) == 1
    return cast and node.attributes.get("to") in types


def _rounded(graph: Graph, types: Types) -> set[str]:
    """Results of casts from float32 that are only cast back: a graph rounds its numbers so."""
    rounded = {
        node.outputs[0]
        for node in graph.nodes
        if _is_cast(node, HALF) and types.get(node.inputs[0]) == np.float32
    }
    rounded -= {v.name for v in graph.outputs}
    for node in graph.nodes:
        if rounded and not _is_cast(node, FLOAT):
            rounded -= used_names(node)
    return rounded


# ---- matrices that stay halves -------------------------------------------------------------------


def _kept(graph: Graph) -> set[str]:
    """Large matrices of halves that only products, lookups and casts read."""
    kept = {
        name
        for name, value in graph.initializers.items()
        if isinstance(value, np.ndarray) and value.dtype == np.float16 and value.ndim == 2
        and value.nbytes >= MIN_BYTES
    }  # fmt: skip
    kept -= {v.name for v in (*graph.inputs, *graph.outputs)}
    for node in graph.nodes:
        if not kept:
            break
        others = used_names(node) - {_matrix(graph, node)}
        kept -= others
        kept -= {name for name in node.inputs if node.inputs.count(name) > 1}
    return kept


def _matrix(graph: Graph, node: Node) -> str:
    """The operand of a node that may be a matrix of halves; '' for other nodes."""
    if node.domain or len(node.outputs) != 1:
        return ""
    if node.op_type == "MatMul" or (node.op_type == "Gemm" and _is_plain(graph, node)):
        return node.inputs[1]
    return node.inputs[0] if node.op_type == "Gather" or _is_cast(node, FLOAT, HALF) else ""


def _is_plain(graph: Graph, node: Node) -> bool:
    """Whether a Gemm is a product with a matrix, plus a constant vector or nothing."""
    a = node.attributes
    if a.get("alpha", 1.0) != 1 or a.get("beta", 1.0) != 1 or a.get("transA"):
        return False
    bias = node.inputs[2] if len(node.inputs) > 2 else ""
    w, c = graph.initializers.get(node.inputs[1]), graph.initializers.get(bias)
    if not bias or not isinstance(w, np.ndarray) or w.ndim != 2:
        return not bias
    return isinstance(c, np.ndarray) and c.shape == (w.shape[0 if a.get("transB") else 1],)
