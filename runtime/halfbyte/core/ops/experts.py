"""Mixtures of experts: a few of many matrices are multiplied with each row.

A router gives each row (a token) a probability for every expert, and the `u` best of these run. For
their products rows are sorted by expert: an operand [n, u d] holds the n u rows [n u, d] in this
order. So the matrix of an expert is read once for all its rows, and those of experts without rows
are not read. Source: Shazeer et al. 2017, Outrageously Large Neural Networks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.core.ops.linear import matmul, matmul_int8
from halfbyte.core.ops.operator import operator
from halfbyte.weights import Tensor

F32 = npt.NDArray[np.float32]
I32 = npt.NDArray[np.int32]
I16 = npt.NDArray[np.int16]
I8 = npt.NDArray[np.int8]

_LEAST = np.float32(1e-20)  # added to a sum that weights are divided by


@operator(
    "TopK",
    "p:f32[n,e] scores?:f32[n,e] -> "
    "weights:f32[n,u] places:i32[n,u] rows:i32[n,u] experts:i32[n,u] ends:i32[e]",
    demands={
        "whole groups of e, at most 64": lambda d: (
            1 <= d["groups"] <= 64 and d["e"] % d["groups"] == 0
        ),
        "1 <= kept <= groups": lambda d: 1 <= d["kept"] <= d["groups"],
        "1 <= u <= e kept / groups": lambda d: 1 <= d["u"] <= d["e"] // d["groups"] * d["kept"],
        "best of 1 or 2, at most e / groups": lambda d: (
            1 <= d["best"] <= min(2, d["e"] // d["groups"])
        ),
    },
)
def route_experts(
    p: F32, scores: F32 | None = None, *, u: int, normalize: bool, scale: float, groups: int = 1,
    kept: int = 1, best: int = 1,
) -> tuple[F32, I32, I32, I32, I32]:  # fmt: skip
    """The `u` experts with the largest scores of each row, and the order of rows by expert.

    Scores are `p` if there are none; of equal ones the first counts, and NaN as -infinity.
    Experts are in `groups` of neighbours, of which only those run whose `best` largest scores have
    the `kept` largest sums. `weights` are p of the experts that run, the largest score first; with
    `normalize` divided by their sum + 1e-20; times `scale`. `places` are the places of a row's
    experts in the order by expert and row, `rows` the row of each place, `experts` its expert, and
    `ends` where the places of each expert end.

    Source: ONNX TopK; transformers' routers of Mixtral and DeepSeek V3.
    """
    chosen = p if scores is None else scores
    chosen = np.where(np.isnan(chosen), -np.inf, chosen)
    left_out = _left_out(chosen, groups, kept, best)
    ids = np.lexsort((-chosen, left_out), axis=1)[:, :u]  # a stable sort
    weights = np.take_along_axis(p, ids, axis=1)
    if normalize:
        weights = weights / (np.cumsum(weights, axis=1)[:, -1:] + _LEAST)
    order = np.argsort(ids.reshape(-1), kind="stable").astype(np.int32)
    places = np.empty_like(order)
    places[order] = np.arange(len(order), dtype=np.int32)
    ends = np.cumsum(np.bincount(ids.reshape(-1), minlength=p.shape[1])).astype(np.int32)
    shape, experts = ids.shape, ids.reshape(-1)[order].astype(np.int32)
    return (
        weights * np.float32(scale), places.reshape(shape), order.reshape(shape) // u,
        experts.reshape(shape), ends,
    )  # fmt: skip


def _left_out(scores: F32, groups: int, kept: int, best: int) -> npt.NDArray[np.bool_]:
    """Which experts are in groups that are not kept."""
    n, e = scores.shape
    with np.errstate(invalid="ignore"):
        sums = -np.sort(-scores.reshape(n, groups, -1), axis=2)[:, :, :best].sum(axis=2)
    order = np.argsort(-np.where(np.isnan(sums), -np.inf, sums), axis=1, kind="stable")
    out = np.ones((n, groups), np.bool_)
    np.put_along_axis(out, order[:, :kept], False, axis=1)
    return np.repeat(out, e // groups, axis=1)


@operator("Gather", "x:f32[t,d] rows:i32[n,u] -> y:f32[n,u*d]")
def expert_rows(x: F32, rows: I32) -> F32:
    """Rows of x, such as tokens in the order by expert, or biases of experts.

    A row outside of x gives zeros. Source: ONNX Gather.
    """
    inside = (rows >= 0) & (rows < len(x))
    y = np.where(inside[..., None], x[np.where(inside, rows, 0)], np.float32(0))
    return y.reshape(len(rows), -1)


def _chosen(d: Any) -> int:
    """The maximum of rows of matrices that are read."""
    return min(int(d["n"]) * int(d["u"]), int(d["e"])) * int(d["m"])


def _products(d: Any) -> int:
    """Operations of products of n u rows with matrices [m, k]."""
    return 2 * int(d["n"]) * int(d["u"]) * int(d["m"]) * int(d["k"])


def _spans(ends: I32, rows: int) -> Iterator[slice]:
    """The rows of each expert; the last expert's end with the last row."""
    first = 0
    for end in (*ends[:-1].tolist(), rows):
        yield slice(first, first := min(max(end, first), rows))


