"""Describes a model's outputs for the page: best classes, shape and first values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

BEST = 5  # classes
FIRST = 8  # values
_CLASSES = range(2, 200_001)
_CHARACTERS = 200  # of a string


def describe(name: str, value: Any, labels: Sequence[str] = ()) -> dict[str, Any]:
    """One output for the page, by key.

    `name`, `type`, `shape` and `first`, its first values as text. Numbers also have `least`, `most`
    and `mean`. One row of classes also has `best`, a list of name, share (0..1) and value, and
    `softmax`, whether shares are the softmax of the values.
    """
    output: dict[str, Any] = {"name": name, "type": type(value).__name__, "shape": [], "first": []}
    if isinstance(value, np.ndarray):
        output |= _array(value)
        if "embed" not in name and "hidden" not in name:
            output |= _best(value, labels)
    elif isinstance(value, list):
        output |= {"type": "sequence", "shape": [len(value)]}
        if len(value) == 1 and isinstance(value[0], dict):
            output |= _of_map(value[0])
        else:
            output["first"] = [_text(item) for item in value[:FIRST]]
    elif value is not None:
        output["first"] = [_text(value)]
    return output


def _array(value: npt.NDArray[Any]) -> dict[str, Any]:
    output: dict[str, Any] = {
        "type": "string" if value.dtype == object else str(value.dtype),
        "shape": list(value.shape),
        "first": [_text(item) for item in value.reshape(-1)[:FIRST].tolist()],
    }
    if value.size and value.dtype.kind in "iuf":
        with np.errstate(all="ignore"):
            wide = value.astype(np.float64)
            least, most, mean = wide.min(), wide.max(), wide.mean()
        output |= {"least": _text(least), "most": _text(most), "mean": _text(mean)}
    return output


def _best(value: npt.NDArray[Any], labels: Sequence[str]) -> dict[str, Any]:
    """The best classes, if the value is one row of them: [classes], [1, classes, 1, ...]."""
    row = value.reshape(-1)
    one_row = value.ndim >= 1 and max(value.shape, default=0) == value.size
    if not one_row or row.size not in _CLASSES or value.dtype.kind != "f":
        return {}
    row = row.astype(np.float64)
    if not np.isfinite(row).all():
        return {}
    shares = bool((row >= 0).all() and abs(row.sum() - 1) < 1e-2)
    share = row if shares else _softmax(row)
    order = np.argsort(-row, kind="stable")[:BEST]
    named = len(labels) == row.size
    best = [
        {
            "name": labels[i] if named else f"class {i}",
            "share": float(share[i]),
            "value": _text(row[i]),
        }
        for i in order.tolist()
    ]
    return {"best": best, "softmax": not shares}


def _of_map(classes: dict[Any, Any]) -> dict[str, Any]:
    """The best of a map from classes to numbers, as scikit-learn's classifiers return."""
    first = [f"{_text(key)}: {_text(item)}" for key, item in list(classes.items())[:FIRST]]
    numbers = [item for item in classes.values() if isinstance(item, float | np.floating)]
    if len(numbers) < len(classes) or not numbers:
        return {"type": "map", "first": first}
    row = np.array(numbers, np.float64)
    best = _best(row, [_text(key) for key in classes])
    return {"type": "map", "first": first, **best}


def _softmax(row: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    powers = np.exp(row - row.max())
    shares: npt.NDArray[np.float64] = powers / powers.sum()
    return shares


def _text(value: Any) -> str:
    if isinstance(value, float | np.floating):
        return f"{float(value):.4g}"
    text = str(value)
    return text if len(text) <= _CHARACTERS else f"{text[:_CHARACTERS]}…"
