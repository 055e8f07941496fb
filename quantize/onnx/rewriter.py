"""The base of all rewriters: going through the nodes, and choosing types of weights."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from onnx import NodeProto, TensorProto, helper

from halfbyte.quantize.onnx import blocks
from halfbyte.quantize.onnx.editor import TYPES, Editor, Scope, Weight
from halfbyte.quantize.onnx.folding import fold_batch_norms
from halfbyte.quantize.onnx.nodes import attribute, is_op, replace_nodes
from halfbyte.quantize.onnx.numbers import F32Array, dtype_of
from halfbyte.quantize.onnx.opset import raise_opset
from halfbyte.quantize.onnx.recipe import Keep
from halfbyte.quantize.onnx.spectra import Spectra
from halfbyte.quantize.onnx.weight_encoder import Encoder, Result

BITS = {"int8": 8, "int4": 4}
LADDER = ("int4", "int8", "F16")  # types, each more precise
NARROW = {"F16": TensorProto.FLOAT16, "BF16": TensorProto.BFLOAT16}
CHANNELS = {
    "Conv": {1: 0},
    "ConvTranspose": {1: 1},
    "LSTM": {1: 1, 2: 1},
    "GRU": {1: 1, 2: 1},
    "RNN": {1: 1, 2: 1},
}
"""Operators whose weights are dequantized before the node: input -> axis of its channels."""


@dataclass(frozen=True)
class Product:
    """A node that multiplies a value with a constant matrix.

    Attributes
    ----------
    by_rows : bool
        Whether columns of the result are rows of the matrix as it is read.
    factor : float
        Multiplies the products.
    """

    node: NodeProto
    weight: Weight
    by_rows: bool
    factor: float = 1.0

    @property
    def n(self) -> int:
        """The number of columns of the result."""
        return self.weight.shape[0 if self.by_rows else 1]

    @property
    def k(self) -> int:
        """The number of terms in each sum."""
        return self.weight.shape[1 if self.by_rows else 0]


def find_product(editor: Editor, scope: Scope, node: NodeProto) -> Product | None:
    """The product with a constant matrix that a node computes, if it does."""
    if not is_op(node, "MatMul", "Gemm"):
        return None
    weight = editor.weight(scope, node.input[1])
    if weight is None or len(weight.shape) != 2 or 0 in weight.shape:
        return None
    if node.op_type == "MatMul":
        return Product(node, weight, by_rows=False)
    by_rows = bool(attribute(node, "transB", 0))
    return Product(node, weight, by_rows, float(attribute(node, "alpha", 1.0)))


class Rewriter:
    """Rewrites a model, node by node.

    Parameters
    ----------
    editor, encoder
        The model, and the encoder of its new tensors.
    keep : Keep
        Types that were chosen by name.
    levels : mapping, optional
        Value -> by how many steps the layer that computes it is more precise than by default.
    """

    first_level = 1  # from which the types of weights change
    folds = True  # whether BatchNormalization is folded into convolutions

    def __init__(
        self,
        editor: Editor,
        encoder: Encoder,
        keep: Keep,
        levels: Mapping[str, int] | None = None,
    ) -> None:
        self.editor, self.encoder, self.keep = editor, encoder, keep
        self.levels = levels or {}
        self.notes: dict[str, str] = {}  # name of a weight -> why it stays as it is
        self.remarks: list[str] = []  # for the report
        self._first: list[NodeProto] = []  # nodes to run before all others
        self._factors: dict[str, F32Array] = {}  # of convolutions' channels, by output
        self._derived: dict[str, str] = {}  # a new tensor -> the value computed from it

    def run(self) -> None:
        """Rewrite every graph of the model."""
        raise_opset(self.editor, self._opset(), "DequantizeLinear of channels")
        self.editor.keep_original()
        self.spectra = Spectra(self.editor.main)
        if self.folds:
            self._factors = fold_batch_norms(self.editor, self._is_integer)
        self._prepare()
        for scope in reversed(self.editor.scopes):  # bodies before the nodes that contain them
            nodes: list[NodeProto] = []
            for node in scope.graph.node:
                self._narrow(scope, node)
                nodes += self._rewritten(scope, node)
            replace_nodes(scope.graph, nodes)
        main = self.editor.model.graph
        replace_nodes(main, [*self._first, *main.node])
        self.editor.prune()

    def _prepare(self) -> None:
        """Prepare from the whole model, before its nodes are rewritten."""

    def _is_integer(self, node: NodeProto, weight: Weight) -> bool:
        """Whether a convolution's weights become integers."""
        return self._worth(weight, 0) and bool(self._choose(node, weight, "int8"))

    def _factor(self, node: NodeProto) -> F32Array | float:
        """The factor of a node's weights."""
        return self._factors.get(node.output[0], 1.0)

    @staticmethod
    def _worth(weight: Weight, axis: int) -> bool:
        """Whether channels are long enough that int8 and a scale make them smaller."""
        shape = weight.shape
        return len(shape) > axis and 0 not in shape and math.prod(shape) >= 4 * shape[axis]

    def _rewritten(self, scope: Scope, node: NodeProto) -> list[NodeProto]:
        """The nodes that replace a node."""
        raise NotImplementedError

    def _products(self) -> Iterator[Product]:
        for scope in self.editor.scopes:
            for node in scope.graph.node:
                product = find_product(self.editor, scope, node)
                if product is not None:
                    yield product

    def _table_reads(self) -> Iterator[tuple[Scope, NodeProto, Weight]]:
        for scope in self.editor.scopes:
            for node in scope.graph.node:
                table = self._table(scope, node)
                if table is not None:
                    yield scope, node, table

    def _table(self, scope: Scope, node: NodeProto) -> Weight | None:
        """The matrix whose rows a node gathers; one with infinities, such as a mask, stays."""
        if not is_op(node, "Gather") or attribute(node, "axis", 0) != 0:
            return None
        weight = self.editor.weight(scope, node.input[0])
        if weight is None or len(weight.shape) != 2 or weight.transposed or 0 in weight.shape:
            return None
        if self.encoder.has_infinities(weight):
            self._note(weight, "values are infinite")
            return None
        return weight

    def _opset(self) -> int:
        """The least opset: DequantizeLinear has an axis since 13, and float16 scales since 19."""
        needed = 0
        for scope in self.editor.scopes:
            for node in scope.graph.node:
                for index in CHANNELS.get(node.op_type, {}) if is_op(node, *CHANNELS) else {}:
                    weight = self.editor.weight(scope, node.input[index])
                    if weight is not None:
                        half = weight.data_type == TensorProto.FLOAT16
                        needed = max(needed, 19 if half else 13)
        return needed

    def _narrow(self, scope: Scope, node: NodeProto) -> None:
        """Store weights that --keep names in F16 or BF16, with a cast before the node."""
        for index, name in enumerate(node.input):
            weight = self.editor.weight(scope, name) if name else None
            if weight is None:
                continue
            type_ = self.keep.type_of(node.name, weight.name)
            if not type_ and self.level(node) and len(weight.shape) > 1:
                is_float = weight.tensor.data_type == TensorProto.FLOAT
                type_ = self._raised(node, self._default(node)) if is_float else None
            if type_ not in NARROW:
                continue
            limit = 3.3e38 if type_ == "BF16" else 65504.0
            if self.encoder.top(weight) > limit:
                self.notes[weight.name] = f"values up to {self.encoder.top(weight):.3g}"
                continue
            result = self.encoder.narrowed(weight, NARROW[type_])
            node.input[index] = self._value(result, weight)

    def _value(self, result: Result, weight: Weight) -> str:
        """The value of a narrowed tensor: cast, and transposed, before all other nodes."""
        key = f"{result.names[0]}{weight.transposed}"
        if key not in self._derived:
            name = self.editor.fresh(f"{weight.name}.value")
            self._first.append(
                helper.make_node("Cast", [result.names[0]], [name], to=weight.data_type)
            )
            if weight.transposed:
                transposed = self.editor.fresh(f"{weight.name}.transposed")
                self._first.append(helper.make_node("Transpose", [name], [transposed], perm=[1, 0]))
                name = transposed
            self._derived[key] = name
        return self._derived[key]

    def _choose(self, node: NodeProto, weight: Weight, default: str, factor: float = 1.0) -> str:
        """The type of a node's weight: "int8", "int4", or "" where it stays as it is."""
        type_ = self.keep.type_of(node.name, weight.name)
        if not type_ and node in self.spectra:
            self._note(weight, "a logarithm reads the spectrum")
            return ""
        type_ = type_ or self._raised(node, default)
        if type_ not in BITS:
            return ""
        if weight.data_type not in (TensorProto.FLOAT, TensorProto.FLOAT16):
            self._note(weight, f"products of {TYPES[weight.data_type]} stay as they are")
            return ""
        top = self.encoder.top(weight) * abs(factor)
        while top >= blocks.FORMATS[BITS[type_]].limit:
            self._note(weight, f"values up to {top:.3g} do not fit {type_}")
            if type_ == "int8":
                return ""
            type_ = "int8"
        return type_

    def level(self, node: NodeProto) -> int:
        """By how many steps a node is more precise than by default."""
        return max((self.levels.get(name, 0) for name in node.output), default=0)

    def _default(self, node: NodeProto) -> str:
        """The type of a node's weights that is not raised."""
        return "int8"

    def _raised(self, node: NodeProto, default: str) -> str:
        """The type of a node's weights at its level."""
        if default not in LADDER:
            return default
        steps = max(0, self.level(node) - self.first_level + 1)
        return LADDER[min(LADDER.index(default) + steps, len(LADDER) - 1)]

    def _note(self, weight: Weight, text: str) -> None:
        self.notes.setdefault(weight.name, text)

    def _dequantize(self, scope: Scope, node: NodeProto) -> None:
        """Quantize a node's weights, and dequantize them before it."""
        for index, axis in CHANNELS[node.op_type].items():
            weight = self.editor.weight(scope, node.input[index])
            if weight is None or weight.transposed or not self._worth(weight, axis):
                continue
            if not self._choose(node, weight, "int8"):
                continue
            result = self.encoder.channels(
                weight, axis, factor=self._factor(node), note=self.notes.get(weight.name, "")
            )
            if result.names[0] not in self._derived:
                name = self.editor.fresh(f"{weight.name}.value")
                self._first.append(
                    helper.make_node("DequantizeLinear", list(result.names), [name], axis=axis)
                )
                self._derived[result.names[0]] = name
            node.input[index] = self._derived[result.names[0]]

    def _added(self, product: Product, value: str) -> list[NodeProto]:
        """Gemm's ``+ beta C`` as separate nodes."""
        node = product.node
        addend, beta, nodes = node.input[2], float(attribute(node, "beta", 1.0)), []
        if beta != 1:
            factor = np.array(beta, dtype_of(product.weight.data_type))
            scaled = self.editor.fresh(f"{addend}.scaled")
            constant = self.editor.add(f"{addend}.beta", factor)
            nodes.append(helper.make_node("Mul", [addend, constant], [scaled]))
            addend = scaled
        return [*nodes, helper.make_node("Add", [value, addend], [node.output[0]])]

    def _integer(
        self,
        node: NodeProto,
        weight: Weight,
        axis: int | None,
        factor: float | F32Array = 1.0,
    ) -> Result | None:
        """A weight in int8 with scales along an axis; None where it stays as it is."""
        if weight.data_type != TensorProto.FLOAT:
            self._note(weight, "integer products take float32 activations")
            return None
        if not self._choose(node, weight, "int8"):
            return None
        return self.encoder.channels(
            weight, axis, factor=factor, note=self.notes.get(weight.name, "")
        )

    def _gather_quantized(
        self, node: NodeProto, weight: Weight, *, per_channel: bool
    ) -> list[NodeProto]:
        """Rows of a table of int8, with one scale for all or one per row."""
        result = self._integer(node, weight, 0 if per_channel else None)
        if result is None:
            return [node]
        table, scales = result.names
        output = node.output[0]
        rows = self.editor.fresh(f"{output}_quantized")
        nodes = [helper.make_node("Gather", [table, node.input[1]], [rows], name=node.name)]
        if not per_channel:
            nodes.append(helper.make_node("DequantizeLinear", [rows, scales], [output]))
            return nodes
        column, wide, scale = (
            self.editor.fresh(f"{output}_{p}") for p in ("column", "float", "scale")
        )
        column = self._reshaped(scales, [-1, 1])
        nodes.append(helper.make_node("Cast", [rows], [wide], to=TensorProto.FLOAT))
        nodes.append(helper.make_node("Gather", [column, node.input[1]], [scale]))
        nodes.append(helper.make_node("Mul", [wide, scale], [output]))
        return nodes

    def _reshaped(self, name: str, shape: list[int], nodes: list[NodeProto] | None = None) -> str:
        """A vector, reshaped to broadcast along channels; of a constant where `nodes` is None."""
        to = self.editor.add(f"{name}_shape", np.array(shape, np.int64))
        reshaped = self.editor.fresh(f"{name}_channels")
        (self._first if nodes is None else nodes).append(
            helper.make_node("Reshape", [name, to], [reshaped])
        )
        return reshaped
