"""Weights of errors in the columns of a matrix: mean squares of the activations they multiply."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from halfbyte.quantize.onnx.editor import Editor, Scope
from halfbyte.quantize.onnx.nodes import is_op
from halfbyte.quantize.onnx.norms import find_norm

F32 = npt.NDArray[np.float32]


class Importance:
    """Mean squares of the values that products read, up to a factor.

    Parameters
    ----------
    editor : Editor
        The model.
    squares : mapping
        Name of a value -> mean square of each of its channels (last axis), where measured.
        Otherwise they are derived from gain and bias of the norm before a product, with normalized
        values of mean square 1.
    """

    def __init__(self, editor: Editor, squares: Mapping[str, F32]) -> None:
        self.editor, self.squares = editor, dict(squares)

    def of(self, scope: Scope, name: str, size: int) -> F32 | None:
        """Weights of the columns of a matrix that multiplies this value; None: all are equal."""
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
            name = node.input[0]
            node = scope.producer(name)
        norm = find_norm(self.editor, scope, name)
        return None if norm is None else norm.squares
