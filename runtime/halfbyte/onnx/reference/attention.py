"""Attention with its caches and masks, rotary positions, and layers with a running state."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from halfbyte.core.ops.full_attention import capped
from halfbyte.errors import ProgramError
from halfbyte.onnx.reference import _shapes
from halfbyte.onnx.reference._attention import join_heads, rotate, softmax, split_heads
from halfbyte.onnx.reference._numbers import Array, fitting, float_of, rounded, widened
from halfbyte.onnx.reference.activation import sigmoid_of
from halfbyte.onnx.reference.registry import define


def _by_heads(x: Array, heads: int, name: str) -> Array:
    """x as [batch, heads, length, size]; it may be [batch, length, heads * size]."""
    if x.ndim == 4:
        return x
    if x.ndim != 3:
        raise ProgramError(f"{name} {list(x.shape)}: expected 3 or 4 axes")
    return split_heads(x, heads)


def _shared(x: Array, heads: int) -> Array:
    """Heads of keys or values, each repeated for the group of query heads that it serves."""
    if heads == 1:
        return x  # one head of queries is broadcast
    if not x.shape[1] or heads % x.shape[1]:
        raise ProgramError(f"{heads} heads of queries: expected a multiple of {x.shape[1]}")
    return np.repeat(x, heads // x.shape[1], axis=1)


def _scores(q: Array, k: Array, scale: float | None) -> Array:
    """scale * q k^T; q and k are both multiplied by sqrt(scale), to avoid overflow."""
    if q.shape[-1] != k.shape[-1]:
        raise ProgramError(f"heads of {q.shape[-1]} and {k.shape[-1]} elements: expected equal")
    fitting((max(len(q), len(k)), *q.shape[1:3], k.shape[2]), q.dtype.itemsize, "scores")
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    root = q.dtype.type(math.sqrt(abs(factor)))
    return np.asarray(np.matmul(q * root, k.swapaxes(2, 3) * (root if factor >= 0 else -root)))


def _seen(
    shape: tuple[int, ...], offset: Array, valid: Array | None, causal: bool, left: int, right: int
) -> Array:
    """Which keys each query may see: bool [batch or 1, 1, queries, keys].

    Query i of a batch is at position offset + i; `valid` is the number of keys.
    """
    position = offset.reshape(-1, 1, 1, 1) + np.arange(shape[2])[:, None]
    key = np.arange(shape[3])
    seen = np.ones((len(position), 1, shape[2], shape[3]), np.bool_)
    if causal:
        seen &= key <= position
    if left >= 0:
        seen &= key >= position - left
    if right >= 0:
        seen &= key <= position + right
    if valid is not None:
        seen = seen & (key < valid.reshape(-1, 1, 1, 1))
    return seen


def _masked(scores: Array, mask: Array | None) -> Array:
    """Scores plus a float mask, or -inf where a bool one is False; a short mask ends in -inf."""
    if mask is None:
        return scores
    missing = scores.shape[3] - mask.shape[-1]
    if missing > 0 and mask.shape[-1] != 1:
        fill = False if mask.dtype == np.bool_ else -np.inf
        mask = np.pad(
            widened(mask), [(0, 0)] * (mask.ndim - 1) + [(0, missing)], constant_values=fill
        )
    if np.broadcast_shapes(mask.shape, scores.shape)[2:] != scores.shape[2:]:
        raise ProgramError(f"attn_mask {list(mask.shape)}: expected {list(scores.shape)}")
    if mask.dtype == np.bool_:
        return np.where(mask, scores, scores.dtype.type(-np.inf))
    return np.asarray(scores + widened(mask).astype(scores.dtype))


def _attended(
    q: Array, k: Array, v: Array, mask: Array | None = None, past_key: Array | None = None,
    *others: Array | None, q_num_heads: int = 0, kv_num_heads: int = 0, **attributes: Any,
) -> _shapes.Shapes:  # fmt: skip
    """Shapes of the result, of keys and values with their past, and of scores."""
    queries = _by_heads(q, q_num_heads, "Q").shape
    keys, values = (_by_heads(x, kv_num_heads, "K or V").shape for x in (k, v))
    count = keys[2] + (0 if past_key is None else past_key.shape[2])
    rows = (*q.shape[:2], queries[1] * values[3]) if q.ndim == 3 else (*queries[:3], values[3])
    return [rows, (*keys[:2], count, keys[3]), (*keys[:2], count, values[3]), (*queries[:3], count)]


@define("Attention", since=23, product=True, infer=_shapes.alike(_attended))
def attention(
    q: Array,
    k: Array,
    v: Array,
    attn_mask: Array | None = None,
    past_key: Array | None = None,
    past_value: Array | None = None,
    nonpad_kv_seqlen: Array | None = None,
    *,
    is_causal: int = 0,
    kv_num_heads: int = 0,
    left_window_size: int = -1,
    q_num_heads: int = 0,
    qk_matmul_output_mode: int = 0,
    right_window_size: int = -1,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int = 0,
) -> tuple[Array, Array, Array, Array]:
    """softmax(cap(scale Q K^T) + mask) V, for each head; cap(x) = softcap * tanh(x / softcap).

    Parameters
    ----------
    q : [batch, heads, queries, d], or [batch, queries, heads * d]
    k, v : likewise, of kv_num_heads heads; a divisor of q's
        past_key and past_value come before them.
    attn_mask : bool or float, broadcast to [batch, heads, queries, keys]
        May have fewer keys; the missing ones are masked.
    nonpad_kv_seqlen : int64 [batch]
        Number of keys that count; the queries are at the last of their positions.
    is_causal, left_window_size, right_window_size : int
        A query at position p sees keys up to p; from p - left; up to p + right (-1: all).
    qk_matmul_output_mode : int
        The fourth result: scores (0), after softcap (1), masked (2), after softmax (3).
    softmax_precision : int
        The type to which the softmax's input and result are rounded.

    Returns
    -------
    result in q's form, keys and values with their past [batch, heads, keys, d], and scores. The
    result of a query that sees no key is zeros. ONNX Attention-23, -24, -25.
    """
    queries = _by_heads(q, q_num_heads, "Q")
    keys, values = _by_heads(k, kv_num_heads, "K"), _by_heads(v, kv_num_heads, "V")
    shapes = queries.shape, keys.shape, values.shape
    if len({s[0] for s in shapes}) > 1 or keys.shape[:3] != values.shape[:3]:
        raise ProgramError(f"Q {shapes[0]}, K {shapes[1]}, V {shapes[2]}: do not fit each other")
    past = 0
    if past_key is not None and past_value is not None:
        past = past_key.shape[2]
        keys = np.concatenate([past_key, keys], axis=2)
        values = np.concatenate([past_value, values], axis=2)
    wide = widened(queries)
    heads = wide.shape[1]
    kinds = [_scores(wide, _shared(widened(keys), heads).astype(wide.dtype), scale)]
    kinds.append(capped(kinds[0], softcap))
    offset = np.asarray(past)
    if nonpad_kv_seqlen is not None and past_key is None:
        offset = nonpad_kv_seqlen - wide.shape[2]
    seen = _seen(
        kinds[1].shape,
        offset,
        nonpad_kv_seqlen,
        bool(is_causal),
        left_window_size,
        right_window_size,
    )
    masked = np.where(seen, _masked(kinds[1], attn_mask), wide.dtype.type(-np.inf))
    kinds.append(masked)
    precise = float_of(softmax_precision, masked.dtype)
    weights = widened(rounded(softmax(widened(rounded(masked, precise))), precise))
    kinds.append(weights.astype(wide.dtype))
    if not 0 <= qk_matmul_output_mode < len(kinds):
        raise ProgramError(f"qk_matmul_output_mode {qk_matmul_output_mode}: expected 0 to 3")
    y = np.matmul(kinds[3], _shared(widened(values), heads).astype(wide.dtype))
    result = join_heads(y) if q.ndim == 3 else y
    scores = rounded(kinds[qk_matmul_output_mode], q.dtype)
    return rounded(result, q.dtype), keys, values, scores


@define("RotaryEmbedding", since=23, infer=_shapes.same)
def rotary_embedding(
    x: Array,
    cos_cache: Array,
    sin_cache: Array,
    position_ids: Array | None = None,
    *,
    interleaved: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
) -> Array:
    """Pairs of each head's elements rotated by the angles of a token's position.

    Pairs are neighbours if `interleaved`, else half of rotary_embedding_dim (0: the whole head)
    apart. x is [batch, heads, n, d] or [batch, n, heads * d]; caches are [positions, r / 2] with
    position_ids [batch, n], else [batch, n, r / 2]. ONNX RotaryEmbedding-23.
    """
    split = widened(_by_heads(x, num_heads, "X"))
    cos, sin = widened(cos_cache), widened(sin_cache)
    if position_ids is not None:
        last = len(cos) - 1
        if (
            position_ids.size
            and not 0 <= int(position_ids.min()) <= int(position_ids.max()) <= last
        ):
            raise ProgramError(f"position_ids: expected 0 to {last}")
        cos, sin = cos[position_ids], sin[position_ids]
    half = (rotary_embedding_dim or split.shape[-1]) // 2
    if cos.shape[-1] != half or sin.shape[-1] != half:
        raise ProgramError(
            f"caches of {cos.shape[-1]} and {sin.shape[-1]} columns: expected {half}"
        )
    rotated = rotate(split, cos, sin, bool(interleaved))
    return rounded(join_heads(rotated) if x.ndim == 3 else rotated, x.dtype)


def _read_state(
    query: Array, key: Array, value: Array, state: Array | None = None, *others: Array | None,
    kv_num_heads: int, q_num_heads: int, **attributes: Any,
) -> _shapes.Shapes:  # fmt: skip
    """The shapes of the result and of the last state."""
    dk, dv = (x.shape[2] // kv_num_heads for x in (key, value))
    kept = query.dtype if state is None else state.dtype
    last = _shapes.blank((len(query), kv_num_heads, dk, dv), kept)
    return [(*query.shape[:2], q_num_heads * dv), last]


@define("LinearAttention", since=27, special=True, infer=_shapes.Rule(_read_state))
def linear_attention(
    query: Array,
    key: Array,
    value: Array,
    past_state: Array | None = None,
    decay: Array | None = None,
    beta: Array | None = None,
    *,
    kv_num_heads: int,
    q_num_heads: int,
    chunk_size: int = 64,
    scale: float = 0.0,
    update_rule: str = "gated_delta",
) -> tuple[Array, Array]:
    """o(t) = scale * S(t)^T q(t); a step adds k v^T to the state S [batch, heads, dk, dv].

    update_rule names the new state: "linear" S + k v^T, "gated" exp(g) S + k v^T, "delta" and
    "gated_delta" with b k (v - S^T k)^T in place of k v^T. query, key and value are [batch, time,
    heads * size]; decay g is for each key element or each head, beta b for each head or all. Also
    returns the last state. ONNX LinearAttention-27.
    """
    if update_rule not in ("linear", "gated", "delta", "gated_delta"):
        raise ProgramError(f"update_rule {update_rule!r} is not one of ONNX's")
    q, k = (split_heads(widened(x), n) for x, n in ((query, q_num_heads), (key, kv_num_heads)))
    v = split_heads(widened(value), kv_num_heads)
    shape = fitting((len(q), kv_num_heads, k.shape[3], v.shape[3]), q.dtype.itemsize)
    state = np.zeros(shape, q.dtype) if past_state is None else widened(past_state).astype(q.dtype)
    gate = rate = None
    if "gated" in update_rule:
        gate = np.exp(split_heads(widened(_needed(decay, "decay")), kv_num_heads))[..., None]
    if "delta" in update_rule:
        rates = widened(_needed(beta, "beta"))
        rate = split_heads(rates, min(kv_num_heads, rates.shape[2]))
    outputs = np.zeros((*q.shape[:3], v.shape[3]), q.dtype)
    for t in range(q.shape[2]):
        if gate is not None:
            state = state * gate[:, :, t]
        new = v[:, :, t, None]
        if rate is not None:
            new = rate[:, :, t, None] * (new - np.matmul(k[:, :, t, None], state))
        state = state + k[:, :, t, :, None] * new
        read = np.matmul(q[:, :, t, None], _shared(state, q_num_heads))
        outputs[:, :, t] = read[:, :, 0]
    factor = scale or 1 / math.sqrt(q.shape[3])
    kept = query.dtype if past_state is None else past_state.dtype
    return rounded(join_heads(outputs * q.dtype.type(factor)), query.dtype), rounded(state, kept)


def _needed(x: Array | None, name: str) -> Array:
    if x is None:
        raise ProgramError(f"{name}: expected with this update_rule")
    return x


def _with_state(x: Array, weight: Array, *others: Array | None, **a: Any) -> _shapes.Shapes:
    """The shapes of the result and of the elements before the next call's."""
    return [x.shape, (*x.shape[:2], weight.shape[2] - 1)]


