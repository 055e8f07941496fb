"""Bits of integers, element by element."""

from __future__ import annotations

import numpy as np

from halfbyte.errors import UnsupportedError
from halfbyte.onnx.reference import _shapes
from halfbyte.onnx.reference.arrays import Array
from halfbyte.onnx.reference.math import broadcast, declare_binary, declare_unary
from halfbyte.onnx.reference.registry import define

declare_binary("BitwiseAnd", 18, np.bitwise_and)
declare_binary("BitwiseOr", 18, np.bitwise_or)
declare_binary("BitwiseXor", 18, np.bitwise_xor)
declare_unary("BitwiseNot", 18, np.invert)


@define("BitShift", since=11, infer=_shapes.together)
def shift(X: Array, Y: Array, *, direction: str) -> Array:
    """X 2^Y ("LEFT") or floor(X 2^-Y) ("RIGHT"), in X's bits. ONNX BitShift-28.

    Negative shifts, and shifts by all bits or more, give 0, or -1 for negative X to the right.
    """
    if direction not in ("LEFT", "RIGHT"):
        raise UnsupportedError(f"direction {direction!r}: expected 'LEFT' or 'RIGHT'")
    return broadcast(np.left_shift if direction == "LEFT" else np.right_shift, X, Y)
