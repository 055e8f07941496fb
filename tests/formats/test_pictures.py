"""Pictures: valid and broken bitmaps and portable maps, and pictures as inputs."""

from __future__ import annotations

import importlib
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from halfbyte.errors import FormatError, UnsupportedError
from halfbyte.formats.pictures import in_channels, layout_of, read_picture, resized

PIXELS = np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8)


def bitmap(pixels: Any, bits: int = 24, *, down: bool = False, header: int = 40) -> bytes:
    """A bitmap of [height, width, 3], or of [height, width] with a palette of greys."""
    height, width = pixels.shape[:2]
    rows = []
    for row in pixels if down else pixels[::-1]:
        if bits == 8:
            data = row.tobytes()
        else:
            data = b"".join(bytes(p[::-1]) + b"\xff" * (bits // 8 - 3) for p in row)
        rows.append(data + b"\0" * (-len(data) % 4))
    palette = b"".join(bytes([i, i, i, 0]) for i in range(256)) if bits == 8 else b""
    start = 14 + header + len(palette)
    info = struct.pack("<iiihhiiiiii", header, width, -height if down else height, 1, bits, 0, 0, 0,
                       0, 0, 0)  # fmt: skip
    body = b"".join(rows)
    return b"BM" + struct.pack("<ihhi", start + len(body), 0, 0, start) + info + palette + body


def read(tmp_path: Path, data: bytes) -> Any:
    path = tmp_path / "picture"
    path.write_bytes(data)
    return read_picture(path)


@pytest.mark.parametrize("bits", [24, 32])
@pytest.mark.parametrize("down", [False, True])
def test_bitmaps(tmp_path: Path, bits: int, down: bool) -> None:
    np.testing.assert_array_equal(read(tmp_path, bitmap(PIXELS, bits, down=down)), PIXELS)


def test_bitmap_with_a_palette(tmp_path: Path) -> None:
    grey = PIXELS[:, :, :1]
    data = bytearray(bitmap(grey[:, :, 0], 8))
    np.testing.assert_array_equal(read(tmp_path, bytes(data)), grey)
    data[54:58] = bytes([1, 2, 3, 0])  # entry 0 is now a colour: blue, green, red
    grey[0, 0] = 0
    coloured = read(tmp_path, bytes(data[: 54 + 1024]) + bitmap(grey[:, :, 0], 8)[54 + 1024 :])
    assert coloured.shape == (5, 7, 3)
    assert coloured[0, 0].tolist() == [3, 2, 1]


def test_portable_maps(tmp_path: Path) -> None:
    data = b"P6\n# a comment\n7 5\n255\n" + PIXELS.tobytes()
    np.testing.assert_array_equal(read(tmp_path, data), PIXELS)
    grey = np.ascontiguousarray(PIXELS[:, :, :1])
    np.testing.assert_array_equal(read(tmp_path, b"P5 7 5 255 " + grey.tobytes()), grey)
    few = np.array([[[0], [1], [3]]], np.uint8)
    pixels = read(tmp_path, b"P5 3 1 3\n" + few.tobytes())
    assert pixels.reshape(-1).tolist() == [0, 85, 255]


BROKEN: dict[str, tuple[bytes, str]] = {
    "cut short": (bitmap(PIXELS)[:-1], "bytes of pixels expected"),
    "only a header": (bitmap(PIXELS)[:30], "expected a bitmap's header"),
    "no width": (bitmap(PIXELS[:, :0]), "0×5 pixels"),
    "huge": (b"P6 999999999 999999999 255\n" + b"\0" * 99, "pixels, expected 1 to"),
    "longer than it is": (b"P5 100 100 255\n" + b"\0" * 99, "10000 bytes of pixels expected"),
    "more values": (b"P5 1 1 65535\n\0\0", "values up to 65535"),
    "another header": (bitmap(PIXELS, header=12), "expected 8, 24"),
    "four bits": (bitmap(PIXELS, 24).replace(b"\x18\0", b"\x04\0", 1), "expected 8, 24"),
    "no palette": (bitmap(PIXELS[:, :, 0], 8)[:400], "bytes"),
    "offset before the header": (
        bitmap(PIXELS)[:10] + b"\xf0\xff\xff\xff" + bitmap(PIXELS)[14:], "0 found",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_broken_pictures(tmp_path: Path, name: str) -> None:
    data, text = BROKEN[name]
    with pytest.raises((FormatError, UnsupportedError), match=text):
        read(tmp_path, data)


def test_other_pictures_need_pillow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def without(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", without)
    with pytest.raises(UnsupportedError, match="pip install pillow"):
        read(tmp_path, b"\x89PNG\r\n\x1a\n")


def test_channels() -> None:
    assert in_channels(PIXELS, 3).shape == (5, 7, 3)
    grey = in_channels(PIXELS, 1)
    assert grey[0, 0, 0] == pytest.approx(PIXELS[0, 0] @ [0.299, 0.587, 0.114], rel=1e-5)
    np.testing.assert_array_equal(in_channels(PIXELS[:, :, :1], 3)[:, :, 2], PIXELS[:, :, 0])


def test_resizing() -> None:
    values = PIXELS.astype(np.float32)
    np.testing.assert_array_equal(resized(values, 5, 7), values)
    flat = np.full((9, 4, 1), 3, np.float32)
    np.testing.assert_allclose(resized(flat, 4, 11), 3, rtol=1e-6)
    ramp = np.arange(8, dtype=np.float32).reshape(1, 8, 1)
    smaller = resized(ramp, 1, 4)[0, :, 0]  # each of four pixels, those at the edge of three
    assert smaller[1:3].tolist() == [2.5, 4.5]
    assert smaller[0] == pytest.approx((0 * 0.75 + 1 * 0.75 + 2 * 0.25) / 1.75)
    larger = resized(ramp, 1, 16)[0, :, 0]
    assert larger[:4].tolist() == [0, 0.25, 0.75, 1.25]


def test_inputs_that_take_a_picture() -> None:
    assert layout_of([1, 3, 28, 28]) == (1, 2, 3)
    assert layout_of(["n", 1, None, "w"]) == (1, 2, 3)
    assert layout_of([1, 28, 28, 3]) == (3, 1, 2)
    assert layout_of([3, 28, 28]) == (0, 1, 2)
    assert layout_of([2, 3, 28, 28]) is None
    assert layout_of([1, 7, 28, 28]) is None
    assert layout_of([1, 10]) is None
    assert layout_of([1, 3, 0, 28]) is None
