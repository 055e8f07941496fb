"""Real inputs of the zoo's models: photographs, lines of text and speech, as the models take them.

Photographs and a page come from scikit-image's wheel, speech from pyannote.audio's. What an input
takes follows from its name and shape (`_kind`); numbers of other inputs are those of the zoo, in
another order.
"""

from __future__ import annotations

import string
import wave
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from benches.onnx import zoo_files
from PIL import Image, ImageDraw, ImageFont
from tools.from_wheel import fill

Array = npt.NDArray[Any]
F32 = npt.NDArray[np.float32]
PHOTOS = {
    "astronaut.png": "88431cd9653ccd539741b555fb0a46b61558b301d4110412b5bc28b5e3ea6cb5",
    "chelsea.png": "596aa1e7cb875eb79f437e310381d26b338a81c2da23439704a73c4651e8c4bb",
    "coffee.png": "cc02f8ca188b167c775a7101b5d767d1e71792cf762c33d6fa15a4599b5a8de7",
    "motorcycle_left.png": "db18e9c4157617403c3537a6ba355dfeafe9a7eabb6b9b94cb33f6525dd49179",
    "rocket.jpg": "c2dd0de7c538df8d111e479619b129464d0269d0ae5fd18ca91d33a7fdfea95c",
    "coins.png": "f8d773fc9cfa6f4d8e5942dc34d0a0788fcaed2a4fefbbed0aef5398d7ef4cba",
    "grass.png": "b6b6022426b38936c43a4ac09635cd78af074e90f42ffa8227ac8b7452d39f89",
}
PAGE = {"page.png": "341a6f0a61557662b02734a9b6e56ec33a915b2c41886b97509dedf2a43b47a3"}
SPEECH = "c319b4abca767b124e41432d364fd7df006cb26bb79d09326c487d606a134e6e"
IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
HALVES = (0.5,), (0.5,)
PLAIN = (0.0,), (1.0,)
BYTES = (0.0,), (1 / 255,)
# mean and std of pixels in 0 ... 1, by the beginnings of names; others take ImageNet's
NORMALIZATIONS = {
    "pp-ocr-4-read": HALVES, "pp-ocr-6-read": HALVES, "pp-ocr-angle": HALVES, "ddddocr": PLAIN,
    "nudenet": PLAIN, "yolo": PLAIN, "centerface": BYTES, "version-RFB-320": HALVES, "mnist": BYTES,
    "super-resolution": PLAIN, "style-transfer": BYTES,
}  # fmt: skip
LINES = ("pp-ocr-4-read", "pp-ocr-6-read", "pp-ocr-angle", "ddddocr", "mnist")
PAGES = ("pp-ocr-4-detect", "pp-ocr-6-detect", "layout", "orientation")
SPECTRA = ("aecmos", "plcmos")  # whose inputs are spectra in the shapes of pictures
RATE = 16000  # samples of sound per second
MEL_ROWS = (32, 64, 80, 96, 120, 128, 160, 257)  # sizes of axes that are frequencies


def samples(name: str, types: Mapping[str, str], count: int, seed: int) -> list[zoo_files.Feeds]:
    """Inputs of a model; other seeds give other crops of the same pictures and of the same speech.

    The zoo's own file of inputs, or its list, gives the shapes.
    """
    given = zoo_files.feeds(name, types)
    rng = np.random.default_rng(seed)
    return [{key: _real(name, x, rng) for key, x in given.items()} for _ in range(count)]


def is_sound(shape: tuple[int, ...]) -> bool:
    """Whether an input of this shape takes samples of sound."""
    return len(shape) < 4 and max(shape, default=0) >= 400


