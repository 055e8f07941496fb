"""Attention of all queries over all keys of a batch, which are parts of matrices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.core.ops.activation import softmax
from halfbyte.core.ops.demands import inside
from halfbyte.core.ops.elementwise import walked
from halfbyte.core.ops.linear import inverse, rounded
from halfbyte.core.ops.operator import Demand, operator

F32 = npt.NDArray[np.float32]

MAX_HEAD = 256  # numbers of a query, key or value
MAX_INT8_HEAD, INT8_KEYS = 64, 128  # of attention_int8; keys of a step


_READS: dict[str, Callable[[Any], int]] = {
    "q": lambda d: d["batch"] * d["heads"] * d["s"] * d["d"] // d["ql"],
    "k": lambda d: d["batch"] * d["kv_heads"] * d["t"] * d["d"] // d["kl"],
    "v": lambda d: d["batch"] * d["kv_heads"] * d["t"] * d["e"] // d["vl"],
}


_STEPS = {name: f"{name}_batch" for name in ("q", "k", "v", "bias")}
_DEMANDS: dict[str, Demand] = {
    "heads a multiple of kv_heads": lambda d: (
        d["kv_heads"] >= 1 and d["heads"] % d["kv_heads"] == 0
    ),
    "queries of ql where q_at, q_batch, q_head, q_row lead": lambda d: inside(
        d["ql"], d["q_at"], (d["batch"], d["q_batch"]), (d["heads"], d["q_head"]),
        (d["s"], d["q_row"]), (d["d"], 1),
    ),
    "keys of kl where k_at, k_batch, k_head, k_row lead": lambda d: inside(
        d["kl"], d["k_at"], (d["batch"], d["k_batch"]), (d["kv_heads"], d["k_head"]),
        (d["t"], d["k_row"]), (d["d"], 1),
    ),
    "values of vl where v_at, v_batch, v_head, v_row lead": lambda d: inside(
        d["vl"], d["v_at"], (d["batch"], d["v_batch"]), (d["kv_heads"], d["v_head"]),
        (d["t"], d["v_row"]), (d["e"], 1),
    ),
}  # fmt: skip


def _operations(d: Any) -> int:
    return int(2 * d["batch"] * d["heads"] * d["s"] * d["t"] * (d["d"] + d["e"]))


@operator(
    "Attention",
    "q:f32[ql] k:f32[kl] v:f32[vl] bias?:f32[bl] -> y:f32[batch,s,heads,e]",
    reads=_READS,
    operations=_operations,
    demands={
        "d and e of 256 and less": lambda d: max(d["d"], d["e"]) <= MAX_HEAD,
        **_DEMANDS,
        "reach of 0 and more": lambda d: d["reach"] >= 0,
        "bias of bl where bias_batch, bias_head, bias_row lead": lambda d: inside(
            d["bl"],
            0,
            (d["batch"], d["bias_batch"]),
            (d["heads"], d["bias_head"]),
            (d["s"], d["bias_row"]),
            (d["t"], 1),
        ),
    },
    product=True,
    rows="batch",
    steps=_STEPS,
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

    Sums go over the keys j <= i + reach of t; g is the group of h among the kv_heads. A query has d
    contiguous numbers, a value e, at most MAX_HEAD; they begin at `_at` with strides in elements,
    so that one matrix may hold all three. A bias has t contiguous numbers, and strides of 0 along
    dimensions that share it. cap(x) = softcap tanh(x / softcap), unless softcap is 0. A query whose
    scores are all -inf has a result of zeros.

    Source: ONNX Attention (opset 23); Milakov and Gimelshein 2018, Online normalizer calculation
    for softmax.
    """
    group = heads // kv_heads
    queries = walked(q[q_at:], (batch, heads, s, d), (q_batch, q_head, q_row, 1))
    keys = walked(k[k_at:], (batch, kv_heads, t, d), (k_batch, k_head, k_row, 1))
    values = walked(v[v_at:], (batch, kv_heads, t, e), (v_batch, v_head, v_row, 1))
    scores = queries @ np.repeat(keys, group, axis=1).swapaxes(2, 3) * np.float32(scale)
    scores = capped(scores, softcap)
    if bias is not None:
        strides = (bias_batch, bias_head, bias_row, 1)
        scores = scores + walked(bias, (batch, heads, s, t), strides)
    hidden = np.arange(t) > np.arange(s)[:, None] + reach
    scores = np.where(hidden, np.float32(-np.inf), scores)
    blind = (scores == -np.inf).all(axis=-1, keepdims=True)
    scores = np.where(blind, np.float32(0), scores)
    weights = softmax.meaning(scores.reshape(-1, t)).reshape(scores.shape) * ~blind
    y = (weights @ np.repeat(values, group, axis=1)).transpose(0, 2, 1, 3)
    return np.ascontiguousarray(y, np.float32)


