"""Products with matrices of few columns, which change those of larger ones."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from halfbyte.core.ops.operator import operator
from halfbyte.core.ops.panels import PANEL, panels, unpack_panels

F32 = npt.NDArray[np.float32]
I8 = npt.NDArray[np.int8]


@operator(
    "Gemm",
    "y:f32[n,m] t:f32[n,c] b:i8[g,r,16] d:f32[g] scale:f32[1] -> y:f32[n,m]",
    operations=lambda d: 2 * d["n"] * d["r"] * d["m"],
    demands={
        "g = ceil(m / 16)": lambda d: d["g"] == panels(d["m"]),
        "0 <= offset <= c - r": lambda d: 0 <= d["offset"] <= d["c"] - d["r"],
    },
)
def add_low_rank(y: F32, t: F32, b: I8, d: F32, scale: F32, *, offset: int) -> F32:
    """y[i, j] += (d[j / 16] scale) sum_k t[i, offset + k] b[j / 16, k, j % 16], in place.

    Sums are made in the order of k, in float32.

    Source: Hu et al. 2021, LoRA; ONNX Gemm (opset 13) with alpha and C.
    """
    rows = unpack_panels(b, y.shape[1]).astype(np.float32)
    sums = np.zeros_like(y)
    for k in range(rows.shape[1]):
        sums += t[:, offset + k, None] * rows[:, k]
    y += np.repeat(d * scale, PANEL)[: y.shape[1]] * sums
    return y
