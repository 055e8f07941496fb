"""Normalizations by stored statistics (BatchNormalization), or by those of the input.

They are computed in float32 where the input is narrower.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from halfbyte.core.ops.reduce import mean_of
from halfbyte.errors import ProgramError
from halfbyte.onnx.files import dtypes
from halfbyte.onnx.reference import _shapes
from halfbyte.onnx.reference._numbers import (
    Array,
    channels,
    rounded,
    vector,
    widened,
)  # fmt: skip
from halfbyte.onnx.reference.arrays import axis_of
from halfbyte.onnx.reference.registry import define


def standardized(x: Array, axes: tuple[int, ...], epsilon: float) -> tuple[Array, Array, Array]:
    """(x - mean) / sqrt(variance + epsilon) over `axes`; the mean; 1 / sqrt(...). Rank is kept."""
    mean = mean_of(x, axes)
    centered = x - mean
    variance = mean_of(np.square(centered), axes)
    inverse = 1 / np.sqrt(variance + epsilon)
    return centered * inverse, mean, inverse


def root_mean_square(x: Array, axes: tuple[int, ...], epsilon: float) -> Array:
    """sqrt(mean(x^2) + epsilon) over `axes`. Rank is kept."""
    return np.asarray(np.sqrt(mean_of(np.square(x), axes) + epsilon))


def _features(x: Array) -> int:
    return x.shape[1] if x.ndim > 1 else 1


def _batch_normalized(
    x: Array, scale: Array, b: Array, mean: Array, variance: Array, epsilon: float
) -> Array:
    count, rank = _features(x), max(x.ndim, 2)
    parts = [
        channels(vector(widened(part), count, name), rank)
        for part, name in ((scale, "scale"), (b, "B"), (mean, "mean"), (variance, "var"))
    ]
    wide = widened(x) if x.ndim > 1 else widened(x)[:, None]
    y = (wide - parts[2]) * (parts[0] / np.sqrt(parts[3] + epsilon)) + parts[1]
    return rounded(y.reshape(x.shape), x.dtype)


def _batch_trained(
    x: Array, scale: Array, b: Array, mean: Array, variance: Array, epsilon: float, momentum: float
) -> tuple[Array, Array, Array, Array, Array]:
    """Y by the batch's own statistics; running mean and variance; those of the batch."""
    wide = widened(x) if x.ndim > 1 else widened(x)[:, None]
    axes = (0, *range(2, wide.ndim))
    now = mean_of(wide, axes, keepdims=False)
    spread = mean_of(np.square(wide - channels(now, wide.ndim)), axes, keepdims=False)
    y = _batch_normalized(x, scale, b, now, spread, epsilon)
    kept = widened(mean) * momentum + now * (1 - momentum)
    kept_spread = widened(variance) * momentum + spread * (1 - momentum)
    return (
        y, rounded(kept, mean.dtype), rounded(kept_spread, variance.dtype),
        rounded(now, mean.dtype), rounded(spread, variance.dtype),
    )  # fmt: skip


def _normalized(
    x: Array, scale: Array, b: Array, mean: Array, variance: Array, *, training_mode: int = 0,
    is_test: int = 0, outputs: int = 1, **attributes: Any,
) -> _shapes.Shapes:  # fmt: skip
    """The shape of the input; in training mode also those of statistics."""
    results = 3 if training_mode else 5 if outputs > 1 and not is_test else 1
    whole = _shapes.blank(x.shape, x.dtype)
    statistics = [_shapes.blank(v.shape, v.dtype) for v in (mean, variance)]
    return [whole, *statistics, *statistics][:results]


@define("BatchNormalization", since=14, special=True, infer=_shapes.alike(_normalized))
def batch_normalization(
    x: Array,
    scale: Array,
    b: Array,
    mean: Array,
    variance: Array,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
) -> Array | tuple[Array, Array, Array]:
    """Y = (X - mean) / sqrt(variance + epsilon) * scale + B, for each of C channels (axis 1).

    In training mode mean and (population) variance are the batch's, and two more outputs are
    mean * momentum + batch mean * (1 - momentum), and the variance likewise. ONNX
    BatchNormalization-14, -15.
    """
    if not training_mode:
        return _batch_normalized(x, scale, b, mean, variance, epsilon)
    return _batch_trained(x, scale, b, mean, variance, epsilon, momentum)[:3]


