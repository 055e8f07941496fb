"""Rotary positions, the KV cache and grouped-query attention.

Rows are tokens; a row of c numbers holds c / head_dim heads side by side.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from halfbyte.ops.activation import softmax
from halfbyte.ops.operator import operator

Cache = npt.NDArray[np.float16] | npt.NDArray[np.float32]
F32 = npt.NDArray[np.float32]

KEY_BLOCK = 16  # positions of the cache whose keys lie together


@operator(
    "RotaryEmbedding",
    "x:f32[n,c] cos:f32[t,r] sin:f32[t,r] -> y:f32[n,c]",
    reads={"cos": lambda d: d["n"], "sin": lambda d: d["n"]},
    variant=lambda attributes: "interleaved" if attributes["interleaved"] else "half",
)
def rotary_embedding(
    x: F32, cos: F32, sin: F32, *, head_dim: int, position: int, interleaved: bool
) -> F32:
    """Turn r pairs of every head by the angles of its row's position.

    (a, b) -> (a cos - b sin, b cos + a sin), where pairs are elements (2j, 2j + 1) if
    `interleaved`, else (j, j + r); elements from 2 r on stay. Row i takes row position + i of
    `cos` and `sin`.

    Source: ONNX RotaryEmbedding (opset 23); Su et al. 2021, RoFormer.
    """
    n, c = x.shape
    r = cos.shape[1]
    heads = x.reshape(n, c // head_dim, head_dim)
    first, second = (
        (slice(0, 2 * r, 2), slice(1, 2 * r, 2)) if interleaved else (slice(0, r), slice(r, 2 * r))
    )
    turn = slice(position, position + n)
    co, si = cos[turn, None, :], sin[turn, None, :]
    y = heads.copy()
    y[..., first] = heads[..., first] * co - heads[..., second] * si
    y[..., second] = heads[..., second] * co + heads[..., first] * si
    return y.reshape(n, c)


@operator(
    "TensorScatter",
    "x:f32[n,g*h] cache:*[g,t,h] -> cache:*[g,t,h]",
    reads={"cache": lambda d: d["n"] * d["g"]},
)
def cache_write(x: F32, cache: Cache, *, position: int) -> Cache:
    """cache[:, position + i] = x[i] in place, head by head, rounded in an F16 cache.

    Each of the g heads of width h has its positions in one piece. Source: ONNX TensorScatter.
    """
    g, _, h = cache.shape
    with np.errstate(over="ignore"):
        cache[:, position : position + len(x)] = x.reshape(len(x), g, h).swapaxes(0, 1)
    return cache


@operator(
    "TensorScatter",
    "x:f32[n,g*h] cache:*[g,b,h,16] -> cache:*[g,b,h,16]",
    reads={"cache": lambda d: -(-d["n"] // KEY_BLOCK) * d["g"] * d["h"]},
)
def cache_write_keys(x: F32, cache: Cache, *, position: int) -> Cache:
    """The same where positions lie sixteen together: cache[:, p / 16, :, p % 16] = x[p - position].

    Products of a query with sixteen keys then need no horizontal sums. Source: ONNX TensorScatter.
    """
    g, _, h, _ = cache.shape
    places = np.arange(position, position + len(x))
    with np.errstate(over="ignore"):
        cache[:, places // KEY_BLOCK, :, places % KEY_BLOCK] = x.reshape(len(x), g, h)
    return cache


def _positions(d: Mapping[str, int]) -> int:
    return (d["position"] + d["n"]) * d["g"]


def _key_rows(d: Mapping[str, int]) -> int:
    return -(-(d["position"] + d["n"]) // KEY_BLOCK) * d["g"] * d["h"]


def _attention_operations(d: Mapping[str, int]) -> int:
    return 4 * d["n"] * (d["position"] + (d["n"] + 1) // 2) * d["c"]


@operator(
    "GroupQueryAttention",
    "q:f32[n,c] k:*[g,b,h,16] v:*[g,t,h] -> y:f32[n,c]",
    reads={"k": _key_rows, "v": _positions},
    operations=_attention_operations,
)
def group_query_attention(q: F32, k: Cache, v: Cache, *, position: int, scale: float) -> F32:
    """Causal attention of rows position ... position + n - 1 over a cache of keys and values.

    y[i, u] = sum_j softmax_j(scale q[i, u] . k[g, j]) v[g, j] over j <= position + i, where the
    c / h query heads share g key and value heads in groups. Key j is k[g, j / 16, :, j % 16], as
    :func:`cache_write_keys` lays it down.

    Source: ONNX Runtime's GroupQueryAttention; Ainslie et al. 2023, GQA.
    """
    n, c = q.shape
    g, _, h = v.shape
    total, group = position + n, c // (g * h)
    queries = q.reshape(n, -1, h).transpose(1, 0, 2)  # [heads, n, h]
    keys = k.transpose(0, 1, 3, 2).reshape(g, -1, h)[:, :total].astype(np.float32)
    values = v[:, :total].astype(np.float32)
    scores = queries @ np.repeat(keys, group, axis=0).transpose(0, 2, 1) * np.float32(scale)
    hidden = np.arange(total) > position + np.arange(n)[:, None]
    scores[:, hidden] = -np.inf
    weights = softmax.meaning(scores.reshape(-1, total)).reshape(scores.shape)
    y = weights @ np.repeat(values, group, axis=0)
    return np.ascontiguousarray(y.transpose(1, 0, 2), np.float32).reshape(n, c)
