"""Rules of products with constant matrices, in float panels and integer blocks, and of stacks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from halfbyte.core import ops
from halfbyte.core.buffer import Buffer
from halfbyte.core.ops.panels import PANEL, Activation, pack_panels
from halfbyte.core.ops.panels import panels as count
from halfbyte.core.ops.rotated import fits
from halfbyte.core.ops.rotated import matrix as hadamard_matrix
from halfbyte.errors import ProgramError
from halfbyte.onnx.capture import Capture
from halfbyte.onnx.lowering.blocks import block_weight
from halfbyte.onnx.lowering.move import side_by_side
from halfbyte.onnx.lowering.registry import MICROSOFT, OWN, lower
from halfbyte.onnx.lowering.sliding import without_subnormals
from halfbyte.onnx.lowering.strides import Dimension, broadcast, joined, row_major
from halfbyte.onnx.sizes import broadcast_shapes
from halfbyte.onnx.values import Array, Operand, Value, key_of, sizes_of

_ACTIVATIONS = {
    "": Activation.NONE, "Relu": Activation.RELU, "Gelu": Activation.GELU,
    "FastGelu": Activation.GELU_TANH,
}  # fmt: skip

_WEIGHTS = (np.float32, np.float16)  # types that matrices may have; panels are float32


def panels(c: Capture, w: Array, *, transposed: bool = False, scale: float = 1.0) -> Buffer:
    """A constant matrix [k, m], or [m, k] if `transposed`, packed for `matmul_panels`."""

    def make() -> Buffer:
        rows = w if transposed else w.T
        packed = without_subnormals(pack_panels(rows if scale == 1 else rows * np.float32(scale)))
        return c.program.constant(f"{c.weights.name(w) or 'matrix'} in panels", packed)

    return c.weights.get(w, f"panels {transposed} {scale}", make)


def vector(c: Capture, bias: Operand, m: int) -> Buffer:
    """A bias [m], which is zeros if there is none.

    Raises
    ------
    ProgramError
        The bias has another shape.
    """
    if bias is None:
        return c.constant(np.zeros(m, np.float32))
    if bias.shape != (m,):
        raise ProgramError(f"bias {list(bias.shape)}: expected [{m}]")
    return c.plain(bias)


def product(
    c: Capture, x: Value, w: Array, bias: Operand, activation: str = "", residual: Operand = None
) -> Value | None:
    """activation(x w + bias) of x [..., k] and a constant w [k, m]."""
    k, m = w.shape
    if x.dtype != "f32" or w.dtype not in _WEIGHTS or not x.size or not m or x.shape[-1] != k:
        return None
    rows = x.size // k
    r = None if residual is None else c.matrix(residual, rows, m)
    y = ops.matmul_panels(
        c.matrix(x, rows, k), panels(c, w), vector(c, bias, m), r,
        activation=int(_ACTIVATIONS[activation]),
    )  # fmt: skip
    return c.value(y, (*x.shape[:-1], m))


@lower("Linear", domain=OWN)
def linear(
    c: Capture, x: Value, w: Operand, bias: Operand, *, activation: str = ""
) -> Value | None:
    """Products with a constant matrix, a bias and an activation."""
    return product(c, x, w, bias, activation) if isinstance(w, np.ndarray) else None


@lower("MatMul")
def matmul(c: Capture, x: Value | Array, w: Value | Array) -> Value | None:
    """Products with a constant matrix, and products of two stacks of matrices."""
    if isinstance(x, Value) and isinstance(w, np.ndarray) and w.ndim == 2 and x.shape:
        if _is_hadamard(x, w):
            return c.rotated(x)
        return product(c, x, w, None)
    return _stacked(c, x, w)


def _is_hadamard(x: Value, w: Array) -> bool:
    multiplies = x.dtype == "f32" and bool(x.size) and x.shape[-1] == len(w)
    return multiplies and np.array_equal(w, hadamard_matrix())


def flat(buffer: Buffer) -> Buffer:
    """All of a buffer's elements as a vector."""
    return buffer.view((math.prod(sizes_of(buffer)),))


def _walked(c: Capture, x: Value | Array) -> tuple[Buffer, list[int]]:
    """A buffer of a tensor's elements, and the strides of the tensor's dimensions in it."""
    if not isinstance(x, Value):
        return c.constant(x), row_major(x.shape)
    buffer, order = x.origin()
    steps = row_major(sizes_of(buffer))
    return buffer, [steps[i] for i in order]


def _two(walk: list[Dimension], operands: int) -> list[Dimension] | None:
    """The walk over a stack with exactly two dimensions; None if it needs more."""
    dimensions = joined(walk, operands)
    one: list[Dimension] = [(1, (0,) * operands)]
    return one * (2 - len(dimensions)) + dimensions if len(dimensions) <= 2 else None


