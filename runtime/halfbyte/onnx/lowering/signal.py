"""Rules of signals: an STFT of short frames as a product with a matrix."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from halfbyte.onnx.capture import Capture
from halfbyte.onnx.lowering.linear import product
from halfbyte.onnx.lowering.move import moved
from halfbyte.onnx.lowering.registry import lower
from halfbyte.onnx.reference.arrays import scalar
from halfbyte.onnx.values import Array, Operand, Value

MAX_NUMBERS = 512 * 514  # of a matrix; a longer frame takes less time in NumPy's fast transform


@lower("STFT")
def stft(
    c: Capture, signal: Value | Array, frame_step: Operand, window: Operand = None,
    frame_length: Operand = None, *, onesided: int = 1,
) -> Value | None:  # fmt: skip
    """Frames of a real signal [batch, length] times the cosines and sines of all bins."""
    if not isinstance(signal, Value) or signal.dtype != "f32" or signal.shape[2:] not in ((), (1,)):
        return None
    if not isinstance(frame_step, np.ndarray) or isinstance(window, Value):
        return None
    batch, size = signal.shape[:2]
    step, length = scalar(frame_step), size if window is None else len(window)
    if frame_length is not None:
        if isinstance(frame_length, Value):
            return None
        length = scalar(frame_length)
    if window is not None and (window.shape != (length,) or window.dtype != np.float32):
        return None
    bins = length // 2 + 1 if onesided else length
    if step < 1 or not 1 <= length <= size or 2 * length * bins > MAX_NUMBERS:
        return None
    frames = moved(c, signal, (batch, (size - length) // step + 1, length), (size, step, 1))
    matrix = _waves(length, bins, None if window is None else window.tobytes())
    y = None if frames is None else product(c, frames, matrix, None)
    return None if y is None else c.reshaped(y, (*y.shape[:2], bins, 2))


@lru_cache(maxsize=8)
def _waves(length: int, bins: int, window: bytes | None) -> Array:
    """exp(-2 pi i n k / length) times the window: [length, 2 bins], real and imaginary parts."""
    turns = np.outer(np.arange(length), np.arange(bins)) % length
    waves = np.exp(-2j * np.pi / length * turns)
    if window is not None:
        waves *= np.frombuffer(window, np.float32)[:, None]
    pairs = np.stack([waves.real, waves.imag], axis=-1)
    return pairs.reshape(length, 2 * bins).astype(np.float32)
