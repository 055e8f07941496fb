"""Models as `quantize` would make them smaller; shapes and types alone, no number is computed."""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.formats import metadata
from halfbyte.formats.model_file import ModelFile
from halfbyte.onnx.files.model import Graph, Model, Node
from halfbyte.weights import Tensor

_BLOCK = 32
_NODE_BYTES = 300  # of a node in a file: its names, inputs, outputs and attributes
_MICROSOFT = "com.microsoft"
WORTH = 0.95  # of its weights, or quantizing once more is not worth its errors


def smaller_types(file: ModelFile) -> Iterator[tuple[str, ModelFile]]:
    """The model as `quantize` would make it smaller; sizes alone, nothing is quantized."""
    now = sum(t.nbytes for t in file.tensors.values())
    for option, kind in (("--int8", "Q8_0"), ("--type Q4_K_M", "Q4_K_M"), ("--int4", "Q4_0")):
        made = _in_type(file, kind)
        if sum(t.nbytes for t in made.tensors.values()) < WORTH * now:
            yield f"quantize {file.path.name} {option}", made


def _in_type(file: ModelFile, kind: str) -> ModelFile:
    from halfbyte.quantize.presets import fitting, presets

    architecture = metadata.text(file, "general.architecture")
    layers = metadata.integer(file, f"{architecture}.block_count", 0, 1 << 16) or 0
    wanted, tied = presets()[kind], "output.weight" not in file.tensors
    tensors = dict(file.tensors)
    for name, tensor in file.tensors.items():
        if len(tensor.shape) == 2:
            format_ = fitting(wanted.format_of(name, layers, tied=tied), tensor.columns)
            size = tensor.row_count * format_.row_bytes(tensor.columns)
            # zeros that nobody touches take no memory
            tensors[name] = Tensor(name, format_, tensor.shape, np.zeros(size, np.uint8))
    return replace(file, tensors=tensors)


def smaller_graphs(model: Model) -> Iterator[tuple[str, Model]]:
    """The model with products and tables in integers, and what `quantize` is told for them.

    Products of the main graph with constant float32 matrices, and rows of such tables, change as
    the quantizer's `weight_only` has it; a head, which `--int4` leaves in int8, is not known as one
    here.
    """
    now = _nbytes(model.graph)
    for option, bits in (("--int8", 8), ("--int4", 4)):
        graph = _Rewritten(model.graph, bits).graph()
        if _nbytes(graph) < WORTH * now:
            opsets = {_MICROSOFT: 1, **model.opsets}
            yield f"quantize {model.path.name} {option}", replace(model, graph=graph, opsets=opsets)


def halved(model: Model, memory: Mapping[str, int]) -> dict[str, int]:
    """About the bytes by kind with these matrices in float16, as `quantize --fp16` has them.

    They are not packed: NumPy multiplies them where they lie in the file.
    """
    found = (matrix for node in model.graph.nodes if (matrix := _matrix(model.graph, node)))
    size = sum({name: array.nbytes for name, array in found}.values())
    packed = max(memory["weights (packed)"] - size, 0)
    mapped = memory["weights (mapped)"] + size // 2
    return {**memory, "weights (packed)": packed, "weights (mapped)": mapped}


def file_bytes(model: Model) -> int:
    """About the bytes of a model's file, also one that is not made yet, with what lies outside."""
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
    made: dict[str, Any] = field(default_factory=dict)

    def graph(self) -> Graph:
        """All of it, without initializers that nothing reads any more."""
        nodes = [self._node(node) for node in self.before.nodes]
        read = {name for node in nodes for name in node.inputs}
        inner = any(isinstance(v, Graph) for n in nodes for v in n.attributes.values())
        kept = {k: v for k, v in self.before.initializers.items() if inner or k in read}
        return replace(self.before, nodes=nodes, initializers={**kept, **self.made})

    def _node(self, node: Node) -> Node:
        found, table = _matrix(self.before, node), node.op_type == "Gather"
        if found is None or node.attributes.get("axis" if table else "transA", 0):
            return node
        by_rows = table or node.attributes.get("transB", 0)
        n, k = found[1].shape if by_rows else found[1].shape[::-1]
        if k % _BLOCK or not self._has_vector(node, n):
            return node
        return self._table(node, n, k) if table else self._product(node, n, k)

    def _has_vector(self, node: Node, n: int) -> bool:
        """Whether what a product adds is nothing or a constant [n]."""
        if len(node.inputs) < 3 or not node.inputs[2]:
            return True
        bias = self.before.initializers.get(node.inputs[2])
        return isinstance(bias, np.ndarray) and bias.size == n

    def _table(self, node: Node, n: int, k: int) -> Node:
        codes = self._unread(node.inputs[0], "codes", (n, k), np.uint8)
        scales = self._unread(node.inputs[0], "scales", (n, k // _BLOCK), np.float32)
        attributes = {"bits": 8, "block_size": _BLOCK, "gather_axis": 0, "quantize_axis": 1}
        inputs = (codes, node.inputs[1], scales)
        return replace(
            node, op_type="GatherBlockQuantized", domain=_MICROSOFT, inputs=inputs,
            attributes=attributes,
        )  # fmt: skip

    def _product(self, node: Node, n: int, k: int) -> Node:
        weight, size = node.inputs[1], _BLOCK * self.bits // 8
        codes = self._unread(weight, "codes", (n, k // _BLOCK, size), np.uint8)
        scales = self._unread(weight, "scales", (n, k // _BLOCK), np.float32)
        inputs: tuple[str, ...] = (node.inputs[0], codes, scales)
        if len(node.inputs) > 2 and node.inputs[2]:
            inputs += ("", "", node.inputs[2])
        attributes = {
            "K": k, "N": n, "bits": self.bits, "block_size": _BLOCK, "accuracy_level": 4,
        }  # fmt: skip
        return replace(
            node, op_type="MatMulNBits", domain=_MICROSOFT, inputs=inputs, attributes=attributes
        )

    def _unread(self, of: str, what: str, shape: tuple[int, ...], dtype: npt.DTypeLike) -> str:
        """An initializer that lies in pages like a file's, which nobody has read."""
        name, kind = f"{of} {what} {list(shape)}", np.dtype(dtype)
        if name not in self.made:
            pages = mmap.mmap(-1, max(math.prod(shape) * kind.itemsize, 1))
            self.made[name] = np.frombuffer(pages, kind, math.prod(shape)).reshape(shape)
        return name
