"""RMSNorm and LayerNorm."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import numpy.typing as npt

from halfbyte.core import ops
from halfbyte.core.buffer import Buffer
from halfbyte.core.instruction import Instruction
from halfbyte.quantize.tuning.gradients.rules import definition, rule

F32 = npt.NDArray[np.float32]


def _mean(x: F32) -> F32:
    mean: F32 = x.mean(axis=-1, keepdims=True)
    return mean


@definition("dy:f32[n,heads*d] x:f32[n,heads*d] weight:f32[d] -> dx:f32[n,heads*d] dw:f32[d]")
def rms_norm_gradient(
    dy: F32, x: F32, weight: F32, *, epsilon: float, heads: int
) -> tuple[F32, F32]:
    """Of y = x r w with r = 1 / sqrt(mean(x^2) + epsilon), over each of a row's `heads` parts.

    dx = r (w dy - x r^2 mean(w dy x)) and dw = sum over parts of x r dy.
    """
    parts, dparts = (v.reshape(len(v), heads, -1) for v in (x, dy))
    r = 1 / np.sqrt(_mean(parts * parts) + np.float32(epsilon))
    unit = parts * r
    dw = np.einsum("nhd,nhd->d", unit, dparts)
    scaled = dparts * weight
    dx = r * (scaled - unit * _mean(scaled * unit))
    return dx.reshape(x.shape), dw


@rule(ops.rms_norm)
def _rms_norm(i: Instruction, dy: Buffer, wanted: Collection[str]) -> dict[str, Buffer]:
    dx, dw = rms_norm_gradient(dy, *i.inputs, **i.attributes)
    return {"x": dx, "weight": dw}


@definition("dy:f32[n,d] x:f32[n,d] weight:f32[d] -> dx:f32[n,d] dw:f32[d] db:f32[d]")
def layer_norm_gradient(dy: F32, x: F32, weight: F32, *, epsilon: float) -> tuple[F32, F32, F32]:
    """Of y = c r w + b with c = x - mean(x), r = 1 / sqrt(mean(c^2) + epsilon).

    dx = r (w dy - mean(w dy) - c r^2 mean(w dy c)), dw = sum of c r dy and db = sum of dy.
    """
    centred = x - _mean(x)
    r = 1 / np.sqrt(_mean(centred * centred) + np.float32(epsilon))
    unit, scaled = centred * r, dy * weight
    dx = r * (scaled - _mean(scaled) - unit * _mean(scaled * unit))
    return dx, (unit * dy).sum(axis=0), dy.sum(axis=0)


@rule(ops.layer_norm)
def _layer_norm(i: Instruction, dy: Buffer, wanted: Collection[str]) -> dict[str, Buffer]:
    x, weight, _ = i.inputs
    dx, dw, db = layer_norm_gradient(dy, x, weight, **i.attributes)
    return {"x": dx, "weight": dw, "bias": db}