def capped(scores: F32, softcap: float) -> F32:
    """softcap tanh(x / softcap), or x if softcap is 0, in x's type."""
    cap = scores.dtype.type(softcap)
    return np.asarray(cap * np.tanh(scores / cap)) if softcap else scores


@operator(
    "AttentionInt8",
    "q:f32[ql] k:f32[kl] v:f32[vl] bias?:f32[bl] -> y:f32[batch,s,heads,e]",
    reads=_READS,
    operations=_operations,
    demands={
        "d and e multiples of 16, of 64 and less": lambda d: (
            d["d"] % 16 == d["e"] % 16 == 0 and max(d["d"], d["e"]) <= MAX_INT8_HEAD
        ),
        **_DEMANDS,
        "bias of bl where bias_batch, bias_head lead": lambda d: inside(
            d["bl"], 0, (d["batch"], d["bias_batch"]), (d["heads"], d["bias_head"]), (d["t"], 1)
        ),
    },
    product=True,
    rows="batch",
    steps=_STEPS,
    like="attention",
)
def attention_int8(
    q: F32, k: F32, v: F32, bias: F32 | None = None,
    *,
    batch: int, heads: int, kv_heads: int, s: int, t: int, d: int, e: int,
    q_batch: int, q_head: int, q_row: int,
    k_batch: int, k_head: int, k_row: int,
    v_batch: int, v_head: int, v_row: int,
    scale: float, q_at: int = 0, k_at: int = 0, v_at: int = 0,
    bias_batch: int = 0, bias_head: int = 0,
) -> F32:  # fmt: skip
    """:func:`attention` over all keys, with a bias that queries share, in integers.

    Queries, keys and values are rounded to int8, each with a scale. Keys are taken in steps of
    INT8_KEYS; in a step a query's weights exp(score - highest so far), times the scales of the
    values, are rounded to 0...255 by their maximum. d and e are multiples of 16, at most
    MAX_INT8_HEAD.
    """
    group = heads // kv_heads
    queries, q_scale = rounded(walked(q[q_at:], (batch, heads, s, d), (q_batch, q_head, q_row, 1)))
    keys, k_scale = rounded(walked(k[k_at:], (batch, kv_heads, t, d), (k_batch, k_head, k_row, 1)))
    values, v_scale = rounded(
        walked(v[v_at:], (batch, kv_heads, t, e), (v_batch, v_head, v_row, 1))
    )
    keys, values = (np.repeat(x, group, axis=1) for x in (keys, values))
    k_scale, v_scale = (np.repeat(x, group, axis=1)[:, :, None] for x in (k_scale, v_scale))
    scales = (q_scale * np.float32(scale))[..., None] * k_scale
    scores = scales * (queries @ keys.swapaxes(2, 3))  # exact: below 2^24
    if bias is not None:
        scores = scores + walked(bias, (batch, heads, 1, t), (bias_batch, bias_head, 0, 1))
    y, total = (
        np.zeros((batch, heads, s, e), np.float32),
        np.zeros((batch, heads, s, 1), np.float32),
    )
    highest = np.full((batch, heads, s, 1), np.finfo(np.float32).min)
    for j in range(0, t, INT8_KEYS):
        step = slice(j, j + INT8_KEYS)
        top = np.maximum(highest, scores[..., step].max(axis=-1, keepdims=True))
        with np.errstate(over="ignore"):
            shrink, weights = np.exp(highest - top), np.exp(scores[..., step] - top)
        total = total * shrink + weights.sum(axis=-1, keepdims=True)
        weights = weights * v_scale[..., step]
        largest = weights.max(axis=-1, keepdims=True)
        quantized = np.rint(weights * inverse(255, largest))
        y = y * shrink + quantized @ values[:, :, step] * (largest / np.float32(255))
        highest = top
    y = np.divide(y, total, out=np.zeros_like(y), where=total > 0)
    return np.ascontiguousarray(y.transpose(0, 2, 1, 3), np.float32)


TEXT_QUERIES = 128  # of a block of a text
I32 = npt.NDArray[np.int32]

_TEXTS = "q:f32[n,c] k:f32[n,g] v:f32[n,g] blocks:i32[b,3]"
_TEXTS_DEMANDS: dict[str, Demand] = {
    "heads a multiple of kv_heads": _DEMANDS["heads a multiple of kv_heads"],
    "heads d = c": lambda d: d["heads"] * d["d"] == d["c"],
    "kv_heads d = g": lambda d: d["kv_heads"] * d["d"] == d["g"],
}


