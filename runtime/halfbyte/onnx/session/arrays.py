"""Arrays as callers have them, and as graphs do: they differ in the types that NumPy lacks.

Callers get them as ml_dtypes' arrays where that package is there, else as graphs have them: with
the one-field dtypes of `halfbyte.onnx.files.dtypes`. Both are taken.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.onnx.files import dtypes

Array = npt.NDArray[Any]

# Names of ml_dtypes' types; NumPy has none of these.
_ML_DTYPES: dict[str, np.dtype[Any]] = {
    "bfloat16": dtypes.BFLOAT16, "float8_e4m3fn": dtypes.FLOAT8E4M3FN,
    "float8_e4m3fnuz": dtypes.FLOAT8E4M3FNUZ, "float8_e5m2": dtypes.FLOAT8E5M2,
    "float8_e5m2fnuz": dtypes.FLOAT8E5M2FNUZ, "float8_e8m0fnu": dtypes.FLOAT8E8M0,
    "float4_e2m1fn": dtypes.FLOAT4E2M1, "float6_e2m3fn": dtypes.FLOAT6E2M3,
    "float6_e3m2fn": dtypes.FLOAT6E3M2, "int4": dtypes.INT4, "uint4": dtypes.UINT4,
    "int2": dtypes.INT2, "uint2": dtypes.UINT2,
}  # fmt: skip
_TAKEN = frozenset(dtype for dtype in dtypes.PLAIN.values() if dtype.kind != "O")  # as they are
_NAMES = {dtype: name for name, dtype in _ML_DTYPES.items()}


def from_caller(array: Array) -> Array:
    """A caller's array as a graph has it, in the machine's byte order; no copy where none is due.

    Strings become str objects: bytes are UTF-8, other objects what `str` makes of them.
    """
    if array.dtype in _TAKEN:
        return array
    special = _ML_DTYPES.get(array.dtype.name)
    if special is not None and special != array.dtype:
        name = dtypes.special_name(special) or ""
        code = np.dtype(special[name])
        array = np.ascontiguousarray(array)
        codes = array.astype(code) if name in dtypes.INTEGER_BITS else array.view(code)
        return codes.view(special)
    if array.dtype.kind in "USO":
        return _strings(array)
    if not array.dtype.isnative:
        return array.astype(array.dtype.newbyteorder("="))
    return array


def to_caller(value: Any) -> Any:
    """A graph's value as callers get it."""
    if isinstance(value, list):
        return [to_caller(item) for item in value]
    if not isinstance(value, np.ndarray) or value.dtype not in _NAMES:
        return value
    module = _ml_dtypes()
    kind = getattr(module, _NAMES[value.dtype], None) if module is not None else None
    if kind is None:
        return value
    name = dtypes.special_name(value.dtype) or ""
    codes = np.ascontiguousarray(value[name])
    return codes.astype(kind) if name in dtypes.INTEGER_BITS else codes.view(kind)


@functools.cache
def _ml_dtypes() -> ModuleType | None:
    try:
        import ml_dtypes
    except ImportError:
        return None
    module: ModuleType = ml_dtypes
    return module


def _strings(array: Array) -> Array:
    if array.dtype.kind == "O" and all(type(item) is str for item in array.flat):
        return array
    made = np.empty(array.shape, object)
    flat = made.reshape(-1)
    for index, item in enumerate(array.flat):
        flat[index] = item.decode(errors="replace") if isinstance(item, bytes) else str(item)
    return made