@operator(
    "MoE",
    "x:f32[n,u*k] w:*[e,m,k] ends:i32[e] -> y:f32[n,u*m]",
    reads={"w": _chosen},
    operations=_products,
    product=True,
    kind=lambda d: "matmul_" + d["w"],
    calls=matmul,
)
def matmul_experts(x: F32, w: Tensor, ends: I32, *, u: int) -> F32:
    """:func:`matmul` of each expert's rows with its matrix.

    The rows of expert i end at ends[i], those of the last with the last row of x.

    Source: ONNX Runtime's MoE.
    """
    rows, y = x.reshape(len(x) * u, -1), np.empty((len(x) * u, w.shape[1]), np.float32)
    for expert, span in enumerate(_spans(ends, len(rows))):
        y[span] = matmul.meaning(rows[span], w.matrix(expert))
    return y.reshape(len(x), -1)


@operator(
    "QMoE",
    "xq:i8[n,u*k] xd:f32[n,u*k/32] xs:i16[n,u*k/16] w:*[e,m,k] ends:i32[e] -> y:f32[n,u*m]",
    reads={"w": _chosen},
    operations=_products,
    product=True,
    kind=lambda d: "matmul_int8_" + d["w"],
    calls=matmul_int8,
)
def matmul_experts_int8(xq: I8, xd: F32, xs: I16, w: Tensor, ends: I32, *, u: int) -> F32:
    """:func:`matmul_int8` of each expert's rows with its matrix, as :func:`matmul_experts`.

    Source: ONNX Runtime's QMoE.
    """
    n = len(xq)
    q, d, s = (v.reshape(n * u, -1) for v in (xq, xd, xs))
    y = np.empty((n * u, w.shape[1]), np.float32)
    for expert, span in enumerate(_spans(ends, n * u)):
        if span.start < span.stop:
            y[span] = matmul_int8.meaning(q[span], d[span], s[span], w.matrix(expert))
    return y.reshape(n, -1)


@operator("MoE", "z:f32[n,u*d] weights:f32[n,u] places:i32[n,u] -> y:f32[n,d]")
def sum_experts(z: F32, weights: F32, places: I32, *, d: int) -> F32:
    """y[i] = sum over j, in order, of weights[i, j] times row places[i, j] of z.

    `d` is the width of these rows; places outside of z add nothing.
    """
    rows, y = z.reshape(-1, d), np.zeros((len(z), d), np.float32)
    inside = (places >= 0) & (places < len(rows))
    for weight, place, there in zip(weights.T, places.T, inside.T, strict=True):
        part = weight[:, None] * rows[np.where(there, place, 0)]
        y += np.where(there[:, None], part, np.float32(0))
    return y
