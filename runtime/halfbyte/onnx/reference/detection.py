"""Regions and boxes: MaxRoiPool, RoiAlign, NonMaxSuppression."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from halfbyte.core.ops.reduce import mean_of
from halfbyte.errors import ProgramError
from halfbyte.onnx.reference import _shapes
from halfbyte.onnx.reference._numbers import Array, fitting, rounded, scalar, widened
from halfbyte.onnx.reference.registry import define


def _over_grid(
    x: Array, rois: Array, *, pooled_shape: Sequence[int], **attributes: Any
) -> _shapes.Shape:
    """The shape of the cells of a grid over each region."""
    return (len(rois), x.shape[1], *pooled_shape)


def _in_grid(
    x: Array, rois: Array, batch_indices: Array, *, output_height: int = 1, output_width: int = 1,
    **attributes: Any,
) -> _shapes.Shape:  # fmt: skip
    """The shape of RoiAlign's result."""
    return len(rois), x.shape[1], output_height, output_width


@define("MaxRoiPool", since=1, infer=_shapes.alike(_over_grid))
def max_roi_pool(
    x: Array, rois: Array, *, pooled_shape: Sequence[int], spatial_scale: float = 1.0
) -> Array:
    """The largest element of each cell of a grid over each region.

    x is [N, C, H, W], rois [R, 5] with (batch, x1, y1, x2, y2), both ends within after rounding;
    the result is [R, C, *pooled_shape]. An empty cell is 0. ONNX MaxRoiPool-1, -22.
    """
    height, width = (int(n) for n in pooled_shape)
    y = np.zeros(fitting((len(rois), x.shape[1], height, width), x.dtype.itemsize), x.dtype)
    for number, roi in enumerate(widened(rois).astype(np.float32)):
        batch = _batch_index(roi[0], len(x))
        # ties are rounded away from zero, as by C's round
        x1, y1, x2, y2 = (
            math.floor(abs(v) + 0.5) * (1 if v >= 0 else -1) for v in roi[1:] * spatial_scale
        )
        rows = _cells(y1, y2, height, x.shape[2])
        columns = _cells(x1, x2, width, x.shape[3])
        for i, (top, bottom) in enumerate(rows):
            for j, (left, right) in enumerate(columns):
                if bottom > top and right > left:
                    cell = x[batch, :, top:bottom, left:right]
                    y[number, :, i, j] = cell.max(axis=(1, 2))
    return y


def _batch_index(value: float, count: int) -> int:
    index = int(value)
    if not 0 <= index < count:
        raise ProgramError(f"batch index {index}: expected 0 to {count - 1}")
    return index


def _cells(first: int, last: int, count: int, size: int) -> list[tuple[int, int]]:
    """Beginning and end of each cell of a region's side, within an axis of `size`."""
    step = max(last - first + 1, 1) / count
    edges = [
        (math.floor(i * step) + first, math.ceil((i + 1) * step) + first) for i in range(count)
    ]
    return [(min(max(a, 0), size), min(max(b, 0), size)) for a, b in edges]