def _stacked(c: Capture, x: Value | Array, w: Value | Array) -> Value | None:
    """x [..., n, k] times w [..., k, m]; w is packed first."""
    if key_of(x) != "f32" or key_of(w) != "f32" or min(len(x.shape), len(w.shape)) < 2:
        return None
    (n, k), m = x.shape[-2:], w.shape[-1]
    if w.shape[-2] != k or not math.prod(x.shape) or not math.prod(w.shape):
        return None
    try:
        stack = broadcast_shapes(x.shape[:-2], w.shape[:-2])
    except ValueError:
        return None
    packed, each = _packed(c, w), count(m) * k * PANEL
    buffer, steps = _walked(c, x)
    if steps[-1] != 1 and k > 1:
        buffer, steps = c.plain(x), row_major(x.shape)
    missing = len(stack) - len(x.shape[:-2])
    own = [0 if d == 1 else s for d, s in zip(x.shape[:-2], steps, strict=False)]
    theirs = [s * each for s in broadcast(w.shape[:-2], stack)]
    strides = zip([0] * missing + own, theirs, strict=True)
    walk: list[Dimension] = [*zip(stack, strides, strict=True)]
    sides = _two(walk, 2)
    if packed is None or sides is None:
        return None
    (outer, (x_outer, w_outer)), (inner, (x_inner, w_inner)) = sides
    y = ops.matmul_batched(
        flat(buffer), packed,
        outer=outer, inner=inner, n=n, m=m, x_outer=x_outer, x_inner=x_inner, x_row=steps[-2],
        w_outer=w_outer, w_inner=w_inner,
    )  # fmt: skip
    return c.value(y, (*stack, n, m))


def _packed(c: Capture, w: Value | Array) -> Buffer | None:
    """A stack of matrices [..., k, m] packed in panels."""
    k, m = w.shape[-2:]
    buffer, steps = _walked(c, w)
    walk: list[Dimension] = [(d, (s,)) for d, s in zip(w.shape[:-2], steps, strict=False)]
    sides = _two(walk, 1)
    if sides is None:
        buffer, steps = c.plain(w), row_major(w.shape)
        sides = [(1, (0,)), (math.prod(w.shape[:-2]), (k * m,))]
    (outer, (w_outer,)), (inner, (w_inner,)) = sides
    y: Buffer = ops.pack_batched(
        flat(buffer),
        outer=outer, inner=inner, g=count(m), k=k, m=m,
        w_outer=w_outer, w_inner=w_inner, w_row=steps[-1], w_step=steps[-2],
    )  # fmt: skip
    return y


@lower("Gemm")
def gemm(
    c: Capture, x: Value | Array, w: Value | Array, add: Operand = None, *, alpha: float = 1.0,
    beta: float = 1.0, transA: int = 0, transB: int = 0, **attributes: Any,
) -> Value | None:  # fmt: skip
    """alpha x w + beta c with a constant w; c is a constant vector or has the result's shape."""
    if not isinstance(x, Value) or isinstance(w, Value) or x.dtype != "f32" or not x.size:
        return None
    if len(x.shape) != 2 or w.ndim != 2 or w.dtype != np.float32 or not w.size:
        return None
    if not math.isfinite(alpha) or not math.isfinite(beta):
        return None
    x = c.transposed(x, (1, 0)) if transA else x
    m, k = w.shape if transB else w.shape[::-1]
    n = x.shape[0]
    if x.shape[1] != k:
        return None
    bias, residual = None, None
    if isinstance(add, np.ndarray) and add.size in (1, m) and add.shape in ((), (1,), (m,), (1, m)):
        bias = np.broadcast_to(add.reshape(-1) * np.float32(beta), (m,)).astype(np.float32)
        bias = add.reshape(-1) if beta == 1 and add.size == m else bias
    elif add is not None:
        if beta != 1 or add.shape != (n, m) or key_of(add) != "f32":
            return None
        residual = c.matrix(add, n, m)
    y = ops.matmul_panels(
        c.matrix(x, n, k), panels(c, w, transposed=bool(transB), scale=alpha),
        vector(c, bias, m), residual,
    )  # fmt: skip
    return c.value(y)


@lower("MatMulNBits", domain=MICROSOFT)
def matmul_nbits(
    c: Capture, x: Value, data: Operand, scales: Operand, zeros: Operand = None,
    order: Operand = None, bias: Operand = None, *, K: int, N: int, block_size: int, bits: int = 4,
    accuracy_level: int = 0, weight_prepacked: int = 0,
) -> Value | None:  # fmt: skip
    """Blocks of 4 or 8 bits; activations are quantized to int8 if the node allows it."""
    if not isinstance(data, np.ndarray) or not isinstance(scales, np.ndarray):
        return None
    if isinstance(zeros, Value) or order is not None or weight_prepacked or x.dtype != "f32":
        return None
    if bias is not None and key_of(bias) != "f32":
        return None
    if not x.size or x.shape[-1] != K:
        return None
    if K % 32:  # the last block of a row is whole: zeros are multiplied with its rest
        rest = -K % block_size
        if (K + rest) % 32 or not rest:
            return None
        blank = np.zeros((*x.shape[:-1], rest), np.float32)
        wide = side_by_side(c, [x, blank], len(x.shape) - 1)
        return wide and matmul_nbits(
            c, wide, data, scales, zeros, order, bias, K=K + rest, N=N, block_size=block_size,
            bits=bits, accuracy_level=accuracy_level, weight_prepacked=weight_prepacked,
        )  # fmt: skip
    rows, integers = x.size // K, accuracy_level == 4
    w = block_weight(c, data, scales, zeros, (N, K), block_size, bits, packed=integers)
    if w is None:
        return None
    added = None if bias is None else vector(c, bias, N)
    symmetric = bits == 8 or zeros is None
    before = c.before_rotation(x, rows, K) if integers and symmetric and fits(N, K) else None
    if before is not None:
        y = ops.matmul_rotated(*c.quantized(before, rows, K, ops.hadamard_quantize), w, None, added)
    elif integers:
        y = ops.matmul_int8(*c.quantized(x, rows, K), w, None, added)
    else:
        y = ops.matmul(c.matrix(x, rows, K), w)
        y = y if added is None else ops.add(y, added.view((1, N)))
    return c.value(y, (*x.shape[:-1], N))
