"""Shared by ONNX Runtime's operators."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.core.ops.activation import erf
from halfbyte.core.ops.elementwise import UNARY
from halfbyte.errors import ProgramError, UnsupportedError
from halfbyte.onnx.reference import quantization
from halfbyte.onnx.reference.activation import elu_of, softsign_of, thresholded_of
from halfbyte.onnx.reference.arrays import axis_of
from halfbyte.onnx.reference.registry import MICROSOFT, define

Array = npt.NDArray[Any]

contrib = functools.partial(define, domain=MICROSOFT)


# In ONNX Runtime's order of operations, so that last bits differ from ONNX's operators.


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)), without overflow."""
    half = np.asarray(0.5, x.dtype)
    return np.asarray(half * (np.tanh(half * x) + 1))


def gelu(x: Array) -> Array:
    """x Φ(x) = x (1 + erf(x / √2)) / 2."""
    part = erf(x * np.asarray(math.sqrt(0.5), x.dtype)).astype(x.dtype)
    return np.asarray(np.asarray(0.5, x.dtype) * x * (1 + part))


def gelu_tanh(x: Array) -> Array:
    """x (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2."""
    inner = x * (np.asarray(0.044715, x.dtype) * x * x + 1)
    root = np.asarray(math.sqrt(2 / math.pi), x.dtype)
    return np.asarray(np.asarray(0.5, x.dtype) * x * (1 + np.tanh(root * inner)))


ACTIVATIONS: dict[str, Callable[..., Array]] = {
    "": lambda x: x,
    "Relu": lambda x: UNARY["relu"](x, 0, 0),
    "Tanh": lambda x: np.tanh(x),
    "Sigmoid": sigmoid,
    "LeakyRelu": lambda x, alpha=0.01: UNARY["leaky_relu"](x, alpha, 0),
    "Clip": lambda x, low, high: np.clip(x, low, high),
    "HardSigmoid": lambda x, alpha=0.2, beta=0.5: UNARY["hard_sigmoid"](x, alpha, beta),
    "Softplus": lambda x: np.logaddexp(x, 0),
    "Softsign": softsign_of,
    "Elu": lambda x, alpha=1.0: elu_of(x, alpha),
    "ThresholdedRelu": lambda x, alpha=1.0: thresholded_of(x, alpha),
    "Gelu": gelu,
    "HardSwish": lambda x: UNARY["hard_swish"](x, 0, 0),
}


def activated(x: Array, name: str | None, parameters: Sequence[float] = ()) -> Array:
    """An activation by ONNX's name; `parameters` are its attributes in ONNX's order."""
    function = ACTIVATIONS.get(name or "")
    if function is None:
        raise UnsupportedError(f"activation {name!r}, expected one of {sorted(ACTIVATIONS)}")
    return np.asarray(function(x, *parameters), x.dtype)


def present(*parameters: float | None) -> list[float]:
    """The parameters up to the first that is left out."""
    end = next((i for i, value in enumerate(parameters) if value is None), len(parameters))
    return [value for value in parameters[:end] if value is not None]


def along(values: Array, axis: int, rank: int) -> Array:
    """A vector over `axis`, or one number, shaped to be broadcast with a tensor of `rank` axes."""
    if values.size == 1:
        return values.reshape(())
    if values.ndim != 1:
        raise ProgramError(f"shape {list(values.shape)}, expected one number or a vector")
    place = axis_of(axis, rank)
    return values.reshape([-1 if i == place else 1 for i in range(rank)])


def dequantized(x: Array, scale: Array, zero: Array | None = None, axis: int = 1) -> Array:
    """(x - zero) scale in the type of `scale`; vectors are over `axis`."""
    shifted = x.astype(np.int32)
    if zero is not None:
        shifted = shifted - along(zero, axis, x.ndim).astype(np.int32)
    return shifted.astype(scale.dtype) * along(scale, axis, x.ndim)


def quantized(x: Array, scale: Array, zero: Array | None = None, axis: int = 1) -> Array:
    """round(x / scale) + zero in the type of `zero` (uint8), ties to even, clipped."""
    dtype = np.dtype(np.uint8) if zero is None else zero.dtype
    spread = None if zero is None else along(zero, axis, x.ndim)
    return quantization.quantized(x / along(scale, axis, x.ndim), spread, dtype, saturate=True)


def unpacked(x: Array, bits: int) -> Array:
    """The numbers of 2, 4 or 8 bits in uint8 [..., n], the lowest bits first."""
    if bits not in (2, 4, 8):
        raise UnsupportedError(f"{bits} bits, expected 2, 4 or 8")
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    numbers = (x.view(np.uint8)[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    return numbers.reshape(*x.shape[:-1], x.shape[-1] * (8 // bits))