def _real(name: str, x: Array, rng: np.random.Generator) -> Array:
    """A real input in the shape and type of `x`."""
    shape = x.shape
    if x.dtype.kind != "f" or not x.any():
        return rng.permutation(x.reshape(-1)).reshape(shape)
    if len(shape) == 4 and shape[1] in (1, 3) and name not in SPECTRA:
        return np.stack([_picture(name, shape[1:], rng) for _ in range(shape[0])]).astype(x.dtype)
    make = _mel_maker(shape)
    if make is not None:
        return make(rng).astype(x.dtype)
    if is_sound(shape):
        rows = [_speech(max(shape), rng) for _ in range(x.size // max(shape))]
        return np.stack(rows).reshape(shape).astype(x.dtype)
    return rng.permutation(x.reshape(-1)).reshape(shape)


# ---- pictures ------------------------------------------------------------------------------------


@cache
def _images(kind: str) -> list[Image.Image]:
    files = PHOTOS if kind == "photos" else PAGE
    folder = zoo_files.folder() / "inputs"
    folder.mkdir(exist_ok=True)
    inside = {name: (f"skimage/data/{name}", sha256) for name, sha256 in files.items()}
    fill(folder, "scikit-image==0.26.0", inside)
    return [Image.open(folder / name).convert("RGB") for name in files]


def _picture(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> F32:
    """[channels, height, width]: a crop, or a line of text, normalized as the model takes it."""
    channels, height, width = shape
    image = _line(height, width, rng) if name in LINES else _crop(name, height, width, rng)
    x = np.asarray(image.convert("L" if channels == 1 else "RGB"), np.float32) / 255
    x = x.reshape(height, width, channels)
    mean, std = NORMALIZATIONS.get(name, IMAGENET)
    x = (x - np.float32(mean[:channels])) / np.float32(std[:channels])
    return x.transpose(2, 0, 1)


def _crop(name: str, height: int, width: int, rng: np.random.Generator) -> Image.Image:
    images = _images("page" if name in PAGES else "photos")
    if name in PAGES and rng.random() < 0.5:
        return _page(height, width, rng)
    image = images[rng.integers(len(images))]
    scale = min(image.width / width, image.height / height) * rng.uniform(0.5, 1)
    w, h = max(1, int(width * scale)), max(1, int(height * scale))
    left, top = rng.integers(image.width - w + 1), rng.integers(image.height - h + 1)
    image = image.crop((left, top, left + w, top + h)).resize((width, height))
    return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if rng.random() < 0.3 else image


def _words(rng: np.random.Generator, count: int) -> str:
    letters = list(string.ascii_letters + string.digits)
    return " ".join("".join(rng.choice(letters, rng.integers(2, 9))) for _ in range(count))


def _shade(rng: np.random.Generator, low: int, high: int) -> tuple[int, int, int]:
    red, green, blue = rng.integers(low, high, 3)
    return int(red), int(green), int(blue)


def _line(height: int, width: int, rng: np.random.Generator) -> Image.Image:
    """A line of letters that fills the picture's height."""
    image = Image.new("RGB", (width, height), _shade(rng, 180, 256))
    font = ImageFont.load_default(height * rng.uniform(0.5, 0.75))
    place = rng.uniform(0, height * 0.3), height * rng.uniform(0.05, 0.2)
    ImageDraw.Draw(image).text(place, _words(rng, 4), _shade(rng, 0, 90), font)
    return image


def _page(height: int, width: int, rng: np.random.Generator) -> Image.Image:
    """Lines of words on a photograph or on paper."""
    image = Image.new("RGB", (width, height), _shade(rng, 200, 256))
    draw, top = ImageDraw.Draw(image), 8.0
    while top < height - 12:
        size = rng.uniform(9, 26)
        font = ImageFont.load_default(size)
        draw.text((rng.uniform(2, width / 4), top), _words(rng, 6), _shade(rng, 0, 110), font)
        top += size * rng.uniform(1.2, 2)
    return image


# ---- sound ---------------------------------------------------------------------------------------


@cache
def _recording() -> F32:
    """Thirty seconds of two people at `RATE`."""
    folder = zoo_files.folder() / "inputs"
    folder.mkdir(exist_ok=True)
    inside = {"speech.wav": ("pyannote/audio/sample/sample.wav", SPEECH)}
    fill(folder, "pyannote.audio==4.0.7", inside)
    with wave.open(str(Path(folder) / "speech.wav")) as file:
        frames = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    return frames.astype(np.float32) / 32768


def _speech(size: int, rng: np.random.Generator) -> F32:
    """A window of speech at some loudness."""
    recording = np.resize(_recording(), max(size, len(_recording())))
    start = rng.integers(len(recording) - size + 1)
    x = recording[start : start + size]
    return x * np.float32(rng.uniform(0.5, 2))


def _mel_maker(shape: tuple[int, ...]) -> Callable[[np.random.Generator], F32] | None:
    """Makes spectra where one of the last axes is of frequencies; None where none is."""
    wide = [size for size in shape if size != 1]
    if len(wide) != 2 and not (len(wide) == 3 and shape[-1] in MEL_ROWS):
        return None
    *_, first, last = wide
    if last in MEL_ROWS and first >= 16 and last < 400:
        return lambda rng: _mel(last, first * (wide[0] if len(wide) == 3 else 1), rng).T.reshape(
            shape
        )
    if first in MEL_ROWS and last >= 16:
        return lambda rng: _mel(first, last, rng).reshape(shape)
    return None


def _mel(rows: int, frames: int, rng: np.random.Generator) -> F32:
    """[rows, frames]: logarithms of powers in bands, in -1 ... 1 as Whisper takes them."""
    size, hop = 400, 160
    x = _speech(size + hop * (frames - 1), rng)
    windows = np.lib.stride_tricks.sliding_window_view(x, size)[::hop]
    power = np.square(np.abs(np.fft.rfft(windows * np.hanning(size), 512))).T
    edges = 700 * (np.expm1(np.linspace(0, np.log1p(RATE / 2 / 700), rows + 2)))
    bins = np.linspace(0, RATE / 2, power.shape[0])
    rise = (bins - edges[:-2, None]) / np.diff(edges)[:-1, None]
    fall = (edges[2:, None] - bins) / np.diff(edges)[1:, None]
    logs = np.log10(np.maximum(np.maximum(np.minimum(rise, fall), 0) @ power, 1e-10))
    logs = np.maximum(logs, logs.max() - 8)
    scaled: F32 = ((logs + 4) / 4).astype(np.float32)
    return scaled
