"""bfloat16 as a storage type: matrices are stored in it, and computation stays in float32.

ONNX Runtime's CPU provider has very few operators for bfloat16, so each matrix is cast where it is
read. Of tables, rows are gathered first and then cast.
"""

from __future__ import annotations

from onnx import NodeProto, TensorProto, helper

from halfbyte.quantize.onnx.editor import Scope
from halfbyte.quantize.onnx.rewriter import Rewriter

_OPSET = 13  # of Gather and Cast of bfloat16


class BFloat16(Rewriter):
    """Rewrites a model to store matrices in bfloat16; vectors stay as they are."""

    folds = False

    def _opset(self) -> int:
        return _OPSET

    def _rewritten(self, scope: Scope, node: NodeProto) -> list[NodeProto]:
        table = self._table(scope, node)
        if table is not None and self._is_narrowed(node, table.name, table.shape):
            result = self.encoder.narrowed(table, TensorProto.BFLOAT16)
            rows, output = self.editor.fresh(f"{node.output[0]}_bf16"), node.output[0]
            return [
                helper.make_node(
                    "Gather", [result.names[0], node.input[1]], [rows], name=node.name
                ),
                helper.make_node("Cast", [rows], [output], to=table.data_type),
            ]
        for index, name in enumerate(node.input):
            weight = self.editor.weight(scope, name) if name else None
            if weight is None or not self._is_narrowed(node, weight.name, weight.shape):
                continue
            if (
                weight.data_type == TensorProto.FLOAT
                and weight.tensor.data_type != TensorProto.BFLOAT16
            ):
                result = self.encoder.narrowed(weight, TensorProto.BFLOAT16)
                node.input[index] = self._value(result, weight)
        return [node]

    def _is_narrowed(self, node: NodeProto, name: str, shape: tuple[int, ...]) -> bool:
        kept = self.keep.type_of(node.name, name)
        return len(shape) > 1 and 0 not in shape and kept in (None, "BF16")
