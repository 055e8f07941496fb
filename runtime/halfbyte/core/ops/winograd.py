"""Convolutions of 3 x 3 pixels by Winograd's F(2 x 2, 3 x 3), with channels last.

For 2 x 2 results, 4 x 4 pixels d and a kernel g: y = A^T ((G g G^T) * (B^T d B)) A. Sums over the
channels are sixteen products of matrices, with 16 multiplications instead of 36.

Source: A. Lavin and S. Gray, Fast Algorithms for Convolutional Neural Networks, 2015.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from halfbyte.core.ops.operator import operator
from halfbyte.core.ops.panels import PANEL, pack_panels, panels, unpack_panels

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]

PIXELS = np.array([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]], np.float64)  # B^T
KERNEL = np.array([[2, 0, 0], [1, 1, 1], [1, -1, 1], [0, 0, 2]], np.float64) / 2  # G
UNDONE = np.array([[1, 0, 0, 0], [0, 1, -1, 0], [0, 0, 0, 1]], np.float64)  # UNDONE G = 1
RESULT = np.array([[1, 1, 1, 0], [0, 1, -1, -1]], np.float64)  # A^T


def pack_winograd(w: F32) -> F32:
    """Transform ONNX's weights [m, c, 3, 3] for `conv2d_winograd`: [16, ceil(m / 16), c, 16]."""
    m, c = w.shape[:2]
    both = np.kron(KERNEL, KERNEL).astype(np.float32)  # exact
    transformed = both @ w.reshape(m * c, 9).T
    return pack_panels(transformed.reshape(16, m, c))


@operator(
    "Conv",
    "x:f32[n,h,v,c] w:f32[16,g,c,16] bias:f32[m] r?:f32[n,p,q,m] -> y:f32[n,p,q,m]",
    operations=lambda d: 2 * d["n"] * d["p"] * d["q"] * d["m"] * d["c"] * 9,
    demands={
        "g = ceil(m / 16)": lambda d: d["g"] == panels(d["m"]),
        "c a multiple of 16": lambda d: d["c"] % PANEL == 0,
        "p, q from 1 on, h, v, top and left from 0 on, within 2^30": lambda d: (
            min(d["p"], d["q"]) >= 1
            and all(0 <= d[name] <= 2**30 for name in ("h", "v", "top", "left", "p", "q"))
        ),
    },
    product=True,
    like="conv2d",
)
def conv2d_winograd(
    x: F32, w: F32, bias: F32, r: F32 | None = None, *, p: int, q: int, top: int, left: int,
    lo: float, hi: float,
) -> F32:  # fmt: skip
    """`conv2d` of kernels [3, 3], packed by :func:`pack_winograd`, over neighbouring windows.

    Rounding differs from that of `conv2d`: sums of up to four numbers of x, and of nine of the
    kernel, are rounded before they are multiplied. Results that are not finite, as an infinite
    number in x makes all those of its patches, are computed directly; w has to be finite.

    Source: ONNX Conv (opset 11) with channels last.
    """
    with np.errstate(invalid="ignore"):
        y = sums(x, w, (p, q), (top, left))
        if not np.isfinite(y).all():
            y = np.where(np.isfinite(y), y, direct_sums(x, w, (p, q), (top, left)))
    y = y[..., : len(bias)] + bias
    if r is not None:
        y += r
    result: F32 = np.clip(y, np.float32(lo), np.float32(hi)).astype(np.float32)
    return result


def sums(
    x: F32, w: F32, size: tuple[int, int], begin: tuple[int, int],
    pixels: F64 = PIXELS, results: F64 = RESULT,
) -> F64:  # fmt: skip
    """A convolution without its bias, of all outputs in panels: [n, p, q, 16 g]."""
    (p, q), (top, left), (n, h, v, c) = size, begin, x.shape
    down, across = -(-p // 2), -(-q // 2)
    wide = np.zeros((n, max(2 * down + 2, top + h), max(2 * across + 2, left + v), c))
    wide[:, top : top + h, left : left + v] = x
    view = np.lib.stride_tricks.sliding_window_view(wide, (4, 4), axis=(1, 2))
    patches = view[:, : 2 * down : 2, : 2 * across : 2]
    seen = np.einsum("ik,nyxckl,jl->nyxcij", pixels, patches, pixels, optimize=True)
    kernels = unpack_panels(w, w.shape[1] * PANEL).reshape(4, 4, -1, c).astype(np.float64)
    products = np.einsum("nyxcij,ijmc->nyxmij", seen, kernels, optimize=True)
    y = np.einsum("ki,nyxmij,lj->nykxlm", results, products, results, optimize=True)
    whole: F64 = y.reshape(n, 2 * down, 2 * across, -1)[:, :p, :q]
    return whole


def direct_sums(x: F32, w: F32, size: tuple[int, int], begin: tuple[int, int]) -> F64:
    """`sums` without a transform of x, with the kernels that w was made of."""
    (p, q), (top, left), (n, h, v, c) = size, begin, x.shape
    wide = np.zeros((n, max(p + 2, top + h), max(q + 2, left + v), c))
    wide[:, top : top + h, left : left + v] = x
    windows = np.lib.stride_tricks.sliding_window_view(wide, (3, 3), axis=(1, 2))[:, :p, :q]
    kernels = unpack_panels(w, w.shape[1] * PANEL).reshape(4, 4, -1, c).astype(np.float64)
    taps = np.einsum("ki,ijmc,lj->klmc", UNDONE, kernels, UNDONE)
    result: F64 = np.einsum("nyxckl,klmc->nyxm", windows, taps)
    return result
