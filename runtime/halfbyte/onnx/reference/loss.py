"""Losses: NegativeLogLikelihoodLoss, SoftmaxCrossEntropyLoss."""

from __future__ import annotations

from typing import Any

import numpy as np

from halfbyte.core.ops.activation import log_softmax_of
from halfbyte.errors import ProgramError
from halfbyte.onnx.reference import _shapes
from halfbyte.onnx.reference._numbers import Array, rounded, widened
from halfbyte.onnx.reference.registry import define


def _likelihood_loss(
    logs: Array, target: Array, weight: Array | None, ignore_index: int | None, reduction: str
) -> Array:
    """-weight[t] * logs[n, t, i...] for the target t of each element, reduced.

    "mean" divides the sum by the sum of the weights of targets that are not ignored.
    """
    if reduction not in ("none", "sum", "mean"):
        raise ProgramError(f"reduction {reduction!r}: expected none, sum, mean")
    if logs.ndim < 2 or target.shape != (len(logs), *logs.shape[2:]):
        raise ProgramError(
            f"input {list(logs.shape)} and target {list(target.shape)}: expected [N, C, D...] and"
            " [N, D...]"
        )
    counted = np.ones(target.shape, np.bool_)
    if ignore_index is not None:
        counted = target != ignore_index
    chosen = np.where(counted, target, 0).astype(np.int64)
    if chosen.size and not 0 <= int(chosen.min()) <= int(chosen.max()) < logs.shape[1]:
        raise ProgramError(f"target: expected classes 0 to {logs.shape[1] - 1}")
    picked = -np.take_along_axis(logs, chosen[:, None], axis=1)[:, 0]
    weights = np.ones(target.shape, logs.dtype) if weight is None else widened(weight)[chosen]
    weights = np.where(counted, weights, 0)
    losses = np.where(counted, picked, 0) * weights
    if reduction == "none":
        return losses
    total = losses.sum()
    return np.asarray(total / weights.sum() if reduction == "mean" else total)


def _loss(
    x: Array, target: Array, *others: Array | None, reduction: str = "mean", **attributes: Any
) -> _shapes.Shape:
    return target.shape if reduction == "none" else ()


def _loss_and_logs(x: Array, *others: Array, **attributes: Any) -> _shapes.Shapes:
    return [_loss(x, *others, **attributes), x.shape]


@define("NegativeLogLikelihoodLoss", since=12, infer=_shapes.Rule(_loss))
def negative_log_likelihood_loss(
    x: Array,
    target: Array,
    weight: Array | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> Array:
    """-weight[t] x[n, t, i...] for the class t of each element, or their sum or mean.

    x [N, C, D...] are log-probabilities, target [N, D...] classes, weight [C]. ONNX
    NegativeLogLikelihoodLoss-12, -13, -22.
    """
    return rounded(_likelihood_loss(widened(x), target, weight, ignore_index, reduction), x.dtype)


@define("SoftmaxCrossEntropyLoss", since=12, infer=_shapes.Rule(_loss_and_logs))
def softmax_cross_entropy_loss(
    scores: Array,
    labels: Array,
    weights: Array | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> tuple[Array, Array]:
    """The same of log(softmax(scores)) over the classes (axis 1), which is the second result.

    ONNX SoftmaxCrossEntropyLoss-12, -13.
    """
    logs = log_softmax_of(widened(scores), 1)
    loss = _likelihood_loss(logs, labels, weights, ignore_index, reduction)
    return rounded(loss, scores.dtype), rounded(logs, scores.dtype)
