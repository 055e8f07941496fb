"""Matrices with a byte per weight: int8 of compressed-tensors, FP8 (E4M3) of several makers."""

from __future__ import annotations

from functools import partial

import numpy as np

from halfbyte.errors import FormatError
from halfbyte.formats.checkpoints import RawTensor
from halfbyte.formats.derived import DerivedTensor
from halfbyte.formats.huggingface.quantized.matrix import (
    Array,
    Matrix,
    Parts,
    as_tensor,
    check_groups,
)
from halfbyte.weights import F32, U8, F32Array


def read(parts: Parts) -> DerivedTensor:
    """A matrix with a scale per row, group of columns, block, or one for all."""
    tensor = parts.raw.pop(f"{parts.name}.weight")
    if tensor.values.ndim != 2 or tensor.dtype not in ("I8", "F8_E4M3"):
        raise parts.error(f"{tensor.dtype} of shape {list(tensor.values.shape)}")
    rows, columns = tensor.values.shape
    scales, group = _scales(parts, rows, columns)
    if tensor.dtype == "F8_E4M3":
        make = partial(_from_fp8, tensor, scales, group)
        return DerivedTensor(f"{parts.name}.weight", F32, (rows, columns), make)
    check_groups(parts, columns, scales.shape[1])

    def integers(first: int, count: int) -> Array:
        return tensor.values[first : first + count].astype(np.int16)

    return as_tensor(parts.name, Matrix(columns, scales, integers, -128, 127))


def _scales(parts: Parts, rows: int, columns: int) -> tuple[F32Array, int]:
    """Scales [rows, groups], and the columns of a group."""
    inverse = f"{parts.name}.weight_scale_inv" in parts.tensors
    name = "weight_scale_inv" if inverse else "weight_scale"
    found = parts.tensors.get(f"{parts.name}.{name}")
    scales = parts.scales(name, *[None] * (2 if found is None else len(found.shape)))
    if scales.size == 1:
        return np.full((rows, 1), scales.reshape(()), np.float32), columns
    scales = scales.reshape(len(scales), -1)
    height, width = -(-rows // len(scales)), -(-columns // scales.shape[1])
    if sizes := parts.keys.list("weight_block_size"):
        if len(sizes) != 2 or not all(type(n) is int and n > 0 for n in sizes):
            raise FormatError(f"{parts.keys.where}: weight_block_size: expected two sizes")
        height, width = sizes
    if scales.shape != (-(-rows // height), -(-columns // width)):
        raise parts.error(f"{name} of shape {list(scales.shape)} for {[rows, columns]}")
    return np.repeat(scales, height, axis=0)[:rows], width


def _from_fp8(tensor: RawTensor, scales: F32Array, group: int, first: int, count: int) -> U8:
    values = _FP8[tensor.values[first : first + count]]
    each = np.repeat(scales[first : first + count], group, axis=1)[:, : values.shape[1]]
    return F32.encode(values * each)


def _fp8_table() -> F32Array:
    """Values of E4M3 without infinities: sign, exponent with bias 7, fraction of three bits."""
    byte = np.arange(256)
    exponent, fraction = byte >> 3 & 15, byte & 7
    normal = np.ldexp(1 + fraction / 8, exponent - 7)
    value = np.where(exponent > 0, normal, np.ldexp(fraction / 8, -6))
    value[byte & 127 == 127] = np.nan
    return np.where(byte > 127, -value, value).astype(np.float32)


_FP8 = _fp8_table()
