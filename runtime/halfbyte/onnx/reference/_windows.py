"""Windows that slide over the spatial axes of a tensor: convolution, pooling, and their inverses.

Axes are (batch, channel, spatial...). A `Window` combines the attributes kernel_shape, strides,
dilations, pads and auto_pad.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from halfbyte.errors import ProgramError
from halfbyte.onnx.reference._numbers import Array, fitting


@dataclass(frozen=True)
class Window:
    """One entry per spatial axis; `begins` and `ends` are the padding before and after."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[int, ...]
    ends: tuple[int, ...]

    @property
    def extents(self) -> tuple[int, ...]:
        """Number of elements from a window's first to its last, gaps of dilation included."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))


def per_axis(values: Sequence[int] | None, rank: int, default: int, what: str) -> tuple[int, ...]:
    """An attribute with one number per spatial axis, each at least 1."""
    numbers = (default,) * rank if values is None else tuple(int(v) for v in values)
    if len(numbers) != rank or min(numbers, default=1) < 1:
        raise ProgramError(f"{what} {list(numbers)}: expected {rank} numbers, each at least 1")
    return numbers


def padding(pads: Sequence[int] | None, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The attribute pads, as padding before and padding after each axis."""
    numbers = [0] * (2 * rank) if pads is None else [int(v) for v in pads]
    if len(numbers) != 2 * rank or min(numbers, default=0) < 0:
        raise ProgramError(f"pads {numbers}: expected {2 * rank} numbers, none negative")
    return tuple(numbers[:rank]), tuple(numbers[rank:])


def make_window(
    sizes: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int] | None,
    dilations: Sequence[int] | None,
    pads: Sequence[int] | None,
    auto_pad: str,
) -> Window:
    """The window of a convolution or pooling over spatial axes of `sizes`.

    auto_pad SAME_UPPER and SAME_LOWER pad for ceil(size / stride) results, the odd element after
    or before; VALID pads nothing.
    """
    rank = len(sizes)
    shape = per_axis(kernel, rank, 1, "kernel_shape")
    steps = per_axis(strides, rank, 1, "strides")
    spread = per_axis(dilations, rank, 1, "dilations")
    begins, ends = padding(pads if auto_pad == "NOTSET" else None, rank)
    window = Window(shape, steps, spread, begins, ends)
    if auto_pad in ("NOTSET", "VALID"):
        return window
    if auto_pad not in ("SAME_UPPER", "SAME_LOWER"):
        raise ProgramError(f"auto_pad {auto_pad!r}: expected NOTSET, VALID, SAME_UPPER, SAME_LOWER")
    totals = [
        max((-(-size // step) - 1) * step + extent - size, 0)
        for size, step, extent in zip(sizes, steps, window.extents, strict=True)
    ]
    begins, ends = split_padding(totals, auto_pad)
    return Window(shape, steps, spread, begins, ends)


def split_padding(totals: Sequence[int], auto_pad: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Padding before and after; an odd element is after, with SAME_LOWER before."""
    smaller = tuple(total // 2 for total in totals)
    larger = tuple(total - total // 2 for total in totals)
    return (larger, smaller) if auto_pad == "SAME_LOWER" else (smaller, larger)


def counts(
    sizes: Sequence[int], window: Window, ceil: bool = False, *, partial: bool = False
) -> tuple[int, ...]:
    """How many windows there are along each axis.

    floor((size + padding - extent) / stride) + 1, or ceil, without a window that would begin in the
    padding at the end. With `partial` one window may be larger than the input, by less than the
    stride: ONNX Runtime rounds the quotient of pools towards zero.
    """
    result = []
    axes = zip(sizes, window.extents, window.strides, window.begins, window.ends, strict=True)
    for size, extent, step, begin, end in axes:
        room = size + begin + end - extent
        if partial and -step < room < 0:
            room = 0
        if room < 0:
            raise ProgramError(
                f"kernel of extent {extent}: larger than the input's {size} + padding {begin + end}"
            )
        count = (-(-room // step) if ceil else room // step) + 1
        if ceil and (count - 1) * step >= size + begin:
            count -= 1
        result.append(count)
    return tuple(result)


def padded(x: Array, window: Window, results: Sequence[int], value: Any) -> Array:
    """`x` with padding, long enough for `results` windows along each axis."""
    widths = [(0, 0), (0, 0)]
    spans = zip(x.shape[2:], window.extents, window.strides, window.begins, results, strict=True)
    for size, extent, step, begin, count in spans:
        widths.append((begin, max((count - 1) * step + extent - size - begin, 0)))
    if not any(map(any, widths)):
        return x
    shape = [n + sum(width) for n, width in zip(x.shape, widths, strict=True)]
    fitting(shape, x.dtype.itemsize, "padded input")
    return np.pad(x, widths, constant_values=value)


def slid(x: Array, window: Window, results: Sequence[int]) -> Array:
    """A view of a padded tensor: [batch, channel, results..., kernel...]."""
    rank = len(results)
    axes = tuple(range(2, 2 + rank))
    view = np.lib.stride_tricks.sliding_window_view(x, window.extents, axes)
    steps = [slice(0, (n - 1) * s + 1, s) for n, s in zip(results, window.strides, strict=True)]
    taps = [slice(None, None, d) for d in window.dilations]
    result: Array = view[(slice(None), slice(None), *steps, *taps)]
    return result


def shifted(axis: int, tap: int, count: int, window: Window) -> tuple[slice, ...]:
    """Slices of a padded tensor: element `tap` of each of `count` windows along spatial `axis`."""
    start = tap * window.dilations[axis]
    step = window.strides[axis]
    taken = slice(start, start + (count - 1) * step + 1, step)
    return (slice(None),) * (2 + axis) + (taken,)
