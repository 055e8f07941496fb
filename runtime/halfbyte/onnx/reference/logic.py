"""Comparisons and truth values, element by element; results are bool."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from halfbyte.onnx.reference import _shapes
from halfbyte.onnx.reference.arrays import Array
from halfbyte.onnx.reference.math import declare_binary, declare_unary
from halfbyte.onnx.reference.registry import define


def equal(A: Array, B: Array) -> Array:
    """A == B; of strings too."""
    return np.asarray(A == B, np.bool_)


BINARY: list[tuple[str, int, Callable[[Array, Array], Any]]] = [
    ("Equal", 7, equal), ("Less", 7, np.less), ("Greater", 7, np.greater),
    ("LessOrEqual", 12, np.less_equal), ("GreaterOrEqual", 12, np.greater_equal),
    ("And", 7, np.logical_and), ("Or", 7, np.logical_or), ("Xor", 7, np.logical_xor),
]  # fmt: skip
for _name, _since, _function in BINARY:
    declare_binary(_name, _since, _function)

declare_unary("Not", 1, np.logical_not)
declare_unary("IsNaN", 9, np.isnan)


@define("IsInf", since=10, infer=_shapes.same)
def is_infinite(X: Array, *, detect_negative: int = 1, detect_positive: int = 1) -> Array:
    """Where X is infinite, with a sign that the attributes allow. ONNX IsInf-20."""
    result = np.zeros(X.shape, np.bool_)
    if detect_negative:
        result |= np.isneginf(X)
    if detect_positive:
        result |= np.isposinf(X)
    return result
