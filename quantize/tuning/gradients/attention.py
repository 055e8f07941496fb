"""Rotary positions, the cache, and grouped-query attention."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import numpy.typing as npt

from halfbyte.core import ops
from halfbyte.core.buffer import Buffer
from halfbyte.core.instruction import Instruction
from halfbyte.core.ops.activation import softmax_of
from halfbyte.core.ops.attention import Cache, rotated
from halfbyte.errors import ProgramError
from halfbyte.quantize.tuning.gradients.rules import definition, rule

F32 = npt.NDArray[np.float32]

_ROWS = 32  # of queries at a time: their scores stay in caches, and few of them are hidden


@definition("dy:f32[n,c] cos:f32[t,r] sin:f32[t,r] -> dx:f32[n,c]")
def rotary_dx(
    dy: F32, cos: F32, sin: F32, *, head_dim: int, position: int, interleaved: bool
) -> F32:
    """Of :func:`halfbyte.core.ops.rotary_embedding`: dy rotated by the opposite angles."""
    n, c = dy.shape
    rows = slice(position, position + n)
    heads = dy.reshape(n, c // head_dim, head_dim)
    dx: F32 = rotated(heads, cos[rows, None], -sin[rows, None], interleaved)
    return dx.reshape(n, c)


@rule(ops.rotary_embedding)
def _rotary(i: Instruction, dy: Buffer, wanted: Collection[str]) -> dict[str, Buffer]:
    return {"x": rotary_dx(dy, *i.inputs[1:], **i.attributes)}


@rule(ops.cache_write)
@rule(ops.cache_write_keys)
def _cache_write(i: Instruction, dy: Buffer, wanted: Collection[str]) -> dict[str, Buffer]:
    """Rounding to the cache's type passes gradients on; rows of earlier runs are constants."""
    return {"x": dy}


@definition(
    "dy:f32[n,c] q:f32[n,c] k:*[g,b,h,16] v:*[g,t,h] slopes?:f32[u] sinks?:f32[u] "
    "-> dq:f32[n,c] dk:f32[n,g*h] dv:f32[n,g*h]"
)
def attention_gradient(
    dy: F32, q: F32, k: Cache, v: Cache, slopes: F32 | None = None, sinks: F32 | None = None,
    *, position: int, scale: float, window: int, softcap: float,
) -> tuple[F32, F32, F32]:  # fmt: skip
    """Of :func:`halfbyte.core.ops.group_query_attention`, whose scores s give weights p.

    dv = p^T dy; ds = p (dy v^T - sum of p dy v^T); dq = scale ds k and dk = scale ds^T q, with ds
    times 1 - tanh^2 under a softcap. dk and dv are of the rows that this run wrote. Some rows of
    heads that share keys and values are processed together, with the keys that the last sees.
    """
    (n, c), (g, _, h) = q.shape, v.shape
    total, group = position + n, c // (g * h)
    keys = k.transpose(0, 1, 3, 2).reshape(g, -1, h)[:, :total].astype(np.float32)
    values = v[:, :total].astype(np.float32)
    queries, dys = (x.reshape(n, g, group, h).transpose(1, 2, 0, 3) for x in (q, dy))
    dq, dk, dv = np.empty_like(queries), *np.zeros((2, g, total, h), np.float32)
    for first in range(0, n, _ROWS):
        rows = slice(first, min(first + _ROWS, n))
        row = position + np.arange(rows.start, rows.stop)[:, None]
        seen = slice(max(0, position + first + 1 - window) if window else 0, position + rows.stop)
        distance = np.arange(seen.start, seen.stop) - row
        hidden = (distance > 0) | (distance <= -(window or total))
        for i in range(g):
            heads, dheads = (x[i, :, rows].reshape(-1, h) for x in (queries, dys))
            scores, slope = _scores(heads @ keys[i, seen].T, scale, softcap)
            scores = scores.reshape(group, *distance.shape)
            if slopes is not None:
                scores += slopes.reshape(g, group, 1, 1)[i] * distance.astype(np.float32)
            np.copyto(scores, np.float32(-np.inf), where=hidden)
            weights = _weights(scores, None if sinks is None else sinks.reshape(g, group)[i])
            weights = weights.reshape(len(heads), -1)
            ds = dheads @ values[i, seen].T
            dv[i, seen] += weights.T @ dheads
            ds -= np.einsum("jt,jt->j", weights, ds)[:, None]
            ds *= weights
            ds *= np.float32(scale) if slope is None else np.float32(scale) * slope
            dq[i, :, rows] = (ds @ keys[i, seen]).reshape(group, -1, h)
            dk[i, seen] += ds.T @ heads
    dk, dv = (x[:, position:].swapaxes(0, 1).reshape(n, g * h) for x in (dk, dv))
    return dq.transpose(2, 0, 1, 3).reshape(n, c), dk, dv


def _scores(products: F32, scale: float, softcap: float) -> tuple[F32, F32 | None]:
    """Scores of products q . k, and under a softcap their slope, 1 - tanh^2."""
    products *= np.float32(scale)
    if not softcap:
        return products, None
    inner = np.tanh(products / np.float32(softcap))
    return np.float32(softcap) * inner, 1 - inner * inner


def _weights(scores: F32, sinks: F32 | None) -> F32:
    """Softmax of scores [group, n, total] and of a further one for each head, if there are any."""
    if sinks is not None:
        further = np.broadcast_to(sinks[:, None, None], (*scores.shape[:2], 1))
        scores = np.concatenate([scores, further], axis=-1)
    weights: F32 = softmax_of(scores)
    return weights if sinks is None else weights[..., :-1]


@rule(ops.group_query_attention)
def _attention(i: Instruction, dy: Buffer, wanted: Collection[str]) -> dict[str, Buffer]:
    if i.operands["k"].dtype == "q8_0" or not {"q", "k", "v"}.issuperset(wanted):
        raise ProgramError(
            f"{i.operator.name}: expected gradients of q, k and v in a cache of F32 or F16, found "
            f"those of {sorted(wanted)}, {i.operands['k'].dtype}"
        )
    dq, dk, dv = attention_gradient(dy, *i.arguments, **i.attributes)
    return {"q": dq, "k": dk, "v": dv}
