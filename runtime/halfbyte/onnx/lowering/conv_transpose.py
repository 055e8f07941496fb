"""The rule of ConvTranspose over one and two spatial axes: a convolution and a move.

Along an axis of stride s, result j s + r (without padding) is sum over u of x[j - u] w[r + s u]: a
convolution with ceil(kernel / s) taps. Its s results of each place are channels of one `ops.conv2d`
with s times as many outputs, which are moved apart afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np

from halfbyte.core import ops
from halfbyte.core.buffer import Buffer
from halfbyte.onnx.capture import Capture
from halfbyte.onnx.lowering.move import moved, side_by_side
from halfbyte.onnx.lowering.registry import lower
from halfbyte.onnx.lowering.sliding import floats, image, result
from halfbyte.onnx.lowering.strides import row_major
from halfbyte.onnx.reference.conv_transpose import transposed_window
from halfbyte.onnx.values import Array, Operand, Value, key_of, sizes_of

PADDED = 1 << 16  # weights with zeros for strides beyond the kernel, of any number of own ones


@dataclass(frozen=True)
class _Axis:
    """A transposed axis as a convolution.

    Attributes
    ----------
    stride : int
    dilation : int
        Of the convolution, whose kernel is reversed and has `taps`.
    taps, before, count : int
        Its kernel, padding at the beginning, and number of results.
    skip, size : int
        Of the count * stride results, those that the node has.
    """

    stride: int
    dilation: int
    taps: int
    before: int
    count: int
    skip: int
    size: int

    def phase(self, place: int) -> tuple[int, int]:
        """Of results `place`, `place` + stride, ...: the padding before and the phase.

        Result o is number (o + pad) // stride of phase (o + pad) % stride.
        """
        first, phase = divmod(place + self.skip, self.stride)
        return self.before - first, phase


def _axis(
    places: int, kernel: int, stride: int, dilation: int, pad: int, size: int
) -> _Axis | None:
    """The convolution along an axis of x with so many places; None for strides with dilations, and
    large paddings.
    """
    if places == dilation == 1 and pad + size <= kernel:
        return _Axis(kernel, 1, 1, 0, 1, pad, size)  # each result has one tap
    if stride == 1:
        before = (kernel - 1) * dilation - pad
        return None if before < 0 else _Axis(1, dilation, kernel, before, size, 0, size)
    if dilation != 1:
        return None
    taps, first = -(-kernel // stride), pad // stride
    if taps - 1 - first < 0:
        return None
    count = (size - 1 + pad) // stride - first + 1
    return _Axis(stride, 1, taps, taps - 1 - first, count, pad - first * stride, size)


@lower("ConvTranspose")
def conv_transpose(
    c: Capture, x: Value, w: Value | Array, b: Operand = None, *, auto_pad: str = "NOTSET",
    dilations: list[int] | None = None, group: int = 1, kernel_shape: list[int] | None = None,
    output_padding: list[int] | None = None, output_shape: list[int] | None = None,
    pads: list[int] | None = None, strides: list[int] | None = None,
) -> Value | None:  # fmt: skip
    """Transposed convolutions of float32 with constant weights."""
    if isinstance(w, Value) or isinstance(b, Value) or {x.dtype, key_of(w)} != {"f32"}:
        return None
    if len(x.shape) not in (3, 4) or w.ndim != len(x.shape) or not x.size or not w.size:
        return None
    inputs, each, *kernel = w.shape
    if inputs != x.shape[1] or inputs % group or list(kernel_shape or kernel) != kernel:
        return None
    if b is not None and b.shape != (each * group,):
        return None
    blank = np.broadcast_to(np.zeros((), np.float32), x.shape)
    window, sizes = transposed_window(
        blank, w, auto_pad, dilations, output_padding, output_shape, pads, strides
    )
    if min(sizes) < 1:
        return None
    c.allow((x.shape[0], each * group, *sizes), x.numpy)
    numbers = window.strides, window.dilations, window.begins, sizes
    spatial = [_axis(*own) for own in zip(x.shape[2:], kernel, *numbers, strict=True)]
    missing = [_Axis(1, 1, 1, 0, 1, 0, 1)] * (2 - len(spatial))
    axes: Sequence[_Axis] = [*missing, *(a for a in spatial if a)]
    if None in spatial or (group > 1 and each > 1 and axes[0].stride > 1):
        return None
    padded = inputs * each * math.prod(a.taps * a.stride for a in axes)
    if padded > max(4 * w.size, PADDED):
        return None
    if group == 1 and _wasteful(axes):
        y, axes = _each_phase(c, x, w, b, axes)
    else:
        y = _phases(c, x, w, b, group, axes)
    return None if y is None else _apart(c, y, group, each, axes, len(x.shape))


def _wasteful(axes: Sequence[_Axis]) -> bool:
    """Whether a fifth of the results would be in the padding, and phases have equally many."""
    computed = math.prod(a.count * a.stride for a in axes)
    kept = math.prod(a.size for a in axes)
    return computed * 5 > kept * 6 and all(a.size % a.stride == 0 for a in axes)


def _each_phase(
    c: Capture, x: Value, w: Array, b: Operand, axes: Sequence[_Axis]
) -> tuple[Buffer | None, Sequence[_Axis]]:
    """As `_phases`, by a convolution for each phase, with its own padding; and axes without any."""
    down, across = axes
    bias = c.constant(np.zeros(w.shape[1], np.float32) if b is None else np.asarray(b))

    @cache
    def kernels() -> Array:
        whole = _kernels(w, 1, axes)
        return whole.reshape(down.stride, across.stride, w.shape[1], *whole.shape[1:])

    def packed(i: int, j: int) -> Array:
        return ops.pack_kernels(kernels()[i, j], 1)

    parts = []
    for row, column in np.ndindex(down.stride, across.stride):
        (top, i), (left, j) = down.phase(row), across.phase(column)
        weight = floats(c, w, f"phase {i} {j}", partial(packed, i, j))
        y = ops.conv2d(
            image(c, x), weight, bias, p=down.size // down.stride, q=across.size // across.stride,
            groups=1, kernel_h=down.taps, kernel_w=across.taps, stride_h=1, stride_w=1,
            dilation_h=1, dilation_w=1, top=top, left=left, lo=-math.inf, hi=math.inf,
        )  # fmt: skip
        parts.append(c.value(y))
    whole = side_by_side(c, parts, 3)
    kept = [replace(a, count=a.size // a.stride, skip=0) for a in axes]
    return None if whole is None else c.plain(whole), kept


def _phases(
    c: Capture, x: Value, w: Array, b: Operand, group: int, axes: Sequence[_Axis]
) -> Buffer:
    """The convolution [n, rows, columns, (group, row phase, column phase, output)]."""
    down, across = axes
    phases = down.stride * across.stride
    layout = f"transposed {group} {down.stride} {across.stride}"
    weight = floats(c, w, layout, lambda: ops.pack_kernels(_kernels(w, group, axes), group))
    bias = np.zeros(w.shape[1] * group, np.float32) if b is None else np.asarray(b)
    spread = np.repeat(bias.reshape(group, 1, -1), phases, axis=1).reshape(-1)
    y: Buffer = ops.conv2d(
        image(c, x), weight, c.constant(spread), p=down.count, q=across.count, groups=group,
        kernel_h=down.taps, kernel_w=across.taps, stride_h=1, stride_w=1,
        dilation_h=down.dilation, dilation_w=across.dilation, top=down.before, left=across.before,
        lo=-math.inf, hi=math.inf,
    )  # fmt: skip
    return y


def _kernels(w: Array, group: int, axes: Sequence[_Axis]) -> Array:
    """Weights [c, m / group, kernel] as those of `_phases`, as ONNX's Conv has them."""
    down, across = axes
    inputs, each = w.shape[0] // group, w.shape[1]
    wide = w.reshape(group, inputs, each, -1, w.shape[-1])
    padding = [(0, a.taps * a.stride - n) for a, n in zip(axes, wide.shape[3:], strict=True)]
    wide = np.pad(wide, [(0, 0)] * 3 + padding)
    wide = wide.reshape(group, inputs, each, down.taps, down.stride, across.taps, across.stride)[
        :, :, :, ::-1, :, ::-1
    ]
    ordered = wide.transpose(0, 4, 6, 2, 1, 3, 5)  # group, phases, output, input, taps
    return ordered.reshape(-1, inputs, down.taps, across.taps)


def _apart(
    c: Capture, y: Buffer, group: int, each: int, axes: Sequence[_Axis], rank: int
) -> Value | None:
    """Phases moved to their rows and columns, and results in the padding dropped."""
    down, across = axes
    n, rows, columns, _ = sizes_of(y)
    value, m = c.value(y), group * each
    if down.stride * across.stride > 1:
        shape = (n, rows, columns, group, down.stride, across.stride, each)
        steps, order = row_major(shape), (0, 1, 4, 2, 5, 3, 6)
        moved_apart = moved(c, value, [shape[i] for i in order], [steps[i] for i in order])
        if moved_apart is None:
            return None
        value = moved_apart
    height, width = rows * down.stride, columns * across.stride
    whole = c.value(c.plain(value).view((n, height, width, m)))
    if (height, width) != (down.size, across.size):
        steps = row_major(whole.shape)
        offset = down.skip * steps[1] + across.skip * steps[2]
        cropped = moved(c, whole, (n, down.size, across.size, m), steps, offset)
        if cropped is None:
            return None
        whole = cropped
    return result(c, c.plain(whole), rank)
