"""Inverses of sliding windows: ConvTranspose, Col2Im. Overlapping elements are summed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

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
from halfbyte.onnx.reference._windows import (
    Window,
    counts,
    make_window,
    per_axis,
    split_padding,
)  # fmt: skip
from halfbyte.onnx.reference.arrays import integers
from halfbyte.onnx.reference.registry import define


def fold(columns: Array, window: Window, blocks: Sequence[int], sizes: Sequence[int]) -> Array:
    """Blocks added into an image; elements in the padding are dropped.

    Parameters
    ----------
    columns : [N, C, K..., blocks...]
    window : Window
    blocks, sizes : sequence of int
        Number of blocks, and the image's size, along each spatial axis.

    Returns
    -------
    [N, C, sizes...]
    """
    rank = len(sizes)
    whole = [
        max(begin + size, (count - 1) * step + extent)
        for begin, size, count, step, extent in zip(
            window.begins, sizes, blocks, window.strides, window.extents, strict=True
        )
    ]
    shape = fitting((*columns.shape[:2], *whole), columns.dtype.itemsize, "padded result")
    image = np.zeros(shape, columns.dtype)
    for index in np.ndindex(*columns.shape[2 : 2 + rank]):
        place = tuple(
            slice(tap * d, tap * d + (count - 1) * step + 1, step)
            for tap, d, count, step in zip(
                index, window.dilations, blocks, window.strides, strict=True
            )
        )
        image[(slice(None), slice(None), *place)] += columns[(slice(None), slice(None), *index)]
    crop = tuple(slice(b, b + n) for b, n in zip(window.begins, sizes, strict=True))
    return image[(slice(None), slice(None), *crop)]


def transposed_window(
    x: Array,
    w: Array,
    auto_pad: str,
    dilations: Sequence[int] | None,
    output_padding: Sequence[int] | None,
    output_shape: Sequence[int] | None,
    pads: Sequence[int] | None,
    strides: Sequence[int] | None,
) -> tuple[Window, tuple[int, ...]]:
    """The window whose convolution maps the result's size to x's, and the result's size.

    size = stride * (D - 1) + output_padding + extent - pads. Where a size is given (output_shape,
    or D * stride with auto_pad SAME_*), the pads are computed from it.
    """
    rank = x.ndim - 2
    explicit = auto_pad == "NOTSET" and not output_shape
    unpadded = make_window(
        x.shape[2:], w.shape[2:], strides, dilations, pads if explicit else None,
        "NOTSET" if auto_pad.startswith("SAME") else auto_pad,
    )  # fmt: skip
    extra = list(output_padding or [0] * rank)
    if len(extra) != rank or min(extra) < 0:
        raise ProgramError(f"output_padding {extra}: expected {rank} numbers, none negative")
    full = [
        step * (size - 1) + more + extent
        for step, size, more, extent in zip(
            unpadded.strides, x.shape[2:], extra, unpadded.extents, strict=True
        )
    ]
    if output_shape:
        wanted = per_axis(output_shape[-rank:], rank, 1, "output_shape")
    elif auto_pad.startswith("SAME"):
        wanted = tuple(d * s for d, s in zip(x.shape[2:], unpadded.strides, strict=True))
    else:
        ends = zip(full, unpadded.begins, unpadded.ends, strict=True)
        return unpadded, tuple(n - begin - end for n, begin, end in ends)
    totals = [max(n - size, 0) for n, size in zip(full, wanted, strict=True)]
    upper = "SAME_UPPER" if auto_pad == "SAME_UPPER" else "SAME_LOWER"
    begins, after = split_padding(totals, upper)
    window = Window(unpadded.kernel, unpadded.strides, unpadded.dilations, begins, after)
    return window, wanted


def widened_images(
    x: Array, w: Array, *b: Array | None, group: int = 1, kernel_shape: Any = None,
    **attributes: Any,
) -> _shapes.Shape:  # fmt: skip
    """The shape of a transposed convolution."""
    others = ("dilations", "output_padding", "output_shape", "pads", "strides")
    options = {"auto_pad": "NOTSET", **dict.fromkeys(others), **attributes}
    _, sizes = transposed_window(x, w, **options)
    if x.ndim < 3 or w.ndim != x.ndim:
        raise ValueError(f"filters {list(w.shape)} for {list(x.shape)}")
    return (len(x), w.shape[1] * group, *sizes)


@define("ConvTranspose", since=1, product=True, infer=_shapes.Rule(widened_images))
def conv_transpose(
    x: Array,
    w: Array,
    b: Array | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    output_padding: Sequence[int] | None = None,
    output_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Array:
    """Y[n, m, i * stride + k * dilation - pad] += X[n, c, i] W[c, m, k] over c, i, k; plus b [M].

    x is [N, C, D...], w [C, M / group, K...]. ONNX ConvTranspose-1, -11, -22.
    """
    if x.ndim < 3 or x.ndim != w.ndim or x.shape[1] != len(w) or group < 1 or len(w) % group:
        raise ProgramError(
            f"input {list(x.shape)} and filters {list(w.shape)} in {group} groups: expected"
            " [N, C, D...] and [C, M / group, K...]"
        )
    if kernel_shape and tuple(kernel_shape) != w.shape[2:]:
        raise ProgramError(f"kernel_shape {list(kernel_shape)}: the filters' is {w.shape[2:]}")
    window, sizes = transposed_window(
        x, w, auto_pad, dilations, output_padding, output_shape, pads, strides
    )
    left, right = widened(x), widened(w)
    filters = w.shape[1] * group
    fitting((len(x), filters, *sizes), left.dtype.itemsize)
    fitting((len(x), filters, *w.shape[2:], *x.shape[2:]), left.dtype.itemsize, "columns")
    inner = len(w) // group
    matrices = right.reshape(group, inner, -1).swapaxes(1, 2)  # [group, M / group * K, C / group]
    places = math.prod(x.shape[2:])
    columns = np.matmul(matrices, left.reshape(len(x), group, inner, places))
    columns = columns.reshape(len(x), filters, *w.shape[2:], *x.shape[2:])
    y = fold(columns, window, x.shape[2:], sizes)
    if b is not None:
        y = y + channels(vector(widened(b), filters, "bias"), y.ndim)
    return rounded(np.ascontiguousarray(y), x.dtype)


def _image(x: Array, image_shape: Array, block_shape: Array, **attributes: Any) -> _shapes.Shape:
    volume = math.prod(integers(block_shape))
    return (len(x), x.shape[1] // volume, *integers(image_shape))


@define("Col2Im", since=18, decided_by=(1, 2), infer=_shapes.Rule(_image))
def col2im(
    x: Array,
    image_shape: Array,
    block_shape: Array,
    *,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Array:
    """`fold` of x [N, C * prod(block_shape), blocks] into [N, C, image_shape...]. Col2Im-18."""
    sizes = fitting(image_shape, 1, "image")
    window = make_window(sizes, block_shape.tolist(), strides, dilations, pads, "NOTSET")
    blocks = counts(sizes, window)
    volume = math.prod(window.kernel)
    if x.ndim != 3 or x.shape[1] % volume or x.shape[2] != math.prod(blocks):
        raise ProgramError(
            f"input {list(x.shape)}: expected [N, a multiple of {volume}, {math.prod(blocks)}]"
        )
    columns = widened(x).reshape(len(x), -1, *window.kernel, *blocks)
    fitting((*columns.shape[:2], *sizes), columns.dtype.itemsize)
    return rounded(np.ascontiguousarray(fold(columns, window, blocks, sizes)), x.dtype)