@define("BatchNormalization", since=7, infer=_shapes.alike(_normalized))
def batch_normalization_7(
    x: Array,
    scale: Array,
    b: Array,
    mean: Array,
    variance: Array,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    spatial: int = 1,
    outputs: int = 1,
) -> Array | tuple[Array, ...]:
    """The same; several outputs mean training mode, with the batch's own statistics last.

    With spatial 0 (version 7) each element of a sample is a channel. ONNX BatchNormalization-7, -9.
    """
    shape = x.shape
    if not spatial:
        x = x.reshape(shape[0], -1)
    if outputs == 1:
        return _batch_normalized(x, scale, b, mean, variance, epsilon).reshape(shape)
    y, *statistics = _batch_trained(x, scale, b, mean, variance, epsilon, momentum)
    return (y.reshape(shape), *(s.reshape(mean.shape) for s in statistics))


@define("BatchNormalization", since=6, infer=_shapes.alike(_normalized))
def batch_normalization_6(
    x: Array,
    scale: Array,
    b: Array,
    mean: Array,
    variance: Array,
    *,
    epsilon: float = 1e-5,
    is_test: int = 0,
    momentum: float = 0.9,
    spatial: int = 1,
    outputs: int = 1,
) -> Array | tuple[Array, ...]:
    """The same; with is_test it is not training mode. ONNX BatchNormalization-6."""
    return batch_normalization_7(
        x,
        scale,
        b,
        mean,
        variance,
        epsilon=epsilon,
        momentum=momentum,
        spatial=spatial,
        outputs=1 if is_test else outputs,
    )


@define("InstanceNormalization", since=1, infer=_shapes.same)
def instance_normalization(x: Array, scale: Array, b: Array, *, epsilon: float = 1e-5) -> Array:
    """Standardized over the spatial axes, times scale [C], plus B [C]. ONNX -1, -6, -22."""
    if x.ndim < 2:
        raise ProgramError(f"input {list(x.shape)}: expected [N, C, D...]")
    wide, _, _ = standardized(widened(x), tuple(range(2, x.ndim)), epsilon)
    by, plus = (channels(vector(widened(v), x.shape[1], "scale or B"), x.ndim) for v in (scale, b))
    return rounded(wide * by + plus, x.dtype)


