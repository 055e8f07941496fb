"""Random operators. With a seed a node gives the same numbers at every call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from halfbyte.errors import ProgramError
from halfbyte.onnx.reference import _shapes
from halfbyte.onnx.reference._numbers import Array, fitting, float_of, rounded, scalar, widened
from halfbyte.onnx.reference.registry import define

_unseeded: list[np.random.Generator] = []  # of nodes without a seed, once one has run


def set_seed(seed: int) -> None:
    """Seed the numbers that nodes without a seed draw from now on."""
    _unseeded[:] = [np.random.default_rng(seed)]


def _generator(seed: float | None) -> np.random.Generator:
    """A generator from the bits of ONNX's float seed; without a seed, the process's own."""
    if seed is None:
        if not _unseeded:
            _unseeded.append(np.random.default_rng())
        return _unseeded[0]
    return np.random.default_rng(int(np.float32(seed).view(np.uint32)))


@define("RandomNormal", pure=False)
def random_normal(
    *,
    shape: Sequence[int],
    dtype: int = 1,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float | None = None,
) -> Array:
    """Normal random numbers with standard deviation `scale`. ONNX RandomNormal-1, -22."""
    numbers = _generator(seed).normal(mean, scale, fitting(shape, 8))
    return rounded(numbers, float_of(dtype, np.dtype(np.float32)))


@define("RandomUniform", pure=False)
def random_uniform(
    *,
    shape: Sequence[int],
    dtype: int = 1,
    high: float = 1.0,
    low: float = 0.0,
    seed: float | None = None,
) -> Array:
    """Uniform random numbers from low to high. ONNX RandomUniform-1, -22."""
    numbers = _generator(seed).uniform(low, high, fitting(shape, 8))
    return rounded(numbers, float_of(dtype, np.dtype(np.float32)))


@define("RandomNormalLike", pure=False, special=True, infer=_shapes.numbered)
def random_normal_like(
    x: Array, *, dtype: int = 0, mean: float = 0.0, scale: float = 1.0, seed: float | None = None
) -> Array:
    """RandomNormal in the shape, and without dtype the type, of x. ONNX RandomNormalLike-1, -22."""
    return rounded(_generator(seed).normal(mean, scale, x.shape), float_of(dtype, x.dtype))


@define("RandomUniformLike", pure=False, special=True, infer=_shapes.numbered)
def random_uniform_like(
    x: Array, *, dtype: int = 0, high: float = 1.0, low: float = 0.0, seed: float | None = None
) -> Array:
    """RandomUniform in the shape, and without dtype the type, of x. ONNX -1, -22."""
    return rounded(_generator(seed).uniform(low, high, x.shape), float_of(dtype, x.dtype))


@define("Bernoulli", since=15, pure=False, special=True, infer=_shapes.numbered)
def bernoulli(x: Array, *, dtype: int = 0, seed: float | None = None) -> Array:
    """1 with probability x, else 0, in dtype or x's type. ONNX Bernoulli-15, -22."""
    drawn = _generator(seed).random(x.shape) < widened(x)
    return rounded(drawn.astype(np.float32), float_of(dtype, x.dtype))


def _drawn(x: Array, *, dtype: int = 6, sample_size: int = 1, **attributes: Any) -> _shapes.Shapes:
    return _shapes.blank((len(x), sample_size), float_of(dtype, np.dtype(np.int32)))


@define("Multinomial", since=7, pure=False, infer=_shapes.Rule(_drawn))
def multinomial(
    x: Array, *, dtype: int = 6, sample_size: int = 1, seed: float | None = None
) -> Array:
    """sample_size classes for each row of log-probabilities x [batch, classes], with replacement.

    ONNX Multinomial-7, -22.
    """
    if x.ndim != 2 or not x.shape[1]:
        raise ProgramError(f"input {list(x.shape)}: expected [batch, classes]")
    wide = widened(x).astype(np.float64)
    weights = np.exp(wide - wide.max(axis=1, keepdims=True))
    limits = np.cumsum(weights, axis=1)
    shape = fitting((len(x), sample_size, x.shape[1]), 8)[:2]
    drawn = _generator(seed).random(shape) * limits[:, -1:]
    chosen = (limits[:, None, :] <= drawn[..., None]).sum(axis=2)
    return rounded(np.minimum(chosen, x.shape[1] - 1), float_of(dtype, np.dtype(np.int32)))


@define("Dropout", since=12, pure=False, infer=_shapes.with_mask)
def dropout(
    x: Array,
    ratio: Array | None = None,
    training_mode: Array | None = None,
    *,
    seed: int | None = None,
) -> tuple[Array, Array]:
    """x, and a mask of True; in training mode a part `ratio` of x is 0, the rest / (1 - ratio).

    That part is drawn by NumPy's RandomState of the seed, as in ONNX's tests. ONNX Dropout-12,
    -13, -22.
    """
    if any(v is not None and v.ndim for v in (ratio, training_mode)):
        raise ProgramError("ratio and training_mode: expected scalars")
    part = 0.5 if ratio is None else float(scalar(widened(ratio), "ratio"))
    if training_mode is None or not scalar(training_mode, "training_mode") or part == 0:
        return x, np.ones(x.shape, np.bool_)
    if not 0 < part < 1:
        raise ProgramError(f"ratio {part}: expected 0 to 1, 1 not among them")
    bits = None if seed is None else seed & 0xFFFFFFFF
    kept = np.random.RandomState(bits).uniform(0, 1, x.shape) >= part
    wide = widened(x)
    return rounded(kept * wide * wide.dtype.type(1 / (1 - part)), x.dtype), kept


@define("Dropout", since=7, infer=_shapes.alike(lambda x, **_: [x.shape, x.shape]))
def dropout_7(x: Array, *, ratio: float = 0.5) -> tuple[Array, Array]:
    """x, and a mask of True (of x's type before version 10). ONNX Dropout-7."""
    return x, np.ones(x.shape, x.dtype)


@define("Dropout", since=10, infer=_shapes.with_mask)
def dropout_10(x: Array, *, ratio: float = 0.5) -> tuple[Array, Array]:
    """The same with a mask of bool. ONNX Dropout-10."""
    return x, np.ones(x.shape, np.bool_)
