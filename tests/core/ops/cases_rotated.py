"""Cases of products with rotated activations, and of rotations: see `cases`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from tests.core.ops.cases import EPS, TINY, Case, activations, quantized_bound, weight

from halfbyte.core import ops
from halfbyte.core.ops.rotated import matrix
from halfbyte.weights import Q8_0, Tensor
from halfbyte.weights.packed import packed_rows

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]

# rows: every width of a tile, and more than one pass; columns: more than the kernel buffers
PRODUCTS = (
    (1, 128, 16), (2, 256, 32), (3, 384, 48), (4, 128, 64), (5, 128, 16), (6, 640, 32),
    (7, 128, 80), (9, 8320, 16), (13, 384, 64), (199, 128, 48),
)  # fmt: skip


def _rotated(y: F64) -> F64:
    """Each 32 numbers times the Hadamard matrix."""
    return (y.reshape(-1, 32) @ matrix().astype(np.float64)).reshape(y.shape)


def _bound(off: F64) -> F64:
    """The error of `_rotated`, at most the sum of its inputs' errors."""
    spread = off.reshape(-1, 32).sum(axis=1, keepdims=True) / 8
    return np.repeat(spread, 32, axis=1).reshape(off.shape)


def _hadamard() -> Iterator[Case]:
    for n, k in ((1, 32), (3, 96), (5, 1056)):
        x = activations(n, k)
        yield Case(f"{n}x{k}", ops.hadamard, {"x": x})
    for n, k in ((1, 128), (3, 256), (2, 640), (5, 1152)):
        yield Case(f"{n}x{k}", ops.hadamard_quantize, {"x": activations(n, k)})
    edges = np.zeros((3, 256), np.float32)
    edges[0, 40], edges[1, 200], edges[2, :128] = 1e-38, 3e-37, 1
    yield Case("edges", ops.hadamard_quantize, {"x": edges})


def _fused() -> Iterator[Case]:
    for n, d in ((1, 128), (3, 384), (2, 1152)):
        x, epsilon = activations(n, d), 1e-5
        gain, bias = activations(1, d)[0] + 1, activations(2, d)[0]
        wide = x.astype(np.float64)
        deviation = np.sqrt(wide.var(-1, keepdims=True) + epsilon)
        y = (wide - wide.mean(-1, keepdims=True)) / deviation * gain + bias
        size = np.abs(wide).max(-1, keepdims=True) / deviation * np.abs(gain)
        off = (d + 16) * EPS * (size + np.abs(bias)) + TINY
        quantized = quantized_bound(_rotated(y), _bound(off + 6 * EPS * np.abs(y)), 128)
        operands, attributes = {"x": x, "weight": gain, "bias": bias}, {"epsilon": epsilon}
        yield Case(
            f"{n}x{d}", ops.layer_norm_hadamard_quantize, operands, attributes,
            bound=(off, *quantized),
        )  # fmt: skip
        scale = np.abs(activations(1, d)[0]) + 1
        yield Case(
            f"{n}x{d}-gain", ops.layer_norm_hadamard_quantize, {**operands, "gain": scale},
            attributes, bound=(off * scale + TINY, *quantized),
        )  # fmt: skip
        for approximate in ("none", "tanh"):
            y = ops.gelu.meaning(x, approximate=approximate).astype(np.float64)
            off = 22 * EPS * np.abs(wide) + TINY
            yield Case(
                f"{approximate}-{n}x{d}", ops.gelu_hadamard_quantize, {"x": x},
                {"approximate": approximate}, quantized_bound(_rotated(y), _bound(off), 128),
            )  # fmt: skip


def _matmul_rotated() -> Iterator[Case]:
    for name in ("Q8_0_R16", "Q4_0_R16"):
        for n, k, m in PRODUCTS:
            xq, xd, xs = ops.hadamard_quantize(activations(n, k))
            xq[-1, -32:] = [127, -127] * 16
            xs[-1, -2:] = 0
            operands = {"xq": xq, "xd": xd, "xs": xs, "w": weight(name, m, k)}
            yield Case(f"{name}-{n}x{k}x{m}", ops.matmul_rotated, operands)
            r, bias = activations(n + 1, m)[1:].copy(), activations(2, m)[0]
            operands = {**operands, "r": r, "bias": bias}
            yield Case(f"{name}-{n}x{k}x{m}-r-bias", ops.matmul_rotated, operands)


def _matmul_widened() -> Iterator[Case]:
    for n, k, m in PRODUCTS:
        xq, xd, xs = ops.hadamard_quantize(activations(n, k))
        xq[-1, -128:] = [127, -127] * 64
        xs[-1, -8:] = 0
        w = weight("Q8_0_R16", m, k)
        operands = {"xq": xq, "xd": xd, "xs": xs, "w": w}
        yield Case(f"{n}x{k}x{m}", ops.matmul_widened, operands)
        r, bias = activations(n + 1, m)[1:].copy(), activations(2, m)[0]
        yield Case(f"{n}x{k}x{m}-r-bias", ops.matmul_widened, {**operands, "r": r, "bias": bias})
    yield Case("extremes", ops.matmul_widened, _extremes())


def _extremes() -> dict[str, Any]:
    """The largest possible sums, scales from zero to the largest, and unsigned ones."""
    n, k, m = 4, 256, 32
    scales = np.ones((m, k // 32, 1), np.float16)
    scales[1, :4], scales[2, 1:3], scales[3, 4], scales[4, 0] = 0, -1, 6e-8, 65504
    codes = np.where(np.arange(m * k).reshape(m, k // 32, 32) % 2, 127, -128).astype(np.int8)
    rows = np.concatenate([scales.view(np.uint8), codes.view(np.uint8)], axis=2).reshape(m, -1)
    xq = np.where(np.arange(n * k).reshape(n, k) % 2, 127, -127).astype(np.int8)
    xs = xq.reshape(n, -1, 16).sum(axis=2, dtype=np.int16)
    format_ = packed_rows(Q8_0)
    w = Tensor("w", format_, (m, k), format_.pack(rows))
    return {"xq": xq, "xd": np.ones((n, k // 128), np.float32), "xs": xs, "w": w}


FAMILIES = (_hadamard, _fused, _matmul_rotated, _matmul_widened)
