"""What encoders add to scores by the distance of key and query: windows, ALiBi, learned biases."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]

BUCKETS = 32  # of distances with a bias of their own, half of them for each side
_FARTHEST = 128  # tokens: from here on distances share the last bucket of their side


def biases(
    context: int, *, window: int = 0, slopes: F32 | None = None, learned: F32 | None = None
) -> F32:
    """Biases [heads, 2 context - 1] of distances key - query from 1 - context on; one row for all.

    Parameters
    ----------
    window : int
        Keys farther than half of it are hidden; 0 for none.
    slopes : [heads]
        ALiBi: -slope |distance|, symmetric (Press et al. 2022).
    learned : [BUCKETS, heads]
        A bias for each bucket; see `buckets`.
    """
    distances = np.arange(1 - context, context)
    rows = np.zeros((1, len(distances)), np.float32)
    if slopes is not None:
        rows = rows - slopes[:, None] * np.abs(distances).astype(np.float32)
    if learned is not None:
        rows = rows + learned[buckets(distances)].T
    if window:
        rows = np.where(np.abs(distances) > window // 2, np.float32(-np.inf), rows)
    return np.ascontiguousarray(rows, np.float32)


def buckets(distances: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The bucket of each distance key - query: keys before the query first, then those after it.

    Of a side's buckets, half are for one distance each, the others for logarithmic ranges, whose
    bounds depend on float32. Source: Raffel et al. 2020 (T5); Song et al. 2020 (MPNet).
    """
    side = BUCKETS // 2
    exact = side // 2
    far = np.abs(distances)
    ratio = np.log(np.maximum(far, 1).astype(np.float32) / np.float32(exact))
    share = ratio / np.float32(math.log(_FARTHEST / exact))
    last = np.minimum(exact + (share * np.float32(side - exact)).astype(int), side - 1)
    numbers: npt.NDArray[np.int64] = np.where(far < exact, far, last) + side * (distances > 0)
    return numbers
