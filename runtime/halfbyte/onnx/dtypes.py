"""ONNX's element types: the reader's, under the name that users of graphs know."""

from halfbyte.onnx.files.dtypes import (
    BFLOAT16,
    DTYPES,
    FLOAT4E2M1,
    FLOAT6E2M3,
    FLOAT6E3M2,
    FLOAT8E4M3FN,
    FLOAT8E4M3FNUZ,
    FLOAT8E5M2,
    FLOAT8E5M2FNUZ,
    FLOAT8E8M0,
    INT2,
    INT4,
    INTEGER_BITS,
    NUMBERS,
    PLAIN,
    SPECIAL,
    STRING,
    UINT2,
    UINT4,
    bits,
    low_bits,
    narrow,
    special_name,
    widen,
)

__all__ = [
    "BFLOAT16", "DTYPES", "FLOAT4E2M1", "FLOAT6E2M3", "FLOAT6E3M2", "FLOAT8E4M3FN",
    "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ", "FLOAT8E8M0", "INT2", "INT4", "INTEGER_BITS",
    "NUMBERS", "PLAIN", "SPECIAL", "STRING", "UINT2", "UINT4", "bits", "low_bits", "narrow",
    "special_name", "widen",
]  # fmt: skip
