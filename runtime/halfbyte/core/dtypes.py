"""Element types of buffers, in programs of text and of graphs, under the names used in programs.

Types that NumPy lacks are structured dtypes with one field, which has the type's name.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

_NUMPY = {
    "f32": "f4", "f16": "f2", "i8": "i1", "i16": "i2", "i32": "i4", "i64": "i8", "u8": "u1",
    "u16": "u2", "u32": "u4", "u64": "u8", "f64": "f8", "c64": "c8", "c128": "c16", "bool": "?",
}  # fmt: skip
_SPECIAL = {
    "bfloat16": "<u2", "float8e4m3fn": "u1", "float8e4m3fnuz": "u1", "float8e5m2": "u1",
    "float8e5m2fnuz": "u1", "uint4": "u1", "int4": "i1", "float4e2m1": "u1", "float8e8m0": "u1",
    "uint2": "u1", "int2": "i1", "float6e2m3": "u1", "float6e3m2": "u1",
}  # fmt: skip

DTYPES: Mapping[str, np.dtype[Any]] = MappingProxyType({
    **{name: np.dtype(code) for name, code in _NUMPY.items()},
    **{name: np.dtype([(name, code)]) for name, code in _SPECIAL.items()},
})  # fmt: skip
_KEYS = {dtype: name for name, dtype in DTYPES.items()}


def dtype_key(dtype: np.dtype[Any]) -> str | None:
    """The name of an element type in programs; None if programs cannot hold it (strings)."""
    return _KEYS.get(dtype)
