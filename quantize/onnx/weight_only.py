"""Integer weights with float activations, in ONNX Runtime's own operators.

MatMul, Gemm    com.microsoft.MatMulNBits: blocks of 32 of 8 or 4 bits, integer products with
                activations that are quantized to 8 bits as they come (accuracy_level 4)
Gather          com.microsoft.GatherBlockQuantized: the same blocks
Conv, LSTM ...  int8 per channel and DequantizeLinear, which is folded or runs before the node

Activations and weights of a product are both rotated by a Hadamard matrix where there are kernels
for it (see `halfbyte.core.ops.rotated`): what `smooth` leaves of large channels is spread over 32.
Both together reduce MiniLM's error (1 - cosine) to a third of that of plain blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper

from halfbyte.core.ops.rotated import SIZE, fits, matrix
from halfbyte.quantize.compensation import Gram
from halfbyte.quantize.onnx import blocks
from halfbyte.quantize.onnx.editor import MICROSOFT, Editor, Scope, Weight
from halfbyte.quantize.onnx.importance import Importance
from halfbyte.quantize.onnx.nodes import attribute, is_op
from halfbyte.quantize.onnx.numbers import F32Array, dtype_of
from halfbyte.quantize.onnx.recipe import Keep
from halfbyte.quantize.onnx.rewriter import BITS, CHANNELS, Product, Rewriter, find_product
from halfbyte.quantize.onnx.smooth import MAX_FACTOR, find_groups, smooth
from halfbyte.quantize.onnx.weight_encoder import Encoder, Result

ACCURACY = 4  # MatMulNBits' level: products of int8
# Operators that may stand between the last product and an output
_TAIL = (
    "Identity", "Cast", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose", "Softmax",
    "LogSoftmax", "Sigmoid", "Tanh", "Relu", "Add", "Mul", "Div",
)  # fmt: skip


def tail_products(scope: Scope) -> set[str]:
    """Outputs of products from which the graph's outputs follow directly, such as logits."""
    products, seen = set(), set()
    names = [value.name for value in scope.graph.output]
    while names:
        name = names.pop()
        node = scope.producers.get(name)
        if node is None or name in seen:
            continue
        seen.add(name)
        if is_op(node, "MatMul", "Gemm"):
            products.add(name)
        elif is_op(node, *_TAIL):
            inputs = [n for n in node.input if n and scope.constant(n) is None]
            names += inputs if len(inputs) == 1 else []
    return products


def _side(product: Product) -> tuple[str, bool]:
    """A product's matrix, and whether it sums along the rows of the tensor as stored."""
    return product.weight.name, product.by_rows == product.weight.transposed


