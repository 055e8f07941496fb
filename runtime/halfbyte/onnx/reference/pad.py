"""Padding of arrays, and cropping to a size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from halfbyte.errors import UnsupportedError
from halfbyte.onnx.reference import _shapes
from halfbyte.onnx.reference.arrays import Array, axes_of, check_elements, integers, take, zeros
from halfbyte.onnx.reference.registry import define

MODES = ("constant", "edge", "reflect", "wrap")


def _pads(
    data: Array, sizes: Sequence[int], axes: Sequence[int] | None
) -> tuple[Array, list[tuple[int, int]]]:
    """The part of `data` that is kept (negative pads crop), and what is added along each axis.

    Where a negative pad is larger than the axis, the rest of it crops what the other one adds.
    """
    along = range(data.ndim) if axes is None else axes_of(axes, data.ndim)
    if len(sizes) != 2 * len(along):
        raise ValueError(f"{len(sizes)} pads of {len(along)} axes")
    before, after = [0] * data.ndim, [0] * data.ndim
    for place, axis in enumerate(along):
        before[axis], after[axis] = sizes[place], sizes[place + len(along)]
    check_elements(map(sum, zip(data.shape, before, after, strict=True)), data.dtype.itemsize)
    kept: list[Any] = []
    grown = []
    for size, b, a in zip(data.shape, before, after, strict=True):
        first, last = min(max(-b, 0), size), min(max(-a, 0), size)
        kept.append(slice(first, max(first, size - last)))
        grown.append((max(b, 0) + min(a, 0) + last, max(a, 0) + min(b, 0) + first))
    return data[(*kept, ...)], grown


def _around(data: Array, pads: Sequence[tuple[int, int]]) -> _shapes.Shape:
    return tuple(b + size + a for size, (b, a) in zip(data.shape, pads, strict=True))


def _padded(
    data: Array, pads: Array, value: Array | None = None, axes: Array | None = None,
    **attributes: Any,
) -> _shapes.Shape:  # fmt: skip
    return _around(*_pads(data, integers(pads), None if axes is None else integers(axes)))


def _padded_by_attributes(data: Array, *, pads: Sequence[int], **attributes: Any) -> _shapes.Shape:
    return _around(*_pads(data, pads, None))


padded = _shapes.alike(_padded)


@define("Pad", since=2, special=True, infer=_shapes.alike(_padded_by_attributes))
def pad_by_attributes(
    data: Array, *, pads: list[int], mode: str = "constant", value: float = 0.0
) -> Array:
    """`data` with `pads` around it; see below. ONNX Pad-2."""
    return pad(data, np.asarray(pads, np.int64), np.asarray(value, data.dtype), mode=mode)


@define("Pad", since=11, decided_by=(1, 3), special=True, infer=padded)
def pad(
    data: Array,
    pads: Array,
    constant_value: Array | None = None,
    axes: Array | None = None,
    *,
    mode: str = "constant",
) -> Array:
    """`data` with pads [begin of each axis..., end of each axis...] around it. ONNX Pad-25.

    Negative pads crop, which comes first. `mode` says what is added: "constant", the value (0 by
    default); "edge", the last element; "reflect", the elements mirrored at the last one; "wrap",
    the elements repeated.
    """
    if mode not in MODES:
        raise UnsupportedError(f"mode {mode!r}: expected one of {MODES}")
    kept, grown = _pads(data, integers(pads), None if axes is None else integers(axes))
    if mode == "constant":
        return framed(kept, grown, constant_value)
    return continued(kept, grown, mode)


def framed(data: Array, pads: Sequence[tuple[int, int]], value: Array | None) -> Array:
    """An array filled with the value, with `data` inside."""
    result = zeros(_around(data, pads), data.dtype)
    if value is not None:
        result[...] = value.reshape(())
    result[tuple(slice(b, b + size) for size, (b, _) in zip(data.shape, pads, strict=True))] = data
    return result


def continued(data: Array, pads: Sequence[tuple[int, int]], mode: str) -> Array:
    """`data` continued along every axis by its own elements."""
    for axis, (before, after) in enumerate(pads):
        size = data.shape[axis]
        if not before and not after:
            continue
        if size == 0:
            raise ValueError(f"axis {axis} has no elements to pad it with")
        places = np.arange(-before, size + after)
        if mode == "edge":
            places = np.clip(places, 0, size - 1)
        elif mode == "wrap":
            places %= size
        else:
            period = max(2 * (size - 1), 1)
            places %= period
            places = np.minimum(places, period - places) if size > 1 else places
        data = take(data, places, axis)
    return data


def _centered(data: Array, shape: Array, *, axes: list[int] | None = None) -> _shapes.Shape:
    along = range(data.ndim) if axes is None else axes_of(axes, data.ndim)
    wanted = dict(zip(along, integers(shape), strict=True))
    return tuple(wanted.get(axis, size) for axis, size in enumerate(data.shape))


@define("CenterCropPad", since=18, decided_by=(1,), special=True, infer=_shapes.alike(_centered))
def center_crop_pad(data: Array, shape: Array, *, axes: list[int] | None = None) -> Array:
    """`data` cropped or padded with zeros to a shape, around its center. ONNX CenterCropPad-18.

    Where a difference is odd, the end loses, or gets, one element more.
    """
    along = range(data.ndim) if axes is None else axes_of(axes, data.ndim)
    wanted = dict(zip(along, integers(shape), strict=True))
    pads = np.zeros((2, data.ndim), np.int64)
    for axis, size in wanted.items():
        check_elements([size])
        more = size - data.shape[axis]
        pads[0, axis] = more // 2 if more > 0 else -(-more // 2)
        pads[1, axis] = more - pads[0, axis]
    return pad(data, pads.reshape(-1))