@define("RoiAlign", since=16, product=True, infer=_shapes.alike(_in_grid))
def roi_align(
    x: Array,
    rois: Array,
    batch_indices: Array,
    *,
    coordinate_transformation_mode: str = "half_pixel",
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Array:
    """The mean (or largest) of points, between elements, of each cell of a grid over each region.

    x is [N, C, H, W], rois [R, 4] with (x1, y1, x2, y2), batch_indices [R]; the result is
    [R, C, output_height, output_width]. A cell has sampling_ratio^2 points, with 0 one for each
    element that it spans. half_pixel moves regions by half an element; output_half_pixel does not,
    and makes them at least one element wide. ONNX RoiAlign-16, -22.
    """
    if mode not in ("avg", "max"):
        raise ProgramError(f"mode {mode!r}: expected avg or max")
    if rois.ndim != 2 or rois.shape[1] != 4 or batch_indices.shape != (len(rois),):
        raise ProgramError(f"rois {list(rois.shape)}: expected [R, 4], and R batch indices")
    half = coordinate_transformation_mode == "half_pixel"
    wide = widened(x)
    shape = fitting((len(rois), x.shape[1], output_height, output_width), wide.dtype.itemsize)
    y = np.zeros(shape, wide.dtype)
    for number, roi in enumerate(widened(rois)):
        image = wide[_batch_index(batch_indices[number], len(x))]
        placed = roi * np.float32(spatial_scale) - np.float32(0.5 if half else 0)
        left, top, right, bottom = placed
        if not np.isfinite(placed).all():
            raise ProgramError(f"region {number}: expected finite coordinates")
        width, height = right - left, bottom - top
        if not half:
            width, height = (max(side, np.float32(1)) for side in (width, height))
        rows = _points(top, height, output_height, sampling_ratio, x.shape[2])
        columns = _points(left, width, output_width, sampling_ratio, x.shape[3])
        y[number] = _aligned(image, rows, columns, (output_height, output_width), mode)
    return rounded(y, x.dtype)


def _points(start: Any, length: Any, cells: int, ratio: int, size: int) -> Array:
    """Positions of the points of all cells along one axis: [cells * points per cell]."""
    step = length / np.float32(cells)
    count = ratio if ratio > 0 else math.ceil(step)
    if count > 4 * size + 4:
        raise ProgramError(f"{count} points a cell over an axis of {size} elements")
    count = max(count, 0)
    cell = np.arange(cells, dtype=np.float32)[:, None] * step + start
    inner = (np.arange(count, dtype=np.float32) + np.float32(0.5)) * (
        step / np.float32(max(count, 1))
    )
    return np.asarray(cell + inner).reshape(-1)


def _ends(points: Array, size: int) -> tuple[Array, Array, Array, Array]:
    """Elements before and after each point, and their weights; 0 more than one element outside."""
    inside = (points >= -1) & (points <= size)
    place = np.clip(points, 0, size - 1)
    low = np.floor(place).astype(np.intp)
    part = place - low
    return (
        low,
        np.minimum(low + 1, size - 1),
        np.where(inside, 1 - part, 0),
        np.where(inside, part, 0),
    )


def _aligned(image: Array, rows: Array, columns: Array, cells: tuple[int, int], mode: str) -> Array:
    """One region of an image [C, H, W]: [C, *cells]."""
    if not rows.size or not columns.size:
        return np.zeros((len(image), *cells), image.dtype)
    top, bottom, upper, lower = _ends(rows, image.shape[1])
    left, right, before, after = _ends(columns, image.shape[2])
    corners = [
        image[:, r[:, None], c] * (p[:, None] * q).astype(image.dtype)
        for r, p in ((top, upper), (bottom, lower))
        for c, q in ((left, before), (right, after))
    ]
    shape = (len(image), cells[0], len(rows) // cells[0], cells[1], len(columns) // cells[1])
    if mode == "max":  # of the weighted corners themselves, as the operator is defined
        largest = np.maximum.reduce(corners).reshape(shape).max(axis=(2, 4))
        return np.asarray(largest)
    return mean_of(sum(corners).reshape(shape), (2, 4), keepdims=False)


@define("RoiAlign", since=10, product=True, infer=_shapes.alike(_in_grid))
def roi_align_10(
    x: Array,
    rois: Array,
    batch_indices: Array,
    *,
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Array:
    """The same with output_half_pixel. ONNX RoiAlign-10."""
    return roi_align(
        x, rois, batch_indices, coordinate_transformation_mode="output_half_pixel", mode=mode,
        output_height=output_height, output_width=output_width, sampling_ratio=sampling_ratio,
        spatial_scale=spatial_scale,
    )  # fmt: skip


@define("NonMaxSuppression", since=10, dynamic=True, product=True)
def non_max_suppression(
    boxes: Array,
    scores: Array,
    max_output_boxes_per_class: Array | None = None,
    iou_threshold: Array | None = None,
    score_threshold: Array | None = None,
    *,
    center_point_box: int = 0,
) -> Array:
    """Boxes with the best scores, without those that overlap one chosen before.

    Parameters
    ----------
    boxes : [N, B, 4]
        Two opposite corners (y1, x1, y2, x2), with center_point_box (x, y, width, height).
    scores : [N, classes, B]
    max_output_boxes_per_class, iou_threshold, score_threshold : one element each
        The largest number (default 0), the intersection over union above which a box is dropped
        (default 0), and the score that a box must exceed (default none).

    Returns
    -------
    int64 [chosen, 3] : batch, class, box. ONNX NonMaxSuppression-10, -11.
    """
    if boxes.ndim != 3 or scores.ndim != 3 or boxes.shape[::2] != (len(scores), 4):
        raise ProgramError(f"boxes {list(boxes.shape)} and scores {list(scores.shape)} do not fit")
    maximum = 0 if max_output_boxes_per_class is None else scalar(max_output_boxes_per_class, "max")
    overlap = 0.0 if iou_threshold is None else float(scalar(iou_threshold, "iou_threshold"))
    minimum = (
        -np.inf if score_threshold is None else float(scalar(score_threshold, "score_threshold"))
    )
    wide = widened(boxes).astype(np.float32)
    if center_point_box:
        center, half = wide[..., :2], wide[..., 2:] / 2
        low, high = center - half, center + half
    else:
        low, high = (
            np.minimum(wide[..., :2], wide[..., 2:]),
            np.maximum(wide[..., :2], wide[..., 2:]),
        )
    chosen: list[tuple[int, int, int]] = []
    for batch, classes in enumerate(widened(scores)):
        for number, values in enumerate(classes):
            kept = _suppressed(low[batch], high[batch], values, int(maximum), overlap, minimum)
            chosen += [(batch, number, box) for box in kept]
    return np.asarray(chosen, np.int64).reshape(-1, 3)


def _suppressed(
    low: Array, high: Array, scores: Array, maximum: int, overlap: float, minimum: float
) -> list[int]:
    """Boxes of one class by falling score (the first of equal ones first).

    A box is compared with those only that may overlap it along the first axis.
    """
    order = np.flatnonzero(scores > minimum)
    order = order[np.argsort(-scores[order], kind="stable")]
    if overlap < 0:  # every box suppresses all others
        return [int(box) for box in order[: min(maximum, 1)]]
    by_place = order[np.argsort(low[order, 0], kind="stable")]
    (low_a, low_b), (high_a, high_b) = (np.ascontiguousarray(v[by_place].T) for v in (low, high))
    areas = (high_a - low_a) * (high_b - low_b)
    reach = np.fmax.accumulate(np.where(np.isnan(high_a), -np.inf, high_a))
    firsts = np.searchsorted(reach, low_a, "right").tolist()
    lasts = np.searchsorted(low_a, high_a, "left").tolist()
    places = np.empty(len(scores), np.intp)
    places[by_place] = np.arange(len(by_place))
    left = np.ones(len(by_place), np.bool_)
    kept: list[int] = []
    for box, at in zip(order.tolist(), places[order].tolist(), strict=True):
        if len(kept) >= maximum:
            break
        if not left[at]:
            continue
        kept.append(box)
        near = slice(firsts[at], lasts[at])
        a = np.minimum(high_a[near], high_a[at]) - np.maximum(low_a[near], low_a[at])
        b = np.minimum(high_b[near], high_b[at]) - np.maximum(low_b[near], low_b[at])
        shared = np.maximum(a, 0) * np.maximum(b, 0)
        union = areas[near] + areas[at] - shared
        ratio = np.where(shared > 0, shared / np.where(union > 0, union, 1), 0)
        left[near] &= ~(ratio > overlap)
    return kept
