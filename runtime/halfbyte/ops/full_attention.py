"""Attention of all queries over all keys of a batch, where they lie in matrices."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from halfbyte.ops.activation import softmax
from halfbyte.ops.operator import operator

F32 = npt.NDArray[np.float32]

MOST_HEAD = 256  # numbers of a query, key or value


def _strided(x: F32, at: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> F32:
    size = x.itemsize
    return np.lib.stride_tricks.as_strided(
        x[at:], shape, tuple(s * size for s in strides), writeable=False
    )


@operator(
    "Attention",
    "q:f32[ql] k:f32[kl] v:f32[vl] bias?:f32[bl] -> y:f32[batch,s,heads,e]",
    reads={
        "q": lambda d: d["batch"] * d["heads"] * d["s"] * d["d"] // d["ql"],
        "k": lambda d: d["batch"] * d["kv_heads"] * d["t"] * d["d"] // d["kl"],
        "v": lambda d: d["batch"] * d["kv_heads"] * d["t"] * d["e"] // d["vl"],
    },
    operations=lambda d: 2 * d["batch"] * d["heads"] * d["s"] * d["t"] * (d["d"] + d["e"]),
)
def attention(
    q: F32, k: F32, v: F32, bias: F32 | None = None,
    *,
    batch: int, heads: int, kv_heads: int, s: int, t: int, d: int, e: int,
    q_batch: int, q_head: int, q_row: int,
    k_batch: int, k_head: int, k_row: int,
    v_batch: int, v_head: int, v_row: int,
    scale: float, q_at: int = 0, k_at: int = 0, v_at: int = 0,
    bias_batch: int = 0, bias_head: int = 0, bias_row: int = 0,
    reach: int, softcap: float = 0.0,
) -> F32:  # fmt: skip
    """y[b, i, h] = sum_j softmax_j(cap(scale q[b, h, i] k[b, g, j]) + bias[b, h, i, j]) v[b, g, j].

    Sums go over the keys j <= i + reach of t; g is the group of h among the kv_heads. A query has
    d numbers side by side, a value e, at most MOST_HEAD; they begin at `_at` and lie at strides of
    elements, so that one matrix may hold all three. A bias has t numbers side by side, and strides
    of 0 where it is the same for all. cap(x) = softcap tanh(x / softcap), unless softcap is 0. A
    query whose scores are all -inf has a result of zeros.

    Source: ONNX Attention (opset 23); Milakov and Gimelshein 2018, Online normalizer calculation
    for softmax.
    """
    group = heads // kv_heads
    queries = _strided(q, q_at, (batch, heads, s, d), (q_batch, q_head, q_row, 1))
    keys = _strided(k, k_at, (batch, kv_heads, t, d), (k_batch, k_head, k_row, 1))
    values = _strided(v, v_at, (batch, kv_heads, t, e), (v_batch, v_head, v_row, 1))
    scores = queries @ np.repeat(keys, group, axis=1).swapaxes(2, 3) * np.float32(scale)
    if softcap:
        scores = np.float32(softcap) * np.tanh(scores / np.float32(softcap))
    if bias is not None:
        strides = (bias_batch, bias_head, bias_row, 1)
        scores = scores + _strided(bias, 0, (batch, heads, s, t), strides)
    hidden = np.arange(t) > np.arange(s)[:, None] + reach
    scores = np.where(hidden, np.float32(-np.inf), scores)
    blind = (scores == -np.inf).all(axis=-1, keepdims=True)
    scores = np.where(blind, np.float32(0), scores)
    weights = softmax.meaning(scores.reshape(-1, t)).reshape(scores.shape) * ~blind
    y = (weights @ np.repeat(values, group, axis=1)).transpose(0, 2, 1, 3)
    return np.ascontiguousarray(y, np.float32)
