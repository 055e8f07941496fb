"""Pictures as arrays, resized and laid out for a graph's input.

Windows bitmaps (8, 24 and 32 bits, not compressed) and binary PGM and PPM are read here, other
formats by Pillow if it is installed.
"""

from __future__ import annotations

import importlib
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.errors import FormatError, UnsupportedError
from halfbyte.formats.mapped import map_file

Pixels = npt.NDArray[np.uint8]  # [height, width, 1 or 3]: grey, or red, green, blue

MAX_PIXELS = 1 << 26
_LUMA = np.array([0.299, 0.587, 0.114], np.float32)  # grey of red, green, blue (BT.601)
# Bits and compression; 3 adds masks for the colours of 32 bits, which are always the same.
_BITMAPS = {(8, 0), (24, 0), (32, 0), (32, 3)}
_PNM = re.compile(rb"P([56])(?:\s|#[^\n]*\n)+(\d{1,9})\s+(\d{1,9})\s+(\d{1,5})\s")


def read_picture(path: Path) -> Pixels:
    """A picture's pixels, the top row first.

    Raises
    ------
    FormatError
        Not a picture, damaged, or larger than 64 million pixels.
    UnsupportedError
        A format for which Pillow is needed, and Pillow is not installed.
    """
    data = memoryview(map_file(path))
    start = bytes(data[:256])
    if start.startswith(b"BM"):
        return _bitmap(path, data)
    if (header := _PNM.match(start)) is not None:
        return _portable(path, data, header)
    return _with_pillow(path, start)


def _checked(path: Path, width: int, height: int, needed: int, size: int) -> None:
    """Refuse sizes out of range, and sizes for which the file has too few bytes."""
    if not (width > 0 and height > 0 and width * height <= MAX_PIXELS):
        raise FormatError(f"{path}: {width}×{height} pixels, expected 1 to {MAX_PIXELS}")
    if needed > size:
        raise FormatError(f"{path}: {needed} bytes of pixels expected, {size} found")


def _bitmap(path: Path, data: memoryview) -> Pixels:
    """A BITMAPINFOHEADER's picture: rows from the bottom up, or down, padded to 4 bytes."""
    if len(data) < 54:
        raise FormatError(f"{path}: {len(data)} bytes, expected a bitmap's header of 54")
    offset, header, width, height = np.frombuffer(data[10:26], "<i4").tolist()
    bits, compression = int.from_bytes(data[28:30], "little"), int.from_bytes(data[30:34], "little")
    if (bits, compression) not in _BITMAPS or header < 40:
        raise UnsupportedError(
            f"{path}: a bitmap of {bits} bits a pixel, compression {compression}; expected 8, 24 "
            "or 32 bits, not compressed"
        )
    down, height = height < 0, abs(height)
    row = (width * bits + 31) // 32 * 4
    _checked(path, width, height, row * height, len(data) - offset if offset >= 54 else 0)
    rows = np.frombuffer(data[offset : offset + row * height], np.uint8).reshape(height, row)
    rows = (rows if down else rows[::-1])[:, : width * bits // 8]
    if bits > 8:
        return np.ascontiguousarray(rows.reshape(height, width, bits // 8)[:, :, 2::-1])
    colours = _palette(path, data, 14 + header)
    return np.ascontiguousarray(colours[rows])


def _palette(path: Path, data: memoryview, at: int) -> Pixels:
    """256 colours, missing ones black; with one channel if all are grey."""
    count = min(int.from_bytes(data[46:50], "little") or 256, 256)
    if not 54 <= at <= len(data) - 4 * count:
        raise FormatError(f"{path}: {4 * count} bytes of colours expected at {at}")
    table = np.zeros((256, 4), np.uint8)
    table[:count] = np.frombuffer(data[at : at + 4 * count], np.uint8).reshape(count, 4)
    colours = table[:, 2::-1]
    is_grey = (colours == colours[:, :1]).all()
    return np.ascontiguousarray(colours[:, :1] if is_grey else colours)


def _portable(path: Path, data: memoryview, header: re.Match[bytes]) -> Pixels:
    """PGM (P5) or PPM (P6): a header in text, then rows from the top."""
    channels = 1 if header[1] == b"5" else 3
    width, height, maximum = (int(header[i]) for i in (2, 3, 4))
    if not 0 < maximum < 256:
        raise UnsupportedError(f"{path}: values up to {maximum}, expected up to 255")
    size = width * height * channels
    _checked(path, width, height, size, len(data) - header.end())
    pixels = np.frombuffer(data[header.end() : header.end() + size], np.uint8)
    pixels = pixels.reshape(height, width, channels)
    if maximum == 255:
        return pixels
    scaled = np.minimum(pixels, maximum).astype(np.float32) * (255 / maximum)
    return (scaled + np.float32(0.5)).astype(np.uint8)


def _with_pillow(path: Path, start: bytes) -> Pixels:
    try:
        image = importlib.import_module("PIL.Image")
    except ImportError:
        raise UnsupportedError(
            f"{path}: bytes that begin with {start[:8]!r}: expected a bitmap (BM) or binary PGM or "
            "PPM (P5, P6); `pip install pillow` for other pictures"
        ) from None
    try:
        with image.open(path) as picture:
            width, height = picture.size
            _checked(path, width, height, 0, 0)
            return np.asarray(picture.convert("RGB"))
    except (OSError, ValueError, SyntaxError, image.DecompressionBombError) as error:
        raise FormatError(f"{path}: not a picture that Pillow reads: {error}") from None


# ---- for an input --------------------------------------------------------------------------------


def in_channels(pixels: Pixels, channels: int) -> npt.NDArray[np.float32]:
    """The picture with 1 channel (BT.601's grey) or 3."""
    values = pixels.astype(np.float32)
    if channels == values.shape[2]:
        return values
    if channels == 1:
        return (values @ _LUMA)[:, :, None]
    return np.repeat(values, channels, axis=2)


def resized(values: npt.NDArray[np.float32], height: int, width: int) -> npt.NDArray[np.float32]:
    """[height, width, c]: bilinear, averaging the pixels that one of the result covers."""
    rows, columns = _weights(values.shape[0], height), _weights(values.shape[1], width)
    result: Any = np.einsum("yh,hwc->ywc", rows, values)
    result = np.einsum("xw,ywc->yxc", columns, result)
    return np.ascontiguousarray(result, np.float32)


def _weights(length: int, wanted: int) -> npt.NDArray[np.float32]:
    """[wanted, given]: the weight of each old pixel in each new one; rows sum to one."""
    ratio = length / wanted
    centres = (np.arange(wanted) + 0.5) * ratio - 0.5
    distances = np.abs(np.arange(length) - centres[:, None])
    weights = np.maximum(0, 1 - distances / max(ratio, 1.0))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True), np.float32)


def layout_of(shape: list[int | str | None]) -> tuple[int, int, int] | None:
    """The dimensions of channels, rows and columns of an input with 3 or 4; None for others.

    One or three channels come directly after the batch, or last.
    """
    if len(shape) not in (3, 4) or math.prod(d for d in shape if isinstance(d, int)) == 0:
        return None
    first = len(shape) - 3
    if first and shape[0] not in (1, None) and isinstance(shape[0], int):
        return None
    if shape[first] in (1, 3):
        return first, first + 1, first + 2
    return (first + 2, first, first + 1) if shape[-1] in (1, 3) else None
