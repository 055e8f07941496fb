"""Outputs of a model as the page shows them: best classes, or shape and first values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

BEST = 5  # classes
FIRST = 8  # values
_CLASSES = range(2, 200_001)
_CHARACTERS = 200  # of a string


def described(name: str, value: Any, labels: Sequence[str] = ()) -> dict[str, Any]:
    """One output for the page.

    `name`, `type`, `shape` and `first`, its first values as text; for numbers `least`, `most` and
    `mean`; for one row of classes `best`, a list of name, share (0..1) and value, and `softmax`,
    whether shares are the softmax of the values.
    """
    found: dict[str, Any] = {"name": name, "type": type(value).__name__, "shape": [], "first": []}
    if isinstance(value, np.ndarray):
        found |= _array(value)
        if "embed" not in name and "hidden" not in name:
            found |= _best(value, labels)
    elif isinstance(value, list):
        found |= {"type": "sequence", "shape": [len(value)]}
        if len(value) == 1 and isinstance(value[0], dict):
            found |= _of_map(value[0])
        else:
            found["first"] = [_text(item) for item in value[:FIRST]]
    elif value is not None:
        found["first"] = [_text(value)]
    return found


def _array(value: npt.NDArray[Any]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "type": "string" if value.dtype == object else str(value.dtype),
        "shape": list(value.shape),
        "first": [_text(item) for item in value.reshape(-1)[:FIRST].tolist()],
    }
    if value.size and value.dtype.kind in "iuf":
        with np.errstate(all="ignore"):
            wide = value.astype(np.float64)
            least, most, mean = wide.min(), wide.max(), wide.mean()
        found |= {"least": _text(least), "most": _text(most), "mean": _text(mean)}
    return found


def _best(value: npt.NDArray[Any], labels: Sequence[str]) -> dict[str, Any]:
    """The best classes, if this is one row of their values: [classes], [1, classes, 1, ...]."""
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


def _of_map(found: dict[Any, Any]) -> dict[str, Any]:
    """The best of a map from classes to numbers, as classifiers of scikit-learn give."""
    first = [f"{_text(key)}: {_text(item)}" for key, item in list(found.items())[:FIRST]]
    numbers = [item for item in found.values() if isinstance(item, float | np.floating)]
    if len(numbers) < len(found) or not numbers:
        return {"type": "map", "first": first}
    row = np.array(numbers, np.float64)
    best = _best(row, [_text(key) for key in found])
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
