"""ONNX's element types in NumPy's terms.

Types that NumPy lacks are structured dtypes with one field, whose name is the type's:
``np.dtype([("bfloat16", "<u2")])``. Arrays of them keep their shape, and can be moved, sliced and
joined like any other; `widen` makes numbers of them and `narrow` rounds numbers to them. Types of
six, four and two bits hold one element a byte.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.core import dtypes
from halfbyte.onnx.files import minifloat

Array = npt.NDArray[Any]

STRING = np.dtype(object)  # of str

PLAIN: dict[int, np.dtype[Any]] = {
    1: np.dtype(np.float32), 2: np.dtype(np.uint8), 3: np.dtype(np.int8), 4: np.dtype(np.uint16),
    5: np.dtype(np.int16), 6: np.dtype(np.int32), 7: np.dtype(np.int64), 8: STRING,
    9: np.dtype(np.bool_), 10: np.dtype(np.float16), 11: np.dtype(np.float64),
    12: np.dtype(np.uint32), 13: np.dtype(np.uint64), 14: np.dtype(np.complex64),
    15: np.dtype(np.complex128),
}  # fmt: skip

BFLOAT16 = dtypes.DTYPES["bfloat16"]
FLOAT8E4M3FN = dtypes.DTYPES["float8e4m3fn"]
FLOAT8E4M3FNUZ = dtypes.DTYPES["float8e4m3fnuz"]
FLOAT8E5M2 = dtypes.DTYPES["float8e5m2"]
FLOAT8E5M2FNUZ = dtypes.DTYPES["float8e5m2fnuz"]
UINT4 = dtypes.DTYPES["uint4"]
INT4 = dtypes.DTYPES["int4"]
FLOAT4E2M1 = dtypes.DTYPES["float4e2m1"]
FLOAT8E8M0 = dtypes.DTYPES["float8e8m0"]
UINT2 = dtypes.DTYPES["uint2"]
INT2 = dtypes.DTYPES["int2"]
FLOAT6E2M3 = dtypes.DTYPES["float6e2m3"]
FLOAT6E3M2 = dtypes.DTYPES["float6e3m2"]

SPECIAL: dict[int, np.dtype[Any]] = {
    16: BFLOAT16, 17: FLOAT8E4M3FN, 18: FLOAT8E4M3FNUZ, 19: FLOAT8E5M2, 20: FLOAT8E5M2FNUZ,
    21: UINT4, 22: INT4, 23: FLOAT4E2M1, 24: FLOAT8E8M0, 25: UINT2, 26: INT2,
    27: FLOAT6E2M3, 28: FLOAT6E3M2,
}  # fmt: skip

INTEGER_BITS = {"uint4": 4, "int4": 4, "uint2": 2, "int2": 2}

DTYPES: dict[int, np.dtype[Any]] = PLAIN | SPECIAL
NUMBERS: dict[np.dtype[Any], int] = {dtype: number for number, dtype in DTYPES.items()}


def special_name(dtype: np.dtype[Any]) -> str | None:
    """The field's name of a type that NumPy lacks, else None."""
    return dtype.names[0] if dtype.names else None


def bits(dtype: np.dtype[Any]) -> int:
    """The width of an element; narrow ones lie in a byte of their own."""
    name = special_name(dtype)
    if name is None or name == "bfloat16":
        return dtype.itemsize * 8
    return INTEGER_BITS.get(name) or len(minifloat.table(name)).bit_length() - 1


def widen(array: Array) -> Array:
    """Numbers of a special type: float32 of the float ones, int8 or uint8 of the integers."""
    name = special_name(array.dtype)
    if name is None:
        raise TypeError(f"{array.dtype} is a type that NumPy has")
    codes = array[name]
    if name == "bfloat16":
        return minifloat.bfloat16_decode(codes)
    if name in INTEGER_BITS:
        return codes
    table = minifloat.table(name)
    return np.asarray(table[codes & np.uint8(len(table) - 1)])


def narrow(
    array: Array, dtype: np.dtype[Any], *, saturate: bool = True, round_mode: str = "up"
) -> Array:
    """Numbers in a special type: floats are rounded to the nearest, ties to even.

    `saturate` says what becomes of numbers beyond the largest one of an 8-bit float type: that
    number, else infinity or NaN. bfloat16 always has infinity, types of 6 and 4 bits never do.
    `round_mode` is float8e8m0's. Integers keep their low bits, after a float's fraction has been
    cut off. Source: ONNX Cast-25.
    """
    name = special_name(dtype)
    array = np.asarray(array)
    if name is None:
        raise TypeError(f"{dtype} is a type that NumPy has")
    if name == "bfloat16":
        codes: Array = minifloat.bfloat16_encode(array)
    elif name == "float8e8m0":
        codes = minifloat.e8m0_encode(array, saturate=saturate, round_mode=round_mode)
    elif name in INTEGER_BITS:
        codes = low_bits(array, name)
    else:
        codes = minifloat.EIGHT_BITS[name].encode(array, saturate=saturate).astype(np.uint8)
    return np.ascontiguousarray(codes).view(dtype).reshape(array.shape)


def low_bits(array: Array, name: str) -> Array:
    """The low bits of integers, sign extended where the type of that name is signed."""
    bits = INTEGER_BITS[name]
    if array.dtype.kind == "f":
        with np.errstate(invalid="ignore"):
            array = array.astype(np.int64)  # towards zero
    codes = array.astype(np.uint8) & np.uint8((1 << bits) - 1)
    if name.startswith("u"):
        return codes
    half = 1 << (bits - 1)
    return ((codes ^ np.uint8(half)).astype(np.int8) - np.int8(half)).astype(np.int8)
