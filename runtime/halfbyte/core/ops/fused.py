"""Operators that fuse two or three others into one pass over memory; `passes.fuse` inserts them.

Each is defined by its parts, so results are the same to the bit.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from halfbyte.core.ops.activation import gelu, mul, silu
from halfbyte.core.ops.attention import KEY_BLOCK, Cache, cache_write_keys, rotary_embedding
from halfbyte.core.ops.linear import dynamic_quantize
from halfbyte.core.ops.norm import layer_norm, rms_norm
from halfbyte.core.ops.operator import operator

F32 = npt.NDArray[np.float32]
Quantized = tuple[npt.NDArray[np.int8], F32, npt.NDArray[np.int16]]

_QUANTIZED = "xq:i8[n,d] xd:f32[n,d/32] xs:i16[n,d/16]"


@operator(
    "RMSNormalization+DynamicQuantizeLinear",
    f"x:f32[n,d] weight:f32[d] -> {_QUANTIZED}",
    rows="n",
    parts=(rms_norm, dynamic_quantize),
)
def rms_norm_quantize(x: F32, weight: F32, *, epsilon: float) -> Quantized:
    """dynamic_quantize(rms_norm(x, weight))."""
    quantized: Quantized = dynamic_quantize(rms_norm(x, weight, epsilon=epsilon))
    return quantized


@operator(
    "LayerNormalization+DynamicQuantizeLinear",
    f"x:f32[n,d] weight:f32[d] bias:f32[d] gain?:f32[d] -> y:f32[n,d] {_QUANTIZED}",
    rows="n",
    parts=(layer_norm, dynamic_quantize),
)
def layer_norm_quantize(
    x: F32, weight: F32, bias: F32, gain: F32 | None = None, *, epsilon: float
) -> tuple[F32, npt.NDArray[np.int8], F32, npt.NDArray[np.int16]]:
    """layer_norm(x) gain, which a residual needs, and dynamic_quantize of layer_norm(x)."""
    y = layer_norm(x, weight, bias, epsilon=epsilon)
    return (y if gain is None else y * gain, *dynamic_quantize(y))


@operator(
    "Gelu+DynamicQuantizeLinear",
    f"x:f32[n,d] -> {_QUANTIZED}",
    variant=gelu.variant,
    rows="n",
    parts=(gelu, dynamic_quantize),
)
def gelu_quantize(x: F32, *, approximate: str) -> Quantized:
    """dynamic_quantize(gelu(x))."""
    quantized: Quantized = dynamic_quantize(gelu(x, approximate=approximate))
    return quantized


@operator(
    "Swish+Mul",
    "gate:f32[n,d] up:f32[n,d] -> y:f32[n,d]",
    rows="n",
    parts=(silu, mul),
    like="swiglu_quantize",
)
def swiglu(gate: F32, up: F32) -> F32:
    """silu(gate) * up. Source: Shazeer 2020, GLU Variants Improve Transformer."""
    y: F32 = mul(silu(gate), up)
    return y


@operator(
    "Swish+Mul+DynamicQuantizeLinear",
    f"gate:f32[n,d] up:f32[n,d] -> {_QUANTIZED}",
    rows="n",
    parts=(swiglu, dynamic_quantize),
)
def swiglu_quantize(gate: F32, up: F32) -> Quantized:
    """dynamic_quantize(silu(gate) * up)."""
    quantized: Quantized = dynamic_quantize(swiglu(gate, up))
    return quantized


@operator(
    "RotaryEmbedding+TensorScatter",
    "x:f32[n,g*h] cos:f32[t,r] sin:f32[t,r] cache:*[g,b,h,16] -> cache:*[g,b,h,16]",
    reads={**rotary_embedding.reads, **cache_write_keys.reads},
    variant=rotary_embedding.variant,
    demands={
        "2 r <= h": lambda d: 2 * d["r"] <= d["h"],
        "0 <= position <= t - n and 16 b - n": lambda d: (
            0 <= d["position"] <= min(d["t"], KEY_BLOCK * d["b"]) - d["n"]
        ),
    },
    parts=(rotary_embedding, cache_write_keys),
)
def rotary_cache_write_keys(
    x: F32, cos: F32, sin: F32, cache: Cache, *, position: int, interleaved: bool
) -> Cache:
    """cache_write_keys(rotary_embedding(x)): keys are rotated as they are written."""
    rotated = rotary_embedding(
        x, cos, sin, head_dim=cache.shape[2], position=position, interleaved=interleaved
    )
    written: Cache = cache_write_keys(rotated, cache, position=position)
    return written
