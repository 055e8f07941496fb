"""A quantized matrix: its parts in a checkpoint, and the tensor that it becomes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from halfbyte.errors import FormatError, UnsupportedError
from halfbyte.formats.checkpoints import Checkpoint
from halfbyte.formats.derived import DerivedTensor
from halfbyte.formats.huggingface.config import Keys
from halfbyte.weights import F32, Q4_0, Q5_0, Q8_0, U8, F32Array, WeightFormat
from halfbyte.weights.few_bits import TQ2_0

Array = npt.NDArray[Any]

_EXACT: tuple[tuple[type[WeightFormat], int, int], ...] = (  # format, least, largest integer
    (TQ2_0, -1, 1), (Q4_0, -8, 7), (Q5_0, -16, 15), (Q8_0, -128, 127),
)  # fmt: skip


class Matrix(NamedTuple):
    """Weights [rows, columns]: scales[row, group] * integers, a group being equally many columns.

    `integers` makes rows [first, first + count), in all between `low` and `high`. `groups` are
    those of each column if columns are in another order.
    """

    columns: int
    scales: F32Array
    integers: Callable[[int, int], Array]
    low: int
    high: int
    groups: Array | None = None


class Parts:
    """The tensors of a checkpoint that belong to quantized matrices, taken out one by one."""

    def __init__(self, checkpoint: Checkpoint, where: str, keys: Keys) -> None:
        self.where, self.keys, self.name = where, keys, ""
        self.tensors, self.raw = dict(checkpoint.tensors), dict(checkpoint.raw)

    def layers(self, end: str) -> list[str]:
        """Names of the matrices that have an integer tensor with this end."""
        return [name.removesuffix(end) for name in self.raw if name.endswith(end)]

    def error(self, problem: str) -> FormatError:
        """An error about the current matrix."""
        return FormatError(f"{self.where}: tensor {self.name + '.weight'!r}: {problem}")

    def integers(self, part: str, dtype: str, *shape: int | None) -> Array:
        """An integer tensor of the current matrix; None in the shape is any size."""
        tensor = self.raw.pop(f"{self.name}.{part}", None)
        if tensor is None or tensor.dtype != dtype:
            found = "nothing" if tensor is None else tensor.dtype
            raise self.error(f"{part}: expected {dtype}, found {found}")
        self._check(part, tensor.values.shape, shape)
        return tensor.values

    def scales(self, part: str, *shape: int | None) -> F32Array:
        """A float tensor of the current matrix, finite, as float32."""
        tensor = self.tensors.pop(f"{self.name}.{part}", None)
        if tensor is None:
            raise self.error(f"{part}: expected floats, found nothing")
        self._check(part, tensor.shape, shape)
        values = tensor.decode().reshape(tensor.shape)
        if not np.isfinite(values).all():
            raise self.error(f"{part}: a scale that is not finite")
        return values

    def _check(self, part: str, found: tuple[int, ...], shape: tuple[int | None, ...]) -> None:
        fits = len(found) == len(shape)
        if not fits or any(n not in (None, f) for n, f in zip(shape, found, strict=True)):
            expected = ["any" if n is None else n for n in shape]
            raise self.error(f"{part}: expected shape {expected}, found {list(found)}")


def as_tensor(name: str, matrix: Matrix) -> DerivedTensor:
    """The matrix in the narrowest type that holds it exactly, or in F32."""
    rows, groups = matrix.scales.shape
    shape, group = (rows, matrix.columns), matrix.columns // groups
    with np.errstate(over="ignore"):
        held = np.array_equal(matrix.scales.astype(np.float16).astype(np.float32), matrix.scales)
    if held and matrix.groups is None and group % 32 == 0:
        for format_, low, high in _EXACT:
            fits = group % format_.block == 0 and low <= matrix.low and matrix.high <= high
            if fits:
                make = partial(_blocks, matrix, format_, group // format_.block)
                return DerivedTensor(f"{name}.weight", format_, shape, make)
    return DerivedTensor(f"{name}.weight", F32, shape, partial(_floats, matrix, group))


def _blocks(matrix: Matrix, format_: Any, repeats: int, first: int, count: int) -> U8:
    q = matrix.integers(first, count)
    blocks = np.empty((count, matrix.columns // format_.block), format_.layout)
    blocks["d"] = np.repeat(matrix.scales[first : first + count], repeats, axis=1)
    offset = 1 if format_ is TQ2_0 else getattr(format_, "offset", 0)
    stored = (q + offset).astype(np.int8).view(np.uint8)
    format_.store_quantized(blocks, stored.reshape(count, -1, format_.block))
    data: U8 = blocks.view(np.uint8).reshape(count, -1)
    return data


def _floats(matrix: Matrix, group: int, first: int, count: int) -> U8:
    scales = matrix.scales[first : first + count]
    groups = matrix.groups
    each = np.repeat(scales, group, axis=1) if groups is None else scales[:, groups]
    return F32.encode(matrix.integers(first, count).astype(np.float32) * each)


def unpacked(words: Array, bits: int, axis: int) -> Array:
    """The integers in words of 32 bits, lowest bits first, along an axis."""
    per = 32 // bits
    shifts = np.arange(per, dtype=np.uint32) * np.uint32(bits)
    moved = np.moveaxis(words.view(np.uint32), axis, -1)[..., None] >> shifts
    each = (moved & np.uint32((1 << bits) - 1)).astype(np.int16)
    return np.moveaxis(each.reshape(*each.shape[:-2], -1), -1, axis)


def known_bits(parts: Parts, key: str, *known: int) -> int:
    bits = parts.keys.integer(key, maximum=32)
    if bits not in known:
        expected = " or ".join(map(str, known))
        raise UnsupportedError(
            f"{parts.keys.where}: key '{key}': expected {expected}, found {bits}"
        )
    return bits


def check_groups(parts: Parts, columns: int, groups: int) -> None:
    if groups < 1 or columns % groups:
        raise parts.error(f"{columns} columns in {groups} groups")
