"""Elements moved within an array."""

from __future__ import annotations

from typing import Any

import numpy as np

from halfbyte.errors import UnsupportedError
from halfbyte.onnx.reference import _shapes
from halfbyte.onnx.reference.arrays import Array, scalar, zeros
from halfbyte.onnx.reference.registry import define


@define("ReverseSequence", since=10, special=True, infer=_shapes.same)
def reverse_sequence(
    X: Array, sequence_lens: Array, *, batch_axis: int = 1, time_axis: int = 0
) -> Array:
    """The first sequence_lens[b] steps of each sequence b backwards. ONNX ReverseSequence-28."""
    if {batch_axis, time_axis} != {0, 1}:
        raise ValueError(f"batch_axis {batch_axis}, time_axis {time_axis}: expected 0 and 1")
    steps = np.arange(X.shape[time_axis])[:, np.newaxis]
    lengths = sequence_lens.reshape(X.shape[batch_axis])
    if lengths.size and (lengths.min() < 0 or lengths.max() > len(steps)):
        raise ValueError(f"lengths up to {lengths.max()} of {len(steps)} steps")
    source = np.where(steps < lengths, lengths - 1 - steps, steps)
    by_time = X if time_axis == 0 else X.swapaxes(0, 1)
    reversed_ = by_time[source, np.arange(len(lengths))]
    return reversed_ if time_axis == 0 else reversed_.swapaxes(0, 1)


def depth_first(mode: str) -> bool:
    """Whether the position in a block is the slower ("DCR") or faster ("CRD") part of the depth."""
    if mode not in ("DCR", "CRD"):
        raise UnsupportedError(f"mode {mode!r}: expected 'DCR' or 'CRD'")
    return mode == "DCR"


def _with_blocks(X: Array, *, blocksize: int, **attributes: Any) -> _shapes.Shape:
    """The shape of channels moved to blocks of rows and columns."""
    n, depth, height, width = X.shape
    return n, depth // blocksize**2, height * blocksize, width * blocksize


def _without_blocks(X: Array, *, blocksize: int, **attributes: Any) -> _shapes.Shape:
    """The shape of blocks of rows and columns moved to channels."""
    n, c, height, width = X.shape
    return n, c * blocksize**2, height // blocksize, width // blocksize


@define("DepthToSpace", special=True, infer=_shapes.alike(_with_blocks))
def depth_to_space(X: Array, *, blocksize: int, mode: str = "DCR") -> Array:
    """X [N, C b b, H, W] -> [N, C, H b, W b], b being `blocksize`. ONNX DepthToSpace-28."""
    n, depth, height, width = X.shape
    c = depth // (blocksize * blocksize)
    if depth_first(mode):
        blocks = X.reshape(n, blocksize, blocksize, c, height, width)
        moved = blocks.transpose(0, 3, 4, 1, 5, 2)
    else:
        blocks = X.reshape(n, c, blocksize, blocksize, height, width)
        moved = blocks.transpose(0, 1, 4, 2, 5, 3)
    return moved.reshape(n, c, height * blocksize, width * blocksize)


@define("SpaceToDepth", special=True, infer=_shapes.alike(_without_blocks))
def space_to_depth(X: Array, *, blocksize: int, mode: str = "DCR") -> Array:
    """X [N, C, H b, W b] -> [N, C b b, H, W], b being `blocksize`. ONNX SpaceToDepth-28."""
    n, c, tall, wide = X.shape
    height, width = tall // blocksize, wide // blocksize
    blocks = X.reshape(n, c, height, blocksize, width, blocksize)
    order = (0, 3, 5, 1, 2, 4) if depth_first(mode) else (0, 1, 3, 5, 2, 4)
    return blocks.transpose(order).reshape(n, c * blocksize * blocksize, height, width)


@define("Trilu", since=14, special=True, infer=_shapes.same)
def trilu(X: Array, k: Array | None = None, *, upper: int = 1) -> Array:
    """Matrices, zero below diagonal k; above it, unless `upper`. ONNX Trilu-14."""
    rows, columns = X.shape[-2:]
    diagonal = 0 if k is None else min(max(scalar(k), -rows), columns)
    place = np.arange(columns) - np.arange(rows)[:, np.newaxis]
    kept = place >= diagonal if upper else place <= diagonal
    return np.where(kept, X, zeros((), X.dtype))
