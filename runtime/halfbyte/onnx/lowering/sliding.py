"""Windows over the spatial axes of a node's input, and images with channels last."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from halfbyte.core.buffer import Buffer
from halfbyte.errors import ProgramError
from halfbyte.onnx.capture import Capture
from halfbyte.onnx.reference._windows import counts, make_window
from halfbyte.onnx.sizes import is_named
from halfbyte.onnx.values import Array, Value, sizes_of

_TURNED = (("p", "q"), ("kernel_h", "kernel_w"), ("stride_h", "stride_w"),
           ("dilation_h", "dilation_w"), ("top", "left"))  # fmt: skip
_NORMAL = np.finfo(np.float32).tiny


class Sliding:
    """A window over the one to three spatial axes of x [n, c, ...], for `ops.conv2d`.

    Attributes
    ----------
    results : tuple of int
        Size of the result along each axis.
    volume : Window, optional
        The window itself, if it is over three axes; the following two are empty then.
    attributes : dict of str to int
        Size of the result, kernel, strides, dilations, padding at the beginning.
    ends : tuple of int
        Padding at the end of rows and columns.
    """

    def __init__(
        self, x: Value, kernel: Sequence[int], strides: Sequence[int] | None,
        dilations: Sequence[int] | None, pads: Sequence[int] | None, auto_pad: str, ceil: bool,
    ) -> None:  # fmt: skip
        window = make_window(x.shape[2:], kernel, strides, dilations, pads, auto_pad)
        self.results = counts(x.shape[2:], window, ceil and auto_pad == "NOTSET")
        self.volume = window if len(self.results) == 3 else None
        self.attributes: dict[str, int] = {}
        self.ends: tuple[int, ...] = ()
        if self.volume:
            return
        missing = 2 - len(self.results)

        def both(values: Sequence[int], default: int) -> tuple[int, ...]:
            return (default,) * missing + tuple(values)

        names = ("p", "q", "kernel_h", "kernel_w", "stride_h", "stride_w", "dilation_h",
                 "dilation_w", "top", "left")  # fmt: skip
        numbers = (
            *both(self.results, 1), *both(window.kernel, 1), *both(window.strides, 1),
            *both(window.dilations, 1), *both(window.begins, 0),
        )  # fmt: skip
        self.attributes = dict(zip(names, numbers, strict=True))
        self.ends = both(window.ends, 0)

    def lay(self, x: Value) -> bool:
        """Make an image of one column a row, of the same memory; returns whether it is one.

        The windows of a row are read where they are, as long as neighbours overlap.
        """
        a = self.attributes
        if len(x.shape) != 4 or not x.shape[3] == a["q"] == a["kernel_w"] == 1 or a["left"]:
            return False
        for down, across in _TURNED:
            a[down], a[across] = a[across], a[down]
        return True

    def trim(self, x: Value, w: Array) -> Array:
        """Leave out the first and last taps of a convolution that see only padding of x; returns
        the other weights.

        Dilated kernels have such taps where images are small.
        """
        missing = 4 - w.ndim
        if self.volume or any(map(is_named, x.shape)):
            return w
        for axis, name, edge in ((2, "h", "top"), (3, "w", "left")):
            if axis < 2 + missing:
                continue
            size, count = x.shape[axis - missing], self.attributes["p" if name == "h" else "q"]
            step, between = self.attributes[f"stride_{name}"], self.attributes[f"dilation_{name}"]
            before = self.attributes[edge]
            taps = w.shape[axis - missing]
            first, last = 0, taps
            while first < taps - 1 and between <= before and (count - 1) * step < before:
                first, before = first + 1, before - between
            while last > first + 1 and (last - 1 - first) * between - before >= size:
                last -= 1
            if last - first < taps:
                w = w[(slice(None),) * (axis - missing) + (slice(first, last),)]
                self.attributes |= {f"kernel_{name}": last - first, edge: before}
        return w


def sliding(
    x: Value, kernel: Sequence[int], strides: Sequence[int] | None,
    dilations: Sequence[int] | None, pads: Sequence[int] | None, auto_pad: str, ceil: bool = False,
) -> Sliding | None:  # fmt: skip
    """The window of a node; None if the kernels do not support it, or it is invalid."""
    if len(x.shape) not in (3, 4, 5) or not x.size:
        return None
    try:
        window = Sliding(x, kernel, strides, dilations, pads, auto_pad, ceil)
    except ProgramError:
        return None
    limit = 2**31 - 1
    numbers = (*window.attributes.values(), *window.ends)
    fits = all(number <= limit for number in numbers)
    return window if math.prod(window.results) and fits else None


def image(c: Capture, x: Value) -> Buffer:
    """The buffer [n, rows, columns, channels] of a value."""
    buffer = c.channels_last(x)
    if len(x.shape) == 4:
        return buffer
    n, channels, length = x.shape
    return buffer.view((n, 1, length, channels))


def result(c: Capture, y: Buffer, rank: int) -> Value:
    """A value with `rank` dimensions from a buffer [n, rows, columns, channels]."""
    if rank == 4:
        return c.value_channels_last(y)
    n, _, length, channels = sizes_of(y)
    return c.value_channels_last(y.view((n, length, channels)))


def floats(c: Capture, array: Array, layout: str, make: Callable[[], Array]) -> Buffer:
    """A constant in the layout of this name, shared by all programs."""
    name = c.weights.name(array) or "kernel"

    def placed() -> Buffer:
        return c.program.constant(f"{name}:{layout}", without_subnormals(make()))

    return c.weights.get(array, layout, placed)


def without_subnormals(w: Array) -> Array:
    """Weights without those below float32's normal numbers, if others are above 2^-100.

    Processors take a hundred times as long for products with them, which are less than the
    rounding of the others'.
    """
    if w.dtype != np.float32:
        return w
    parts = np.array_split(w.reshape(-1), max(1, w.size >> 20))  # of 4 MB: copies stay small
    if not any((part[np.abs(part) < _NORMAL] != 0).any() for part in parts):
        return w
    if not max(np.abs(part).max() for part in parts) > 2.0**-100:
        return w
    return np.where(np.abs(w) < _NORMAL, np.float32(0), w)
