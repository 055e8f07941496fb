"""Products with packed or 8-bit weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.errors import ProgramError, UnsupportedError
from halfbyte.onnx.files.dtypes import widen
from halfbyte.onnx.reference import _shapes
from halfbyte.onnx.reference._numbers import fitting, rounded, vector, widened
from halfbyte.onnx.reference.arrays import axis_of, take
from halfbyte.onnx.reference.contrib._common import along, contrib, unpacked
from halfbyte.onnx.reference.quantization import dynamic_quantize_linear

Array = npt.NDArray[Any]


def nbits_weights(
    b: Array,
    scales: Array,
    zero_points: Array | None,
    g_idx: Array | None,
    *,
    k: int,
    n: int,
    bits: int,
    block_size: int,
) -> Array:
    """The matrix [n, k] of MatMulNBits: (quantized - zero) scale, in blocks of `block_size`.

    b is [n, blocks, block_size bits / 8]; scales [n, blocks]; zero points the same in floats, or
    packed like b [n, bytes]; without them zero is the middle of the range. `g_idx` [k], if given,
    is the block of each column.
    """
    blocks = -(-k // block_size)
    fitting((n, blocks * block_size), 4, "B")
    quantized = unpacked(b.reshape(n, -1), bits).reshape(n, -1)
    if quantized.shape[1] != blocks * block_size or scales.shape not in (
        (n * blocks,),
        (n, blocks),
    ):
        raise ProgramError(
            f"B {list(b.shape)} and scales {list(scales.shape)}: expected {n} × {blocks} blocks"
        )
    if zero_points is None:
        zeros = np.full((n, blocks), 1 << (bits - 1), np.float32)
    elif zero_points.dtype == np.uint8:
        zeros = unpacked(zero_points.reshape(n, -1), bits)[:, :blocks].astype(np.float32)
    else:
        zeros = widened(zero_points).reshape(n, blocks)
    of = np.arange(k) // block_size if g_idx is None else g_idx[:k]
    factors = widened(scales).reshape(n, blocks)
    weights: Array = (quantized[:, :k].astype(np.float32) - zeros[:, of]) * factors[:, of]
    return weights


def _rows(a: Array, *others: Array | None, N: int, **attributes: Any) -> _shapes.Shape:
    """The shape of rows of N numbers each."""
    return (*a.shape[:-1], N)


@contrib("MatMulNBits", types="a.1,10,16 b.2 a.1,10,16 - d.6 a > a", infer=_shapes.alike(_rows))
def matmul_nbits(
    a: Array,
    b: Array,
    scales: Array,
    zero_points: Array | None = None,
    g_idx: Array | None = None,
    bias: Array | None = None,
    *,
    K: int,
    N: int,
    block_size: int,
    bits: int = 4,
    accuracy_level: int = 0,
    weight_prepacked: int = 0,
) -> Array:
    """a [..., K] times the transposed matrix [N, K] of 2, 4 or 8 bits, plus bias: [..., N].

    With `accuracy_level` 4 the blocks of a are rounded to int8 first, as in ONNX Runtime.
    """
    if weight_prepacked:
        raise UnsupportedError("MatMulNBits with prepacked weights")
    weights = nbits_weights(
        b, scales, zero_points, g_idx, k=K, n=N, bits=bits, block_size=block_size
    )
    wide = widened(a)
    if accuracy_level == 4 and g_idx is None:
        wide = _as_bytes(wide, block_size)
    product = wide @ weights.T
    if bias is not None:
        product = product + vector(widened(bias), N, "bias")
    return rounded(product, a.dtype)


def _as_bytes(a: Array, block_size: int) -> Array:
    """a [..., K] with each block of a row rounded to multiples of its largest magnitude / 127."""
    k = a.shape[-1]
    blocks = -(-k // block_size)
    whole = np.zeros((*a.shape[:-1], blocks * block_size), np.float32)
    whole[..., :k] = a
    whole = whole.reshape(*a.shape[:-1], blocks, block_size)
    scale = np.abs(whole).max(axis=-1, keepdims=True) / np.float32(127)
    steps = np.rint(whole / np.where(scale > 0, scale, 1))
    return np.asarray((steps * scale).reshape(*a.shape[:-1], blocks * block_size)[..., :k])


# The 16 values of bitsandbytes' 4-bit types: FP4 and NF4.
FP4 = np.array(
    [0, 1 / 192, 2 / 3, 1, 1 / 3, 1 / 2, 1 / 6, 1 / 4], np.float32
)  # fmt: skip
NF4 = np.array(
    [-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
     -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
     0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
     0.7229568362236023, 1.0], np.float32,
)  # fmt: skip


@contrib("MatMulBnb4", infer=_shapes.alike(_rows), types="a - a > a")
def matmul_bnb4(
    a: Array,
    b: Array,
    absmax: Array,
    *,
    K: int,
    N: int,
    block_size: int,
    quant_type: int,
    training_mode: int = 0,
    transB: int = 1,
) -> Array:
    """a [..., K] times the transposed matrix [N, K] of FP4 (0) or NF4 (1).

    Blocks run through the matrix's rows one after the other; the first of two numbers is in the
    upper half of a byte.
    """
    fitting((N, K), 4, "B")
    table = NF4 if quant_type else np.concatenate([FP4, -FP4])
    quantized = np.stack([b.reshape(-1) >> 4, b.reshape(-1) & 15], axis=-1).reshape(-1)[: N * K]
    numbers = table[quantized] * np.repeat(widened(absmax), block_size)[: N * K]
    matrix = numbers.reshape(N, K)
    return rounded(widened(a) @ (matrix.T if transB else numbers.reshape(K, N)), a.dtype)


def _gathered(
    data: Array, indices: Array, *others: Array | None, bits: int = 4, gather_axis: int = 0,
    **attributes: Any,
) -> _shapes.Shape:  # fmt: skip
    """Slices of the numbers, of which a uint8 holds more than one along the last axis."""
    packed = 8 // bits if data.dtype == np.uint8 else 1
    whole = (*data.shape[:-1], data.shape[-1] * packed)
    taken = axis_of(gather_axis, data.ndim)
    return (*whole[:taken], *indices.shape, *whole[taken + 1 :])


@contrib(
    "GatherBlockQuantized", special=True, types="a b.6,7 c.1,10,16 a > c",
    infer=_shapes.Rule(_gathered),
)  # fmt: skip
def gather_block_quantized(
    data: Array,
    indices: Array,
    scales: Array,
    zero_points: Array | None = None,
    *,
    bits: int = 4,
    block_size: int = 128,
    gather_axis: int = 0,
    quantize_axis: int = 1,
) -> Array:
    """Slices of a block-quantized tensor along `gather_axis`, as numbers of the scales' type.

    uint8 data holds 2, 4 or 8 bits per number along its last axis. Indices out of range give zeros.
    """
    packed = data.dtype == np.uint8
    quantized = unpacked(data, bits) if packed else widen(data) if data.dtype.names else data
    axis, taken = axis_of(quantize_axis, data.ndim), axis_of(gather_axis, data.ndim)
    if packed and (taken or (block_size and (block_size < 16 or block_size & (block_size - 1)))):
        raise ProgramError(
            f"gather_axis {gather_axis} and block_size {block_size}: expected 0, and a power of 2 "
            "from 16 on"
        )
    blocked = list(quantized.shape)
    blocked[axis] = -(-blocked[axis] // block_size) if block_size > 0 else 1
    if list(scales.shape) != blocked:
        raise ProgramError(f"scales {list(scales.shape)}: expected {blocked}")
    rows = quantized.shape[taken]
    inside = (indices >= -rows) & (indices < rows)
    at = np.where(inside, indices, 0)
    blocks = np.arange(quantized.shape[axis]) // (block_size or quantized.shape[axis])

    def gathered(x: Array) -> Array:
        return take(x, at if x.shape[taken] > 1 else np.zeros_like(at), taken)

    def spread(x: Array) -> Array:
        return gathered(take(x, blocks, axis))

    shifted = gathered(quantized).astype(np.float32)
    if zero_points is not None:
        zeros = zero_points
        if packed:
            zeros = unpacked(zeros, bits)
            zeros = take(zeros, np.arange(scales.shape[-1]), -1)
        elif zeros.dtype.names:
            zeros = widen(zeros)
        shifted = shifted - spread(zeros).astype(np.float32)
    elif packed:
        shifted = shifted - np.float32(1 << (bits - 1))
    result = shifted * spread(widened(scales))
    kept = inside.reshape(*[1] * taken, *inside.shape, *[1] * (data.ndim - taken - 1))
    return rounded(np.where(kept, result, np.float32(0)), scales.dtype)


def _integers(a: Array, b: Array) -> _shapes.Shapes:
    both = a.dtype.kind == b.dtype.kind == "u"
    product = _shapes.after_product(a.shape, b.shape)
    return _shapes.blank(product, np.uint32 if both else np.int32)


@contrib("MatMulInteger16", infer=_shapes.Rule(_integers, _shapes.product.rank))
def matmul_integer16(a: Array, b: Array) -> Array:
    """Product of 16-bit integers, in int32 (uint32 where both are unsigned)."""
    both = a.dtype.kind == b.dtype.kind == "u"
    kind = np.uint32 if both else np.int32
    return np.asarray(np.matmul(a.astype(kind), b.astype(kind)))


@contrib("MatMulIntegerToFloat", types="a.2,3 b.2,3 c c a b c > c", infer=_shapes.product)
def matmul_integer_to_float(
    a: Array,
    b: Array,
    a_scale: Array,
    b_scale: Array,
    a_zero_point: Array | None = None,
    b_zero_point: Array | None = None,
    bias: Array | None = None,
) -> Array:
    """(a - za) sa times (b - zb) sb, plus bias; b's scales and zero points may be by column."""
    shifted = a.astype(np.int32)
    if a_zero_point is not None:
        shifted = shifted - along(a_zero_point, -2, a.ndim).astype(np.int32)
    product = _columns_product(shifted, b, b_zero_point)
    factors = widened(a_scale) * _columns(widened(b_scale))
    result = (product.astype(np.float32) * factors).reshape(product.shape)
    if bias is not None:
        result = result + vector(widened(bias), b.shape[-1], "bias")
    return rounded(result, a_scale.dtype)


@contrib("DynamicQuantizeMatMul", infer=_shapes.product, types="a.1 b.2,3 a b a > a")
def dynamic_quantize_matmul(
    a: Array,
    b: Array,
    b_scale: Array,
    b_zero_point: Array | None = None,
    bias: Array | None = None,
) -> Array:
    """a, rounded to uint8 as by DynamicQuantizeLinear, times (b - zb) sb, plus bias."""
    quantized, scale, zero = dynamic_quantize_linear(a)
    return matmul_integer_to_float(quantized, b, scale, b_scale, zero, b_zero_point, bias)


def _columns(values: Array) -> Array:
    """One number, [n], or [..., n] for a stack of matrices, to be broadcast with [..., m, n]."""
    return values.reshape(()) if values.size == 1 else values[..., None, :]


def _columns_product(a: Array, b: Array, zero: Array | None) -> Array:
    shifted = b.astype(np.int32)
    shifted = shifted if zero is None else shifted - _columns(zero).astype(np.int32)
    return np.asarray(np.matmul(a, shifted))
