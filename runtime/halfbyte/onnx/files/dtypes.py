"""ONNX's element types as NumPy dtypes.

Types that NumPy lacks are structured dtypes with one field, which has the name of the type:
`np.dtype([("bfloat16", "<u2")])`. Arrays of them keep their shape, and can be moved, sliced and
joined as any other. `widen` converts them to numbers and `narrow` rounds numbers to them. Types of
six, four and two bits hold one element per byte.
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
    """The name of a type that NumPy lacks; None for other types."""
    return dtype.names[0] if dtype.names else None


def bits(dtype: np.dtype[Any]) -> int:
    """The width of an element in bits; narrow elements are stored in one byte each."""
    name = special_name(dtype)
    if name is None or name == "bfloat16":
        return dtype.itemsize * 8
    return INTEGER_BITS.get(name) or len(minifloat.table(name)).bit_length() - 1


def widen(array: Array) -> Array:
    """Numbers from a special type: float32 from floats, int8 or uint8 from integers."""
    name = special_name(array.dtype)
    if name is None:
        raise TypeError(f"{array.dtype} is a type that NumPy has")
    stored = array[name]
    if name == "bfloat16":
        return minifloat.bfloat16_decode(stored)
    if name in INTEGER_BITS:
        return stored
    table = minifloat.table(name)
    return np.asarray(table[stored & np.uint8(len(table) - 1)])


def narrow(
    array: Array, dtype: np.dtype[Any], *, saturate: bool = True, round_mode: str = "up"
) -> Array:
    """Numbers as a special type: floats are rounded to the nearest, ties to even.

    In an 8-bit float type, numbers beyond the largest one become that number if `saturate`, else
    infinity or NaN. bfloat16 always has infinity, types of 6 and 4 bits never do. `round_mode` is
    for float8e8m0. Integers keep their low bits; floats are truncated first. Source: ONNX Cast-25.
    """
    name = special_name(dtype)
    array = np.asarray(array)
    if name is None:
        raise TypeError(f"{dtype} is a type that NumPy has")
    if name == "bfloat16":
        stored: Array = minifloat.bfloat16_encode(array)
    elif name == "float8e8m0":
        stored = minifloat.e8m0_encode(array, saturate=saturate, round_mode=round_mode)
    elif name in INTEGER_BITS:
        stored = low_bits(array, name)
    else:
        stored = minifloat.EIGHT_BITS[name].encode(array, saturate=saturate).astype(np.uint8)
    return np.ascontiguousarray(stored).view(dtype).reshape(array.shape)


def low_bits(array: Array, name: str) -> Array:
    """The low bits of integers, sign-extended if the type of that name is signed."""
    bits = INTEGER_BITS[name]
    if array.dtype.kind == "f":
        with np.errstate(invalid="ignore"):
            array = array.astype(np.int64)  # towards zero
    low = array.astype(np.uint8) & np.uint8((1 << bits) - 1)
    if name.startswith("u"):
        return low
    half = 1 << (bits - 1)
    return ((low ^ np.uint8(half)).astype(np.int8) - np.int8(half)).astype(np.int8)


def as_stored(array: Array) -> Array:
    """A tensor's bytes in a file: narrow elements are packed, the first one in the low bits."""
    width = bits(array.dtype)
    flat = np.ascontiguousarray(array).reshape(-1)
    if special_name(array.dtype) is None or width == 8 or array.dtype.itemsize > 1:
        return flat.view(np.uint8) if array.dtype != object else np.zeros(0, np.uint8)
    elements = np.unpackbits(flat.view(np.uint8)[:, None], axis=1, bitorder="little")[:, :width]
    return np.packbits(elements.reshape(-1), bitorder="little")
