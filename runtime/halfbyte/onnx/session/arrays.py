"""Conversion of arrays between callers and graphs, which differ in the types that NumPy lacks.

Callers get them as arrays of ml_dtypes if that package is installed, else as graphs have them: with
the one-field dtypes of `halfbyte.onnx.files.dtypes`. Both forms are accepted.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.onnx.files import dtypes
from halfbyte.onnx.files.model import SparseTensor
from halfbyte.onnx.session.sparse import SparseTensor as Sparse

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
_UNCHANGED = frozenset(dtype for dtype in dtypes.PLAIN.values() if dtype.kind != "O")
_NAMES = {dtype: name for name, dtype in _ML_DTYPES.items()}


def from_caller(array: Array) -> Array:
    """A caller's array in the form of graphs and in native byte order, copied only if needed.

    Strings become str objects: bytes are decoded as UTF-8, other objects are converted by `str`.
    """
    if array.dtype in _UNCHANGED:
        return array
    special = _ML_DTYPES.get(array.dtype.name)
    if special is not None and special != array.dtype:
        name = dtypes.special_name(special) or ""
        stored = np.dtype(special[name])
        array = np.ascontiguousarray(array)
        array = array.astype(stored) if name in dtypes.INTEGER_BITS else array.view(stored)
        return array.view(special)
    if array.dtype.kind in "USO":
        return _strings(array)
    if not array.dtype.isnative:
        return array.astype(array.dtype.newbyteorder("="))
    return array


def to_caller(value: Any) -> Any:
    """A graph's value in the form of callers."""
    if isinstance(value, list):
        return [to_caller(item) for item in value]
    if isinstance(value, SparseTensor):
        return Sparse(value)
    if not isinstance(value, np.ndarray) or value.dtype not in _NAMES:
        return value
    module = _ml_dtypes()
    kind = getattr(module, _NAMES[value.dtype], None) if module is not None else None
    if kind is None:
        return value
    name = dtypes.special_name(value.dtype) or ""
    stored = np.ascontiguousarray(value[name])
    return stored.astype(kind) if name in dtypes.INTEGER_BITS else stored.view(kind)


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
    strings = np.empty(array.shape, object)
    flat = strings.reshape(-1)
    for index, item in enumerate(array.flat):
        flat[index] = item.decode(errors="replace") if isinstance(item, bytes) else str(item)
    return strings
