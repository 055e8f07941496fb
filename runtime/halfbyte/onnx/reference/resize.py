"""Resize and Upsample: each axis on its own, as a choice or a weighted sum of elements.

coordinate_transformation_mode maps coordinates of results to the input, where the mode selects the
elements and their weights. Linear and cubic interpolation go through one axis after the other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from halfbyte.errors import ProgramError
from halfbyte.onnx.reference import _shapes
from halfbyte.onnx.reference._numbers import Array, fitting, rounded, widened
from halfbyte.onnx.reference.arrays import axis_of, take
from halfbyte.onnx.reference.registry import define

MODES = {"bilinear": "linear"}  # Upsample's names
TIE = 1e-6  # of an element: about what float32 leaves of a tie, and what ONNX Runtime allows for


@dataclass(frozen=True)
class Axis:
    """One axis: from `size` elements to `target`; `scale` need not be their quotient."""

    size: int
    target: int
    scale: float
    start: float = 0.0  # of the region of interest, as a fraction of the axis
    end: float = 1.0

    @property
    def same(self) -> bool:
        return self.size == self.target and self.scale == 1 and (self.start, self.end) == (0, 1)


@dataclass(frozen=True)
class Method:
    """The attributes of the interpolation."""

    mode: str
    transformation: str
    nearest: str
    cubic: float
    antialias: bool
    exclude_outside: bool


def _coordinates(axis: Axis, transformation: str) -> Array:
    """The position of each result in the input, in elements: float32 [target].

    float32, so that ties between elements are broken as elsewhere.
    """
    x = np.arange(axis.target, dtype=np.float32)
    last, scale = axis.size - 1, np.float32(axis.scale)
    if transformation == "align_corners":
        return x * last / (axis.target - 1) if axis.target > 1 else x * 0
    if transformation == "asymmetric":
        return x / scale
    if transformation == "tf_crop_and_resize":
        start, end = np.float32(axis.start), np.float32(axis.end)
        if axis.target == 1:
            return x + (0.5 * float(start + end) * last)
        return start * last + x * (end - start) * last / (axis.target - 1)
    half: Array = (x + np.float32(0.5)) / scale - np.float32(0.5)
    if transformation == "half_pixel":
        return half
    if transformation == "pytorch_half_pixel":
        return half if axis.target > 1 else x * 0
    if transformation == "half_pixel_symmetric":
        adjustment = np.float32(axis.target) / (scale * np.float32(axis.size))
        offset = np.float32(axis.size / 2) * (1 - adjustment)
        wide = x.astype(np.float64)
        return (offset + (wide + 0.5) / scale - 0.5).astype(np.float32)
    if transformation == "tf_half_pixel_for_nn":  # version 11
        return (x + np.float32(0.5)) / scale
    raise ProgramError(f"coordinate_transformation_mode {transformation!r} is not one of ONNX's")


def copied(axes: Sequence[Axis], method: Method) -> bool:
    """Whether the result is the input: its sizes are the same, whatever the scales are.

    ONNX Runtime does the same.
    """
    cropped = method.transformation == "tf_crop_and_resize"
    return all(axis.same if cropped else axis.size == axis.target for axis in axes)


def nearest_elements(axis: Axis, method: Method) -> Array:
    """The index of the element that each result is."""
    x = _coordinates(axis, method.transformation)
    if method.nearest in ("round_prefer_floor", "round_prefer_ceil"):
        below = np.floor(x)
        part = x - below
        tie = np.abs(part - 0.5) <= TIE
        chosen: Array = below + np.where(tie, method.nearest.endswith("ceil"), part > 0.5)
    elif method.nearest == "floor":
        chosen = np.floor(x)
    elif method.nearest == "ceil":
        chosen = np.ceil(x)
    elif method.nearest == "simple":  # of version 10
        chosen = np.ceil(x) if axis.scale < 1 else np.floor(x)
    else:
        raise ProgramError(f"nearest_mode {method.nearest!r} is not one of ONNX's")
    return np.clip(chosen, 0, axis.size - 1).astype(np.intp)


def _linear_kernel(distance: Array) -> Array:
    return np.asarray(np.maximum(1 - np.abs(distance), 0))


def _cubic_kernel(distance: Array, a: float) -> Array:
    """Keys's kernel."""
    d = np.abs(distance)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


def weights_of(axis: Axis, method: Method) -> tuple[Array, Array]:
    """Indices of the elements of each result, and their weights: both [target, taps]."""
    x = _coordinates(axis, method.transformation)
    cubic = method.mode == "cubic"
    stretch = max(1.0, 1 / axis.scale) if method.antialias else 1.0
    reach = (2 if cubic else 1) * stretch  # of the kernel to either side
    taps = 2 * math.ceil(reach)
    fitting((axis.target, taps), 8, "weights of a result")
    first = (
        np.floor(x - reach).astype(np.intp) + 1
        if stretch > 1
        else np.floor(x).astype(np.intp) - taps // 2 + 1
    )
    index = first[:, None] + np.arange(taps)
    distance = (index - x[:, None]) / stretch
    weight = _cubic_kernel(distance, method.cubic) if cubic else _linear_kernel(distance)
    if method.exclude_outside:
        weight = np.where((index >= 0) & (index < axis.size), weight, 0)
    if method.exclude_outside or method.antialias:
        weight = weight / weight.sum(axis=1, keepdims=True)
    return np.clip(index, 0, axis.size - 1), weight


