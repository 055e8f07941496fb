"""Shared by operators with scores: labels, and post transforms of scores."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.errors import ProgramError
from halfbyte.onnx.reference import _shapes
from halfbyte.onnx.reference._attention import softmax
from halfbyte.onnx.reference.activation import sigmoid_of
from halfbyte.onnx.reference.registry import ML, define

Array = npt.NDArray[Any]

ml = functools.partial(define, domain=ML)


def floats(*shape: int) -> Array:
    """A result of float32 of this shape, for rules."""
    return _shapes.blank(shape, np.float32)


def scaled(x: Array, **attributes: Any) -> Array:
    """The rule of results like x in float32."""
    return floats(*x.shape)


def rows_of(x: Array) -> int:
    """How many rows x has: a vector is one."""
    return 1 if x.ndim == 1 else len(x)


def strings(values: Sequence[str], shape: Sequence[int]) -> Array:
    """A tensor of strings."""
    result = np.empty(len(values), object)
    result[:] = values
    return result.reshape(shape)


def labels_of(ints: Sequence[int] | None, texts: Sequence[str] | None) -> Array:
    """Class labels [n], numbers or strings, as the attributes give them."""
    if texts:
        return strings(texts, [len(texts)])
    return np.array(ints or (), np.int64)


def probit(x: Array) -> Array:
    """√2 erfinv(2x - 1), by the approximation of Winitzki (2008) with a = 0.147."""
    centered = 2 * x - 1
    logarithm = np.log((1 - centered) * (1 + centered))
    half = 2 / (np.pi * 0.147) + logarithm / 2
    root = np.sqrt(np.sqrt(half * half - logarithm / 0.147) - half)
    return np.asarray(np.sqrt(2) * np.sign(centered) * root, x.dtype)


def softmax_zero(x: Array) -> Array:
    """softmax over the elements that are not zero; zeros stay zero."""
    powers = np.exp(x - x.max(-1, keepdims=True, initial=-np.inf)) * (x != 0)
    total = powers.sum(-1, keepdims=True)
    return np.asarray(powers / np.where(total == 0, 1, total), x.dtype)


POST_TRANSFORMS: dict[str, Callable[[Array], Array]] = {
    "NONE": lambda x: x,
    "SOFTMAX": softmax,
    "LOGISTIC": sigmoid_of,
    "SOFTMAX_ZERO": softmax_zero,
    "PROBIT": probit,
}


def transformed(scores: Array, name: str) -> Array:
    """Scores [n, classes] after a post transform."""
    function = POST_TRANSFORMS.get(name)
    if function is None:
        raise ProgramError(f"post_transform {name!r}, expected one of {list(POST_TRANSFORMS)}")
    return function(scores)
