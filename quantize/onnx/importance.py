"""How much an error in a column of a matrix weighs: by what the column is multiplied with."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from onnx import NodeProto

from halfbyte.quantize.onnx.graph import Editor, Scope, is_op

F32 = npt.NDArray[np.float32]

_SKIP = ("SkipLayerNormalization", "SkipSimplifiedLayerNormalization")


class Importance:
    """Mean squares of what products read, up to a factor.

    Parameters
    ----------
    editor : Editor
        The model.
    squares : mapping
        Name of a value -> mean square of each of its channels (last axis), where data gave them.
        Without, the gain and the bias of the norm before a product say them: normed numbers count
        as equally large.
    """

    def __init__(self, editor: Editor, squares: Mapping[str, F32]) -> None:
        self.editor, self.squares = editor, squares

    def of(self, scope: Scope, name: str, size: int) -> F32 | None:
        """Weights of the columns of a matrix that multiplies this value; None: all alike."""
        squares = self.squares.get(name)
        if squares is None:
            squares = self._of_norm(scope, name)
        if squares is None or squares.shape != (size,):
            return None
        mean = float(squares.mean(dtype=np.float64))
        if not 0 < mean < np.inf:
            return None
        weights: F32 = np.maximum(squares / np.float32(mean), np.float32(1e-4))
        return weights

    def _of_norm(self, scope: Scope, name: str) -> F32 | None:
        node = scope.producer(name)
        while is_op(node, "Identity", "Reshape", "Cast") and node is not None:
            node = scope.producer(node.input[0])
        if node is None:
            return None
        if node.op_type in ("LayerNormalization", "SimplifiedLayerNormalization"):
            return self._squares(scope, node, 1)
        if node.op_type in _SKIP:
            return self._squares(scope, node, 2)
        if is_op(node, "Add", "Mul"):
            return self._affine(scope, node)
        return None

    def _affine(self, scope: Scope, node: NodeProto) -> F32 | None:
        """Of ``normed * gain + bias`` in three nodes."""
        bias = None
        if node.op_type == "Add":
            biases = [self._vector(scope, one) for one in node.input]
            bias = next((b for b in biases if b is not None), None)
            inner = next((n for n, b in zip(node.input, biases, strict=True) if b is None), "")
            below = scope.producer(inner)
            if bias is None or not is_op(below, "Mul") or below is None:
                return None
            node = below
        gains = [self._vector(scope, one) for one in node.input]
        gain = next((g for g in gains if g is not None), None)
        source = next((n for n, g in zip(node.input, gains, strict=True) if g is None), "")
        if gain is None or not is_op(scope.producer(source), "Div", "Mul"):
            return None
        squares = gain * gain
        return squares if bias is None or bias.shape != gain.shape else squares + bias * bias

    def _squares(self, scope: Scope, node: NodeProto, index: int) -> F32 | None:
        parts = [self._vector(scope, name) for name in node.input[index : index + 2]]
        gain = parts[0] if parts else None
        if gain is None:
            return None
        bias = parts[1] if len(parts) > 1 else None
        squares = gain * gain
        return squares if bias is None or bias.shape != gain.shape else squares + bias * bias

    def _vector(self, scope: Scope, name: str) -> F32 | None:
        weight = self.editor.weight(scope, name) if name else None
        if weight is None or len(weight.shape) != 1:
            return None
        from halfbyte.quantize.onnx.encoders import Numbers

        return Numbers(self.editor.source, weight.tensor).take(0, weight.shape[0])[:, 0]
