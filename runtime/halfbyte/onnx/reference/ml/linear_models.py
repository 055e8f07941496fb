"""LinearRegressor and LinearClassifier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.errors import ProgramError
from halfbyte.onnx.reference import _shapes
from halfbyte.onnx.reference.ml._common import floats, labels_of, ml, rows_of, transformed

Array = npt.NDArray[Any]


def products(x: Array, coefficients: Sequence[float], intercepts: Sequence[float]) -> Array:
    """x [n, d] times coefficients [k, d], plus intercepts [k], in float32."""
    rows = x.reshape(1, -1) if x.ndim == 1 else x
    if not rows.shape[1] or len(coefficients) % rows.shape[1]:
        raise ProgramError(f"{len(coefficients)} coefficients for {rows.shape[1]} columns")
    matrix = np.array(coefficients, np.float32).reshape(-1, rows.shape[1])
    scores = rows.astype(np.float32) @ matrix.T
    return scores + np.array(intercepts, np.float32) if len(intercepts) else scores


def _targets(x: Array, *, targets: int = 1, **attributes: Any) -> Array:
    return floats(rows_of(x), targets)


@ml("LinearRegressor", infer=_shapes.Rule(_targets))
def linear_regressor(
    x: Array,
    *,
    coefficients: Sequence[float],
    intercepts: Sequence[float] = (),
    post_transform: str = "NONE",
    targets: int = 1,
) -> Array:
    """x times coefficients [targets, d], plus intercepts: float32 [n, targets]."""
    scores = products(x, coefficients, intercepts)
    if scores.shape[1] != targets:
        raise ProgramError(f"coefficients of {scores.shape[1]} targets, expected {targets}")
    return transformed(scores, post_transform)


def _classified(
    x: Array, *, coefficients: Sequence[float], classlabels_ints: Sequence[int] | None = None,
    classlabels_strings: Sequence[str] | None = None, post_transform: str = "NONE",
    **attributes: Any,
) -> list[Array]:  # fmt: skip
    labels = labels_of(classlabels_ints, classlabels_strings)
    scores = len(coefficients) // x.shape[-1]
    two = scores == 1 and len(labels) == 2 and post_transform != "PROBIT"
    rows = rows_of(x)
    return [_shapes.blank((rows,), labels.dtype), floats(rows, 2 if two else scores)]


@ml("LinearClassifier", infer=_shapes.Rule(_classified))
def linear_classifier(
    x: Array,
    *,
    coefficients: Sequence[float],
    intercepts: Sequence[float] = (),
    classlabels_ints: Sequence[int] | None = None,
    classlabels_strings: Sequence[str] | None = None,
    multi_class: int = 0,
    post_transform: str = "NONE",
) -> tuple[Array, Array]:
    """The label with the highest score [n], and scores [n, classes].

    A single score s for two labels selects the second where it is positive; scores are then 1 - s
    and s.
    """
    scores = products(x, coefficients, intercepts)
    labels = labels_of(classlabels_ints, classlabels_strings)
    if scores.shape[1] == 1 and len(labels) == 2:
        best = (scores[:, 0] > 0).astype(np.int64)
        shown = transformed(scores, post_transform if post_transform == "PROBIT" else "NONE")
        if post_transform != "PROBIT":
            if post_transform == "LOGISTIC":
                shown = transformed(scores, "LOGISTIC")
            shown = np.concatenate([1 - shown, shown], axis=1)
        return labels[best], shown
    return labels[scores.argmax(1)], transformed(scores, post_transform)
