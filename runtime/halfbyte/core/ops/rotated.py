"""Products with activations rotated by a Hadamard matrix before rounding, with one scale for 128.

The rotation spreads a large channel over 32 channels. Numbers of similar size need fewer scales for
the same precision, and longer integer sums need fewer multiplications. Rotated weights undo the
rotation: x w = (x H) (H w). Source: Ashkboos et al. 2024, QuaRot.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from halfbyte.core.ops.activation import gelu
from halfbyte.core.ops.linear import products, quantize_blocks, with_bias
from halfbyte.core.ops.norm import layer_norm
from halfbyte.core.ops.operator import operator
from halfbyte.weights import Packed, Tensor

F32 = npt.NDArray[np.float32]
I16 = npt.NDArray[np.int16]
I8 = npt.NDArray[np.int8]
Quantized = tuple[I8, F32, I16]

LONG = 128  # activations that share one scale
MIN_SCALE = np.float32(1e-30)  # of a scale by which others are divided
SIZE = 32  # rows of the Hadamard matrix
_QUANTIZED = "xq:i8[n,d] xd:f32[n,d/128] xs:i16[n,d/16]"
_PRODUCT = (
    "xq:i8[n,k] xd:f32[n,k/128] xs:i16[n,k/16] w:*[m,k] r?:f32[n,m] bias?:f32[m] -> y:f32[n,m]"
)


def fits(m: int, k: int) -> bool:
    """Whether :func:`matmul_rotated` supports a matrix [m, k]."""
    return m % Packed.GROUP == 0 and k % LONG == 0


@cache
def matrix() -> F32:
    """Sylvester's Hadamard matrix of 32 rows over 8; its square is 1 / 2."""
    h = np.ones((1, 1), np.float32)
    while len(h) < SIZE:
        h = np.block([[h, h], [h, -h]])
    h /= np.float32(8)
    h.setflags(write=False)
    return h