def text_blocks(sizes: Sequence[int]) -> I32:
    """The blocks of texts of these numbers of tokens, whose rows follow each other."""
    starts = np.cumsum([0, *sizes])
    blocks = [
        (start, size, first)
        for start, size in zip(starts.tolist(), sizes, strict=False)
        for first in range(0, size, TEXT_QUERIES)
    ]
    return np.array(blocks, np.int32).reshape(-1, 3)


def _texts_operations(d: Any) -> int:
    """As if all rows were one text."""
    return int(4 * d["n"] * d["n"] * d["heads"] * d["d"])


@operator(
    "Attention",
    f"{_TEXTS} bias?:f32[bl] -> y:f32[n,c]",
    operations=_texts_operations,
    demands={
        "d of 256 and less": lambda d: d["d"] <= MAX_HEAD,
        **_TEXTS_DEMANDS,
        "bias of bl where bias_head leads": lambda d: inside(
            d["bl"], 0, (d["heads"], d["bias_head"]), (d["w"], 1)
        ),
    },
    product=True,
    like="attention",
)
def attention_texts(
    q: F32, k: F32, v: F32, blocks: I32, bias: F32 | None = None,
    *, heads: int, kv_heads: int, d: int, scale: float, w: int = 0, bias_head: int = 0,
) -> F32:  # fmt: skip
    """:func:`attention` within each of several texts, whose tokens are consecutive rows.

    A block [first row of its text, the text's number of tokens, the first of up to TEXT_QUERIES
    queries among them] says which rows to compute; others of y are not defined. `bias` is
    added to scores by the distance of key and query, bias[h bias_head + w / 2 + j - i]; texts have
    at most w / 2 + 1 tokens then. Heads lie side by side in rows.
    """
    y = np.zeros_like(q)
    for rows, size in _texts(blocks, len(q), w // 2 + 1 if bias is not None else len(q)):
        table = None if bias is None else walked(bias, (heads, w), (bias_head, 1))
        added = None if table is None else _by_distance(table, size)
        sizes = {"heads": heads, "kv_heads": kv_heads, "s": size, "t": size, "d": d, "e": d}
        bias_strides = {"bias_head": size * size, "bias_row": size} if bias is not None else {}
        y[rows] = attention.meaning(
            *(np.ascontiguousarray(x[rows]).reshape(-1) for x in (q, k, v)), added, batch=1,
            **sizes, **_strides(heads, kv_heads, d), **bias_strides, scale=scale, reach=size,
        ).reshape(size, -1)  # fmt: skip
    return y


def _texts(blocks: I32, n: int, longest: int) -> Iterator[tuple[slice, int]]:
    """Rows and sizes of whole texts, by their first blocks; those that do not fit are skipped."""
    for start, size, first in blocks.tolist():
        if first == 0 and start >= 0 and 0 < size <= longest and start + size <= n:
            yield slice(start, start + size), size


def _strides(heads: int, kv_heads: int, d: int) -> dict[str, int]:
    rows = {"q": heads * d, "k": kv_heads * d, "v": kv_heads * d}
    return {
        f"{name}_{axis}": step
        for name, row in rows.items()
        for axis, step in (("batch", 0), ("head", d), ("row", row))
    }


def _by_distance(table: F32, size: int) -> F32:
    """Biases [heads, size, size] of queries and keys, flat."""
    distance = np.arange(size) - np.arange(size)[:, None]
    return np.ascontiguousarray(table[:, table.shape[1] // 2 + distance]).reshape(-1)


@operator(
    "AttentionInt8",
    f"{_TEXTS} -> y:f32[n,c]",
    operations=_texts_operations,
    demands={
        "d a multiple of 16, of 64 and less": lambda d: (
            d["d"] % 16 == 0 and d["d"] <= MAX_INT8_HEAD
        ),
        **_TEXTS_DEMANDS,
    },
    product=True,
    like="attention",
)
def attention_texts_int8(
    q: F32, k: F32, v: F32, blocks: I32, *, heads: int, kv_heads: int, d: int, scale: float
) -> F32:
    """:func:`attention_int8` within each of several texts; see :func:`attention_texts`."""
    y = np.zeros_like(q)
    for rows, size in _texts(blocks, len(q), len(q)):
        y[rows] = attention_int8.meaning(
            *(np.ascontiguousarray(x[rows]).reshape(-1) for x in (q, k, v)), batch=1, heads=heads,
            kv_heads=kv_heads, s=size, t=size, d=d, e=d, **_strides(heads, kv_heads, d),
            scale=scale,
        ).reshape(size, -1)  # fmt: skip
    return y
