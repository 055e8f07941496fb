"""ImageDecoder, for the formats that NumPy and the standard library decode: BMP, PNM, PNG, TIFF.

A decoder returns uint8 [height, width, 1 or 3]. It raises ValueError (or what unpacking raises) for
data that is not of its format, and `UnsupportedError` for variants that are not implemented.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable

import numpy as np

from halfbyte.errors import ProgramError, UnsupportedError
from halfbyte.onnx.reference._numbers import Array, fitting
from halfbyte.onnx.reference.registry import define

CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # of PNG's colour types


def _pixels(data: bytes, height: int, stride: int, start: int = 0) -> Array:
    """`height` rows of `stride` bytes."""
    if height < 1 or stride < 1 or start < 0 or start + height * stride > len(data):
        raise ValueError(f"{height} rows of {stride} bytes in {len(data)}")
    return np.frombuffer(data, np.uint8, height * stride, start).reshape(height, stride)


def _bmp(data: bytes) -> Array:
    """A Windows bitmap: 24 or 32 bits a pixel, or 8 with a palette; rows end at 4 bytes."""
    start, header, width, height, _, bits, compression = struct.unpack_from("<10xIIiiHHI", data)
    (used,) = struct.unpack_from("<I", data, 46)
    if header < 40 or width < 1 or height == 0:
        raise ValueError(f"BMP of {width} by {height}, header of {header} bytes")
    if bits not in (8, 24, 32) or compression not in (0, 3):
        raise UnsupportedError(f"BMP of {bits} bits, compression {compression}")
    rows = _pixels(data, abs(height), (width * bits // 8 + 3) // 4 * 4, start)
    rows = rows[::-1] if height > 0 else rows
    if bits == 8:
        palette = _pixels(data, used or 256, 4, 14 + header)
        if rows[:, :width].max() >= len(palette):
            raise ValueError("BMP: a colour beyond the palette")
        return palette[rows[:, :width]][..., 2::-1]
    return rows[:, : width * bits // 8].reshape(abs(height), width, -1)[..., 2::-1]


def _pnm(data: bytes) -> Array:
    """A portable anymap: grey (P2, P5) or colour (P3, P6), of 8 bits."""
    numbers: list[int] = []
    place = 2
    while len(numbers) < 3:
        token = re.compile(rb"(?:\s|#[^\n]*\n)*(\d{1,9})").match(data, place)
        if token is None:
            raise ValueError("PNM: expected a width, a height and a largest value")
        numbers.append(int(token[1]))
        place = token.end()
    width, height, maximum = numbers
    depth = 3 if data[1:2] in b"36" else 1
    if not 0 < maximum < 256 or width < 1 or height < 1:
        raise UnsupportedError(f"PNM of {width} by {height}, values up to {maximum}")
    if data[1:2] in b"56":
        values = _pixels(data, height, width * depth, place + 1)
    else:
        count = height * width * depth
        tokens = data[place:].split(maxsplit=count)[:count]
        values = np.asarray([int(token) for token in tokens], np.int64)
        if len(values) != count or values.min() < 0 or values.max() > maximum:
            raise ValueError(f"PNM: {len(values)} values, expected {count} up to {maximum}")
    scaled = (values.astype(np.int64) * 255 + maximum // 2) // maximum
    return np.minimum(scaled, 255).astype(np.uint8).reshape(height, width, depth)


def _chunks(data: bytes) -> dict[bytes, bytes]:
    """The chunks of a PNG by name; chunks of the same name are joined."""
    chunks: dict[bytes, list[bytes]] = {}
    place = 8
    while place < len(data):
        length, name = struct.unpack_from(">I4s", data, place)
        chunks.setdefault(name, []).append(data[place + 8 : place + 8 + length])
        place += length + 12
    return {name: b"".join(parts) for name, parts in chunks.items()}


def _unfiltered(rows: Array, step: int) -> Array:
    """PNG's rows with their filters undone; each row begins with its filter's number."""
    above = np.zeros(rows.shape[1] - 1, np.uint8)
    image = np.empty((len(rows), rows.shape[1] - 1), np.uint8)
    for number, row in enumerate(rows):
        kind, line = int(row[0]), row[1:]
        if kind == 1:  # sums from the left, in each of `step` lanes
            line = np.cumsum(line.reshape(-1, step), axis=0, dtype=np.uint8).reshape(-1)
        elif kind == 2:
            line = line + above
        elif kind in (3, 4):
            line = _predicted(line.tolist(), above.tolist(), step, kind)
        elif kind != 0:
            raise ValueError(f"PNG: filter {kind}")
        above = image[number] = line
    return image


def _predicted(line: list[int], above: list[int], step: int, kind: int) -> Array:
    """A row whose filter predicts from left, above and (4, Paeth) the corner between."""
    result = [0] * step + line
    corners = [0] * step + above
    for i, (value, up) in enumerate(zip(line, above, strict=True)):
        left, corner = result[i], corners[i]
        if kind == 3:
            guess = (left + up) // 2
        else:
            a, b, c = abs(up - corner), abs(left - corner), abs(left + up - 2 * corner)
            guess = left if a <= b and a <= c else up if b <= c else corner
        result[i + step] = (value + guess) & 255
    return np.asarray(result[step:], np.uint8)


def _png(data: bytes) -> Array:
    """A PNG of 8 bits, not interlaced; an alpha channel is dropped."""
    parts = _chunks(data)
    width, height, bits, colour, _, _, interlaced = struct.unpack(">IIBBBBB", parts[b"IHDR"])
    if bits != 8 or interlaced or colour not in CHANNELS:
        raise UnsupportedError(f"PNG of {bits} bits, colour type {colour}, interlaced {interlaced}")
    depth = CHANNELS[colour]
    size = fitting((height, width * depth + 1), 1, "image")
    unpacked = zlib.decompressobj().decompress(parts[b"IDAT"], height * size[1])
    pixels = _unfiltered(_pixels(unpacked, *size), depth).reshape(height, width, depth)
    if colour == 3:
        palette = np.frombuffer(parts[b"PLTE"], np.uint8).reshape(-1, 3)
        return palette[pixels[..., 0]]
    return pixels[..., : 3 if depth > 2 else 1]


def _tiff_fields(data: bytes) -> dict[int, list[int]]:
    """The integers of a TIFF's first directory, by tag."""
    order = "<" if data[:2] == b"II" else ">"
    (place,) = struct.unpack_from(f"{order}4xI", data)
    (count,) = struct.unpack_from(f"{order}H", data, place)
    fields: dict[int, list[int]] = {}
    for number in range(count):
        at = place + 2 + 12 * number
        tag, kind, many = struct.unpack_from(f"{order}HHI", data, at)
        code = {1: "B", 3: "H", 4: "I"}.get(kind)
        if code is None or many > len(data):
            continue
        size = struct.calcsize(f"{order}{many}{code}")
        if size > 4:
            (at,) = struct.unpack_from(f"{order}I", data, at + 8)
        else:
            at += 8
        fields[tag] = list(struct.unpack_from(f"{order}{many}{code}", data, at))
    return fields


