"""Embedding rows, and products with weight matrices.

A weight is a :class:`halfbyte.weights.Tensor` [m, k] in any format: rows are outputs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.core.ops.demands import LIMIT
from halfbyte.core.ops.operator import operator
from halfbyte.weights import Tensor

F32 = npt.NDArray[np.float32]
I32 = npt.NDArray[np.int32]
I16 = npt.NDArray[np.int16]
I8 = npt.NDArray[np.int8]

BLOCK = 32  # activations that share one scale; the block of Q8_0 and Q4_0
HALF = BLOCK // 2  # activations that share one sum


def products(d: Any) -> int:
    """Operations of a product of n rows with a matrix [m, k]."""
    return 2 * int(d["n"]) * int(d["m"]) * int(d["k"])


@operator("Gather", "w:*[v,d] ids:i32[n] -> y:f32[n,d]", reads={"w": lambda d: d["n"]}, rows="n")
def gather(w: Tensor | F32, ids: I32) -> F32:
    """Embedding rows: y[i] = w[ids[i]], decoded; an id outside the table gives zeros.

    Source: ONNX Gather, for block formats ONNX Runtime's GatherBlockQuantized.
    """
    inside = (ids >= 0) & (ids < w.shape[0])
    rows = np.where(inside, ids, 0)
    y = w[rows] if isinstance(w, np.ndarray) else w.format.decode(w.rows[rows])
    y[~inside] = 0
    return y


@operator(
    "MatMul",
    "x:f32[n,k] w:*[m,k] r?:f32[n,m] -> y:f32[n,m]",
    operations=products,
    rows="n",
    product=True,
    kind=lambda d: "matmul_" + d["w"],
)
def matmul(x: F32, w: Tensor, r: F32 | None = None) -> F32:
    """y[i, j] = r[i, j] + sum_k x[i, k] w[j, k] with float activations.

    Source: ONNX MatMul with the second operand transposed, for block formats ONNX Runtime's
    MatMulNBits at its default accuracy level.
    """
    y: F32 = (x @ w.decode().T).astype(np.float32, copy=False)
    return y if r is None else r + y


@operator(
    "DynamicQuantizeLinear", "x:f32[n,k] -> xq:i8[n,k] xd:f32[n,k/32] xs:i16[n,k/16]", rows="n"
)
def dynamic_quantize(x: F32) -> tuple[I8, F32, I16]:
    """Round activations to int8 in blocks of 32.

    Per block: d = max|x| / 127, q = round_half_even(x * (127 / max|x|)) in -127...127, and
    s = sum(q) of either half, through which weight formats take out offsets and add minima. A block
    whose maximum is zero, or so small that 127 / max|x| overflows, is all zero.

    Source: ONNX DynamicQuantizeLinear, made symmetric and per block.
    """
    return quantize_blocks(x, BLOCK)


def quantize_blocks(x: F32, size: int) -> tuple[I8, F32, I16]:
    """As :func:`dynamic_quantize`, in blocks of `size`."""
    n, k = x.shape
    wide, d = rounded(x.reshape(n, k // size, size))
    q = wide.astype(np.int8)
    return q.reshape(n, k), d, q.reshape(n, k // HALF, HALF).sum(axis=2, dtype=np.int16)


def rounded(x: F32) -> tuple[F32, F32]:
    """x rounded to -127...127 with one scale along the last axis, and the scales."""
    top = np.abs(x).max(axis=-1, keepdims=True, initial=0)
    by = inverse(127, top)
    d = np.where(by > 0, top / np.float32(127), np.float32(0))
    return np.clip(np.rint(x * by), -127, 127), d[..., 0]


def inverse(maximum: int, top: F32) -> F32:
    """most / top, or 0 if that is not finite."""
    with np.errstate(divide="ignore", over="ignore"):
        by = np.float32(maximum) / top
    return np.where(np.isfinite(by), by, np.float32(0))


@operator(
    "MatMulNBits",
    "xq:i8[n,k] xd:f32[n,k/32] xs:i16[n,k/16] w:*[m,k] r?:f32[n,m] bias?:f32[m] -> y:f32[n,m]",
    operations=products,
    rows="n",
    product=True,
    kind=lambda d: "matmul_int8_" + d["w"],
)
def matmul_int8(
    xq: I8, xd: F32, xs: I16, w: Tensor, r: F32 | None = None, bias: F32 | None = None
) -> F32:
    """y[i, j] = r[i, j] + (bias[j] + sum over the weight's blocks b, of 32 or 16, in order).

    A block adds (wd[j, b] xd[i, b]) float(sum wq xq), followed, in formats with minima, by
    wm[j, b] (xd[i, b] float(xs)).

    Block sums are exact integers; the float sum multiplies, then adds, in float32. `xd` and `xs`
    are results of :func:`dynamic_quantize`, for the block of 32 that contains b.

    Source: ONNX Runtime's MatMulNBits at accuracy level 4 (int8 activations).
    """
    wq, wd, wm = w.format.quantized(w.rows)
    n, size = xq.shape[0], wq.shape[2]
    x = xq.reshape(n, wq.shape[1], size).astype(np.float32)
    sums = xs.reshape(n, wq.shape[1], size // HALF).sum(axis=2).astype(np.float32)
    y = np.zeros((n, wq.shape[0]), np.float32)
    for b in range(wq.shape[1]):
        dots = x[:, b] @ wq[:, b].astype(np.float32).T  # below 2^24: exact in float32
        scale = xd[:, b * size // BLOCK, None]
        y += (wd[:, b] * scale) * dots
        if wm is not None:
            y += wm[:, b] * (scale * sums[:, b, None])
    return with_bias(y, bias, r)


def with_bias(y: F32, bias: F32 | None, r: F32 | None) -> F32:
    """r + (bias + y), where bias and r may be None."""
    if bias is not None:
        y = bias + y
    return y if r is None else r + y


@operator(
    "Range",
    "ids:i32[n] -> y:i32[n]",
    reads={"ids": lambda d: 0},
    demands={
        "step of 1 and more, start + n step of 2^31 and less": lambda d: (
            d["step"] >= 1 and -LIMIT <= d["start"] <= LIMIT - d["n"] * d["step"]
        ),
    },
)
def range_from(ids: I32, *, start: int, step: int = 1) -> I32:
    """start, start + step, ..., as many as ids. Source: ONNX Range."""
    return np.arange(start, start + len(ids) * step, step, dtype=np.int32)


@operator(
    "Slice",
    "x:f32[n,d] -> y:f32[rows,d]",
    reads={"x": lambda d: d["rows"]},
    demands={"rows <= n": lambda d: d["rows"] <= d["n"]},
)
def last_rows(x: F32, *, rows: int) -> F32:
    """The last `rows` rows of x. Source: ONNX Slice."""
    return x[x.shape[0] - rows :]
