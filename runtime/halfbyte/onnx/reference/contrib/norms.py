"""Normalizations of sums, of embeddings and of groups of channels."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.core.ops.norm import rms_of
from halfbyte.errors import ProgramError
from halfbyte.onnx.reference import _shapes
from halfbyte.onnx.reference._numbers import rounded, vector, widened
from halfbyte.onnx.reference.arrays import axis_of
from halfbyte.onnx.reference.contrib._common import contrib, dequantized, sigmoid
from halfbyte.onnx.reference.normalization import standardized
from halfbyte.onnx.reference.registry import define

Array = npt.NDArray[Any]


def layer_norm(x: Array, gamma: Array, beta: Array | None, epsilon: float) -> tuple[Array, ...]:
    """(x - mean) / sqrt(variance + epsilon) gamma + beta over the last axis; mean; 1 / sqrt."""
    result, mean, inverse = standardized(x, (-1,), epsilon)
    result = result * gamma
    return (result if beta is None else result + beta), mean, inverse


def _skipped(x: Array, skip: Array, bias: Array | None, *vectors: Array | None) -> Array:
    """x + skip + bias; scales and biases are vectors over the last axis."""
    whole = widened(x) + widened(skip)
    for parameter in (bias, *vectors):
        if parameter is not None:
            vector(parameter, whole.shape[-1] if whole.ndim else 1, "gamma, beta or bias")
    return whole if bias is None else whole + widened(bias)


def _wide(x: Array) -> np.dtype[Any]:
    """The type that statistics of x are computed in."""
    return widened(np.zeros((), x.dtype)).dtype


def _skipped_shapes(x: Array, skip: Array, *vectors: Array | None, **attributes: Any) -> Any:
    """Shapes of the result, two statistics over the last axis, and the sum."""
    whole = np.broadcast_shapes(x.shape, skip.shape)
    result = _shapes.blank(whole, x.dtype)
    statistic = _shapes.blank((*whole[:-1], 1), _wide(x))
    return [result, statistic, statistic, result]


@contrib("SkipLayerNormalization", infer=_shapes.alike(_skipped_shapes), types="a a a a a > a")
def skip_layer_normalization(
    x: Array,
    skip: Array,
    gamma: Array,
    beta: Array | None = None,
    bias: Array | None = None,
    *,
    epsilon: float = 1e-12,
) -> tuple[Array, ...]:
    """LayerNormalization of x + skip + bias; also its mean, 1 / deviation, and the sum."""
    whole = _skipped(x, skip, bias, gamma, beta)
    shift = None if beta is None else widened(beta)
    result, mean, inverse = layer_norm(whole, widened(gamma), shift, epsilon)
    return rounded(result, x.dtype), mean, inverse, rounded(whole, x.dtype)


@contrib(
    "SkipSimplifiedLayerNormalization", infer=_shapes.alike(_skipped_shapes), types="a a a a > a"
)
def skip_simplified_layer_normalization(
    x: Array, skip: Array, gamma: Array, bias: Array | None = None, *, epsilon: float = 1e-12
) -> tuple[Array, ...]:
    """RMSNormalization of x + skip + bias; also zeros for the mean, 1 / root, and the sum."""
    whole = _skipped(x, skip, bias, gamma)
    result, inverse = rms_of(whole, widened(gamma), epsilon)
    return rounded(result, x.dtype), np.zeros_like(inverse), inverse, rounded(whole, x.dtype)


def _simplified(x: Array, scale: Array, *, axis: int = -1, **attributes: Any) -> Any:
    kept = _shapes.without(x.shape, range(axis_of(axis, x.ndim), x.ndim), 1)
    return [_shapes.blank(x.shape, scale.dtype), _shapes.blank(kept, _wide(x))]


@contrib("SimplifiedLayerNormalization", types="a a > a", infer=_shapes.alike(_simplified))
@define("SimplifiedLayerNormalization", infer=_shapes.alike(_simplified))
def simplified_layer_normalization(
    x: Array, scale: Array, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> tuple[Array, Array]:
    """x / sqrt(mean(x²) + epsilon) scale over all axes from `axis` on; and 1 / sqrt(...).

    ONNX Runtime's older form of RMSNormalization, in ONNX's own domain too.
    """
    wide = widened(x)
    axes = tuple(range(axis_of(axis, x.ndim), x.ndim))
    result, inverse = rms_of(wide, widened(scale), epsilon, axes)
    if result.shape != x.shape:
        raise ProgramError(
            f"scale {list(scale.shape)}: expected to be broadcast to {list(x.shape)}"
        )
    return rounded(result, scale.dtype), inverse


@contrib("GatedRMSNorm", infer=_shapes.same, types="a > a")
def gated_rms_norm(
    x: Array, scale: Array, gate: Array, *, activation: str = "silu", epsilon: float = 1e-5
) -> Array:
    """RMSNormalization of x over its last axis, times silu(gate) (or sigmoid, or gate itself)."""
    factor = widened(gate)
    if activation in ("silu", "swish", "sigmoid"):
        factor = sigmoid(factor) * (1 if activation == "sigmoid" else factor)
    elif activation != "none":
        raise ProgramError(f"activation {activation!r}, expected silu, swish, sigmoid or none")
    return rounded(rms_of(widened(x), widened(scale), epsilon)[0] * factor, x.dtype)


def _embedded(
    input_ids: Array, segment_ids: Array | None, word_embedding: Array, *others: Array | None,
    **attributes: Any,
) -> _shapes.Shapes:  # fmt: skip
    whole = (*input_ids.shape, word_embedding.shape[-1])
    return [whole, input_ids.shape[:1], whole]


@contrib(
    "EmbedLayerNormalization",
    infer=_shapes.Rule(_embedded),
    types="i.6 i.6 a a a a a i.6 i.6 > a 6 a",
)
def embed_layer_normalization(
    input_ids: Array,
    segment_ids: Array | None,
    word_embedding: Array,
    position_embedding: Array,
    segment_embedding: Array | None,
    gamma: Array,
    beta: Array,
    mask: Array | None = None,
    position_ids: Array | None = None,
    *,
    epsilon: float = 1e-12,
    mask_index_type: int = 1,
) -> tuple[Array, Array, Array]:
    """LayerNormalization of BERT's word + position + segment embeddings; lengths; the sum.

    `input_ids` are [batch, n]; lengths [batch] count the ones of `mask` (without one they are 0).
    """
    batch, n = input_ids.shape
    positions = np.arange(n)[None] if position_ids is None else position_ids
    whole = widened(word_embedding)[input_ids] + widened(position_embedding)[positions]
    if segment_ids is not None and segment_embedding is not None:
        whole = whole + widened(segment_embedding)[segment_ids]
    lengths = np.zeros(batch, np.int32) if mask is None else (mask == 1).sum(1, dtype=np.int32)
    result = layer_norm(whole, widened(gamma), widened(beta), epsilon)[0]
    dtype = word_embedding.dtype
    return rounded(result, dtype), lengths, rounded(whole, dtype)


def _quantized_embedding(*inputs: Array | None, **attributes: Any) -> _shapes.Shapes:
    ids, table = inputs[0], inputs[2]
    if ids is None or table is None:
        raise ProgramError("an operand is left out")
    whole = (*ids.shape, table.shape[-1])
    return [_shapes.blank(whole, np.float32), _shapes.blank(ids.shape[:1], np.int32)]


@contrib(
    "QEmbedLayerNormalization",
    infer=_shapes.Rule(_quantized_embedding),
    types="i.6 i.6 a.2,3 a a a a i.6 s.1 s s s s a a a a a > s 6",
)
def qembed_layer_normalization(
    input_ids: Array,
    segment_ids: Array | None,
    word_embedding: Array,
    position_embedding: Array,
    segment_embedding: Array | None,
    gamma: Array,
    beta: Array,
    mask: Array | None,
    word_scale: Array,
    position_scale: Array,
    segment_scale: Array | None,
    gamma_scale: Array,
    beta_scale: Array,
    word_zero: Array,
    position_zero: Array,
    segment_zero: Array | None,
    gamma_zero: Array,
    beta_zero: Array,
    *,
    epsilon: float = 1e-12,
) -> tuple[Array, Array]:
    """EmbedLayerNormalization of 8-bit tables, gamma and beta, each with a scale and a zero point.

    Without the sum, and the positions are 0, 1, 2, ...
    """
    segments = None
    if segment_embedding is not None and segment_scale is not None:
        segments = dequantized(segment_embedding, segment_scale, segment_zero)
    result: tuple[Array, ...] = embed_layer_normalization(
        input_ids, segment_ids, dequantized(word_embedding, word_scale, word_zero),
        dequantized(position_embedding, position_scale, position_zero), segments,
        dequantized(gamma, gamma_scale, gamma_zero), dequantized(beta, beta_scale, beta_zero),
        mask, epsilon=epsilon,
    )  # fmt: skip
    return result[0], result[1]


def _group_norm(
    x: Array, gamma: Array, beta: Array, groups: int, last: int, activation: int, epsilon: float
) -> Array:
    planes = np.moveaxis(x, -1, 1) if last else x
    batch, channels = planes.shape[:2]
    if groups < 1 or channels % groups:
        raise ProgramError(f"{channels} channels, expected a multiple of {groups} groups")
    rows = planes.reshape(batch, groups, -1)
    scaled = layer_norm(rows, np.ones(1, x.dtype), None, epsilon)[0].reshape(planes.shape)
    shape = (1, channels, *[1] * (x.ndim - 2))
    result = scaled * gamma.reshape(shape) + beta.reshape(shape)
    result = result * sigmoid(result) if activation else result
    return np.moveaxis(result, 1, -1) if last else result


@contrib("GroupNorm", infer=_shapes.same, types="a > a")
def group_norm(
    x: Array,
    gamma: Array,
    beta: Array,
    *,
    activation: int,
    groups: int,
    channels_last: int = 1,
    epsilon: float = 1e-5,
) -> Array:
    """GroupNormalization, channels last by default; then x sigmoid(x) where `activation` is 1."""
    wide, scale, shift = (widened(part) for part in (x, gamma, beta))
    result = _group_norm(wide, scale, shift, groups, channels_last, activation, epsilon)
    return rounded(result, x.dtype)


def _sum_too(x: Array, *others: Array | None, **attributes: Any) -> Any:
    return [_shapes.blank(x.shape, x.dtype)] * 2


@contrib("SkipGroupNorm", infer=_shapes.alike(_sum_too))
def skip_group_norm(
    x: Array,
    gamma: Array,
    beta: Array,
    skip: Array,
    bias: Array | None = None,
    *,
    activation: int,
    groups: int,
    channels_last: int = 1,
    epsilon: float = 1e-5,
) -> tuple[Array, Array]:
    """GroupNorm of x + skip + bias, and the sum; skip may be [batch, channels]."""
    axis = -1 if channels_last else 1
    added = widened(skip)
    if added.ndim == 2:
        added = np.moveaxis(added.reshape(*skip.shape, *[1] * (x.ndim - 2)), 1, axis)
    whole = widened(x) + added
    if bias is not None:
        shape = [1] * x.ndim
        shape[axis] = -1
        whole = whole + widened(bias).reshape(shape)
    scale, shift = widened(gamma), widened(beta)
    result = _group_norm(whole, scale, shift, groups, channels_last, activation, epsilon)
    return rounded(result, x.dtype), rounded(whole, x.dtype)