def _interpolated(x: Array, number: int, axis: Axis, method: Method) -> Array:
    """`x` with one axis replaced by weighted sums along it."""
    index, weight = weights_of(axis, method)
    shape = [1] * x.ndim
    shape[number] = axis.target
    result: Array = np.zeros((), x.dtype)
    for tap in range(index.shape[1]):
        factor = weight[:, tap].astype(x.dtype).reshape(shape)
        result = result + take(x, index[:, tap], number) * factor
    return result


def _resized(x: Array, axes: Sequence[Axis], method: Method, outside: float) -> Array:
    """All axes one after the other; `outside` is the value beyond the input, for cropping."""
    fitting((axis.target for axis in axes), x.dtype.itemsize)
    if 0 in x.shape or any(axis.target == 0 for axis in axes):
        return np.zeros([axis.target for axis in axes], x.dtype)
    if method.mode not in ("nearest", "linear", "cubic"):
        raise ProgramError(f"mode {method.mode!r}: expected nearest, linear, cubic")
    if copied(axes, method):
        return x
    dtype = x.dtype
    if method.mode != "nearest":
        x = x.astype(np.float32) if dtype.kind in "iub" else widened(x)
    # axes that shrink go first, which leaves less work for the others
    for number in sorted(range(len(axes)), key=lambda i: axes[i].target / axes[i].size):
        axis = axes[number]
        if axis.same:
            continue
        if method.mode == "nearest":
            x = take(x, nearest_elements(axis, method), number)
        else:
            x = _interpolated(x, number, axis, method)
    if method.transformation == "tf_crop_and_resize":
        x = _with_outside(x, axes, outside)
    if dtype.kind in "iu" and method.mode != "nearest":
        limits = np.iinfo(dtype)
        x = np.clip(np.rint(x) if method.antialias else np.trunc(x), limits.min, limits.max)
    return rounded(x, dtype)


def _with_outside(x: Array, axes: Sequence[Axis], value: float) -> Array:
    """The result with `value` at positions beyond the input."""
    for number, axis in enumerate(axes):
        place = _coordinates(axis, "tf_crop_and_resize")
        shape = [1] * x.ndim
        shape[number] = axis.target
        beyond = ((place < 0) | (place > axis.size - 1)).reshape(shape)
        x = np.where(beyond, x.dtype.type(value), x)
    return x


def _scaled_axes(x: Array, scales: Array, roi: Array | None, axes: Sequence[int]) -> list[Axis]:
    """Axes whose size is floor(size * (end - start) * scale), in float32."""
    result = [Axis(size, size, 1.0) for size in x.shape]
    for i, (number, scale) in enumerate(zip(axes, scales.tolist(), strict=True)):
        start, end = (0.0, 1.0) if roi is None else (float(roi[i]), float(roi[i + len(axes)]))
        size = x.shape[number]
        target = float(np.float32(size * (end - start)) * np.float32(scale))
        if not (math.isfinite(target) and scale > 0 and 0 <= target < 2**40):
            raise ProgramError(f"scale {scale} of an axis of {size} elements is out of range")
        result[number] = Axis(size, math.floor(target), scale, start, end)
    return result


def _sized_axes(
    x: Array, sizes: Array, roi: Array | None, axes: Sequence[int], policy: str
) -> list[Axis]:
    """Axes of the given sizes, which keep_aspect_ratio_policy may change."""
    targets = fitting(sizes, 1)
    if len(targets) != len(axes):
        raise ProgramError(f"sizes {list(targets)}: expected {len(axes)}")
    if any(x.shape[number] == 0 for number in axes):
        raise ProgramError(f"input {list(x.shape)}: expected no empty axis")
    quotients = [t / x.shape[number] for t, number in zip(targets, axes, strict=True)]
    if policy != "stretch":
        if policy not in ("not_larger", "not_smaller"):
            raise ProgramError(f"keep_aspect_ratio_policy {policy!r} is not one of ONNX's")
        kept = min(quotients) if policy == "not_larger" else max(quotients)
        quotients = [kept] * len(axes)
        targets = tuple(math.floor(kept * x.shape[number] + 0.5) for number in axes)
    result = [Axis(size, size, 1.0) for size in x.shape]
    for i, number in enumerate(axes):
        start, end = (0.0, 1.0) if roi is None else (float(roi[i]), float(roi[i + len(axes)]))
        result[number] = Axis(x.shape[number], targets[i], quotients[i], start, end)
    return result


def _given(x: Any) -> Any:
    """An optional input that is left out, or empty, as None."""
    return None if x is None or x.size == 0 else x