def _grouped(x: Array, groups: int, epsilon: float) -> Array:
    """Standardized over each group of channels: [N, groups, C / groups, D...]."""
    if x.ndim < 2 or groups < 1 or x.shape[1] % groups:
        raise ProgramError(f"input {list(x.shape)}: expected [N, a multiple of {groups}, D...]")
    parts = widened(x).reshape(len(x), groups, x.shape[1] // groups, *x.shape[2:])
    return standardized(parts, tuple(range(2, parts.ndim)), epsilon)[0]


@define("GroupNormalization", since=21, infer=_shapes.same)
def group_normalization(
    x: Array, scale: Array, b: Array, *, num_groups: int, epsilon: float = 1e-5, stash_type: int = 1
) -> Array:
    """Standardized over each group of channels, times scale [C], plus bias [C].

    stash_type names the precision of the computation, which is never less than float32. ONNX
    GroupNormalization-21.
    """
    wide = _grouped(x, num_groups, epsilon).reshape(x.shape)
    by, plus = (
        channels(vector(widened(v), x.shape[1], "scale or bias"), x.ndim) for v in (scale, b)
    )
    return rounded(wide * by + plus, x.dtype)


@define("GroupNormalization", since=18, infer=_shapes.same)
def group_normalization_18(
    x: Array, scale: Array, b: Array, *, num_groups: int, epsilon: float = 1e-5
) -> Array:
    """The same with a scale and a bias for each group: [num_groups]. ONNX GroupNormalization-18."""
    wide = _grouped(x, num_groups, epsilon)
    by, plus = (
        channels(vector(widened(v), num_groups, "scale or bias"), wide.ndim) for v in (scale, b)
    )
    return rounded((wide * by + plus).reshape(x.shape), x.dtype)


def _standardized(
    x: Array, *others: Array | None, axis: int = -1, stash_type: int = 1, **attributes: Any
) -> _shapes.Shapes:
    """The shapes of a result like x, and of two statistics over the axes from `axis` on."""
    kept = _shapes.without(x.shape, range(axis_of(axis, x.ndim), x.ndim), 1)
    statistic = _shapes.blank(kept, dtypes.DTYPES[stash_type])
    return [x.shape, statistic, statistic]


@define("LayerNormalization", special=True, infer=_shapes.alike(_standardized))
def layer_normalization(
    x: Array,
    scale: Array,
    b: Array | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> tuple[Array, Array, Array]:
    """Standardized over the axes from `axis` on, times scale, plus b; mean and 1 / deviation.

    stash_type is the type of the second and third output, whose normalized axes have size 1. The
    computation is in float32 or wider. ONNX LayerNormalization-17, and ONNX Runtime's -1, which its
    optimizer writes into files of older opsets.
    """
    axes = tuple(range(axis_of(axis, x.ndim), x.ndim))
    wide, mean, inverse = standardized(widened(x), axes, epsilon)
    y = wide * widened(scale)
    if b is not None:
        y = y + widened(b)
    if y.shape != x.shape:
        raise ProgramError(
            f"scale {list(scale.shape)}: expected to be broadcast to {list(x.shape)}"
        )
    stash = dtypes.DTYPES[stash_type]
    return rounded(y, x.dtype), rounded(mean, stash), rounded(inverse, stash)


@define("RMSNormalization", since=23, special=True, infer=_shapes.same)
def rms_normalization(
    x: Array, scale: Array, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Array:
    """x / sqrt(mean(x^2) + epsilon) * scale, the mean over the axes from `axis` on.

    stash_type names the precision of the computation, which is never less than float32. ONNX
    RMSNormalization-23.
    """
    wide = widened(x)
    axes = tuple(range(axis_of(axis, x.ndim), x.ndim))
    y = wide / root_mean_square(wide, axes, epsilon) * widened(scale)
    if y.shape != x.shape:
        raise ProgramError(
            f"scale {list(scale.shape)}: expected to be broadcast to {list(x.shape)}"
        )
    return rounded(y, scale.dtype)


@define("LpNormalization", since=1, infer=_shapes.same)
def lp_normalization(x: Array, *, axis: int = -1, p: int = 2) -> Array:
    """x / (sum of |x|^p along `axis`)^(1/p), p 1 or 2; zero where that is. ONNX -1, -22."""
    wide = widened(x)
    if p not in (1, 2):
        raise ProgramError(f"p {p}: expected 1 or 2")
    powers = np.abs(wide) if p == 1 else np.square(wide)
    norm = powers.sum(axis=axis, keepdims=True) ** (1 / p)
    return rounded(np.where(norm == 0, 0, wide / np.where(norm == 0, 1, norm)), x.dtype)


@define("MeanVarianceNormalization", since=9, infer=_shapes.same)
def mean_variance_normalization(x: Array, *, axes: Sequence[int] = (0, 2, 3)) -> Array:
    """(x - mean) / (sqrt(mean(x^2) - mean^2) + 1e-9) over `axes`. ONNX -9, -13."""
    wide, over = widened(x), tuple(axes)
    centered = wide - mean_of(wide, over)
    deviation = np.sqrt(mean_of(np.square(centered), over))
    return rounded(centered / (deviation + 1e-9), x.dtype)


@define("LRN", since=1, infer=_shapes.same)
def lrn(
    x: Array, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0
) -> Array:
    """x / (bias + alpha / size * sum of x^2 over `size` channels around)^beta. ONNX LRN-1, -13."""
    if size < 1:
        raise ProgramError(f"size {size}: expected at least 1")
    wide = widened(x)
    before = min((size - 1) // 2, x.shape[1])
    after = min(size - 1 - (size - 1) // 2, x.shape[1])
    # sums[c] is the sum of the channels before c; a window's sum is a difference of two
    sums = np.cumsum(np.square(wide), axis=1, dtype=np.float64)
    sums = np.concatenate([np.zeros_like(sums[:, :1]), sums], axis=1)
    index = np.arange(x.shape[1])
    squares = (
        sums[:, np.minimum(index + after + 1, x.shape[1])] - sums[:, np.maximum(index - before, 0)]
    )
    return rounded(wide / (bias + alpha / size * squares) ** beta, x.dtype)
