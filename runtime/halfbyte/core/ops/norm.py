"""Normalisation of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.core.ops.operator import operator
from halfbyte.core.ops.reduce import mean_of

Array = npt.NDArray[Any]
F32 = npt.NDArray[np.float32]


@operator("RMSNormalization", "x:f32[n,heads*d] weight:f32[d] -> y:f32[n,heads*d]", rows="n")
def rms_norm(x: F32, weight: F32, *, epsilon: float, heads: int = 1) -> F32:
    """y = x / sqrt(mean(x^2) + epsilon) * weight, for each of a row's `heads` parts separately.

    Source: ONNX RMSNormalization (opset 23).
    """
    parts = x.reshape(len(x), heads, len(weight))
    y, _ = rms_of(parts, weight, epsilon)
    return y.reshape(x.shape)


def rms_of(
    x: Array, weight: Array, epsilon: float, axes: tuple[int, ...] = (-1,)
) -> tuple[Array, Array]:
    """x / sqrt(mean(x^2) + epsilon) * weight over axes, in x's type; and 1 / sqrt."""
    inverse = 1 / np.sqrt(mean_of(np.square(x), axes) + x.dtype.type(epsilon))
    return x * inverse * weight, inverse


@operator("LayerNormalization", "x:f32[n,d] weight:f32[d] bias:f32[d] -> y:f32[n,d]", rows="n")
def layer_norm(x: F32, weight: F32, bias: F32, *, epsilon: float) -> F32:
    """y = (x - mean) / sqrt(variance + epsilon) * weight + bias, per row.

    Source: ONNX LayerNormalization (opset 17).
    """
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = np.mean(centred * centred, axis=-1, keepdims=True)
    wide = centred / np.sqrt(variance + np.float32(epsilon)) * weight + bias
    y: F32 = wide.astype(np.float32, copy=False)
    return y
