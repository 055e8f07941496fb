"""Inputs where there are no samples: pictures and sounds that are made up.

White noise says little of a network that reads pictures: flat areas, edges and slow changes, which
real ones are made of, make its values as large and as small as they get.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from halfbyte.quantize.onnx.picture_samples import resized

F32 = npt.NDArray[np.float32]

_AREAS = 12
_STROKE = 1500  # pixels for each stroke
MIN_SOUND = 400  # numbers in a row from which they are taken for sound
_LOUDNESS = 0.1  # root mean square; full scale is 1


def picture(rng: np.random.Generator, channels: int, height: int, width: int) -> F32:
    """[channels, height, width], of mean 0 and deviation 1: light, areas, and strokes in lines."""
    x = np.zeros((height, width, channels), np.float32)
    side = 2
    while side <= min(height, width):
        coarse = rng.standard_normal((side, side, channels), np.float32)
        x += resized(coarse, height, width) / np.float32(side)
        side *= 2
    for _ in range(_AREAS):
        _area(x, rng)[...] = rng.standard_normal(channels, np.float32) * np.float32(0.7)
    size = max(2, height // int(rng.integers(2, 12)))
    dark = rng.standard_normal(channels, np.float32) - 1
    for _ in range(max(4, height * width // _STROKE)):
        top = int(rng.integers(0, max(1, height // size))) * size
        left, tall = int(rng.integers(0, width)), int(rng.integers(1, size))
        x[top : top + tall, left : left + int(rng.integers(1, max(2, size // 4)))] = dark
    x = (x - x.mean()) / max(float(x.std()), 1e-6)
    return np.ascontiguousarray(x.transpose(2, 0, 1), np.float32)


def _area(x: F32, rng: np.random.Generator) -> F32:
    """A view of a rectangle."""
    (top, bottom), (left, right) = (np.sort(rng.integers(0, n + 1, 2)) for n in x.shape[:2])
    area: F32 = x[top:bottom, left:right]
    return area


def sound(rng: np.random.Generator, size: int) -> F32:
    """[size] samples in -1 ... 1: noise whose power falls with frequency, swelling and fading."""
    spectrum = np.fft.rfft(rng.standard_normal(size))
    x = np.fft.irfft(spectrum / np.sqrt(np.arange(len(spectrum)) + 8), size)
    knots = np.exp(1.5 * rng.standard_normal(max(2, size // 2000)))
    x = x * np.interp(np.arange(size), np.linspace(0, size - 1, len(knots)), knots)
    scaled: F32 = (x * _LOUDNESS / np.sqrt(np.mean(np.square(x)))).astype(np.float32)
    return np.clip(scaled, -1, 1)
