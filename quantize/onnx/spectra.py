"""Powers of sounds that a logarithm reads: numbers whose ratios matter, however small they are.

A front end of a speech model computes log(M |F x|² + ε): F a Fourier transform, M bands of mel. In
int8 or float16 quiet bins become zero, and their logarithm infinite or far off.
"""

from __future__ import annotations

import onnx
from onnx import NodeProto

from halfbyte.quantize.onnx.editor import Scope
from halfbyte.quantize.onnx.nodes import is_op

_PRODUCTS = ("MatMul", "Gemm", "Conv", "Einsum")
# Operators that may stand between a square and the logarithm
_BETWEEN = (
    *_PRODUCTS, "Add", "Sum", "Mul", "Div", "Max", "Min", "Clip", "Relu", "Sqrt", "Pow", "Cast",
    "Identity", "Where", "Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Slice",
    "Gather", "Concat", "Pad", "ReduceSum", "ReduceMean", "ReduceMax", "ReduceL2",
)  # fmt: skip
# Operators that may stand before the transform, and between it and the square
_BEFORE = (
    "Add", "Sub", "Mul", "Div", "Neg", "Cast", "Identity", "Transpose", "Reshape", "Squeeze",
    "Unsqueeze", "Flatten", "Slice", "Split", "Gather", "Concat", "Pad",
)  # fmt: skip
# Operators whose results may be too small for float16, which a logarithm undoes
_POSITIVE = ("Exp", "Softmax", "Sigmoid")
_MAX_DEPTH = 64


class Spectra:
    """The nodes of a graph that compute with such powers, by their first outputs.

    Attributes
    ----------
    transforms : set of str
        The products whose results are squared, and what leads to them: rounded samples are noise in
        all frequencies.
    powers : set of str
        From the squares to the logarithms.
    """

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._known: dict[str, bool] = {}  # value -> whether it follows from a square
        self.transforms: set[str] = set()
        self.powers: set[str] = set()
        for node in scope.graph.node:
            if is_op(node, "Log") and self._follows(node.input[0], _MAX_DEPTH):
                self.powers.add(node.output[0])

    def __contains__(self, node: NodeProto) -> bool:
        """Whether a node is on the way to such a logarithm."""
        return node.output[0] in self.transforms or node.output[0] in self.powers

    def _follows(self, name: str, depth: int) -> bool:
        """Whether a value follows from a square or an exponential; notes the nodes between."""
        if name in self._known or not depth:
            return self._known.get(name, False)
        self._known[name] = False
        node = self._scope.producers.get(name)
        if node is None or not is_op(node, *_BETWEEN, *_POSITIVE, "ReduceSumSquare"):
            return False
        if is_op(node, *_POSITIVE):
            found = True
        elif self._is_square(node):
            self._note_transform(node.input[0], _MAX_DEPTH)
            found = True
        else:
            found = True in [self._follows(one, depth - 1) for one in node.input if one]
        self._known[name] = found
        if found:
            self.powers.add(node.output[0])
        return found

    def _is_square(self, node: NodeProto) -> bool:
        if is_op(node, "ReduceSumSquare", "ReduceL2"):
            return True
        if is_op(node, "Mul"):
            return bool(node.input[0] == node.input[1])
        exponent = self._scope.constant(node.input[1]) if is_op(node, "Pow") else None
        if exponent is None or list(exponent.dims) not in ([], [1]):
            return False
        return bool(onnx.numpy_helper.to_array(exponent).reshape(-1)[0] == 2)

    def _note_transform(self, name: str, depth: int, *, is_after: bool = True) -> None:
        """Note the product that a squared value comes from, and what leads to that product."""
        node = self._scope.producers.get(name)
        if node is None or not depth or node.output[0] in self.transforms:
            return
        if is_op(node, *_PRODUCTS) and is_after:
            is_after = False
        elif not is_op(node, *_BEFORE):
            return
        self.transforms.add(node.output[0])
        for one in filter(None, node.input):
            self._note_transform(one, depth - 1, is_after=is_after)
