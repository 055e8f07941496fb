"""Pictures as inputs of a model: BMP and PNM, and other formats where Pillow is installed."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.errors import FormatError, HalfbyteError, UnsupportedError

U8 = npt.NDArray[np.uint8]
Array = npt.NDArray[Any]

OWN = (".bmp", ".pnm", ".ppm", ".pgm")
SUFFIXES = (*OWN, ".png", ".jpg", ".jpeg", ".webp")
MAX_PIXELS = 1 << 28


@dataclass(frozen=True)
class Normalization:
    """(x - mean) / std for channels in 0 ... 1 of float inputs; by default ImageNet's."""

    mean: tuple[float, ...] = (0.485, 0.456, 0.406)
    std: tuple[float, ...] = (0.229, 0.224, 0.225)

    def __post_init__(self) -> None:
        for numbers in (self.mean, self.std):
            if len(numbers) not in (1, 3) or not all(map(math.isfinite, numbers)):
                raise HalfbyteError(f"{numbers}: expected a number for each of 1 or 3 channels")
        if 0 in self.std:
            raise HalfbyteError(f"{self.std}: expected standard deviations other than 0")


def read_picture(
    path: Path, shape: list[int], dtype: np.dtype[Any], normalization: Normalization
) -> Array:
    """A picture as an input, scaled to the input's size.

    Parameters
    ----------
    path : Path
    shape : list of int
        [1, channels, height, width] or [1, height, width, channels] with 1 or 3 channels; a height
        or width of 0 stands for the picture's own.
    dtype : dtype
        The input's type; floats are normalized, integers are 0 ... 255.
    normalization : Normalization
    """
    if len(shape) != 4 or not {shape[1], shape[3]} & {1, 3} or shape[0] > 1:
        raise HalfbyteError(
            f"{path}: expected an input [1, channels, height, width] for pictures, found {shape}"
        )
    first = shape[1] in (1, 3)
    channels, (height, width) = (shape[1], shape[2:]) if first else (shape[3], shape[1:3])
    pixels = _read(path)
    x = resized(pixels.astype(np.float32), height or len(pixels), width or pixels.shape[1])
    if channels == 1 and x.shape[2] == 3:
        x = x @ np.array([[0.299], [0.587], [0.114]], np.float32)
    x = np.broadcast_to(x, (*x.shape[:2], channels))
    if dtype.kind == "f":
        mean = np.array(normalization.mean[:channels], np.float32)
        std = np.array(normalization.std[:channels], np.float32)
        x = (x / np.float32(255) - mean) / std
    else:
        x = np.clip(np.rint(x), 0, 255)
    x = x.transpose(2, 0, 1) if first else x
    return np.ascontiguousarray(x[None].astype(dtype))


def resized(x: npt.NDArray[np.float32], height: int, width: int) -> npt.NDArray[np.float32]:
    """[h, w, c] -> [height, width, c] by linear interpolation, antialiased where it shrinks."""
    y: npt.NDArray[np.float32] = np.einsum(
        "yh,hwc,xw->yxc", _weights(x.shape[0], height), x, _weights(x.shape[1], width),
        optimize=True,
    )  # fmt: skip
    return y


def _weights(old: int, new: int) -> npt.NDArray[np.float32]:
    """Weights [new, old] of old pixels in each new one: triangles around its centre."""
    scale = old / new
    centres = (np.arange(new) + 0.5) * scale - 0.5
    distance = np.abs(np.arange(old) - centres[:, None]) / max(scale, 1.0)
    weights = np.clip(1 - distance, 0, None)
    weights /= weights.sum(axis=1, keepdims=True)
    rounded: npt.NDArray[np.float32] = weights.astype(np.float32)
    return rounded


def _read(path: Path) -> U8:
    """Pixels [height, width, 1 or 3]."""
    if path.suffix.lower() not in OWN:
        return _by_pillow(path)
    try:
        data = path.read_bytes()
        pixels = _bmp(data) if data.startswith(b"BM") else _pnm(data)
    except (OSError, struct.error, ValueError, IndexError) as error:
        raise FormatError(f"{path}: not a picture that can be read: {error}") from None
    return pixels


def _by_pillow(path: Path) -> U8:
    try:
        from PIL import Image
    except ImportError:
        raise UnsupportedError(
            f"{path}: {path.suffix} needs `pip install Pillow`; BMP and PNM are read without"
        ) from None
    try:
        with Image.open(path) as picture:
            pixels: U8 = np.asarray(picture.convert("RGB"))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise FormatError(f"{path}: not a picture that can be read: {error}") from None
    return pixels


def _bmp(data: bytes) -> U8:
    """An uncompressed BMP of 24 or 32 bits, or of 8 with a palette."""
    (offset,) = struct.unpack_from("<I", data, 10)
    size, width, height, _, bits, compression = struct.unpack_from("<IiiHHI", data, 14)
    if bits not in (8, 24, 32) or compression not in (0, 3) or width <= 0 or height == 0:
        raise ValueError(f"BMP of {bits} bits, compression {compression}, {width} x {height}")
    rows = abs(height)
    _check_size(rows, width)
    stride = (width * bits // 8 + 3) // 4 * 4
    lines = np.frombuffer(data, np.uint8, rows * stride, offset).reshape(rows, stride)
    pixels = lines[:, : width * bits // 8].reshape(rows, width, bits // 8)
    if bits == 8:
        palette = np.frombuffer(data, np.uint8, offset - 14 - size, 14 + size).reshape(-1, 4)
        pixels = palette[pixels[..., 0]]
    pixels = pixels[..., 2::-1]  # blue comes first
    return pixels if height < 0 else pixels[::-1]


def _pnm(data: bytes) -> U8:
    """A binary PNM of 8 bits: P5 (gray) or P6 (three channels)."""
    fields: list[bytes] = []
    at = 0
    while len(fields) < 4:
        while data[at : at + 1].isspace():
            at += 1
        end = at
        if data[at : at + 1] == b"#":
            at = data.index(b"\n", at)
            continue
        while end < len(data) and not data[end : end + 1].isspace():
            end += 1
        if end == at:
            raise ValueError("its header is cut off")
        fields.append(data[at:end])
        at = end
    kind, width, height, top = fields[0], *map(int, fields[1:])
    if kind not in (b"P5", b"P6") or top != 255:
        raise ValueError(f"expected P5 or P6 of 8 bits, found {kind!r} with {top}")
    _check_size(height, width)
    channels = 3 if kind == b"P6" else 1
    pixels = np.frombuffer(data, np.uint8, height * width * channels, at + 1)
    return pixels.reshape(height, width, channels)


def _check_size(height: int, width: int) -> None:
    if not (height > 0 and width > 0 and height * width <= MAX_PIXELS):
        raise ValueError(f"{width} x {height} pixels")
