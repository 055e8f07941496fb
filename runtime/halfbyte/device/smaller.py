"""Models in the smaller types of ``quantize``: shapes and types only, no number is computed."""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.formats.model_file import ModelFile
from halfbyte.onnx.files.model import Graph, Model, Node
from halfbyte.weights import Tensor

_BLOCK = 32
_NODE_BYTES = 300  # per node of a file: its names, inputs, outputs and attributes
_MICROSOFT = "com.microsoft"
BITS = {"int8": 8, "int4": 4}  # of a graph's weights, by type
WORTH = 0.95  # of the weights' size: a smaller saving is not worth the errors of quantizing again


def smaller_types(file: ModelFile) -> Iterator[tuple[str, ModelFile]]:
    """Commands that make the model smaller, and their results with zeros for weights."""
    now = sum(t.nbytes for t in file.tensors.values())
    for option, preset in (("--int8", "Q8_0"), ("--type Q4_K_M", "Q4_K_M"), ("--int4", "Q4_0")):
        smaller = in_type(file, preset)
        if sum(t.nbytes for t in smaller.tensors.values()) < WORTH * now:
            yield f"quantize {file.path.name} {option}", smaller


def in_type(file: ModelFile, name: str) -> ModelFile:
    """The model as `quantize` would write it in a preset, with zeros for weights.

    Types are those that the quantizer chooses before it knows the weights' values.
    """
    from halfbyte.quantize.recipe import choose

    tensors = dict(file.tensors)
    for choice in choose(file, name):
        tensor, format_ = choice.tensor, choice.format
        if format_ is not tensor.format:
            size = tensor.row_count * format_.row_bytes(tensor.columns)
            # zeros that are never accessed take no memory
            zeros = np.zeros(size, np.uint8)
            tensors[tensor.name] = Tensor(tensor.name, format_, tensor.shape, zeros)
    return replace(file, tensors=tensors)


def smaller_graphs(model: Model) -> Iterator[tuple[str, Model]]:
    """Commands that make the graph smaller, and their results.

    Products of the main graph with constant float32 matrices, and lookups in such tables, change as
    in the quantizer's `weight_only`, except that a head, which ``--int4`` leaves in int8, is not
    recognized here.
    """
    now = _nbytes(model.graph)
    for name, bits in BITS.items():
        smaller = graph_in_bits(model, bits)
        if _nbytes(smaller.graph) < WORTH * now:
            yield f"quantize {model.path.name} --{name}", smaller


def graph_in_bits(model: Model, bits: int) -> Model:
    """The graph with weights of so many bits, without their values."""
    graph = _Rewritten(model.graph, bits).graph()
    return replace(model, graph=graph, opsets={_MICROSOFT: 1, **model.opsets})


def fp16_memory(model: Model, memory: Mapping[str, int]) -> dict[str, int]:
    """The approximate bytes by kind with these matrices in float16, as of ``quantize --fp16``.

    They are not packed: NumPy multiplies them as mapped from the file.
    """
    matrices = (matrix for node in model.graph.nodes if (matrix := _matrix(model.graph, node)))
    size = sum({name: array.nbytes for name, array in matrices}.values())
    packed = max(memory["weights (packed)"] - size, 0)
    mapped = memory["weights (mapped)"] + size // 2
    return {**memory, "weights (packed)": packed, "weights (mapped)": mapped}


def file_bytes(model: Model) -> int:
    """The approximate bytes of a model's file, which need not exist, and of its external data."""
    return _nbytes(model.graph) + _NODE_BYTES * len(model.graph.nodes)


def _matrix(graph: Graph, node: Node) -> tuple[str, npt.NDArray[Any]] | None:
    """The constant float32 matrix that a node multiplies with or takes rows of."""
    if node.domain or node.op_type not in ("MatMul", "Gemm", "Gather"):
        return None
    name = node.inputs[0 if node.op_type == "Gather" else 1]
    weight = graph.initializers.get(name)
    if not isinstance(weight, np.ndarray) or weight.ndim != 2 or weight.dtype != np.float32:
        return None
    return name, weight


def _nbytes(graph: Graph) -> int:
    return sum(a.nbytes for a in graph.initializers.values() if isinstance(a, np.ndarray))


@dataclass
class _Rewritten:
    """A graph whose weights are replaced, node by node."""

    before: Graph
    bits: int
    added: dict[str, Any] = field(default_factory=dict)

    def graph(self) -> Graph:
        """The whole graph, without initializers that nothing reads any more."""
        nodes = [self._node(node) for node in self.before.nodes]
        read = {name for node in nodes for name in node.inputs}
        inner = any(isinstance(v, Graph) for n in nodes for v in n.attributes.values())
        kept = {k: v for k, v in self.before.initializers.items() if inner or k in read}
        return replace(self.before, nodes=nodes, initializers={**kept, **self.added})

    def _node(self, node: Node) -> Node:
        matrix, table = _matrix(self.before, node), node.op_type == "Gather"
        if matrix is None or node.attributes.get("axis" if table else "transA", 0):
            return node
        by_rows = table or node.attributes.get("transB", 0)
        n, k = matrix[1].shape if by_rows else matrix[1].shape[::-1]
        if k % _BLOCK or not self._bias_is_vector(node, n):
            return node
        return self._table(node, n, k) if table else self._product(node, n, k)

    def _bias_is_vector(self, node: Node, n: int) -> bool:
        """Whether a product has no bias, or a constant one [n]."""
        if len(node.inputs) < 3 or not node.inputs[2]:
            return True
        bias = self.before.initializers.get(node.inputs[2])
        return isinstance(bias, np.ndarray) and bias.size == n

    def _table(self, node: Node, n: int, k: int) -> Node:
        quantized = self._unread(node.inputs[0], "quantized", (n, k), np.uint8)
        scales = self._unread(node.inputs[0], "scales", (n, k // _BLOCK), np.float32)
        attributes = {"bits": 8, "block_size": _BLOCK, "gather_axis": 0, "quantize_axis": 1}
        inputs = (quantized, node.inputs[1], scales)
        return replace(
            node, op_type="GatherBlockQuantized", domain=_MICROSOFT, inputs=inputs,
            attributes=attributes,
        )  # fmt: skip

    def _product(self, node: Node, n: int, k: int) -> Node:
        weight, size = node.inputs[1], _BLOCK * self.bits // 8
        quantized = self._unread(weight, "quantized", (n, k // _BLOCK, size), np.uint8)
        scales = self._unread(weight, "scales", (n, k // _BLOCK), np.float32)
        inputs: tuple[str, ...] = (node.inputs[0], quantized, scales)
        if len(node.inputs) > 2 and node.inputs[2]:
            inputs += ("", "", node.inputs[2])
        attributes = {
            "K": k, "N": n, "bits": self.bits, "block_size": _BLOCK, "accuracy_level": 4,
        }  # fmt: skip
        return replace(
            node, op_type="MatMulNBits", domain=_MICROSOFT, inputs=inputs, attributes=attributes
        )

    def _unread(self, of: str, what: str, shape: tuple[int, ...], dtype: npt.DTypeLike) -> str:
        """An initializer in mapped pages, like a file's, that are never read."""
        name, kind = f"{of} {what} {list(shape)}", np.dtype(dtype)
        if name not in self.added:
            pages = mmap.mmap(-1, max(math.prod(shape) * kind.itemsize, 1))
            self.added[name] = np.frombuffer(pages, kind, math.prod(shape)).reshape(shape)
        return name
