"""Labels mapped to labels: LabelEncoder, CategoryMapper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.errors import ProgramError
from halfbyte.onnx.reference import _shapes
from halfbyte.onnx.reference._numbers import fitting
from halfbyte.onnx.reference.ml._common import ml

Array = npt.NDArray[Any]
NAN = object()  # the key of every NaN


def _key(value: Any) -> Any:
    return NAN if isinstance(value, float) and value != value else value


def mapped(x: Array, keys: Sequence[Any], values: Array, default: Array) -> Array:
    """The value of each element's key, `default` for others; of equal keys, the first counts."""
    if len(keys) != len(values):
        raise ProgramError(f"{len(keys)} keys and {len(values)} values")
    places = {_key(key): at for at, key in reversed(list(enumerate(keys)))}
    index = np.array([places.get(_key(value), -1) for value in x.reshape(-1).tolist()], np.int64)
    result = np.where(index >= 0, np.append(values, default)[index], default)
    return np.asarray(result, values.dtype).reshape(x.shape)


def _column(values: Sequence[Any], dtype: Any) -> Array:
    column = np.empty(len(values), dtype)
    column[:] = values
    return column


def _labelled(
    x: Array, *, values_floats: Sequence[float] | None = None,
    values_strings: Sequence[str] | None = None, values_tensor: Array | None = None,
    **attributes: Any,
) -> Array:  # fmt: skip
    """Like x, in the type of the attribute that has the values."""
    if values_tensor is not None:
        return _shapes.blank(x.shape, values_tensor.dtype)
    if values_strings is not None:
        return _shapes.blank(x.shape, object)
    return _shapes.blank(x.shape, np.int64 if values_floats is None else np.float32)


def _exchanged(x: Array, **attributes: Any) -> Array:
    """Like x, integers for strings and the reverse."""
    return _shapes.blank(x.shape, np.int64 if x.dtype == object else object)


@ml("LabelEncoder", since=2, infer=_shapes.alike(_labelled))
def label_encoder(
    x: Array,
    *,
    keys_floats: Sequence[float] | None = None,
    keys_int64s: Sequence[int] | None = None,
    keys_strings: Sequence[str] | None = None,
    keys_tensor: Array | None = None,
    values_floats: Sequence[float] | None = None,
    values_int64s: Sequence[int] | None = None,
    values_strings: Sequence[str] | None = None,
    values_tensor: Array | None = None,
    default_float: float = -0.0,
    default_int64: int = -1,
    default_string: str = "_Unused",
    default_tensor: Array | None = None,
) -> Array:
    """Each element's value in a map from keys to values; the default for others. NaN is a key.

    `..._tensor` are of version 4.
    """
    keys: Sequence[Any] | None = keys_int64s or keys_strings
    if keys_tensor is not None:
        keys = keys_tensor.reshape(-1).tolist()
    elif keys_floats is not None:
        keys = np.array(keys_floats, np.float32).tolist()
    if values_tensor is not None:
        values, default = values_tensor.reshape(-1), np.zeros(1, values_tensor.dtype)
        if values.dtype == object:
            default = _column([default_string], object)
    elif values_strings is not None:
        values, default = _column(values_strings, object), _column([default_string], object)
    elif values_floats is not None:
        values, default = (np.array(v, np.float32) for v in (values_floats, [default_float]))
    else:
        values, default = (np.array(v, np.int64) for v in (values_int64s or [], [default_int64]))
    if default_tensor is not None:
        default = default_tensor.reshape(-1).astype(values.dtype)
    return mapped(x, keys or (), values, default)


@ml("LabelEncoder", since=1, infer=_shapes.alike(_exchanged))
def label_encoder_1(
    x: Array,
    *,
    classes_strings: Sequence[str],
    default_int64: int = -1,
    default_string: str = "_Unused",
) -> Array:
    """A string's index among `classes_strings`, or the string at an index."""
    places = range(len(classes_strings))
    if x.dtype == object:
        default = np.array([default_int64])
        return mapped(x, classes_strings, np.array(places, np.int64), default)
    default = _column([default_string], object)
    return mapped(x, places, _column(classes_strings, object), default)


@ml("CategoryMapper", infer=_shapes.alike(_exchanged))
def category_mapper(
    x: Array,
    *,
    cats_int64s: Sequence[int],
    cats_strings: Sequence[str],
    default_int64: int = -1,
    default_string: str = "_Unused",
) -> Array:
    """Strings to integers, or integers to strings, by `cats_strings` and `cats_int64s`."""
    if x.dtype == object:
        default = np.array([default_int64])
        return mapped(x, cats_strings, np.array(cats_int64s, np.int64), default)
    default = _column([default_string], object)
    return mapped(x, cats_int64s, _column(cats_strings, object), default)


@ml("CastMap", dynamic=True)
def cast_map(
    x: Mapping[int, Any], *, cast_to: str = "TO_FLOAT", map_form: str = "DENSE", max_map: int = 1
) -> Array:
    """A map's values [1, n] in the order of their keys, as numbers or strings.

    SPARSE: keys are indices below `max_map`; the others are 0, or "".
    """
    kinds: Mapping[str, Any] = {
        "TO_FLOAT": np.float32, "TO_INT64": np.int64, "TO_STRING": object,
    }  # fmt: skip
    kind = kinds.get(cast_to)
    if kind is None or map_form not in ("DENSE", "SPARSE"):
        raise ProgramError(f"cast_to {cast_to!r}, map_form {map_form!r}")
    ordered = sorted(x.items())
    places = [key for key, _ in ordered] if map_form == "SPARSE" else range(len(ordered))
    length = max_map if map_form == "SPARSE" else len(ordered)
    result = np.full(fitting((1, length), 8), "" if kind is object else 0, kind)
    for place, (_, value) in zip(places, ordered, strict=True):
        if not 0 <= place < length:
            raise ProgramError(f"key {place}, expected 0 to {length - 1}")
        result[0, place] = str(value) if kind is object else float(value)
    return result
