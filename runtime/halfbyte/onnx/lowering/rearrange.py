"""Rules of nodes that move channels to pixels and back, with channels last."""

from __future__ import annotations

from collections.abc import Sequence

from halfbyte.onnx.capture import Capture
from halfbyte.onnx.lowering.move import moved
from halfbyte.onnx.lowering.registry import lower
from halfbyte.onnx.lowering.strides import row_major
from halfbyte.onnx.values import Value


@lower("DepthToSpace")
def depth_to_space(c: Capture, x: Value, *, blocksize: int, mode: str = "DCR") -> Value | None:
    """Channels of each pixel as a block of pixels."""
    b = blocksize
    if len(x.shape) != 4 or b < 1 or x.shape[1] % (b * b) or mode not in ("DCR", "CRD"):
        return None
    n, depth, height, width = x.shape
    channels = depth // (b * b)
    if mode == "DCR":
        shape, order = (n, height, width, b, b, channels), (0, 1, 3, 2, 4, 5)
    else:
        shape, order = (n, height, width, channels, b, b), (0, 1, 4, 2, 5, 3)
    return _rearranged(c, x, shape, order, (n, height * b, width * b, channels))


@lower("SpaceToDepth")
def space_to_depth(c: Capture, x: Value, *, blocksize: int, mode: str = "DCR") -> Value | None:
    """Blocks of pixels as channels of one pixel."""
    b = blocksize
    if len(x.shape) != 4 or b < 1 or mode not in ("DCR", "CRD"):
        return None
    n, channels, tall, wide = x.shape
    if tall % b or wide % b:
        return None
    shape = (n, tall // b, b, wide // b, b, channels)
    order = (0, 1, 3, 2, 4, 5) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    return _rearranged(c, x, shape, order, (n, tall // b, wide // b, channels * b * b))


def _rearranged(
    c: Capture, x: Value, shape: Sequence[int], order: Sequence[int], result: tuple[int, ...]
) -> Value | None:
    """x with channels last, seen in a shape whose dimensions are permuted and then merged."""
    whole = c.value(c.channels_last(x))
    steps = row_major(shape)
    y = moved(c, whole, [shape[i] for i in order], [steps[i] for i in order])
    return None if y is None else c.value_channels_last(c.plain(y).view(result))
