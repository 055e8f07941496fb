"""Shared by the attention operators: scores, softmax, rotary positions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.core.ops.attention import rotated
from halfbyte.core.ops.full_attention import capped
from halfbyte.errors import ProgramError

Array = npt.NDArray[Any]


def scaled_dot_product(
    q: Array,
    k: Array,
    v: Array,
    *,
    bias: Array | None = None,
    allowed: Array | None = None,
    scale: float | None = None,
    softcap: float = 0.0,
    sink: Array | None = None,
) -> tuple[Array, Array, Array]:
    """softmax(cap(scale q kᵀ) + bias) v, in the type of q.

    Parameters
    ----------
    q : array [batch, heads, n, d]
    k, v : array [batch, kv heads, t, d]
        Each head serves heads / kv heads neighbouring heads of q. v may have another d.
    bias : array, optional
        Added to scores; broadcast to [batch, heads, n, t].
    allowed : bool array, optional
        The keys that each query sees; broadcast likewise. A query that sees none has a result of 0.
    scale : float, optional
        1 / sqrt(d) by default.
    softcap : float
        cap(x) = softcap tanh(x / softcap), or x where it is 0.
    sink : array [heads], optional
        One more score, which counts only in the softmax's sum.

    Returns
    -------
    result [batch, heads, n, d of v], scores before and weights after the softmax [.., n, t]

    Raises
    ------
    ProgramError
        `bias` or `allowed` has more batches, heads, queries or keys than the scores.
    """
    q, k, v = grouped(q, k, v)
    root = np.asarray(1 / math.sqrt(q.shape[-1]) if scale is None else scale, q.dtype)
    scores = (q * root) @ np.swapaxes(k, -1, -2)
    scores = capped(scores, softcap)
    for mask in (bias, allowed):
        if mask is not None and np.broadcast_shapes(mask.shape, scores.shape) != scores.shape:
            raise ProgramError(f"mask {list(mask.shape)} for scores of shape {list(scores.shape)}")
    if bias is not None:
        scores = scores + bias.astype(q.dtype)
    if allowed is not None:
        scores = np.where(allowed, scores, np.asarray(-np.inf, q.dtype))
    weights = softmax(scores, None if sink is None else sink.reshape(-1, 1, 1).astype(q.dtype))
    return weights @ v, scores, weights


def grouped(q: Array, k: Array, v: Array) -> tuple[Array, Array, Array]:
    """q, and k and v with a head for each of q's."""
    heads, held = q.shape[1], k.shape[1]
    if not held or heads % held:
        raise ProgramError(f"{heads} heads of queries, {held} of keys, expected a multiple")
    return q, np.repeat(k, heads // held, axis=1), np.repeat(v, heads // held, axis=1)


def softmax(scores: Array, sink: Array | None = None) -> Array:
    """exp(x) / sum exp(x) over the last axis; 0 where all are -inf."""
    maxima = scores.max(-1, keepdims=True, initial=-np.inf)
    if sink is not None:
        maxima = np.maximum(maxima, sink)
    maxima = np.where(np.isfinite(maxima), maxima, np.zeros_like(maxima))
    powers = np.exp(scores - maxima)
    total = powers.sum(-1, keepdims=True)
    if sink is not None:
        total = total + np.exp(sink - maxima)
    return np.asarray(powers / np.where(total == 0, np.ones_like(total), total))


def causal(n: int, t: int, past: int, window: int = -1) -> Array:
    """bool [n, t]: query i, at position past + i, sees keys up to it, at most `window` of them."""
    position, key = past + np.arange(n)[:, None], np.arange(t)
    seen = key <= position
    return seen & (key > position - window) if window > 0 else seen


def split_heads(x: Array, heads: int) -> Array:
    """[batch, n, heads d] -> [batch, heads, n, d]."""
    batch, n, width = x.shape
    if heads < 1 or width % heads:
        raise ProgramError(f"{width} columns, expected a multiple of {heads} heads")
    return x.reshape(batch, n, heads, width // heads).swapaxes(1, 2)


def join_heads(x: Array) -> Array:
    """[batch, heads, n, d] -> [batch, n, heads d]."""
    batch, heads, n, d = x.shape
    return x.swapaxes(1, 2).reshape(batch, n, heads * d)


def rotate(x: Array, cos: Array, sin: Array, interleaved: bool = False) -> Array:
    """Rotate pairs of x [batch, heads, n, d] by angles whose cosines are [batch or 1, n, r / 2].

    Pairs are neighbours if `interleaved`, else r / 2 apart; elements from r on are unchanged.
    """
    half = cos.shape[-1]
    if 2 * half > x.shape[-1]:
        raise ProgramError(f"rotary width {2 * half}, expected at most {x.shape[-1]}")
    cos, sin = (np.asarray(part, x.dtype)[:, None] for part in (cos, sin))
    return rotated(x, cos, sin, interleaved)
