"""Integer weights, and activations quantized as they come, with standard operators.

    MatMul, Gemm   DynamicQuantizeLinear, MatMulInteger, Cast, Mul
    Conv           DynamicQuantizeLinear, ConvInteger, Cast, Mul
    Gather         Gather of int8, DequantizeLinear (or Cast and Mul by a scale per row)
    others         int8 per channel and DequantizeLinear

Activations are uint8 with one scale and zero point per tensor. Weights are int8, symmetric, with
one scale per tensor or per channel.
"""

from __future__ import annotations

from collections.abc import Mapping

from onnx import NodeProto, TensorProto, helper

from halfbyte.quantize.onnx.editor import Editor, Scope
from halfbyte.quantize.onnx.nodes import attribute, is_op
from halfbyte.quantize.onnx.recipe import Keep
from halfbyte.quantize.onnx.rewriter import CHANNELS, Product, Rewriter, find_product
from halfbyte.quantize.onnx.weight_encoder import Encoder

_QUANTIZE = 11  # opset of DynamicQuantizeLinear


class Dynamic(Rewriter):
    """Rewrites a model to use integer products.

    Parameters
    ----------
    editor, encoder, keep
        See :class:`Rewriter`.
    per_channel : bool
        One scale for each channel of a weight instead of one per tensor.
    """

    def __init__(
        self,
        editor: Editor,
        encoder: Encoder,
        keep: Keep,
        *,
        per_channel: bool = False,
        levels: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__(editor, encoder, keep, levels)
        self.per_channel = per_channel
        self._quantized: dict[tuple[int, str], tuple[str, str, str]] = {}

    def _opset(self) -> int:
        return max(super()._opset(), _QUANTIZE)

    def _rewritten(self, scope: Scope, node: NodeProto) -> list[NodeProto]:
        product = find_product(self.editor, scope, node)
        if product is not None:
            return self._product(scope, product)
        if is_op(node, "Conv"):
            return self._conv(scope, node)
        table = self._table(scope, node)
        if table is not None:
            return self._gather_quantized(node, table, per_channel=self.per_channel)
        if is_op(node, *CHANNELS):
            self._dequantize(scope, node)
        return [node]

    def _activation(self, scope: Scope, name: str, nodes: list[NodeProto]) -> tuple[str, str, str]:
        """Quantized value, scale and zero point of a value; computed once in a graph."""
        key = (id(scope), name)
        if key not in self._quantized:
            quantized, scale, zero = (
                self.editor.fresh(f"{name}_{part}") for part in ("quantized", "scale", "zero")
            )
            outputs = [quantized, scale, zero]
            nodes.append(helper.make_node("DynamicQuantizeLinear", [name], outputs))
            self._quantized[key] = quantized, scale, zero
        return self._quantized[key]

    def _scaled(
        self, integers: str, scale: str, weight_scale: str, output: str, nodes: list[NodeProto]
    ) -> None:
        """Integer sums as floats, multiplied by both scales."""
        wide, factor = self.editor.fresh(f"{output}_float"), self.editor.fresh(f"{output}_scale")
        nodes.append(helper.make_node("Cast", [integers], [wide], to=TensorProto.FLOAT))
        nodes.append(helper.make_node("Mul", [scale, weight_scale], [factor]))
        nodes.append(helper.make_node("Mul", [wide, factor], [output]))

    def _product(self, scope: Scope, product: Product) -> list[NodeProto]:
        node, weight = product.node, product.weight
        rows = product.by_rows != weight.transposed  # columns of the result are rows of the tensor
        axis = 0 if rows else 1
        result = self._integer(node, weight, axis if self.per_channel else None, product.factor)
        if result is None:
            return [node]
        matrix, nodes, value = result.names[0], list[NodeProto](), node.input[0]
        if rows:
            matrix = self._transposed(matrix)
        if node.op_type == "Gemm" and attribute(node, "transA", 0):
            value = self.editor.fresh(f"{value}_transposed")
            nodes.append(helper.make_node("Transpose", [node.input[0]], [value], perm=[1, 0]))
        quantized, scale, zero = self._activation(scope, value, nodes)
        output = node.output[0]
        biased = node.op_type == "Gemm" and len(node.input) > 2 and bool(node.input[2])
        result_name = self.editor.fresh(f"{output}_product") if biased else output
        sums = self.editor.fresh(f"{output}_integer")
        nodes.append(
            helper.make_node("MatMulInteger", [quantized, matrix, zero], [sums], name=node.name)
        )
        self._scaled(sums, scale, result.names[1], result_name, nodes)
        return nodes + (self._added(product, result_name) if biased else [])

    def _transposed(self, matrix: str) -> str:
        """A quantized matrix, transposed; computed once."""
        if matrix not in self._derived:
            self._derived[matrix] = self.editor.fresh(f"{matrix}_transposed")
            self._first.append(
                helper.make_node("Transpose", [matrix], [self._derived[matrix]], perm=[1, 0])
            )
        return self._derived[matrix]

    def _conv(self, scope: Scope, node: NodeProto) -> list[NodeProto]:
        weight = self.editor.weight(scope, node.input[1])
        if weight is None or weight.transposed or not self._worth(weight, 0):
            return [node]
        axis = 0 if self.per_channel else None
        result = self._integer(node, weight, axis, self._factor(node))
        if result is None:
            return [node]
        nodes: list[NodeProto] = []
        quantized, scale, zero = self._activation(scope, node.input[0], nodes)
        output, spatial = node.output[0], len(weight.shape) - 2
        sums = self.editor.fresh(f"{output}_integer")
        conv = helper.make_node(
            "ConvInteger", [quantized, result.names[0], zero], [sums], name=node.name
        )
        conv.attribute.extend(node.attribute)
        nodes.append(conv)
        weight_scale = result.names[1]
        if self.per_channel:
            weight_scale = self._reshaped(weight_scale, [-1] + [1] * spatial)
        biased = len(node.input) > 2 and bool(node.input[2])
        result_name = self.editor.fresh(f"{output}_product") if biased else output
        self._scaled(sums, scale, weight_scale, result_name, nodes)
        if biased:
            bias = self._reshaped(node.input[2], [-1] + [1] * spatial, nodes)
            nodes.append(helper.make_node("Add", [result_name, bias], [output]))
        return nodes
