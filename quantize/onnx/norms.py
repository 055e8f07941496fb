"""Norms whose gain and bias are constants, as one node or decomposed into several."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from onnx import NodeProto, TensorProto

from halfbyte.quantize.onnx.editor import Editor, Scope
from halfbyte.quantize.onnx.nodes import input_of, is_op
from halfbyte.quantize.onnx.numbers import FORMATS, Numbers

F32 = npt.NDArray[np.float32]

# Indices of the inputs that are gain and bias
_INPUTS = {
    "LayerNormalization": (1, 2),
    "SimplifiedLayerNormalization": (1,),
    "RMSNormalization": (1,),
    "SkipLayerNormalization": (2, 3),
    "SkipSimplifiedLayerNormalization": (2,),
}


@dataclass(frozen=True)
class Vector:
    """A constant of one dimension as an input of a node."""

    node: NodeProto
    index: int
    values: F32  # converted from any float type
    data_type: int


@dataclass(frozen=True)
class Norm:
    """``normalized * gain + bias``.

    Attributes
    ----------
    node : NodeProto
        The node that computes the value: the norm, or the last of the decomposed ones.
    vectors : tuple of Vector
        The gain and, if there is one, the bias of the same length.
    """

    node: NodeProto
    vectors: tuple[Vector, ...]

    @property
    def size(self) -> int:
        """The number of channels."""
        return self.vectors[0].values.size

    @property
    def squares(self) -> F32:
        """Mean squares of the channels for normalized values of mean square 1."""
        total: F32 = np.sum([np.square(v.values) for v in self.vectors], axis=0, dtype=np.float32)
        return total

    @property
    def is_float(self) -> bool:
        """Whether gain and bias are float32."""
        return all(v.data_type == TensorProto.FLOAT for v in self.vectors)


def find_norm(editor: Editor, scope: Scope, name: str) -> Norm | None:
    """The norm that computes a value, if one does."""
    node = scope.producer(name)
    if node is None:
        return None
    if node.op_type in _INPUTS and node.output[0] == name:
        named = [i for i in _INPUTS[node.op_type] if input_of(node, i)]
        return _norm(node, [_vector(editor, scope, node, i) for i in named])
    if is_op(node, "Add"):
        bias, inner = _split(editor, scope, node)
        scaled = scope.producer(inner)
        if bias is None or scaled is None or not is_op(scaled, "Mul"):
            return None
        return _norm(node, [_gain(editor, scope, scaled), bias])
    return _norm(node, [_gain(editor, scope, node)]) if is_op(node, "Mul") else None


def _norm(node: NodeProto, operands: list[Vector | None]) -> Norm | None:
    vectors = tuple(v for v in operands if v is not None)
    if not vectors or len(vectors) < len(operands) or len({v.values.size for v in vectors}) > 1:
        return None
    return Norm(node, vectors)


def _gain(editor: Editor, scope: Scope, node: NodeProto) -> Vector | None:
    """The constant by which Mul multiplies a quotient."""
    gain, inner = _split(editor, scope, node)
    return gain if is_op(scope.producer(inner), "Div", "Mul") else None


def _split(editor: Editor, scope: Scope, node: NodeProto) -> tuple[Vector | None, str]:
    """The constant one of two operands, and the name of the other."""
    for index in (1, 0):
        vector = _vector(editor, scope, node, index)
        if vector is not None:
            return vector, node.input[1 - index]
    return None, ""


def _vector(editor: Editor, scope: Scope, node: NodeProto, index: int) -> Vector | None:
    weight = editor.weight(scope, input_of(node, index))
    if weight is None or len(weight.shape) != 1 or not weight.shape[0]:
        return None
    if weight.tensor.data_type not in FORMATS:
        return None
    values = Numbers(editor.source, weight.tensor).take(0, weight.shape[0])[:, 0]
    return Vector(node, index, values, weight.data_type)
