"""Rules of what continues a tensor at the ends of its axes, and of what pads take away."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from halfbyte.onnx.capture import Capture
from halfbyte.onnx.lowering.move import Part, along, concat, sliced
from halfbyte.onnx.lowering.registry import lower
from halfbyte.onnx.reference.arrays import axes_of
from halfbyte.onnx.values import Array, Operand, Value, ints


@lower("Pad")
def pad(
    c: Capture, x: Value | Array, sizes: Operand = None, value: Operand = None,
    on: Operand = None, *, pads: list[int] | None = None, mode: str = "constant",
    **attributes: Any,
) -> Value | None:  # fmt: skip
    """x continued at the ends of its axes, by a constant or by its own elements."""
    if not isinstance(x, Value) or isinstance(sizes, Value) or isinstance(value, Value):
        return None
    if isinstance(on, Value):
        return None
    rank, numbers = len(x.shape), pads if sizes is None else ints(sizes)
    axes = axes_of(range(rank) if on is None else ints(on), rank)
    if numbers is None or len(numbers) != 2 * len(axes) or not x.size:
        return None
    if mode not in ("constant", "edge", "reflect", "wrap"):
        return None
    ends = list(zip(axes, numbers, numbers[len(axes) :], strict=False))
    if min(numbers, default=0) < 0:
        cropped = _cropped(c, x, ends) if mode in ("constant", "edge") else None
        if cropped is None:
            return None
        x, ends = cropped, [(axis, max(before, 0), max(after, 0)) for axis, before, after in ends]
    fill = np.asarray(attributes.get("value", 0.0) if value is None else value, x.numpy)
    for axis, before, after in ends:
        if not before and not after:
            continue
        first = _end(c, x, axis, before, mode, fill, last=False) if before else None
        last = _end(c, x, axis, after, mode, fill, last=True) if after else None
        if (before and first is None) or (after and last is None):
            return None
        padded = concat(c, *(part for part in (first, x, last) if part is not None), axis=axis)
        if padded is None:
            return None
        x = padded
    return x


def _cropped(c: Capture, x: Value, ends: Sequence[Part]) -> Value | None:
    """x without what negative pads take away; None where nothing is left of an axis."""
    parts = [(0, 1, size) for size in x.shape]
    for axis, before, after in ends:
        first, size = max(-before, 0), x.shape[axis]
        parts[axis] = (first, 1, size - first - max(-after, 0))
    return sliced(c, x, parts) if all(count > 0 for _, _, count in parts) else None


def _end(
    c: Capture, x: Value, axis: int, count: int, mode: str, fill: Array, *, last: bool
) -> Value | Array | None:
    """What a pad adds before or after an axis; None where it repeats the axis more than once."""
    shape, size = [count if i == axis else d for i, d in enumerate(x.shape)], x.shape[axis]
    if mode == "constant":
        c.allow([count + size if i == axis else d for i, d in enumerate(x.shape)], x.numpy)
        return np.full(shape, fill.reshape(()), x.numpy)
    if mode != "edge" and count > size - (mode == "reflect"):
        return None
    first, step = {
        "edge": (size - 1 if last else 0, 0),
        "reflect": (size - 2 if last else count, -1),
        "wrap": (0 if last else size - count, 1),
    }[mode]
    return sliced(c, x, along(x.shape, axis, (first, step, count)))
