"""Integer weights and activations with scales that are found as they come: standard operators.

    MatMul, Gemm   DynamicQuantizeLinear, MatMulInteger, Cast, Mul
    Conv           DynamicQuantizeLinear, ConvInteger, Cast, Mul
    Gather         Gather of codes, DequantizeLinear (or Cast and Mul with a scale a row)
    others         int8 a channel and DequantizeLinear

Activations are uint8 with one scale and zero point for all of a tensor, weights int8, symmetric,
with one scale or one a channel.
"""

from __future__ import annotations

from onnx import NodeProto, TensorProto, helper

from halfbyte.quantize.onnx.editor import Editor, Scope
from halfbyte.quantize.onnx.nodes import attribute, is_op
from halfbyte.quantize.onnx.recipe import Keep
from halfbyte.quantize.onnx.rewriter import CHANNELS, Product, Rewriter, find_product
from halfbyte.quantize.onnx.weight_encoder import Encoder

_QUANTIZE = 11  # opset of DynamicQuantizeLinear


class Dynamic(Rewriter):
    """Rewrites a model for integer products.

    Parameters
    ----------
    editor, encoder, keep
        See :class:`Rewriter`.
    per_channel : bool
        A scale for each channel of a weight, instead of one for all.
    """

    def __init__(
        self, editor: Editor, encoder: Encoder, keep: Keep, *, per_channel: bool = False
    ) -> None:
        super().__init__(editor, encoder, keep)
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
            return self._gather_codes(node, table, per_channel=self.per_channel)
        if is_op(node, *CHANNELS):
            self._dequantize(scope, node)
        return [node]

    def _activation(self, scope: Scope, name: str, nodes: list[NodeProto]) -> tuple[str, str, str]:
        """Codes, scale and zero point of a value; made once in a graph."""
        key = (id(scope), name)
        if key not in self._quantized:
            made = [self.editor.fresh(f"{name}_{part}") for part in ("quantized", "scale", "zero")]
            nodes.append(helper.make_node("DynamicQuantizeLinear", [name], made))
            self._quantized[key] = (made[0], made[1], made[2])
        return self._quantized[key]

    def _scaled(
        self, integers: str, scale: str, weight_scale: str, output: str, nodes: list[NodeProto]
    ) -> None:
        """Integer sums as floats: times both scales."""
        wide, factor = self.editor.fresh(f"{output}_float"), self.editor.fresh(f"{output}_scale")
        nodes.append(helper.make_node("Cast", [integers], [wide], to=TensorProto.FLOAT))
        nodes.append(helper.make_node("Mul", [scale, weight_scale], [factor]))
        nodes.append(helper.make_node("Mul", [wide, factor], [output]))

    def _product(self, scope: Scope, product: Product) -> list[NodeProto]:
        node, weight = product.node, product.weight
        rows = product.by_rows != weight.transposed  # the result's columns are the tensor's rows
        axis = 0 if rows else 1
        result = self._integer(node, weight, axis if self.per_channel else None, product.factor)
        if result is None:
            return [node]
        codes, nodes, value = result.names[0], list[NodeProto](), node.input[0]
        if rows:
            codes = self._turned(codes)
        if node.op_type == "Gemm" and attribute(node, "transA", 0):
            value = self.editor.fresh(f"{value}_transposed")
            nodes.append(helper.make_node("Transpose", [node.input[0]], [value], perm=[1, 0]))
        quantized, scale, zero = self._activation(scope, value, nodes)
        output = node.output[0]
        biased = node.op_type == "Gemm" and len(node.input) > 2 and bool(node.input[2])
        result_name = self.editor.fresh(f"{output}_product") if biased else output
        sums = self.editor.fresh(f"{output}_integer")
        nodes.append(
            helper.make_node("MatMulInteger", [quantized, codes, zero], [sums], name=node.name)
        )
        self._scaled(sums, scale, result.names[1], result_name, nodes)
        return nodes + (self._added(product, result_name) if biased else [])

    def _turned(self, codes: str) -> str:
        """A matrix of codes transposed, once."""
        if codes not in self._made:
            self._made[codes] = self.editor.fresh(f"{codes}_transposed")
            self._first.append(
                helper.make_node("Transpose", [codes], [self._made[codes]], perm=[1, 0])
            )
        return self._made[codes]

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
        made = helper.make_node(
            "ConvInteger", [quantized, result.names[0], zero], [sums], name=node.name
        )
        made.attribute.extend(node.attribute)
        nodes.append(made)
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
