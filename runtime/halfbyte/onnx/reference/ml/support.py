"""Support vector machines: SVMRegressor and SVMClassifier."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.errors import ProgramError
from halfbyte.onnx.reference import _shapes
from halfbyte.onnx.reference._numbers import fitting
from halfbyte.onnx.reference.activation import sigmoid_of
from halfbyte.onnx.reference.ml._common import floats, labels_of, ml, transformed

Array = npt.NDArray[Any]


def kernel(x: Array, vectors: Array, kind: str, parameters: Sequence[float]) -> Array:
    """k(x, v) of rows x [n, d] and v [m, d]: [n, m]; parameters are gamma, coef0, degree."""
    gamma, shift, degree = parameters if len(parameters) == 3 else (0.0, 0.0, 3.0)
    if kind == "RBF":
        fitting((len(x), *vectors.shape), 4)
        squares = np.square(x[:, None] - vectors[None]).sum(-1)
        return np.asarray(np.exp(-np.float32(gamma) * squares))
    dots = x @ vectors.T
    if kind == "LINEAR":
        return np.asarray(dots)
    scaled = np.float32(gamma) * dots + np.float32(shift)
    if kind == "POLY":
        return np.asarray(scaled ** np.float32(degree))
    if kind == "SIGMOID":
        return np.asarray(np.tanh(scaled))
    raise ProgramError(f"kernel {kind!r}, expected LINEAR, POLY, RBF or SIGMOID")


def _one_score(x: Array, **attributes: Any) -> Array:
    return floats(x.size // x.shape[-1], 1)


def _classified(
    x: Array, *, classlabels_ints: Sequence[int] | None = None,
    classlabels_strings: Sequence[str] | None = None, prob_a: Sequence[float] = (),
    vectors_per_class: Sequence[int] = (), **attributes: Any,
) -> list[Array]:  # fmt: skip
    labels, rows = labels_of(classlabels_ints, classlabels_strings), x.size // x.shape[-1]
    classes = len(vectors_per_class) or len(labels)
    pairs = len(vectors_per_class) > 2 and not len(prob_a)
    scores = classes * (classes - 1) // 2 if pairs else classes
    return [_shapes.blank((rows,), labels.dtype), floats(rows, scores)]


@ml("SVMRegressor", infer=_shapes.Rule(_one_score))
def svm_regressor(
    x: Array,
    *,
    coefficients: Sequence[float],
    rho: Sequence[float],
    kernel_type: str = "LINEAR",
    kernel_params: Sequence[float] = (),
    n_supports: int = 0,
    one_class: int = 0,
    post_transform: str = "NONE",
    support_vectors: Sequence[float] = (),
) -> Array:
    """sum of coefficients k(x, support vectors), plus rho: float32 [n, 1].

    Without support vectors the coefficients are those of a linear model. `one_class` returns the
    sign, 1 or -1.
    """
    rows = x.astype(np.float32).reshape(-1, x.shape[-1])
    factors = np.array(coefficients, np.float32)
    if n_supports:
        vectors = np.array(support_vectors, np.float32).reshape(n_supports, rows.shape[1])
        scores = kernel(rows, vectors, kernel_type, kernel_params) @ factors
    else:
        scores = kernel(rows, factors.reshape(1, -1), kernel_type, kernel_params)[:, 0]
    scores = (scores + np.float32(rho[0])).reshape(-1, 1)
    if one_class:
        return np.where(scores > 0, np.float32(1), np.float32(-1))
    return transformed(scores, post_transform)


@ml("SVMClassifier", infer=_shapes.Rule(_classified))
def svm_classifier(
    x: Array,
    *,
    coefficients: Sequence[float],
    rho: Sequence[float],
    classlabels_ints: Sequence[int] | None = None,
    classlabels_strings: Sequence[str] | None = None,
    kernel_type: str = "LINEAR",
    kernel_params: Sequence[float] = (),
    post_transform: str = "NONE",
    prob_a: Sequence[float] = (),
    prob_b: Sequence[float] = (),
    support_vectors: Sequence[float] = (),
    vectors_per_class: Sequence[int] = (),
) -> tuple[Array, Array]:
    """The label [n], and scores of classes (with probabilities, or linear) or of their pairs.

    A single score s becomes [-s, s].

    With support vectors every pair of classes has a decision, and the class that wins most is the
    label; with `prob_a` and `prob_b` decisions become probabilities of classes, coupled as in Wu,
    Lin and Weng (2004).
    """
    labels = labels_of(classlabels_ints, classlabels_strings)
    rows = x.astype(np.float32).reshape(-1, x.shape[-1])
    if not vectors_per_class:
        matrix = np.array(coefficients, np.float32).reshape(len(labels), -1)
        scores = kernel(rows, matrix, kernel_type, kernel_params) + np.float32(rho[0])
        return labels[scores.argmax(1)], transformed(scores, post_transform)
    decisions = _decisions(rows, coefficients, rho, kernel_type, kernel_params, support_vectors,
                           vectors_per_class)  # fmt: skip
    classes = len(vectors_per_class)
    votes = np.zeros((len(rows), classes), np.int64)
    for at, (i, j) in enumerate(combinations(range(classes), 2)):
        votes[:, i] += decisions[:, at] > 0
        votes[:, j] += decisions[:, at] <= 0
    best, scores = votes.argmax(1), decisions
    if len(prob_a):
        sure = sigmoid_of(
            -(decisions * np.array(prob_a, np.float32) + np.array(prob_b, np.float32))
        )
        scores = np.array([_coupled(row, classes) for row in sure], np.float32)
    elif classes == 2:
        scores = np.concatenate([-decisions, decisions], axis=1)
    return labels[best], transformed(scores.astype(np.float32), post_transform)


def _decisions(
    rows: Array, coefficients: Sequence[float], rho: Sequence[float], kind: str,
    parameters: Sequence[float], vectors: Sequence[float], counts: Sequence[int],
) -> Array:  # fmt: skip
    """Decisions [n, pairs]: positive for the first class of each pair."""
    total, classes = sum(counts), len(counts)
    similar = kernel(
        rows, np.array(vectors, np.float32).reshape(total, rows.shape[1]), kind, parameters
    )
    factors = np.array(coefficients, np.float32).reshape(classes - 1, total)
    starts = np.concatenate([[0], np.cumsum(counts)])
    decisions = []
    for at, (i, j) in enumerate(combinations(range(classes), 2)):
        first, second = (slice(starts[c], starts[c + 1]) for c in (i, j))
        score = similar[:, first] @ factors[j - 1, first] + similar[:, second] @ factors[i, second]
        decisions.append(score + np.float32(rho[at]))
    return np.stack(decisions, axis=1)


def _coupled(pairwise: Array, classes: int) -> Array:
    """Probabilities p [classes] that best fit those of pairs: libsvm's fixed-point iteration.

    Minimizes sum over i and j of (r_ji p_i - r_ij p_j)², with r_ij the first's probability.
    """
    r = np.zeros((classes, classes))
    for value, (i, j) in zip(pairwise, combinations(range(classes), 2), strict=True):
        r[i, j] = min(max(float(value), 1e-7), 1 - 1e-7)
        r[j, i] = 1 - r[i, j]
    q = -r.T * r
    q[np.diag_indices(classes)] = np.square(r).sum(0)
    p = np.full(classes, 1 / classes)
    for _ in range(100):
        qp = q @ p
        whole = p @ qp
        if np.abs(qp - whole).max() < 0.005 / classes:
            break
        for t in range(classes):
            step = (whole - qp[t]) / q[t, t]
            p[t] += step
            whole = (whole + step * (step * q[t, t] + 2 * qp[t])) / (1 + step) ** 2
            qp = (qp + step * q[t]) / (1 + step)
            p /= 1 + step
    return p
