"""Signals: DFT, STFT, window functions, MelWeightMatrix."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from halfbyte.errors import ProgramError
from halfbyte.onnx.reference import _shapes
from halfbyte.onnx.reference._numbers import (
    Array,
    fitting,
    float_of,
    rounded,
    scalar,
    widened,
)  # fmt: skip
from halfbyte.onnx.reference.arrays import axis_of
from halfbyte.onnx.reference.registry import define


def _complex(x: Array) -> Array:
    """A tensor whose last axis is (real) or (real, imaginary), without that axis."""
    if not x.ndim or x.shape[-1] not in (1, 2):
        raise ProgramError(f"input {list(x.shape)}: expected a last axis of 1 or 2")
    wide = widened(x)
    return wide[..., 0] + 1j * wide[..., 1] if x.shape[-1] == 2 else wide[..., 0]


def _pairs(x: Array, dtype: np.dtype[Any]) -> Array:
    """Complex numbers as a last axis (real, imaginary); real ones as one of size 1."""
    parts = [x.real, x.imag] if np.iscomplexobj(x) else [x]
    return rounded(np.stack(parts, axis=-1), dtype)


def _transformed(x: Array, length: Array | None, axis: int, inverse: int, onesided: int) -> Array:
    number = axis_of(axis, x.ndim)
    if number == x.ndim - 1:
        raise ProgramError(f"axis {axis}: the last axis is that of real and imaginary parts")
    values = _complex(x)
    half = bool(inverse) and bool(onesided)
    default = 2 * (values.shape[number] - 1) if half else values.shape[number]
    count = default if length is None else int(scalar(length, "dft_length"))
    if count < 1:
        raise ProgramError(f"dft_length {count}: expected at least 1")
    shape = list(values.shape)
    shape[number] = count
    fitting(shape, 16)
    if half:
        return _pairs(np.fft.irfft(values, count, number), x.dtype)
    if inverse:
        return _pairs(np.fft.ifft(values, count, number), x.dtype)
    if not onesided:
        return _pairs(np.fft.fft(values, count, number), x.dtype)
    if np.iscomplexobj(values):
        raise ProgramError("onesided: expected a real input")
    return _pairs(np.fft.rfft(values, count, number), x.dtype)


def _bins(
    x: Array, length: Array | None, axis: int, inverse: int = 0, onesided: int = 0
) -> _shapes.Shape:
    number = axis_of(axis, x.ndim)
    half = bool(inverse) and bool(onesided)
    size = x.shape[number]
    count = (2 * (size - 1) if half else size) if length is None else int(length.item())
    kept = count // 2 + 1 if onesided and not inverse else count
    return (*x.shape[:number], kept, *x.shape[number + 1 : -1], 1 if half else 2)


def _dft(
    x: Array, dft_length: Array | None = None, axis: Array | None = None, **attributes: Any
) -> _shapes.Shape:
    return _bins(x, dft_length, -2 if axis is None else int(axis.item()), **attributes)


def _dft_17(
    x: Array, dft_length: Array | None = None, *, axis: int = 1, **attributes: Any
) -> _shapes.Shape:
    return _bins(x, dft_length, axis, **attributes)


def _stft(
    signal: Array, frame_step: Array, window: Array | None = None,
    frame_length: Array | None = None, *, onesided: int = 1,
) -> _shapes.Shape:  # fmt: skip
    step, size = int(frame_step.item()), signal.shape[1]
    length = size if window is None else len(window)
    length = length if frame_length is None else int(frame_length.item())
    return (len(signal), (size - length) // step + 1, length // 2 + 1 if onesided else length, 2)


@define("DFT", since=20, decided_by=(1, 2), product=True, infer=_shapes.alike(_dft))
def dft(
    x: Array,
    dft_length: Array | None = None,
    axis: Array | None = None,
    *,
    inverse: int = 0,
    onesided: int = 0,
) -> Array:
    """y[k] = sum over n of exp(-2 pi i k n / N) x[n] along one axis; its inverse is divided by N.

    x is [..., 1] (real) or [..., 2] (complex), cropped or padded with zeros to dft_length; axis is
    -2 by default. onesided keeps N // 2 + 1 results of a real x; with `inverse` it computes N real
    numbers from them ([..., 1]). ONNX DFT-20.
    """
    number = -2 if axis is None else int(scalar(axis, "axis"))
    return _transformed(x, dft_length, number, inverse, onesided)


@define("DFT", since=17, decided_by=(1,), product=True, infer=_shapes.alike(_dft_17))
def dft_17(
    x: Array, dft_length: Array | None = None, *, axis: int = 1, inverse: int = 0, onesided: int = 0
) -> Array:
    """The same with axis as an attribute. ONNX DFT-17."""
    return _transformed(x, dft_length, axis, inverse, onesided)


@define("STFT", since=17, decided_by=(1, 3), product=True, infer=_shapes.Rule(_stft))
def stft(
    signal: Array,
    frame_step: Array,
    window: Array | None = None,
    frame_length: Array | None = None,
    *,
    onesided: int = 1,
) -> Array:
    """The DFT of each frame of a signal [batch, length, 1 or 2], times a window.

    The result is [batch, frames, bins, 2]: frames (length - frame_length) // frame_step + 1, bins
    frame_length, or frame_length // 2 + 1 if onesided. ONNX STFT-17.
    """
    values = _complex(signal if signal.ndim == 3 else signal[..., None])
    step = int(scalar(frame_step, "frame_step"))
    length = values.shape[1] if window is None else len(window)
    if frame_length is not None:
        length = int(scalar(frame_length, "frame_length"))
    if step < 1 or not 1 <= length <= values.shape[1]:
        raise ProgramError(
            f"frame_step {step} and frame_length {length} of a signal of {values.shape[1]}"
        )
    if window is not None and window.shape != (length,):
        raise ProgramError(f"window {list(window.shape)}: expected {[length]}")
    if onesided and np.iscomplexobj(values):
        raise ProgramError("onesided: expected a real signal")
    frames = np.lib.stride_tricks.sliding_window_view(values, length, axis=1)[:, ::step]
    fitting(frames.shape, 16)
    if window is not None:
        frames = frames * widened(window)
    spectrum = np.fft.rfft(frames, axis=2) if onesided else np.fft.fft(frames, axis=2)
    return _pairs(spectrum, signal.dtype)


def _cosines(size: Array, factors: tuple[float, ...], periodic: int, output_datatype: int) -> Array:
    """a0 - a1 cos(x) + a2 cos(2 x) with x from 0 to 2 pi, without the end if periodic."""
    (count,) = fitting((scalar(size, "size"),), 8)
    turn = count if periodic else count - 1
    x = np.arange(count) * (2 * math.pi / max(turn, 1))
    total = sum((-1) ** i * a * np.cos(i * x) for i, a in enumerate(factors))
    return rounded(total, float_of(output_datatype, np.dtype(np.float32)))


@define("HannWindow", since=17, decided_by=(0,))
def hann_window(size: Array, *, output_datatype: int = 1, periodic: int = 1) -> Array:
    """0.5 - 0.5 cos(2 pi n / size), or size - 1 if not periodic. ONNX HannWindow-17."""
    return _cosines(size, (0.5, 0.5), periodic, output_datatype)


@define("HammingWindow", since=17, decided_by=(0,))
def hamming_window(size: Array, *, output_datatype: int = 1, periodic: int = 1) -> Array:
    """25/46 - 21/46 cos(2 pi n / size), or size - 1 if not periodic. ONNX HammingWindow-17."""
    return _cosines(size, (25 / 46, 21 / 46), periodic, output_datatype)


@define("BlackmanWindow", since=17, decided_by=(0,))
def blackman_window(size: Array, *, output_datatype: int = 1, periodic: int = 1) -> Array:
    """0.42 - 0.5 cos(x) + 0.08 cos(2 x), x = 2 pi n / size, or size - 1. ONNX BlackmanWindow-17."""
    return _cosines(size, (0.42, 0.5, 0.08), periodic, output_datatype)


def _mel_weights(
    num_mel_bins: Array, dft_length: Array, *others: Array, output_datatype: int = 1
) -> _shapes.Shapes:
    dtype = float_of(output_datatype, np.dtype(np.float32))
    return _shapes.blank((int(dft_length.item()) // 2 + 1, int(num_mel_bins.item())), dtype)


@define(
    "MelWeightMatrix", since=17, decided_by=(0, 1), special=True, infer=_shapes.Rule(_mel_weights)
)
def mel_weight_matrix(
    num_mel_bins: Array,
    dft_length: Array,
    sample_rate: Array,
    lower_edge_hertz: Array,
    upper_edge_hertz: Array,
    *,
    output_datatype: int = 1,
) -> Array:
    """Triangles over the bins of a spectrum, evenly spaced in mel(f) = 2595 log10(1 + f / 700).

    The distance between edges is 1 / (num_mel_bins + 2) of the range, as in ONNX's test.

    The result is [dft_length // 2 + 1, num_mel_bins]; a column rises from 0 to 1 from one edge's
    bin, floor((dft_length + 1) f / sample_rate), to the next, and falls to the one after. ONNX
    MelWeightMatrix-17.
    """
    count, length = int(scalar(num_mel_bins, "mel bins")), int(scalar(dft_length, "dft_length"))
    rate = float(scalar(sample_rate, "sample_rate"))
    edges = [scalar(widened(v), "edge") for v in (lower_edge_hertz, upper_edge_hertz)]
    low, high = (2595 * math.log10(1 + max(edge, 0) / 700) for edge in edges)
    bins = length // 2 + 1
    if rate <= 0 or count < 1:
        raise ProgramError(f"{count} mel bins at {rate} Hz: expected more than 0 of both")
    weights = np.zeros(fitting((bins, count), 8))
    hertz = 700 * (10 ** ((low + np.arange(count + 2) * ((high - low) / (count + 2))) / 2595) - 1)
    places = np.floor((length + 1) * hertz / rate).astype(np.int64)
    if places.max() > bins:
        raise ProgramError(f"upper_edge_hertz {edges[1]}: beyond the {bins} bins of the spectrum")
    for column in range(count):
        first, peak, last = (int(p) for p in places[column : column + 3])
        rising, falling = np.arange(first, peak), np.arange(peak, last)
        weights[rising, column] = (rising - first) / max(peak - first, 1)
        weights[falling, column] = (last - falling) / max(last - peak, 1)
        weights[peak : peak + 1, column] = 1
    return rounded(weights, float_of(output_datatype, np.dtype(np.float32)))