@define("CausalConvWithState", since=27, infer=_shapes.Rule(_with_state))
def causal_conv_with_state(
    x: Array,
    weight: Array,
    bias: Array | None = None,
    past_state: Array | None = None,
    *,
    activation: str = "none",
) -> tuple[Array, Array]:
    """Y[n, c, t] = sum over j of W[c, 0, j] X[n, c, t - (k - 1) + j]; the last k - 1 elements.

    The elements before x [N, C, T] are past_state [N, C, k - 1], or zeros. activation is "none",
    "silu" or "swish" (one and the same). ONNX CausalConvWithState-27.
    """
    if activation not in ("none", "silu", "swish"):
        raise ProgramError(f"activation {activation!r}: expected none, silu, swish")
    if (
        x.ndim != 3
        or weight.ndim != 3
        or weight.shape[:2] != (x.shape[1], 1)
        or not weight.shape[2]
    ):
        raise ProgramError(f"input {list(x.shape)} and weight {list(weight.shape)} do not fit")
    back = weight.shape[2] - 1
    state = np.zeros((*x.shape[:2], back), x.dtype) if past_state is None else past_state
    if state.shape != (*x.shape[:2], back):
        raise ProgramError(f"past_state {list(state.shape)}: expected {[*x.shape[:2], back]}")
    whole = np.concatenate([state, x], axis=2)
    wide, taps = widened(whole), widened(weight)
    y = np.zeros(x.shape, wide.dtype)
    for tap in range(back + 1):
        y += wide[:, :, tap : tap + x.shape[2]] * taps[:, :, tap]
    if bias is not None:
        y += widened(bias)[:, None]
    if activation != "none":
        y = y * sigmoid_of(y)
    return rounded(y, x.dtype), whole[:, :, whole.shape[2] - back :]
