"""Rounding rows of tensors, as a part that any process can compute: bytes, and their formats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from halfbyte.quantize import compensation
from halfbyte.quantize.encode import Codec
from halfbyte.weights import U8, F32Array, ScaledFormat, WeightFormat


class Stored(NamedTuple):
    """Rows as they are stored, uint8 [n, row_bytes]."""

    rows: U8
    format: type[WeightFormat]


@dataclass(frozen=True)
class Rounding:
    """Rows of tensors that read the same numbers, to be rounded together.

    Attributes
    ----------
    stored : sequence of Stored
        Of each tensor.
    columns : int
    format : type
        Of the result.
    importance : float32 [columns]
        Weights of squared errors in the search.
    gram : Gram, optional
        Of the numbers; errors are compensated then.
    """

    stored: Sequence[Stored]
    columns: int
    format: type[ScaledFormat]
    importance: F32Array
    gram: compensation.Gram | None = None


def rounded(codec: Codec, part: Rounding) -> list[U8]:
    """Encoded rows of each tensor, uint8 [n, row_bytes]."""
    decoded = [codec.decode(source, rows, part.columns) for rows, source in part.stored]
    whole = decoded[0] if len(decoded) == 1 else np.concatenate(decoded)
    x = np.ascontiguousarray(whole, np.float32)
    if part.gram is None:
        encoded, _ = codec.search(part.format, x, part.importance)
    else:
        factors = compensation.factors(*part.gram)
        encoded = compensation.compensated(x, *factors, part.format, codec.steps)
    ends = np.cumsum([len(each.rows) for each in part.stored])
    return np.split(encoded, ends[:-1])
