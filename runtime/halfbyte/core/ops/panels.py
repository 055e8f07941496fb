"""Float products with matrices packed in panels.

A panel holds the weights of sixteen adjacent outputs, w[panel, k, 16], padded with zeros. A matrix
[m, k] has ceil(m / 16) panels.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.core.aligned import zeros
from halfbyte.core.ops.activation import gelu, silu
from halfbyte.core.ops.demands import inside
from halfbyte.core.ops.elementwise import walked
from halfbyte.core.ops.operator import operator

F32 = npt.NDArray[np.float32]

PANEL = 16  # outputs of a panel


class Activation(IntEnum):
    """The function applied to a product when it is stored."""

    NONE = 0
    RELU = 1
    GELU = 2
    GELU_TANH = 3
    SILU = 4


def panels(m: int) -> int:
    """The number of panels of m outputs."""
    return -(-m // PANEL)


def pack_panels(w: F32) -> F32:
    """Pack matrices [..., m, k], in any memory order, as panels [..., ceil(m / 16), k, 16]."""
    *stack, m, k = w.shape
    packed = zeros((*stack, panels(m), k, PANEL), np.float32)
    whole = m // PANEL
    full = w[..., : whole * PANEL, :].reshape(*stack, whole, PANEL, k)
    packed[..., :whole, :, :] = full.swapaxes(-1, -2)
    if whole < panels(m):
        rest = w[..., whole * PANEL :, :].swapaxes(-1, -2)
        packed[..., whole, :, : m - whole * PANEL] = rest
    return packed


def unpack_panels(w: npt.NDArray[Any], m: int) -> npt.NDArray[Any]:
    """The inverse of `pack_panels`, for panels [..., g, k, 16] of any type: [..., m, k]."""
    rows = w.swapaxes(-1, -2)
    return rows.reshape(*w.shape[:-3], w.shape[-3] * PANEL, w.shape[-2])[..., :m, :]


def activated(y: F32, activation: int) -> F32:
    """The activation of a product."""
    if activation == Activation.RELU:
        return np.maximum(y, 0)
    if activation in (Activation.GELU, Activation.GELU_TANH):
        approximate = "tanh" if activation == Activation.GELU_TANH else "none"
        result: F32 = gelu.meaning(y, approximate=approximate)
        return result
    return silu.meaning(y) if activation == Activation.SILU else y


def _products(d: Mapping[str, Any]) -> int:
    return 2 * int(d["n"]) * int(d["m"]) * int(d["k"])


@operator(
    "FusedGemm",
    "x:f32[n,k] w:*[g,k,16] bias:f32[m] r?:f32[n,m] -> y:f32[n,m]",
    operations=_products,
    demands={"g = ceil(m / 16)": lambda d: d["g"] == panels(d["m"])},
    rows="n",
    product=True,
)
def matmul_panels(
    x: F32, w: F32, bias: F32, r: F32 | None = None, *, activation: int = Activation.NONE
) -> F32:
    """y[i, j] = activation(r[i, j] + (bias[j] + sum_k x[i, k] w[j / 16, k, j % 16])).

    Source: ONNX Gemm (opset 13) and MatMul with a constant second operand; ONNX Runtime's FusedGemm
    for the activation, its FusedConv for the order of residual and activation.
    """
    y: F32 = (x @ unpack_panels(w, len(bias)).T + bias).astype(np.float32, copy=False)
    return activated(y if r is None else r + y, activation)


@operator(
    "MatMul",
    "w:f32[length] -> y:f32[outer,inner,g,k,16]",
    demands={
        "g = ceil(m / 16)": lambda d: d["g"] == panels(d["m"]),
        "matrices inside of w: outer, inner, m, k, w_outer, w_inner, w_row, w_step, length": (
            lambda d: inside(
                d["length"],
                0,
                (d["outer"], d["w_outer"]),
                (d["inner"], d["w_inner"]),
                (d["m"], d["w_row"]),
                (d["k"], d["w_step"]),
            )
        ),
    },
)
def pack_batched(
    w: F32,
    *,
    outer: int, inner: int, g: int, k: int, m: int,
    w_outer: int, w_inner: int, w_row: int, w_step: int,
) -> F32:  # fmt: skip
    """Pack matrices [m, k] computed by a program as panels; g = ceil(m / 16).

    Matrices begin at strides of `outer` and `inner`; element i, j is at i w_row + j w_step.
    """
    matrices = walked(w, (outer, inner, m, k), (w_outer, w_inner, w_row, w_step))
    y = np.zeros((outer, inner, g, k, PANEL), np.float32)
    for i in range(outer):
        for j in range(inner):
            y[i, j] = pack_panels(matrices[i, j])
    return y


@operator(
    "MatMul",
    "x:f32[length] w:f32[o,i,g,k,16] -> y:f32[outer,inner,n,m]",
    operations=lambda d: 2 * d["outer"] * d["inner"] * d["n"] * d["m"] * d["k"],
    demands={
        "g = ceil(m / 16)": lambda d: d["g"] == panels(d["m"]),
        "matrices inside of x: outer, inner, n, k, x_outer, x_inner, x_row, length": lambda d: (
            inside(
                d["length"],
                0,
                (d["outer"], d["x_outer"]),
                (d["inner"], d["x_inner"]),
                (d["n"], d["x_row"]),
                (d["k"], 1),
            )
        ),
        "panels inside of w: outer, inner, o, i, g, k, w_outer, w_inner": lambda d: inside(
            d["o"] * d["i"] * d["g"] * d["k"] * PANEL,
            0,
            (d["outer"], d["w_outer"]),
            (d["inner"], d["w_inner"]),
            (d["g"] * d["k"] * PANEL, 1),
        ),
    },
    product=True,
)
def matmul_batched(
    x: F32,
    w: F32,
    *,
    outer: int, inner: int, n: int, m: int,
    x_outer: int, x_inner: int, x_row: int, w_outer: int, w_inner: int,
) -> F32:  # fmt: skip
    """y[a, b] = x[a, b] w[a, b] for matrices x[n, k] and w in panels.

    Both begin at strides of `outer` and `inner`, 0 if a matrix is shared; rows of x are x_row
    apart.

    Source: ONNX MatMul (opset 13).
    """
    _, _, g, k, _ = w.shape
    left = walked(x, (outer, inner, n, k), (x_outer, x_inner, x_row, 1))
    right = walked(
        w.reshape(-1), (outer, inner, g, k, PANEL), (w_outer, w_inner, k * PANEL, PANEL, 1)
    )
    return np.ascontiguousarray(left @ unpack_panels(right, m).swapaxes(2, 3), np.float32)