def _axes(
    x: Array, roi: Array | None = None, scales: Array | None = None, sizes: Array | None = None,
    *, axes: Sequence[int] | None = None, coordinate_transformation_mode: str = "half_pixel",
    keep_aspect_ratio_policy: str = "stretch", **attributes: Any,
) -> list[Axis]:  # fmt: skip
    """The axes of `x` as Resize's inputs and attributes resize them."""
    numbers = [axis_of(a, x.ndim) for a in axes] if axes else list(range(x.ndim))
    cropped = coordinate_transformation_mode == "tf_crop_and_resize"
    region = _given(roi) if cropped else None
    scales, sizes = _given(scales), _given(sizes)
    for factors, factor in ((region, 2), (scales, 1)):
        if factors is not None and factors.shape != (factor * len(numbers),):
            raise ProgramError(
                f"roi or scales of shape {list(factors.shape)}: expected {factor * len(numbers)}"
            )
    if scales is not None and sizes is None:
        return _scaled_axes(x, scales, region, numbers)
    if sizes is not None and scales is None:
        return _sized_axes(x, sizes, region, numbers, keep_aspect_ratio_policy)
    raise ProgramError("scales and sizes: expected exactly one of them")


def _targets(x: Array, *inputs: Array | None, **attributes: Any) -> _shapes.Shape:
    return tuple(axis.target for axis in _axes(x, *inputs, **attributes))


@define("Resize", since=11, decided_by=(1, 2, 3), infer=_shapes.alike(_targets))
def resize(
    x: Array,
    roi: Array | None = None,
    scales: Array | None = None,
    sizes: Array | None = None,
    *,
    antialias: int = 0,
    axes: Sequence[int] | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Array:
    """`x` resized by `scales`, or to `sizes`; only along `axes`, where these are given.

    Integer results are truncated, or rounded with antialias. ONNX Resize-11, -13, -18, -19.
    """
    how = described(
        x, roi, scales, sizes, antialias=antialias, axes=axes, cubic_coeff_a=cubic_coeff_a,
        coordinate_transformation_mode=coordinate_transformation_mode, nearest_mode=nearest_mode,
        exclude_outside=exclude_outside, keep_aspect_ratio_policy=keep_aspect_ratio_policy,
        mode=mode,
    )  # fmt: skip
    return _resized(x, *how, extrapolation_value)


def described(
    x: Array, roi: Array | None = None, scales: Array | None = None, sizes: Array | None = None,
    *, antialias: int = 0, axes: Sequence[int] | None = None,
    coordinate_transformation_mode: str = "half_pixel", cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0, extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch", mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> tuple[list[Axis], Method]:  # fmt: skip
    """The axes of an array as `resize` changes them, and how; only its shape counts."""
    resized = _axes(
        x, roi, scales, sizes, axes=axes, keep_aspect_ratio_policy=keep_aspect_ratio_policy,
        coordinate_transformation_mode=coordinate_transformation_mode,
    )  # fmt: skip
    method = Method(
        mode, coordinate_transformation_mode, nearest_mode, cubic_coeff_a,
        bool(antialias) and mode != "nearest", bool(exclude_outside),
    )  # fmt: skip
    return resized, method


def _simple_axes(x: Array, scales: Array) -> list[Axis]:
    if len(scales) != x.ndim:
        raise ProgramError(f"{len(scales)} scales: expected {x.ndim}")
    return _scaled_axes(x, scales, None, range(x.ndim))


def _simple_targets(x: Array, scales: Any, **attributes: Any) -> _shapes.Shape:
    axes = _simple_axes(x, np.asarray(scales, np.float32))
    return tuple(axis.target for axis in axes)


def simply_described(
    x: Array, scales: Array, *, mode: str = "nearest"
) -> tuple[list[Axis], Method]:
    """As `described`, for Resize's first form: asymmetric, and the nearest element towards the
    beginning."""
    method = Method(mode, "asymmetric", "simple", -0.75, antialias=False, exclude_outside=False)
    return _simple_axes(x, scales), method


@define("Resize", since=10, decided_by=(1,), infer=_shapes.alike(_simple_targets))
def resize_10(x: Array, scales: Array, *, mode: str = "nearest") -> Array:
    """`x` with floor(size * scale) elements per axis, taken at i / scale. ONNX Resize-10.

    "nearest" rounds this position down where an axis grows, and up where it shrinks.
    """
    return _resized(x, *simply_described(x, scales, mode=mode), 0.0)


@define("Upsample", since=9, decided_by=(1,), infer=_shapes.alike(_simple_targets))
def upsample(x: Array, scales: Array, *, mode: str = "nearest") -> Array:
    """The same under its older name. ONNX Upsample-9, -10."""
    return _resized(x, *simply_described(x, scales, mode=MODES.get(mode, mode)), 0.0)


@define("Upsample", since=7, infer=_shapes.alike(_simple_targets))
def upsample_7(x: Array, *, scales: Sequence[float], mode: str = "nearest") -> Array:
    """The same with scales as an attribute. ONNX Upsample-7."""
    return upsample(x, np.asarray(scales, np.float32), mode=mode)