def _tiff(data: bytes) -> Array:
    """A TIFF of 8 bits whose strips are not compressed; only three channels are kept."""
    fields = _tiff_fields(data)
    width, height = fields[256][0], fields[257][0]
    bits, depth = set(fields.get(258, [1])), fields.get(277, [1])[0]
    kind = fields.get(259, [1])[0], fields.get(262, [0])[0], fields.get(284, [1])[0]
    if bits != {8} or depth not in (1, 3, 4) or kind not in ((1, 1, 1), (1, 2, 1)):
        raise UnsupportedError(f"TIFF of {sorted(bits)} bits, compression, colours, plan {kind}")
    ends = zip(fields[273], fields[279], strict=True)
    joined = b"".join(data[start : start + size] for start, size in ends)
    return _pixels(joined, height, width * depth).reshape(height, width, depth)[..., :3]


DECODERS: list[tuple[bytes, Callable[[bytes], Array]]] = [
    (rb"BM", _bmp), (rb"P[2356]\s", _pnm), (rb"\x89PNG\r\n\x1a\n", _png),
    (rb"II\*\0|MM\0\*", _tiff),
]  # fmt: skip
KNOWN = [
    (rb"\xff\xd8\xff", "JPEG"), (rb"\0\0\0\x0cjP|\xff\x4f\xff\x51", "JPEG 2000"),
    (rb"RIFF....WEBP", "WebP"), (rb"P[14]\s", "PBM"),
]  # fmt: skip


@define("ImageDecoder", since=20, dynamic=True)
def image_decoder(encoded_stream: Array, *, pixel_format: str = "RGB") -> Array:
    """An image file's bytes as uint8 [height, width, channels]; empty where they are damaged.

    pixel_format is "RGB", "BGR" or "Grayscale", (19595 R + 38470 G + 7471 B) / 65536. ONNX
    ImageDecoder-20.

    Raises
    ------
    UnsupportedError
        A format that is not implemented: JPEG, JPEG 2000, WebP, compressed TIFF, PNG not of 8 bits.
    """
    if pixel_format not in ("RGB", "BGR", "Grayscale"):
        raise ProgramError(f"pixel_format {pixel_format!r}: expected RGB, BGR, Grayscale")
    data = encoded_stream.astype(np.uint8).tobytes()
    for magic, name in KNOWN:
        if re.match(magic, data, re.DOTALL):
            raise UnsupportedError(f"an image in {name}: not built; BMP, PNM, PNG, TIFF are")
    pixels: Array = np.zeros((0, 0, 3), np.uint8)
    for magic, decode in DECODERS:
        if re.match(magic, data):
            try:
                pixels = decode(data)
            except (ValueError, KeyError, IndexError, struct.error, zlib.error):
                break  # as ONNX requires
    if pixel_format != "Grayscale":
        coloured = np.broadcast_to(pixels, (*pixels.shape[:2], 3))
        return np.ascontiguousarray(coloured if pixel_format == "RGB" else coloured[..., ::-1])
    if pixels.shape[2] == 1:
        return np.ascontiguousarray(pixels)
    weights = np.array([19595, 38470, 7471])
    grey = (pixels.astype(np.int64) @ weights + 0x8000) >> 16
    return np.asarray(grey.astype(np.uint8)[..., None])
