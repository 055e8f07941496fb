"""BitNet's matrices of -1, 0 and 1 with one scale, packed or still in floats.

Source: the layouts of `transformers` for BitNet; Ma et al. 2024, The Era of 1-bit LLMs.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from halfbyte.errors import FormatError
from halfbyte.formats.derived import DerivedTensor
from halfbyte.formats.huggingface.quantized.matrix import Array, Matrix, Parts, as_tensor
from halfbyte.weights import F32Array, Tensor

_PER_BYTE = 4
_SMALLEST = np.float32(1e-5)  # mean magnitude
_ROWS = 1 << 22  # weights that are looked at at once
LINEAR = "_proj.weight"  # the end of the names of ternary matrices, if they are in floats


def read(parts: Parts) -> DerivedTensor:
    """Four numbers in a byte, a quarter of the rows apart; 0, 1 and 2 are -1, 0 and 1.

    The scale is rounded to F16, which holds all usual ones in BF16. Layers of the kind "bitlinear",
    which is the default, have its reciprocal.
    """
    packed = parts.integers("weight", "U8", None, None)
    found = parts.tensors.get(f"{parts.name}.weight_scale")
    scale = parts.scales("weight_scale", *(() if found is None else found.shape))
    if scale.size != 1 or not (scale > 0).all():
        raise parts.error(
            f"weight_scale: expected one positive number, found {scale.tolist()!s:.80}"
        )
    scale = scale.reshape(1, 1)
    if parts.keys.text("linear_class", "bitlinear") == "bitlinear":
        scale = np.float32(1) / scale
    quarter, columns = packed.shape

    def integers(first: int, count: int) -> Array:
        rows = np.arange(first, first + count)
        shifts = (2 * (rows // quarter)).astype(np.uint8)[:, None]
        codes = packed[rows % quarter] >> shifts & np.uint8(3)
        if (codes == 3).any():
            raise FormatError(f"{parts.where}: tensor {name!r}: a code of 3: expected 0, 1 or 2")
        ternary: Array = codes.astype(np.int16) - 1
        return ternary

    name = f"{parts.name}.weight"
    return as_tensor(parts.name, _matrix(scale, _PER_BYTE * quarter, columns, integers))


def from_floats(tensor: Tensor) -> DerivedTensor:
    """A matrix that `transformers` rounds as it runs: x -> round(x / mean |x|), within -1 and 1.

    The scale is the mean as the tensor's type has it, rounded to F16.
    """
    kind = tensor.format

    @cache
    def factor() -> F32Array:
        step, total = max(1, _ROWS // tensor.columns), 0.0
        for first in range(0, tensor.row_count, step):
            part = kind.decode(tensor.take(first, step))
            total += float(np.abs(part).sum(dtype=np.float64))
        mean = np.float32(total / (tensor.row_count * tensor.columns))
        return np.float32(1) / np.maximum(mean, _SMALLEST)  # type: ignore[no-any-return]

    def integers(first: int, count: int) -> Array:
        scaled = kind.decode(tensor.take(first, count)) * factor()
        ternary: Array = np.clip(np.rint(scaled), -1, 1).astype(np.int16)
        return ternary

    scale = kind.decode(kind.encode(np.full((1, kind.block), np.float32(1) / factor())))[:, :1]
    name = tensor.name.removesuffix(".weight")
    return as_tensor(name, _matrix(scale, tensor.row_count, tensor.columns, integers))


def _matrix(scale: F32Array, rows: int, columns: int, integers: object) -> Matrix:
    rounded = np.minimum(scale, np.finfo(np.float16).max).astype(np.float16).astype(np.float32)
    return Matrix(columns, np.repeat(rounded, rows, axis=0), integers, -1, 1)  # type: ignore[arg-type]
