"""Pictures as inputs of a model: recognizes their shapes, and converts pixels to arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.errors import HalfbyteError

Array = npt.NDArray[Any]

_SIDE = 224  # pixels of open sides
_MEAN, _DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet's pictures in 0..1
_HUB_NAME = "pixel_values"  # [batch, channels, height, width]
_LUMINANCE = (0.299, 0.587, 0.114)


@dataclass(frozen=True)
class Layout:
    """How a model takes one picture: [1, c, h, w] or [1, h, w, c], or either without the 1."""

    channels: int
    height: int
    width: int
    last: bool
    batched: bool

    @property
    def shape(self) -> list[int]:
        """The shape of the array."""
        size = [self.height, self.width]
        one = [*size, self.channels] if self.last else [self.channels, *size]
        return [1, *one] if self.batched else one


def layout(shape: Sequence[int | str | None], name: str = "") -> Layout | None:
    """The layout of an input of this shape, or None if it does not take a picture.

    The size of the channels must be 1, 3 or 4; open sides are 224. Where all are open, as in files
    of the hub's exporters, the name tells.
    """
    if name == _HUB_NAME and len(shape) == 4 and not isinstance(shape[1], int):
        shape = [shape[0], 3, *shape[2:]]
    batched = len(shape) == 4
    if batched and isinstance(shape[0], int) and shape[0] != 1:
        return None
    one = shape[1:] if batched else shape
    if len(one) != 3:
        return None
    for last in (False, True):
        *sides, channels = one if last else (one[1], one[2], one[0])
        small = any(isinstance(side, int) and side < 5 for side in sides)
        if isinstance(channels, int) and channels in (1, 3, 4) and not small:
            height, width = (side if isinstance(side, int) else _SIDE for side in sides)
            return Layout(channels, height, width, last, batched)
    return None


def picture_array(pixels: Any, form: Layout, dtype: Any, asked: Mapping[str, Any]) -> Array:
    """The array of a picture for an input.

    Parameters
    ----------
    pixels : bytes-like [height * width * 4]
        Red, green, blue and opacity of each pixel, 0..255, row by row.
    form : Layout
        The layout of the input; its height and width are ignored.
    dtype
        The input's dtype; integers are 0..255.
    asked : mapping
        `height` and `width`; `scale`: "unit" is x / 255, "signed" 2 x / 255 - 1, "imagenet"
        (x / 255 - mean) / deviation per channel, "raw" x; `invert`: 255 - x first.

    Raises
    ------
    HalfbyteError
        The number of pixels does not match height and width.
    """
    height, width = int(asked["height"]), int(asked["width"])
    data = np.frombuffer(pixels, np.uint8)
    if data.size != height * width * 4:
        raise HalfbyteError(f"{data.size} bytes of pixels: expected {height} x {width} x 4")
    x = data.reshape(height, width, 4).astype(np.float32)
    if asked.get("invert"):
        x[..., :3] = 255 - x[..., :3]
    if form.channels == 1:
        x = (x[..., :3] @ np.array(_LUMINANCE, np.float32))[..., None]
    x = x[..., : form.channels]
    x = x.round() if np.issubdtype(dtype, np.integer) else _scaled(x, str(asked["scale"]))
    x = x if form.last else x.transpose(2, 0, 1)
    x = x[None] if form.batched else x
    return np.ascontiguousarray(x.astype(dtype))


def _scaled(x: Array, scale: str) -> Array:
    if scale == "raw":
        return x
    x = x / np.float32(255)
    if scale == "signed":
        return 2 * x - 1
    if scale == "imagenet" and x.shape[-1] == 3:
        return (x - np.array(_MEAN, np.float32)) / np.array(_DEVIATION, np.float32)
    return x
