"""Values between elements: GridSample, AffineGrid, DeformConv."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from halfbyte.core.ops.pool import PADDINGS, sampled
from halfbyte.errors import ProgramError
from halfbyte.onnx.reference import _shapes
from halfbyte.onnx.reference._numbers import (
    Array,
    channels,
    fitting,
    rounded,
    vector,
    widened,
)  # fmt: skip
from halfbyte.onnx.reference._windows import counts
from halfbyte.onnx.reference.conv import checked_window, convolved
from halfbyte.onnx.reference.registry import define


def gather(x: Array, index: Sequence[Array]) -> Array:
    """Elements [N, C, P] of x [N, C, D...] at points: an array of positions [N, P] per axis."""
    flat = np.zeros(index[0].shape, np.int64)
    for size, places in zip(x.shape[2:], index, strict=True):
        flat = flat * size + places
    rows = x.reshape(*x.shape[:2], -1)
    taken = np.empty((*x.shape[:2], index[0].shape[1]), x.dtype)
    for image, chosen, elements in zip(rows, flat, taken, strict=True):
        here = chosen.astype(np.intp, copy=False)
        np.take(image, here, axis=1, out=elements, mode="clip")  # which needs no buffer
    return taken


def bounded(places: Array, size: int) -> tuple[Array, Array]:
    """Positions as indices of an axis, clipped to its ends, and whether they are within it."""
    inside = (places >= 0) & (places <= size - 1)
    return np.minimum(np.fmax(places, 0), size - 1).astype(np.int64), inside  # NaN is 0


def multilinear(x: Array, places: Sequence[Array]) -> Array:
    """Interpolation between the elements of x [N, C, D...] around each point; zero outside.

    `places` are real numbers [N, P], one array per axis; the result is [N, C, P].
    """
    total: Array = np.zeros((*x.shape[:2], places[0].shape[1]), x.dtype)
    bases = [np.floor(p) for p in places]
    for corner in itertools.product((0, 1), repeat=len(places)):
        index, weight = [], np.ones(places[0].shape, x.dtype)
        for side, base, place, size in zip(corner, bases, places, x.shape[2:], strict=True):
            at, inside = bounded(base + side, size)
            index.append(at)
            part = place - base if side else 1 - (place - base)
            weight = weight * np.where(inside, part, 0).astype(x.dtype)
        total += gather(x, index) * weight[:, None]
    return total


TAPS = {"nearest": 1, "linear": 2, "cubic": 4, "bilinear": 2, "bicubic": 4}  # version 16's last


def _at_grid(x: Array, grid: Array, **attributes: Any) -> _shapes.Shape:
    """The shape of samples at the positions of a grid [N, D..., rank]."""
    return (*x.shape[:2], *grid.shape[1:-1])


@define("GridSample", since=16, product=True, infer=_shapes.alike(_at_grid))
def grid_sample(
    x: Array,
    grid: Array,
    *,
    align_corners: int = 0,
    mode: str = "linear",
    padding_mode: str = "zeros",
) -> Array:
    """Y[n, c, i...] = X[n, c] at the position grid[n, i...], which names the last axis first.

    x is [N, C, D1 ... Dr], grid [N, results..., r] with -1 ... 1 from one end of an axis to the
    other: of its end elements' centers with align_corners, else of their outer edges. ONNX
    GridSample-16, -20, -22.
    """
    rank = x.ndim - 2
    if rank < 1 or grid.ndim != x.ndim or grid.shape[-1] != rank or len(grid) != len(x):
        raise ProgramError(f"input {list(x.shape)} and grid {list(grid.shape)} do not fit")
    if mode not in TAPS:
        raise ProgramError(f"mode {mode!r}: expected linear, nearest, cubic")
    if padding_mode not in PADDINGS:
        raise ProgramError(f"padding_mode {padding_mode!r}: expected zeros, border, reflection")
    results, dtype = grid.shape[1:-1], x.dtype
    fitting((*x.shape[:2], *results), 8)
    if mode != "nearest":
        x = x.astype(np.float64 if dtype.kind in "iu" else widened(x).dtype)
    points = widened(grid).reshape(len(x), -1, rank)
    samples = sampled(
        np.moveaxis(x, 1, -1), points, TAPS[mode], PADDINGS.index(padding_mode),
        int(align_corners != 0),
    )  # fmt: skip
    return rounded(np.moveaxis(samples, -1, 1).reshape(*x.shape[:2], *results), dtype)


def _grid(theta: Array, size: Array, **attributes: Any) -> _shapes.Shape:
    spatial = fitting(size, 1)[2:]
    return (len(theta), *spatial, len(spatial))


@define("AffineGrid", since=20, decided_by=(1,), infer=_shapes.Rule(_grid))
def affine_grid(theta: Array, size: Array, *, align_corners: int = 0) -> Array:
    """grid[n, i...] = theta[n] (x, y, (z,) 1), for GridSample. ONNX AffineGrid-20.

    theta is [N, r, r + 1], size (N, C, D1 ... Dr); x ... run from -1 to 1, at the centers of the
    end elements with align_corners, else at their outer edges. The result is [N, D..., r].
    """
    spatial = fitting(size, 1)[2:]
    rank = len(spatial)
    if theta.ndim != 3 or theta.shape[1:] != (rank, rank + 1) or len(theta) != int(size[0]):
        raise ProgramError(f"theta {list(theta.shape)} and size {size.tolist()} do not fit")
    wide = widened(theta)
    fitting((len(theta), *spatial, rank + 1), wide.dtype.itemsize)
    lines = []
    for count in spatial:
        index = np.arange(count, dtype=wide.dtype)
        if align_corners:
            lines.append(index * (2 / max(count - 1, 1)) - 1)
        else:
            lines.append((2 * index + 1) / count - 1)
    mesh = np.meshgrid(*lines, indexing="ij")
    points = np.stack([*mesh[::-1], np.ones(spatial, wide.dtype)], axis=-1).reshape(-1, rank + 1)
    grid = points @ wide.swapaxes(1, 2)
    return rounded(grid.reshape(len(theta), *spatial, rank), theta.dtype)


def _deformed(
    x: Array, w: Array, *others: Array | None, offset_group: int = 1, **attributes: Any
) -> _shapes.Shape:
    return convolved(x, w, **attributes)


@define("DeformConv", since=19, product=True, infer=_shapes.alike(_deformed))
def deform_conv(
    x: Array,
    w: Array,
    offset: Array,
    b: Array | None = None,
    mask: Array | None = None,
    *,
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    offset_group: int = 1,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Array:
    """Conv whose windows take elements shifted by `offset`, times `mask`; zero outside the input.

    x is [N, C, D1 ... Dr], w [M, C / group, K...], offset [N, offset_group * prod(K) * r,
    results...] with the axes' offsets last fastest, mask [N, offset_group * prod(K), results...].
    ONNX DeformConv-19, -22.
    """
    window = checked_window(x, w, group, "NOTSET", dilations, kernel_shape, pads, strides)
    results = counts(x.shape[2:], window)
    rank, volume, batch = len(results), math.prod(window.kernel), len(x)
    if offset_group < 1 or x.shape[1] % offset_group:
        raise ProgramError(f"offset_group {offset_group}: expected a divisor of {x.shape[1]}")
    per_group = x.shape[1] // offset_group
    fitting((batch, x.shape[1], volume, *results), 8, "columns")
    offsets = widened(offset).reshape(batch * offset_group, volume, rank, math.prod(results))
    starts = np.meshgrid(
        *(
            np.arange(n) * s - p
            for n, s, p in zip(results, window.strides, window.begins, strict=True)
        ),
        indexing="ij",
    )
    taps = np.indices(window.kernel).reshape(rank, volume, 1)
    spread = np.asarray(window.dilations).reshape(rank, 1, 1)
    whole = np.stack([s.reshape(1, -1) for s in starts]) + taps * spread  # [rank, volume, results]
    places = [
        (offsets[:, :, axis] + whole[axis]).reshape(batch * offset_group, -1)
        for axis in range(rank)
    ]
    wide = widened(x).reshape(batch * offset_group, per_group, *x.shape[2:])
    columns = multilinear(wide, places)
    if mask is not None:
        columns = columns * widened(mask).reshape(batch * offset_group, 1, -1)
    columns = columns.reshape(batch, group, -1, math.prod(results))
    filters = widened(w).reshape(group, len(w) // group, -1)
    y = np.matmul(filters, columns).reshape(batch, len(w), *results)
    if b is not None:
        y = y + channels(vector(widened(b), len(w), "bias"), y.ndim)
    return rounded(y, x.dtype)
