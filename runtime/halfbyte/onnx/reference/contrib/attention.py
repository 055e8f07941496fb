"""Attention and rotary positions, in ONNX Runtime's forms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.core.ops.norm import rms_of
from halfbyte.errors import ProgramError, UnsupportedError
from halfbyte.onnx.reference import _shapes
from halfbyte.onnx.reference._attention import causal as causal_keys
from halfbyte.onnx.reference._attention import (
    join_heads,
    rotate,
    scaled_dot_product,
    split_heads,
)
from halfbyte.onnx.reference._numbers import fitting, rounded, vector, widened
from halfbyte.onnx.reference.contrib._common import contrib, dequantized

Array = npt.NDArray[Any]
FILTER = -10000.0  # added to masked scores


@contrib("RotaryEmbedding", infer=_shapes.same, types="a > a")
def rotary_embedding(
    x: Array,
    position_ids: Array,
    cos_cache: Array,
    sin_cache: Array,
    *,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    interleaved: int = 0,
    is_packed_batching: int = 0,
    scale: float = 1.0,
) -> Array:
    """Rotary positions of x [batch, n, heads d] or [batch, heads, n, d].

    `position_ids` is [batch, n], or [1] for the first token's. The head size is that of the caches
    [positions, d / 2] unless `num_heads` is given.
    """
    width = cos_cache.shape[-1] * 2
    if x.ndim == 3:
        heads = num_heads or x.shape[-1] // width
        split = split_heads(x, heads)
    else:
        split = x
    n = split.shape[2]
    positions = (
        position_ids.reshape(1, 1) + np.arange(n) if position_ids.size == 1 else position_ids
    )
    wide = rotate(
        widened(split), widened(cos_cache)[positions], widened(sin_cache)[positions],
        bool(interleaved),
    )  # fmt: skip
    result = rounded(wide, x.dtype)
    return join_heads(result) if x.ndim == 3 else result


def padding_mask(mask: Array | None, batch: int, t: int) -> Array | None:
    """bool [batch, 1, 1 or n, t] of the keys that are seen, from any form of mask.

    [batch, t], [batch, n, t] or [batch, 1, n, most]: 1 where seen. [batch]: lengths; [2 batch]:
    ends, then begins; [3 batch + 2]: lengths, then numbers that only packed kernels read.
    """
    if mask is None:
        return None
    keys = np.arange(t)
    if mask.ndim == 1 and mask.size == 2 * batch != batch:
        ends, begins = mask.reshape(2, batch, 1)
        return ((keys < ends) & (keys >= begins))[:, None, None]
    if mask.ndim == 1 and mask.size in (batch, 3 * batch + 2):
        return (keys < mask[:batch, None])[:, None, None]
    seen = np.asarray(mask != 0)
    if mask.ndim == 2:
        return seen[:, None, None]
    if mask.ndim in (3, 4):
        return seen.reshape(mask.shape[0], 1, *mask.shape[-2:])[..., :t]
    raise ProgramError(f"mask of shape {list(mask.shape)} for a batch of {batch}")


def _filtered(
    mask: Array | None, bias: Array | None, value: float, n: int, t: int, unidirectional: int
) -> Array | None:
    """The sum of all that is added to scores; None for nothing."""
    total = None if bias is None else widened(bias)
    if mask is not None:
        added = np.where(mask[..., -n:, :] if mask.shape[2] > 1 else mask, 0, np.float32(value))
        total = added if total is None else total + added
    if unidirectional:
        lowest = np.finfo(np.float32).min
        below = np.where(causal_keys(n, t, t - n), np.float32(0), lowest)
        total = below if total is None else np.maximum(total + below, lowest)
    return total


def _project(
    x: Array, sizes: Sequence[int], heads: int, past: Array | None
) -> tuple[Array, Array, Array, Array]:
    """Projected rows [batch, n, sum of sizes] -> q, k, v by heads, after the past, and the present.

    `past` is [2, batch, heads, t, d], and so is the present.
    """
    q, k, v = (split_heads(part, heads) for part in np.split(x, np.cumsum(sizes)[:2], axis=-1))
    if past is not None:
        k = np.concatenate([widened(past[0]), k], axis=2)
        v = np.concatenate([widened(past[1]), v], axis=2)
    present = np.stack([k, v]) if k.shape == v.shape else k[None]
    return q, k, v, present


def _attended(
    x: Array, weights: Array, bias: Array | None = None, mask_index: Array | None = None,
    past: Array | None = None, *others: Array | None, num_heads: int,
    qkv_hidden_sizes: Sequence[int] | None = None, **attributes: Any,
) -> _shapes.Shapes:  # fmt: skip
    """Shapes of the result, and of keys and values after the past."""
    _, k, v = qkv_hidden_sizes or [weights.shape[1] // 3] * 3
    t = x.shape[1] + (0 if past is None else past.shape[3])
    present = (2 if k == v else 1, len(x), num_heads, t, k // num_heads)
    return [(*x.shape[:2], v), present]


def _attended_in_8_bits(
    x: Array, weight: Array, bias: Array, input_scale: Array, weight_scale: Array,
    mask_index: Array | None = None, input_zero_point: Array | None = None,
    weight_zero_point: Array | None = None, past: Array | None = None, **attributes: Any,
) -> _shapes.Shapes:  # fmt: skip
    shapes: Any = _attended(x, weight, bias, mask_index, past, **attributes)
    return [_shapes.blank(shape, bias.dtype) for shape in shapes]


@contrib("Attention", product=True, infer=_shapes.alike(_attended), types="a a a - a a > a a")
def attention(
    x: Array,
    weights: Array,
    bias: Array | None = None,
    mask_index: Array | None = None,
    past: Array | None = None,
    attention_bias: Array | None = None,
    past_sequence_length: Array | None = None,
    *,
    num_heads: int,
    unidirectional: int = 0,
    qkv_hidden_sizes: Sequence[int] | None = None,
    mask_filter_value: float = FILTER,
    scale: float | None = None,
    do_rotary: int = 0,
    rotary_embedding_dim: int = 0,
    past_present_share_buffer: int = 0,
) -> tuple[Array, Array]:
    """Attention of x [batch, n, d] with the projections weights [d, q + k + v] inside.

    Returns the result [batch, n, v] and keys and values [2, batch, heads, past + n, d].
    """
    if do_rotary or past_present_share_buffer:
        raise UnsupportedError("Attention with do_rotary or past_present_share_buffer")
    rows = widened(x) @ widened(weights)
    if bias is not None:
        rows = rows + vector(widened(bias), weights.shape[1], "bias")
    sizes = qkv_hidden_sizes or [weights.shape[1] // 3] * 3
    q, k, v, present = _project(rows, sizes, num_heads, past)
    n, t = q.shape[2], k.shape[2]
    mask = padding_mask(mask_index, len(x), t)
    added = _filtered(mask, attention_bias, mask_filter_value, n, t, unidirectional)
    result = scaled_dot_product(q, k, v, bias=added, scale=scale or None)[0]
    return rounded(join_heads(result), x.dtype), rounded(present, x.dtype)


@contrib("QAttention", infer=_shapes.alike(_attended_in_8_bits))
def q_attention(
    x: Array,
    weight: Array,
    bias: Array,
    input_scale: Array,
    weight_scale: Array,
    mask_index: Array | None = None,
    input_zero_point: Array | None = None,
    weight_zero_point: Array | None = None,
    past: Array | None = None,
    *,
    num_heads: int,
    unidirectional: int = 0,
    mask_filter_value: float = FILTER,
    scale: float | None = None,
    do_rotary: int = 0,
    past_present_share_buffer: int = 0,
) -> tuple[Array, Array]:
    """Attention with 8-bit x and weights, whose scales may be by column."""
    wide = dequantized(x, widened(input_scale), input_zero_point)
    weights = dequantized(weight, widened(weight_scale), weight_zero_point)
    result, present = attention(
        wide, weights, bias, mask_index, past, num_heads=num_heads, scale=scale,
        unidirectional=unidirectional, mask_filter_value=mask_filter_value, do_rotary=do_rotary,
        past_present_share_buffer=past_present_share_buffer,
    )  # fmt: skip
    return rounded(result, bias.dtype), rounded(present, bias.dtype)


def _unpacked_heads(
    query: Array, key: Array | None, value: Array | None, bias: Array | None, heads: int
) -> tuple[Array, Array, Array]:
    """q, k, v [batch, heads, n, d] from any of the layouts of MultiHeadAttention."""
    if query.ndim == 5:  # [batch, n, heads, 3, d]
        parts = [query[:, :, :, i].swapaxes(1, 2) for i in range(3)]
    elif key is not None and key.ndim == 5:  # [batch, t, heads, 2, d]
        pairs = [key[:, :, :, i].swapaxes(1, 2) for i in range(2)]
        parts = [split_heads(query, heads), *pairs]
    elif key is not None and value is not None:
        inputs = (query, key, value)
        parts = [split_heads(x, heads) if x.ndim == 3 else x for x in inputs]
    else:
        raise ProgramError(f"query of shape {list(query.shape)} without key and value")
    q, k, v = map(widened, parts)
    if not len(q) == len(k) == len(v):
        raise ProgramError(f"batches {len(q)}, {len(k)} and {len(v)}: expected the same")
    if bias is not None:
        widths = [heads * part.shape[-1] for part in (q, k)]
        shifts = np.split(widened(bias), np.cumsum(widths))
        q, k, v = (
            part + shift.reshape(1, heads, 1, -1)
            for part, shift in zip((q, k, v), shifts, strict=True)
        )
    return q, k, v


def _attended_by_heads(
    query: Array, key: Array | None = None, value: Array | None = None,
    bias: Array | None = None, key_padding_mask: Array | None = None,
    attention_bias: Array | None = None, past_key: Array | None = None,
    past_value: Array | None = None, *others: Array | None, num_heads: int, **attributes: Any,
) -> _shapes.Shapes:  # fmt: skip
    """Shapes of the result, of present keys and values, and of scores."""
    q, k, v = (part.shape for part in _unpacked_heads(query, key, value, None, num_heads))
    past = 0 if past_key is None or past_value is None else past_key.shape[2]
    t = past + k[2]
    results = [(*q[:1], q[2], num_heads * v[3]), (*k[:2], t, k[3]), (*v[:2], t, v[3]), (*q[:3], t)]
    return [_shapes.blank(shape, query.dtype) for shape in results]


@contrib(
    "MultiHeadAttention", product=True, types="a a a a e.6 a > a",
    infer=_shapes.Rule(_attended_by_heads),
)  # fmt: skip
def multi_head_attention(
    query: Array,
    key: Array | None = None,
    value: Array | None = None,
    bias: Array | None = None,
    key_padding_mask: Array | None = None,
    attention_bias: Array | None = None,
    past_key: Array | None = None,
    past_value: Array | None = None,
    past_sequence_length: Array | None = None,
    cache_indirection: Array | None = None,
    *,
    num_heads: int,
    unidirectional: int = 0,
    mask_filter_value: float = FILTER,
    scale: float | None = None,
) -> tuple[Array, ...]:
    """Attention of query [batch, n, d] to key and value [batch, t, d] after the past.

    Query may hold all three, [batch, n, heads, 3, d]; key both, [batch, t, heads, 2, d]; key and
    value may be by heads, [batch, heads, t, d]. Returns the result, present keys and values
    [batch, heads, past + t, d], and scores.
    """
    if past_sequence_length is not None or cache_indirection is not None:
        raise UnsupportedError("MultiHeadAttention with a shared buffer for past and present")
    q, k, v = _unpacked_heads(query, key, value, bias, num_heads)
    if past_key is not None and past_value is not None:
        k = np.concatenate([widened(past_key), k], axis=2)
        v = np.concatenate([widened(past_value), v], axis=2)
    n, t = q.shape[2], k.shape[2]
    mask = padding_mask(key_padding_mask, len(q), t)
    added = _filtered(mask, attention_bias, mask_filter_value, n, t, unidirectional)
    result, scores, _ = scaled_dot_product(q, k, v, bias=added, scale=scale or None)
    results = (join_heads(result), k, v, scores)
    return tuple(rounded(part, query.dtype) for part in results)


def _attended_in_groups(
    query: Array, key: Array | None, value: Array | None, past_key: Array | None,
    past_value: Array | None, seqlens_k: Array, total_sequence_length: Array,
    *others: Array | None, num_heads: int, kv_num_heads: int, **attributes: Any,
) -> _shapes.Shapes:  # fmt: skip
    """Shapes of the result, of caches of keys and values, and of scores."""
    batch, n, width = query.shape
    packed = key is None or value is None
    head = width // (num_heads + 2 * kv_num_heads if packed else num_heads)
    deep = head if value is None or packed else value.shape[-1] // kv_num_heads
    total = int(total_sequence_length.item())
    t = max(total, 0 if past_key is None else past_key.shape[2])
    results = [
        (batch, n, num_heads * deep), (batch, kv_num_heads, t, head),
        (batch, kv_num_heads, t, deep), (batch, num_heads, n, total),
    ]  # fmt: skip
    return [_shapes.blank(shape, query.dtype) for shape in results]


@contrib("GroupQueryAttention", decided_by=(6,), infer=_shapes.alike(_attended_in_groups))
def group_query_attention(
    query: Array,
    key: Array | None,
    value: Array | None,
    past_key: Array | None,
    past_value: Array | None,
    seqlens_k: Array,
    total_sequence_length: Array,
    cos_cache: Array | None = None,
    sin_cache: Array | None = None,
    position_ids: Array | None = None,
    attention_bias: Array | None = None,
    head_sink: Array | None = None,
    k_scale: Array | None = None,
    v_scale: Array | None = None,
    q_norm_weight: Array | None = None,
    k_norm_weight: Array | None = None,
    *,
    num_heads: int,
    kv_num_heads: int,
    do_rotary: int = 0,
    rotary_interleaved: int = 0,
    scale: float | None = None,
    softcap: float = 0.0,
    local_window_size: int = -1,
    causal: int = 1,
    smooth_softmax: int = -1,
    qk_output: int = 0,
    qk_norm_epsilon: float = 1e-6,
    sliding_window_cache: int = 0,
    k_quant_type: str = "NONE",
    v_quant_type: str = "NONE",
    kv_cache_bit_width: int = 0,
) -> tuple[Array, ...]:
    """Causal attention whose heads of keys and values serve groups of queries, with a cache.

    query is [batch, n, heads d], or also holds keys and values after its heads. Element b of the
    batch has `seqlens_k[b] + 1` tokens in all; the new ones are written to the cache after its past
    (a prompt has no past; its tokens beyond that length are padding, and so are their results).

    Returns the result [batch, n, heads d], keys and values [batch, kv heads, t, d], with t the
    larger of `total_sequence_length` and the past cache's, and scores (1) or weights (2).
    """
    if sliding_window_cache or k_quant_type != "NONE" or v_quant_type != "NONE":
        raise UnsupportedError("GroupQueryAttention with a windowed or quantized cache")
    if key is None or value is None:
        head = query.shape[-1] // (num_heads + 2 * kv_num_heads)
        ends = [num_heads * head, (num_heads + kv_num_heads) * head]
        query, key, value = np.split(query, ends, axis=-1)
    q, k, v = (
        widened(split_heads(x, heads))
        for x, heads in ((query, num_heads), (key, kv_num_heads), (value, kv_num_heads))
    )
    if q_norm_weight is not None and k_norm_weight is not None:
        q = rms_of(q, widened(q_norm_weight), qk_norm_epsilon)[0]
        k = rms_of(k, widened(k_norm_weight), qk_norm_epsilon)[0]
    total = int(total_sequence_length.item())
    lengths = seqlens_k.reshape(-1).astype(np.int64) + 1
    n = q.shape[2]
    past = np.zeros_like(lengths) if n == total else lengths - n
    if (past < 0).any() or (lengths > total).any():
        raise ProgramError(f"lengths {lengths.tolist()}, expected from {n} to {total}")
    if do_rotary and cos_cache is not None and sin_cache is not None:
        positions = past[:, None] + np.arange(n) if position_ids is None else position_ids
        angles = (widened(cos_cache)[positions], widened(sin_cache)[positions])
        q, k = (rotate(x, *angles, bool(rotary_interleaved)) for x in (q, k))
    k, v = (_cached(cache, x, past, total) for cache, x in ((past_key, k), (past_value, v)))
    seen = np.stack([_window(n, total, int(p), causal, local_window_size) for p in past])
    sink = np.zeros(num_heads, np.float32) if smooth_softmax == 1 else None
    result, scores, weights = scaled_dot_product(
        q, k[:, :, :total], v[:, :, :total],
        bias=None if attention_bias is None else widened(attention_bias)[..., :total],
        allowed=seen[:, None], scale=scale or 1 / math.sqrt(q.shape[-1]), softcap=softcap,
        sink=sink if head_sink is None else widened(head_sink),
    )  # fmt: skip
    results = (
        join_heads(result),
        k,
        v,
        weights if qk_output == 2 else np.where(seen[:, None], scores, 0),
    )
    return tuple(rounded(part, query.dtype) for part in results)


def _cached(cache: Array | None, new: Array, past: Array, total: int) -> Array:
    """A cache [batch, heads, t, d] with `new` written after each element's past."""
    batch, heads, n, d = new.shape
    held = 0 if cache is None else cache.shape[2]
    result = np.zeros(fitting((batch, heads, max(held, total), d), 4, "cache"), new.dtype)
    if cache is not None:
        result[:, :, :held] = widened(cache)
    for row, values, at in zip(result, new, past, strict=True):
        row[:, at : at + n] = values
    return result


def _window(n: int, t: int, past: int, is_causal: int, window: int) -> Array:
    return causal_keys(n, t, past, window) if is_causal else np.ones((n, t), np.bool_)
