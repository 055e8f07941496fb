"""Rotary positions, the KV cache and grouped-query attention.

Rows are tokens; a row of c numbers holds c / head_dim heads side by side.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.core.ops.activation import softmax_of
from halfbyte.core.ops.linear import dynamic_quantize
from halfbyte.core.ops.operator import operator
from halfbyte.weights import Q8_0
from halfbyte.weights.packed import packed_rows

# A cache in Q8_0 is bytes: [g, t, row] of blocks; for keys [g, b, sixteen packed rows].
Cache = npt.NDArray[np.float16] | npt.NDArray[np.float32] | npt.NDArray[np.uint8]
Array = npt.NDArray[Any]
F32 = npt.NDArray[np.float32]
Q8_0_R16 = packed_rows(Q8_0)

KEY_BLOCK = 16  # positions of the cache whose keys are interleaved
MAX_Q8_0_HEAD = 512  # elements of a head in a cache in Q8_0


@operator(
    "RotaryEmbedding",
    "x:f32[n,c] cos:f32[t,r] sin:f32[t,r] -> y:f32[n,c]",
    reads={"cos": lambda d: d["n"], "sin": lambda d: d["n"]},
    variant=lambda attributes: "interleaved" if attributes["interleaved"] else "half",
    demands={
        "c a multiple of head_dim, of 2 r and more": lambda d: (
            d["head_dim"] >= max(2 * d["r"], 1) and d["c"] % d["head_dim"] == 0
        ),
        "0 <= position <= t - n": lambda d: 0 <= d["position"] <= d["t"] - d["n"],
    },
)
def rotary_embedding(
    x: F32, cos: F32, sin: F32, *, head_dim: int, position: int, interleaved: bool
) -> F32:
    """Rotate r pairs of every head by the angles of its row's position.

    (a, b) -> (a cos - b sin, b cos + a sin), where pairs are elements (2j, 2j + 1) if
    `interleaved`, else (j, j + r); elements from 2 r on are unchanged. Row i takes row position + i
    of `cos` and `sin`.

    Source: ONNX RotaryEmbedding (opset 23); Su et al. 2021, RoFormer.
    """
    n, c = x.shape
    rows = slice(position, position + n)
    heads = x.reshape(n, c // head_dim, head_dim)
    return rotated(heads, cos[rows, None], sin[rows, None], interleaved).reshape(n, c)


def rotated(x: Array, cos: Array, sin: Array, interleaved: bool) -> Array:
    """Pairs of the last axis of x rotated by angles [..., r], as by :func:`rotary_embedding`."""
    r = cos.shape[-1]
    first, second = (
        (slice(0, 2 * r, 2), slice(1, 2 * r, 2)) if interleaved else (slice(0, r), slice(r, 2 * r))
    )
    y = x.copy()
    y[..., first] = x[..., first] * cos - x[..., second] * sin
    y[..., second] = x[..., second] * cos + x[..., first] * sin
    return y


@operator(
    "TensorScatter",
    "x:f32[n,g*h] cache:*[g,t,h] -> cache:*[g,t,h]",
    reads={"cache": lambda d: d["n"] * d["g"]},
    demands={
        "0 <= position <= t - n": lambda d: 0 <= d["position"] <= d["t"] - d["n"],
    },
)
def cache_write(x: F32, cache: Cache, *, position: int) -> Cache:
    """cache[:, position + i] = x[i] in place, head by head, rounded to the cache's type.

    The positions of each of the g heads of width h are contiguous. Source: ONNX TensorScatter.
    """
    g, _, h = cache.shape
    rows = Q8_0.encode(x) if cache.dtype == np.uint8 else x
    with np.errstate(over="ignore"):
        cache[:, position : position + len(x)] = rows.reshape(len(x), g, h).swapaxes(0, 1)
    return cache


@operator(
    "TensorScatter",
    "x:f32[n,g*h] cache:*[g,b,h,16] -> cache:*[g,b,h,16]",
    reads={"cache": lambda d: -(-d["n"] // KEY_BLOCK) * d["g"] * d["h"]},
    demands={
        "0 <= position <= 16 b - n": lambda d: 0 <= d["position"] <= KEY_BLOCK * d["b"] - d["n"],
    },
)
def cache_write_keys(x: F32, cache: Cache, *, position: int) -> Cache:
    """As `cache_write`, in blocks of sixteen: cache[:, p / 16, :, p % 16] = x[p - position].

    Products of a query with sixteen keys then need no horizontal sums. In Q8_0 a block is sixteen
    packed rows (:class:`halfbyte.weights.Packed`). Source: ONNX TensorScatter.
    """
    places = np.arange(position, position + len(x))
    if cache.dtype == np.uint8:
        first, last = position // KEY_BLOCK, places[-1] // KEY_BLOCK
        touched = cache[:, first : last + 1]
        rows = _key_rows_q8_0(touched)
        encoded = Q8_0.encode(x).reshape(len(x), len(cache), -1)
        rows[:, places - first * KEY_BLOCK] = encoded.swapaxes(0, 1)
        touched[...] = Q8_0_R16.pack(rows.reshape(-1, rows.shape[2])).reshape(touched.shape)
        return cache
    g, _, h, _ = cache.shape
    with np.errstate(over="ignore"):
        cache[:, places // KEY_BLOCK, :, places % KEY_BLOCK] = x.reshape(len(x), g, h)
    return cache


def _key_rows_q8_0(k: Cache) -> npt.NDArray[np.uint8]:
    """Rows [g, 16 b, row] of Q8_0 blocks of keys [g, b, sixteen rows]."""
    row_bytes = k.shape[2] // KEY_BLOCK
    width = row_bytes // Q8_0.block_bytes * Q8_0.block
    rows = Q8_0_R16.rows(k.reshape(-1).view(np.uint8), width)
    return rows.reshape(len(k), -1, row_bytes)


def _first(position: int, window: int) -> int:
    """The first key in the window of a row at this position."""
    return max(position + 1 - window, 0) if window else 0


def _positions(d: Mapping[str, int]) -> int:
    return (d["position"] + d["n"] - _first(d["position"], d["window"])) * d["g"]


def _key_rows(d: Mapping[str, int]) -> int:
    first = _first(d["position"], d["window"]) // KEY_BLOCK
    return (-(-(d["position"] + d["n"]) // KEY_BLOCK) - first) * d["g"] * d["h"]


def _attention_operations(d: Mapping[str, int]) -> int:
    seen = d["position"] + (d["n"] + 1) // 2
    return 4 * d["n"] * (min(seen, d["window"]) if d["window"] else seen) * d["c"]


@operator(
    "GroupQueryAttention",
    "q:f32[n,c] k:*[g,b,h,16] v:*[g,t,h] slopes?:f32[u] sinks?:f32[u] -> y:f32[n,c]",
    reads={"k": _key_rows, "v": _positions},
    operations=_attention_operations,
    demands={
        "c a multiple of g h": lambda d: d["c"] % (d["g"] * d["h"]) == 0,
        "window of 0 and more": lambda d: d["window"] >= 0,
        "softcap of 0 and more": lambda d: d["softcap"] >= 0,
        "u h = c": lambda d: d["u"] * d["h"] == d["c"],
        "0 <= position <= t - n and 16 b - n": lambda d: (
            0 <= d["position"] <= min(d["t"], KEY_BLOCK * d["b"]) - d["n"]
        ),
    },
    product=True,
    kind=lambda d: "attention_f32" if d["k"] == "f32" else "attention_f16",
)
def group_query_attention(
    q: F32, k: Cache, v: Cache, slopes: F32 | None = None, sinks: F32 | None = None,
    *, position: int, scale: float, window: int = 0, softcap: float = 0.0,
) -> F32:  # fmt: skip
    """Causal attention of rows position ... position + n - 1 over a cache of keys and values.

    y[i, u] = sum_j softmax_j(scale q[i, u] . k[g, j]) v[g, j] over j <= position + i, where the
    c / h query heads share g key and value heads in groups. Key j is k[g, j / 16, :, j % 16], as
    written by :func:`cache_write_keys`. Unless `window` is 0, also j > position + i - window; keys
    and values in no row's window are not read.

    Unless `softcap` is 0, a score s = scale q . k becomes softcap tanh(s / softcap). `slopes` of
    query heads add slope (j - position - i) to a score; `sinks` are further scores, whose weights
    take part in the sum of the softmax, and mix no value.

    With a cache in Q8_0 the query is rounded as by :func:`dynamic_quantize`, and q . k is the sum
    over blocks b of 32 elements, in order, of (kd[j, b] qd[b]) float(sum_32 kq qq), as in
    :func:`matmul_int8`. h is then a multiple of 32, at most 512.

    Source: ONNX Runtime's GroupQueryAttention; Ainslie et al. 2023, GQA; Beltagy et al. 2020,
    Longformer (the window); Gemma Team 2024, Gemma 2 (softcap); Press et al. 2022, ALiBi (slopes);
    OpenAI 2025, gpt-oss (sinks).
    """
    n, c = q.shape
    first, total = _first(position, window), position + n
    values = _float_rows(v[:, first:total])
    g, _, h = values.shape
    group = c // (g * h)
    queries = q.reshape(n, c // h, h).transpose(1, 0, 2)  # [heads, n, h]
    if k.dtype == np.uint8:
        scores = _products_q8_0(queries, _key_rows_q8_0(k)[:, first:total])
    else:
        keys = k.transpose(0, 1, 3, 2).reshape(g, -1, h)[:, first:total].astype(np.float32)
        scores = queries @ np.repeat(keys, group, axis=0).transpose(0, 2, 1)
    scores *= np.float32(scale)
    row, key = position + np.arange(n)[:, None], np.arange(first, total)
    if softcap:
        scores = np.float32(softcap) * np.tanh(scores / np.float32(softcap))
    if slopes is not None:
        scores += slopes[:, None, None] * (key - row).astype(np.float32)
    hidden = (key > row) | (key < row + 1 - (window or total))
    scores[:, hidden] = -np.inf
    if sinks is not None:
        scores = np.concatenate(
            [scores, np.broadcast_to(sinks[:, None, None], (*scores.shape[:2], 1))], -1
        )
    weights = softmax_of(scores)
    weights = weights[..., : total - first]
    y = weights @ np.repeat(values, group, axis=0)
    return np.ascontiguousarray(y.transpose(1, 0, 2), np.float32).reshape(n, c)


def _float_rows(v: Cache) -> F32:
    """Values [g, t, h] as numbers."""
    if v.dtype != np.uint8:
        return v.astype(np.float32)
    rows = np.ascontiguousarray(v.view(np.uint8)).reshape(-1, v.shape[2])
    return Q8_0.decode(rows).reshape(*v.shape[:2], -1)


def _products_q8_0(queries: F32, keys: npt.NDArray[np.uint8]) -> F32:
    """Products [heads, n, total] of queries [heads, n, h] with rows of blocks [g, total, row]."""
    heads, n, h = queries.shape
    g, total, row_bytes = keys.shape
    blocks, group = h // Q8_0.block, heads // g
    kq, kd, _ = Q8_0.quantized(np.ascontiguousarray(keys).reshape(-1, row_bytes))
    kq, kd = kq.reshape(g, total, blocks, Q8_0.block), kd.reshape(g, total, blocks)
    xq, xd, _ = dynamic_quantize.meaning(queries.reshape(-1, h))
    xq, xd = xq.reshape(heads, n, blocks, Q8_0.block), xd.reshape(heads, n, blocks)
    scores = np.zeros((heads, n, total), np.float32)
    for head in range(heads):
        q, d = kq[head // group].astype(np.float32), kd[head // group]
        for b in range(blocks):
            sums = xq[head, :, b].astype(np.float32) @ q[:, b].T  # below 2^24: exact in float32
            scores[head] += (d[:, b] * xd[head, :, b, None]) * sums
    return scores
