"""Sums over the rows that enter matrices: second moments of channels, and Gram matrices.

For rows X, the Gram matrix is X^T X, whose diagonal are the channels' sums of squares. Matrices
that read the same rows, such as those of queries, keys and values, share it. Of experts each has
its own, from the rows of its tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.errors import HalfbyteError
from halfbyte.weights import F32Array, Tensor

Array = npt.NDArray[Any]
F64Array = npt.NDArray[np.float64]


@dataclass
class Moments:
    """What entered a tensor's matrices.

    Attributes
    ----------
    squares : float64 [matrices, columns]
        Sums of squares.
    counts : int64 [matrices]
        Rows.
    grams : float32 [matrices, columns, columns] or None
        X^T X, None where only squares are added up.
    """

    squares: F64Array
    counts: npt.NDArray[np.int64]
    grams: F32Array | None = None

    def means(self) -> F32Array:
        """Mean squares [matrices, columns]; 1 for a matrix that nothing has entered."""
        counts = np.maximum(self.counts, 1).astype(np.float32)[:, None]
        means: F32Array = self.squares.astype(np.float32) / counts
        means[self.counts == 0] = 1
        return means


class Statistics:
    """Adds up what an observer of :class:`halfbyte.quantize.calibration.segments.Segments` sees.

    Parameters
    ----------
    gram_bytes : int
        Most bytes of a tensor's Gram matrices; a tensor that needs more has squares only.
    """

    def __init__(self, gram_bytes: int = 0) -> None:
        self.gram_bytes = gram_bytes
        self.moments: dict[str, Moments] = {}

    def __call__(self, tensors: Sequence[Tensor], operands: Mapping[str, Array]) -> None:
        """Add rows that enter some tensors."""
        name, columns = tensors[0].name, tensors[0].columns
        x = operands["x"].reshape(-1, columns)
        ends = operands["ends"].tolist() if "ends" in operands else [len(x)]
        if name not in self.moments:
            moments = self._new(len(ends), columns)
            self.moments |= {tensor.name: moments for tensor in tensors}
        self._add(self.moments[name], name, x, ends)

    def _add(self, moments: Moments, name: str, x: F32Array, ends: list[int]) -> None:
        first = 0
        for matrix, end in enumerate((*ends[:-1], len(x))):
            rows = x[first : max(first, end)]
            first = max(first, end)
            if not len(rows):
                continue
            with np.errstate(over="ignore", invalid="ignore"):
                squares = np.square(rows).sum(axis=0, dtype=np.float64)
            if not np.isfinite(squares).all():
                channel = int(np.argmin(np.isfinite(squares)))
                raise HalfbyteError(
                    f"tensor {name!r}: expected finite activations, found channel {channel} "
                    "infinite or not a number: the model or the text is damaged"
                )
            moments.squares[matrix] += squares
            moments.counts[matrix] += len(rows)
            if moments.grams is not None:
                moments.grams[matrix] += rows.T @ rows

    def _new(self, matrices: int, columns: int) -> Moments:
        fits = 4 * matrices * columns * columns <= self.gram_bytes
        grams = np.zeros((matrices, columns, columns), np.float32) if fits else None
        return Moments(np.zeros((matrices, columns)), np.zeros(matrices, np.int64), grams)
