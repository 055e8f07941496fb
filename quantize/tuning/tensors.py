"""From a model's tensors to what is learned of them, and back to bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.quantize.tuning.learned import Learned, Matrix, Vector, learns
from halfbyte.quantize.tuning.pieces import Piece
from halfbyte.weights import F32, U8, F32Array, Tensor


def learned_of(piece: Piece, start: Mapping[str, Tensor]) -> dict[str, Learned]:
    """What is learned of a piece's tensors, by slot."""
    learned: dict[str, Learned] = {}
    for slot, value in piece.tensors.items():
        matrix = isinstance(value, Tensor) and len(value.shape) == 2
        if matrix and learns(value.format) and _first_row(value, value.whole or value) >= 0:
            learned[slot] = Matrix(value)
        elif not matrix and (whole := start.get(piece.prefix + slot)) is not None:
            values = floats(value)
            if whole.format is F32 and values.size == np.prod(whole.shape):
                learned[slot] = Vector(values)
    return learned


def encoded(
    pieces: Sequence[Piece], learned_by_piece: Sequence[Mapping[str, Learned]]
) -> dict[str, U8]:
    """The bytes [rows, row_bytes] of all tensors of which something is learned."""
    encoded: dict[str, U8] = {}
    for piece, learned in zip(pieces, learned_by_piece, strict=True):
        for slot, each in learned.items():
            value = piece.tensors[slot]
            whole = value.whole if isinstance(value, Tensor) else None
            if whole is None:
                encoded[piece.prefix + slot] = each.encoded()
                continue
            if whole.name not in encoded:
                encoded[whole.name] = np.array(whole.rows)
            rows = each.encoded()
            first = _first_row(value, whole)
            encoded[whole.name][first : first + len(rows)] = rows
    return encoded


def _first_row(part: Tensor, whole: Tensor) -> int:
    """The row of a matrix with which a part begins; -1 if its rows are computed."""
    if part is whole:
        return 0
    if type(part) is not Tensor or not np.shares_memory(part.data, whole.data):
        return -1
    return int(part.data.ctypes.data - whole.data.ctypes.data) // whole.format.row_bytes(
        whole.columns
    )


def floats(value: Tensor | npt.NDArray[Any]) -> F32Array:
    """An operand's numbers."""
    return value.decode() if isinstance(value, Tensor) else np.asarray(value, np.float32)


def in_floats(tensor: Tensor) -> Tensor:
    """The tensor in F32."""
    values = np.ascontiguousarray(tensor.decode(), np.float32)
    return Tensor(tensor.name, F32, tensor.shape, values.reshape(-1).view(np.uint8))