class WeightOnly(Rewriter):
    """Rewrites a model to use integer weights.

    Parameters
    ----------
    editor, encoder, keep
        See :class:`Rewriter`.
    type : str
        "int8" or "int4"; with int4, embedding tables and the products that compute an output take
        int8, unless `pure`.
    measure : callable
        Returns squares of values that products read, as far as they are known; its argument says
        whether norms could be smoothed with them. They weight errors in the search of scales too.
    gram : callable, optional
        Returns the Gram matrix of a value's rows, given its name and the channels of all values in
        the order in which it will be called: matrices are rounded with compensation.
    """

    def __init__(
        self,
        editor: Editor,
        encoder: Encoder,
        keep: Keep,
        type: str,
        measure: Callable[[bool], dict[str, F32Array]],
        gram: Callable[[str, Mapping[str, int]], Gram | None] | None = None,
        *,
        pure: bool = False,
        levels: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__(editor, encoder, keep, levels)
        self.type, self.measure, self.gram, self.pure = type, measure, gram, pure
        self._sizes: dict[str, int] = {}  # channels of the original's values that products read
        self._reads: dict[tuple[str, bool], list[str]] = {}  # these values, by matrices
        self._columns: dict[str, F32Array] = {}  # factors of a product's columns, by its output
        self._rotated: dict[tuple[int, str], str] = {}  # by scope and value
        self._hadamard: tuple[str, ...] = ()  # constants: the shape of rows, and the matrix

    def _prepare(self) -> None:
        self._tables = {w.name for _, _, w in self._table_reads()}
        self._shared = self._tables & {p.weight.name for p in self._products()}
        self._heads = tail_products(self.editor.main)
        self._note_reads()
        groups = list(find_groups(self.editor, self._smoothable()))
        squares = self.measure(bool(groups))
        known = {p.node.output[0]: squares.get(p.node.input[0]) for p in self._products()}
        self._columns = smooth(self.editor, groups, squares)
        for product in self._products():
            output = product.node.output[0]
            before = known[output]
            if before is not None and output in self._columns:
                s = self._columns[output]
                squares[product.node.input[0]] = before / (s * s)
        self._importance = Importance(self.editor, squares)

    def _note_reads(self) -> None:
        main = self.editor.main
        for node in main.graph.node if self.gram else ():
            product = find_product(self.editor, main, node)
            if product is None or main.constant(node.input[0]) is not None:
                continue
            transposed = node.op_type == "Gemm" and attribute(node, "transA", 0)
            if product.weight.name not in self._tables and not transposed:
                self._sizes.setdefault(node.input[0], product.k)
                names = self._reads.setdefault(_side(product), [])
                names += [node.input[0]] * (node.input[0] not in names)

    def _gram(self, side: tuple[str, bool]) -> Gram | None:
        """That of all values that a matrix multiplies."""
        total: Gram | None = None
        if self.gram is None:
            return None
        for name in self._reads.get(side, ()):
            gram = self.gram(name, self._sizes)
            if gram is None:
                return None
            if total is not None:
                gram = Gram(total.matrix + gram.matrix, total.rows + gram.rows)
            total = gram
        return total

    def _smoothable(self) -> Iterator[Product]:
        """Products of the main graph that are quantized and whose columns can be multiplied."""
        for node in self.editor.main.graph.node:
            product = find_product(self.editor, self.editor.main, node)
            type_ = "" if product is None else self._type(product)
            if product is not None and type_:
                top = self.encoder.top(product.weight) * abs(product.factor)
                if top * MAX_FACTOR < blocks.FORMATS[BITS[type_]].limit:
                    yield product

    def _rewritten(self, scope: Scope, node: NodeProto) -> list[NodeProto]:
        product = find_product(self.editor, scope, node)
        if product is not None:
            return self._product(scope, product)
        table = self._table(scope, node)
        if table is not None:
            return self._gather(node, table)
        if is_op(node, *CHANNELS):
            self._dequantize(scope, node)
        return [node]

    def _product(self, scope: Scope, product: Product) -> list[NodeProto]:
        node, weight, type_ = product.node, product.weight, self._type(product)
        if not type_:
            return [node]
        factor: float | F32Array = product.factor
        if node.output[0] in self._columns:
            factor = self._columns[node.output[0]] * np.float32(factor)
        rotated = self._is_rotated(product, type_)
        result = self.encoder.blocks(
            weight, BITS[type_], by_rows=product.by_rows, rotated=rotated, factor=factor,
            importance=None if rotated else self._importance.of(scope, node.input[0], product.k),
            gram=partial(self._gram, _side(product)), note=self.notes.get(weight.name, ""),
        )  # fmt: skip
        self.editor.import_microsoft()
        nodes = self._rotate_input(scope, node) if rotated else []
        return [*nodes, *self._matmul_n_bits(scope, product, BITS[type_], result)]

    def _is_rotated(self, product: Product, type_: str) -> bool:
        """Whether activations and weights are rotated by a Hadamard matrix.

        Numbers then are of similar size: quantization is more precise, and one scale serves 128
        activations. There are kernels where both sides of the matrix are multiples of their tiles.
        """
        node, weight, limit = product.node, product.weight, blocks.FORMATS[BITS[type_]].limit
        if self.encoder.rtn or weight.name in self._tables or weight.data_type != TensorProto.FLOAT:
            return False
        top = self.encoder.top(weight) * abs(product.factor) * MAX_FACTOR * SIZE
        whole = fits(product.n, product.k) and top < limit
        return whole and not (node.op_type == "Gemm" and attribute(node, "transA", 0))

    def _rotate_input(self, scope: Scope, node: NodeProto) -> list[NodeProto]:
        """Rotate a node's first input; returns the nodes for it, unless it is rotated already."""
        value = node.input[0]
        known = (id(scope), value)
        nodes = []
        if known not in self._rotated:
            shape, rows, product, rotated = (
                self.editor.fresh(f"{value}.{part}")
                for part in ("shape", "rows", "product", "rotated")
            )
            if not self._hadamard:
                columns = self.editor.add("hadamard.shape", np.array([-1, SIZE], np.int64))
                self._hadamard = columns, self.editor.add("hadamard", matrix())
            as_is: dict[str, Any] = {"allowzero": 1} if self.editor.opset() >= 14 else {}
            nodes = [
                helper.make_node("Shape", [value], [shape]),
                helper.make_node("Reshape", [value, self._hadamard[0]], [rows]),
                helper.make_node("MatMul", [rows, self._hadamard[1]], [product]),
                helper.make_node("Reshape", [product, shape], [rotated], **as_is),
            ]
            self._rotated[known] = rotated
        node.input[0] = self._rotated[known]
        return nodes

    def _type(self, product: Product) -> str:
        """The type of a product's blocks; "" where it stays as it is."""
        node, weight = product.node, product.weight
        type_ = self._choose(node, weight, self._default(node), product.factor)
        if not type_ or not self._pays(weight, BITS[type_], product.n, product.k):
            return ""
        return type_

    def _default(self, node: NodeProto) -> str:
        if self.pure or self.type == "int8":
            return self.type
        product = find_product(self.editor, self.editor.main, node)
        if product is None:
            return "int8"
        is_head = node.output[0] in self._heads or product.weight.name in self._tables
        return "int8" if is_head else self.type

    def _pays(self, weight: Weight, bits: int, n: int, k: int) -> bool:
        """Whether blocks are smaller than the stored weights."""
        block = blocks.BLOCK * bits // 8 + dtype_of(weight.data_type).itemsize
        before = n * k * dtype_of(weight.tensor.data_type).itemsize
        if n * blocks.block_count(k) * block < before:
            return True
        self._note(weight, f"rows of {k} are not smaller in this type")
        return False

    def _matmul_n_bits(
        self, scope: Scope, product: Product, bits: int, result: Result
    ) -> list[NodeProto]:
        node, nodes = product.node, []
        value = node.input[0]
        if node.op_type == "Gemm" and attribute(node, "transA", 0):
            transposed = self.editor.fresh(f"{value}.transposed")
            nodes.append(helper.make_node("Transpose", [value], [transposed], perm=[1, 0]))
            value = transposed
        inputs, output, after = [value, *result.names], node.output[0], []
        if node.op_type == "Gemm" and len(node.input) > 2 and node.input[2]:
            bias = self._bias(scope, product)
            if bias:
                inputs += ["", "", bias]
            else:
                output = self.editor.fresh(f"{output}.product")
                after = self._added(product, output)
        nodes.append(
            helper.make_node(
                "MatMulNBits",
                inputs,
                [output],
                name=node.name,
                domain=MICROSOFT,
                K=product.k,
                N=product.n,
                bits=bits,
                block_size=blocks.BLOCK,
                accuracy_level=ACCURACY,
            )
        )
        return nodes + after

    def _bias(self, scope: Scope, product: Product) -> str:
        """Gemm's bias as a constant [N]; '' where it cannot be one."""
        name: str = product.node.input[2]
        beta = float(attribute(product.node, "beta", 1.0))
        weight = self.editor.weight(scope, name)
        if weight is None or int(np.prod(weight.shape)) not in (1, product.n):
            return ""
        if len(weight.shape) == 2 and weight.shape[0] != 1:
            return ""
        if beta == 1 and weight.shape == (product.n,) and scope.constant(name) is not None:
            return name
        numbers = self.encoder.numbers(weight)
        values = numbers.take(0, numbers.rows).reshape(-1) * np.float32(beta)
        bias = np.broadcast_to(values, (product.n,)).astype(dtype_of(weight.data_type))
        return self.editor.add(f"{weight.name}.bias", bias)

    def _gather(self, node: NodeProto, weight: Weight) -> list[NodeProto]:
        n, k = weight.shape
        type_ = self._choose(node, weight, self._default(node))
        bits = BITS.get(type_, 8)
        if not type_ or k < blocks.BLOCK or k * bits % 8:
            if type_:
                self._note(weight, f"rows of {k}, expected at least {blocks.BLOCK}")
            return [node]
        shared = weight.name in self._shared and k % blocks.BLOCK == 0
        result = self.encoder.blocks(
            weight, bits, by_rows=True, flat=not shared, note=self.notes.get(weight.name, "")
        )
        self.editor.import_microsoft()
        table, scales = result.names
        if shared:
            table = self._flat(table, n, k * bits // 8)
        return [
            helper.make_node(
                "GatherBlockQuantized",
                [table, node.input[1], scales],
                list(node.output),
                name=node.name,
                domain=MICROSOFT,
                bits=bits,
                block_size=blocks.BLOCK,
                gather_axis=0,
                quantize_axis=1,
            )
        ]

    def _flat(self, blocks_: str, n: int, size: int) -> str:
        """Quantized values that a product has in blocks, as rows."""
        if blocks_ not in self._derived:
            shape = self.editor.add(f"{blocks_}.shape", np.array([n, size], np.int64))
            self._derived[blocks_] = self.editor.fresh(f"{blocks_}.rows")
            self._first.append(
                helper.make_node("Reshape", [blocks_, shape], [self._derived[blocks_]])
            )
        return self._derived[blocks_]
