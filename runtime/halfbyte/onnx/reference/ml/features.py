"""Feature columns: selected, scaled, encoded and imputed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.errors import ProgramError
from halfbyte.onnx.reference import _shapes
from halfbyte.onnx.reference._numbers import fitting
from halfbyte.onnx.reference.ml._common import floats, ml, rows_of, scaled

Array = npt.NDArray[Any]


def _columns(x: Array, y: Array) -> _shapes.Shape:
    return (*((1,) if x.ndim == 1 else x.shape[:-1]), y.size)


@ml("ArrayFeatureExtractor", special=True, infer=_shapes.Rule(_columns), types="a > a")
def array_feature_extractor(x: Array, y: Array) -> Array:
    """Elements y [n] of x along its last axis; a vector x is taken as one row."""
    columns = y.reshape(-1)
    last = x.shape[-1]
    if ((columns < 0) | (columns >= last)).any():
        raise ProgramError(f"columns {columns.tolist()[:8]} of {last}")
    taken: Array = x[..., columns]
    return taken.reshape(1, -1) if x.ndim == 1 else taken


@ml("Binarizer", infer=_shapes.same, types="a > a")
def binarizer(x: Array, *, threshold: float = 0.0) -> Array:
    """1 where x is above the threshold, else 0."""
    return np.asarray(x > x.dtype.type(threshold), x.dtype)


def _scaled(x: Array, *, offset: Sequence[float], scale: Sequence[float]) -> Array:
    return floats(*np.broadcast_shapes(x.shape, (len(offset),), (len(scale),)))


@ml("Scaler", infer=_shapes.Rule(_scaled))
def scaler(x: Array, *, offset: Sequence[float], scale: Sequence[float]) -> Array:
    """(x - offset) scale in float32; both are one number, or one per column."""
    shifted = x.astype(np.float32) - np.array(offset, np.float32)
    return shifted * np.array(scale, np.float32)


@ml("Normalizer", infer=_shapes.alike(scaled))
def normalizer(x: Array, *, norm: str = "MAX") -> Array:
    """Rows of x divided by their maximum (MAX), sum of absolute values (L1) or length (L2)."""
    wide = x.astype(np.float32)
    if norm == "MAX":
        size = wide.max(-1, keepdims=True)
    elif norm == "L1":
        size = np.abs(wide).sum(-1, keepdims=True)
    elif norm == "L2":
        size = np.sqrt(np.square(wide).sum(-1, keepdims=True))
    else:
        raise ProgramError(f"norm {norm!r}, expected MAX, L1 or L2")
    return wide / np.where(size == 0, np.float32(1), size)


def _imputed(
    x: Array, *, imputed_value_floats: Sequence[float] = (),
    imputed_value_int64s: Sequence[int] = (), **attributes: Any,
) -> _shapes.Shape:  # fmt: skip
    values = imputed_value_int64s if x.dtype.kind in "iu" else imputed_value_floats
    return np.broadcast_shapes(x.shape, (len(values),))


@ml("Imputer", infer=_shapes.Rule(_imputed), types="a > a")
def imputer(
    x: Array,
    *,
    imputed_value_floats: Sequence[float] = (),
    imputed_value_int64s: Sequence[int] = (),
    replaced_value_float: float = 0.0,
    replaced_value_int64: int = 0,
) -> Array:
    """x with some values replaced by another: one for all columns, or one per column."""
    whole = x.dtype.kind in "iu"
    values = np.array(imputed_value_int64s if whole else imputed_value_floats, x.dtype)
    replaced = replaced_value_int64 if whole else replaced_value_float
    missing = np.isnan(x) if replaced != replaced else x == x.dtype.type(replaced)
    return np.asarray(np.where(missing, values, x), x.dtype)


def _one_hot(
    x: Array, *, cats_int64s: Sequence[int] | None = None,
    cats_strings: Sequence[str] | None = None, zeros: int = 1,
) -> Array:  # fmt: skip
    return floats(*x.shape, len(cats_strings or cats_int64s or ()))


@ml("OneHotEncoder", infer=_shapes.Rule(_one_hot))
def one_hot_encoder(
    x: Array,
    *,
    cats_int64s: Sequence[int] | None = None,
    cats_strings: Sequence[str] | None = None,
    zeros: int = 1,
) -> Array:
    """float32 [*x.shape, categories]: 1 at the category; all 0 for others, if `zeros`."""
    if cats_strings:
        values, categories = x, np.array(cats_strings, object)
    else:
        values, categories = x.astype(np.int64), np.array(cats_int64s or (), np.int64)
    fitting((*x.shape, len(categories)), 4)
    matches = values[..., None] == categories
    if not zeros and not matches.any(-1).all():
        raise ProgramError("a value that is not a category")
    return np.asarray(matches, np.float32)


def _side_by_side(*inputs: Array, inputdimensions: Sequence[int] | None = None) -> Array:
    widths = inputdimensions or [x.size // rows_of(x) if x.size else 0 for x in inputs]
    return floats(rows_of(inputs[0]), sum(widths))


@ml("FeatureVectorizer", infer=_shapes.Rule(_side_by_side))
def feature_vectorizer(*inputs: Array, inputdimensions: Sequence[int] | None = None) -> Array:
    """Columns of all inputs side by side in float32; `inputdimensions` says how many of each.

    Columns that an input lacks are 0.
    """
    rows = [x.reshape(1, -1) if x.ndim == 1 else x.reshape(len(x), -1) for x in inputs]
    widths = inputdimensions or [x.shape[1] for x in rows]
    result = np.zeros(fitting((len(rows[0]), sum(widths)), 4), np.float32)
    at = 0
    for x, width in zip(rows, widths, strict=True):
        taken = min(width, x.shape[1])
        result[:, at : at + taken] = x[:, :taken]
        at += width
    return result


@ml("DictVectorizer", dynamic=True)
def dict_vectorizer(
    x: dict[Any, Any],
    *,
    int64_vocabulary: Sequence[int] | None = None,
    string_vocabulary: Sequence[str] | None = None,
) -> Array:
    """A map's values [1, keys] in the order of a vocabulary of its keys; 0 for missing keys.

    Python floats become float32.
    """
    keys: Sequence[Any] = string_vocabulary or int64_vocabulary or ()
    some = next(iter(x.values()), 0.0)
    some = np.asarray(some, np.float32 if type(some) is float else None)
    values = [x.get(key, "" if some.dtype.kind in "UO" else 0) for key in keys]
    kind = object if some.dtype.kind in "UO" else some.dtype
    return np.array(values, kind).reshape(1, -1)


@ml("ZipMap", dynamic=True)
def zip_map(
    x: Array,
    *,
    classlabels_int64s: Sequence[int] | None = None,
    classlabels_strings: Sequence[str] | None = None,
) -> list[dict[Any, Any]]:
    """Rows of x [n, classes] as maps from a label to its float32."""
    labels: Sequence[Any] = classlabels_strings or classlabels_int64s or ()
    rows = x.reshape(-1, x.shape[-1])
    return [dict(zip(labels, map(float, row), strict=True)) for row in rows]