@operator(
    "Hadamard",
    "x:f32[n,k] -> y:f32[n,k]",
    demands={"k a multiple of 32": lambda d: d["k"] % SIZE == 0},
    rows="n",
)
def hadamard(x: F32) -> F32:
    """Each 32 numbers of a row times :func:`matrix`.

    Sums and differences of numbers 16 apart, then of the results 8, 4, 2 and 1 apart, in float32,
    all divided by 8. `k` is a multiple of 32.
    """
    n, k = x.shape
    y = x.reshape(n, k // SIZE, SIZE)
    for apart in (16, 8, 4, 2, 1):
        pairs = y.reshape(n, k // SIZE, SIZE // (2 * apart), 2, apart)
        first, second = pairs[..., 0, :], pairs[..., 1, :]
        y = np.stack([first + second, first - second], axis=-2)
    result: F32 = y.reshape(n, k) * np.float32(0.125)
    return result


@operator(
    "Hadamard+DynamicQuantizeLinear",
    "x:f32[n,k] -> xq:i8[n,k] xd:f32[n,k/128] xs:i16[n,k/16]",
    rows="n",
    like="dynamic_quantize",
)
def hadamard_quantize(x: F32) -> Quantized:
    """hadamard(x), rounded as by :func:`dynamic_quantize`, but in blocks of 128."""
    return quantize_blocks(hadamard.meaning(x), LONG)


@operator(
    "LayerNormalization+Hadamard+DynamicQuantizeLinear",
    f"x:f32[n,d] weight:f32[d] bias:f32[d] gain?:f32[d] -> y:f32[n,d] {_QUANTIZED}",
    rows="n",
    parts=(layer_norm, hadamard_quantize),
    like="layer_norm_quantize",
)
def layer_norm_hadamard_quantize(
    x: F32, weight: F32, bias: F32, gain: F32 | None = None, *, epsilon: float
) -> tuple[F32, I8, F32, I16]:
    """layer_norm(x) gain, which a residual needs, and hadamard_quantize of layer_norm(x)."""
    y = layer_norm(x, weight, bias, epsilon=epsilon)
    return (y if gain is None else y * gain, *hadamard_quantize(y))


@operator(
    "Gelu+Hadamard+DynamicQuantizeLinear",
    f"x:f32[n,d] -> {_QUANTIZED}",
    variant=gelu.variant,
    rows="n",
    parts=(gelu, hadamard_quantize),
    like="gelu_quantize",
)
def gelu_hadamard_quantize(x: F32, *, approximate: str) -> Quantized:
    """hadamard_quantize(gelu(x))."""
    quantized: Quantized = hadamard_quantize(gelu(x, approximate=approximate))
    return quantized


@operator(
    "MatMulNBits",
    _PRODUCT,
    operations=products,
    demands={"m a multiple of 16": lambda d: d["m"] % Packed.GROUP == 0},
    rows="n",
    product=True,
    like="matmul_int8",
    kind=lambda d: "matmul_rotated_" + d["w"],
)
def matmul_rotated(
    xq: I8, xd: F32, xs: I16, w: Tensor, r: F32 | None = None, bias: F32 | None = None
) -> F32:
    """y[i, j] = r[i, j] + (bias[j] + sum over blocks l of 128 columns, in order).

    A block adds xd[i, l] times the sum over its four blocks b, in order, of wd[j, b] float(sum wq
    xq): of formats with a scale for 32 and no minima.

    Sums of integer products are exact; floats are multiplied, then added, in float32. `m` is a
    multiple of 16; `xs` is for kernels with unsigned integers.

    Source: ONNX Runtime's MatMulNBits at accuracy level 4 (int8 activations).
    """
    del xs
    wq, wd, _ = w.format.quantized(w.rows)
    (m, blocks, size), n = wq.shape, len(xq)
    x = xq.reshape(n, blocks, size).astype(np.float32)
    y = np.zeros((n, m), np.float32)
    for first in range(0, blocks, LONG // size):
        part = np.zeros((n, m), np.float32)
        for b in range(first, first + LONG // size):
            dots = x[:, b] @ wq[:, b].astype(np.float32).T  # below 2^24: exact in float32
            part += wd[:, b] * dots
        y += part * xd[:, first * size // LONG, None]
    return with_bias(y, bias, r)


@operator(
    "MatMulNBits",
    _PRODUCT,
    operations=products,
    demands={"m a multiple of 16": lambda d: d["m"] % Packed.GROUP == 0},
    rows="n",
    product=True,
)
def matmul_widened(
    xq: I8, xd: F32, xs: I16, w: Tensor, r: F32 | None = None, bias: F32 | None = None
) -> F32:
    """:func:`matmul_rotated` with integers of 8 bits and one scale for 128 weights.

    A block of 128 columns adds (d / 128 xd) float(sum v xq), where d is the largest |wd| in it, at
    least 1e-30, and `v` are wider integers, (256 wq c + 2^14) >> 15 with c = wd / d in 2^-14,
    rounded to nearest, ties to even. |v| is at most 2^14 and differs from 128 wq wd / d by at most
    about 1. Scales are finite.

    Processors that multiply bytes as 16-bit numbers lose nothing by the wider integers, and the
    sums of a block need not be scaled one by one.
    """
    del xs
    wq, wd, _ = w.format.quantized(w.rows)
    (m, blocks, size), n = wq.shape, len(xq)
    scales = wd.reshape(m, -1, LONG // size)
    top = np.maximum(np.abs(scales).max(axis=2, keepdims=True), MIN_SCALE)
    shares = np.rint(scales / top * np.float32(1 << 14)).astype(np.int32).reshape(m, blocks, 1)
    wide = ((wq.astype(np.int32) * 256 * shares + (1 << 14)) >> 15).reshape(m, -1, LONG)
    x = xq.reshape(n, -1, LONG).astype(np.float64)
    y = np.zeros((n, m), np.float32)
    for at in range(x.shape[1]):
        dots = (x[:, at] @ wide[:, at].astype(np.float64).T).astype(np.float32)
        y += (top[:, at, 0] * np.float32(1 / 128)) * xd[:, at, None] * dots
    return with_bias(y, bias, r)
