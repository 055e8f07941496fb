"""Changing elements' type: by value (Cast, CastLike) and by bits (BitCast)."""

from __future__ import annotations

from typing import Any

import numpy as np

from halfbyte.errors import UnsupportedError
from halfbyte.onnx.files import dtypes
from halfbyte.onnx.reference import _shapes
from halfbyte.onnx.reference.arrays import Array, numbers
from halfbyte.onnx.reference.registry import define


def element_type(number: int) -> np.dtype[Any]:
    """The dtype of an ONNX element type's number."""
    dtype = dtypes.DTYPES.get(number)
    if dtype is None:
        raise UnsupportedError(f"element type {number}: expected one of 1 to {max(dtypes.DTYPES)}")
    return dtype


def _cast(X: Array, *, to: int, **attributes: Any) -> _shapes.Shapes:
    return _shapes.blank(X.shape, element_type(to))


@define("Cast", special=True, infer=_shapes.alike(_cast))
def cast(X: Array, *, to: int, saturate: int = 1, round_mode: str = "up") -> Array:
    """X's values in another type. ONNX Cast-28.

    Floats become integers towards zero, integers keep their low bits, numbers are True unless they
    are 0. Floats are rounded to the nearest, ties to even; `saturate` is for those of 8 bits and
    `round_mode` for float8e8m0 (`dtypes.narrow`). Strings hold numbers as people write them.
    """
    return converted(X, element_type(to), saturate, round_mode)


@define("CastLike", since=15, special=True, infer=_shapes.same)
def cast_like(X: Array, target: Array, *, saturate: int = 1, round_mode: str = "up") -> Array:
    """X's values in the type of `target`; see Cast. ONNX CastLike-25."""
    return converted(X, target.dtype, saturate, round_mode)


def converted(X: Array, dtype: np.dtype[Any], saturate: int, round_mode: str) -> Array:
    """X's values in another type; see `cast`."""
    if X.dtype == dtype:
        return X
    values = parsed(X, dtype) if X.dtype == dtypes.STRING else numbers(X)
    if dtype == dtypes.STRING:
        return written(values)
    if dtype.names:
        return dtypes.narrow(values, dtype, saturate=bool(saturate), round_mode=round_mode)
    return values.astype(dtype)


def parsed(strings: Array, dtype: np.dtype[Any]) -> Array:
    """Numbers that strings hold, as int64, uint64 or float64.

    Raises `ValueError` if a string is not a number, `OverflowError` if it needs more bits.
    """
    if dtype.kind in "iub" or dtypes.special_name(dtype) in dtypes.INTEGER_BITS:
        widest: Any = np.uint64 if dtype == np.uint64 else np.int64
        values: list[Any] = [integer(text) for text in strings.reshape(-1)]
    else:
        widest = np.float64
        values = [float(text) for text in strings.reshape(-1)]
    return np.array(values, widest).reshape(strings.shape)


def integer(text: str) -> int:
    """A string's integer; the fraction of other numbers is cut off."""
    try:
        return int(text)
    except ValueError:
        return int(float(text))


def written(values: Array) -> Array:
    """Numbers as strings: the shortest that are read as the same number."""
    texts = np.empty(values.size, object)
    texts[:] = [text_of(value) for value in values.reshape(-1)]
    return texts.reshape(values.shape)


def text_of(value: Any) -> str:
    """One number as a string: 0.5, 2, 1e+30, INF, -INF, NaN; 1 and 0 of bool."""
    if isinstance(value, np.bool_):
        return str(int(value))
    if np.isnan(value):
        return "NaN"
    if np.isinf(value):
        return "INF" if value > 0 else "-INF"
    return str(value).removesuffix(".0")


@define("BitCast", since=26, special=True, infer=_shapes.alike(_cast))
def bit_cast(X: Array, *, to: int) -> Array:
    """X's bits as another type of the same width. ONNX BitCast-26."""
    dtype = element_type(to)
    if dtypes.STRING in (dtype, X.dtype) or dtypes.bits(dtype) != dtypes.bits(X.dtype):
        raise ValueError(f"the bits of {X.dtype} are not those of a {dtype}")
    codes = X.view(f"u{dtype.itemsize}")
    name = dtypes.special_name(dtype)
    if name in dtypes.INTEGER_BITS:
        codes = dtypes.low_bits(codes, name)
    elif dtypes.bits(dtype) < 8:
        codes = codes & np.uint8((1 << dtypes.bits(dtype)) - 1)
    return codes != 0 if dtype == np.bool_ else codes.view(dtype)
