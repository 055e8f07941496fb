"""Operators that create, move and compare tensors, where they differ from ONNX's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.errors import ProgramError, UnsupportedError
from halfbyte.onnx.reference import _shapes, constant, gather, interpolation
from halfbyte.onnx.reference import pad as padding
from halfbyte.onnx.reference._numbers import fitting, rounded, widened
from halfbyte.onnx.reference.arrays import axis_of
from halfbyte.onnx.reference.contrib._common import contrib

Array = npt.NDArray[Any]


@contrib("Inverse", infer=_shapes.same, types="a > a")
def inverse(x: Array) -> Array:
    """The inverse of each matrix [..., n, n]."""
    try:
        return rounded(np.linalg.inv(widened(x)), x.dtype)
    except np.linalg.LinAlgError as error:
        raise ProgramError(f"{error}, expected matrices with an inverse") from None


@contrib("Trilu", infer=_shapes.same, types="a > a")
def trilu(x: Array, k: Array | None = None, *, upper: int = 1) -> Array:
    """The part of matrices above (below) their diagonal k; 0 elsewhere."""
    part = np.triu if upper else np.tril
    return np.asarray(part(x, 0 if k is None else int(k.item())))


def _padded(data: Array, pads: Array, *others: Array | None, **attributes: Any) -> Any:
    rule: Any = padding.padded.shapes
    return rule(data, pads.reshape(-1))


@contrib("Pad", decided_by=(1,), special=True, infer=_shapes.alike(_padded), types="a > a")
def pad(data: Array, pads: Array, value: Array | None = None, *, mode: str = "constant") -> Any:
    """ONNX's Pad (version 13); pads may be [1, 2 rank]."""
    filler = None if value is None else value.reshape(())
    return padding.pad(data, pads.reshape(-1), filler, mode=mode)


def _slices(data: Array, indices: Array) -> _shapes.Shape:
    return (*indices.shape[:-1], *data.shape[indices.shape[-1] :])


@contrib("GatherND", special=True, product=True, infer=_shapes.Rule(_slices), types="a > a")
def gather_nd(data: Array, indices: Array) -> Any:
    """ONNX's GatherND without batches."""
    return gather.gather_nd(data, indices.astype(np.int64))


@contrib("ExpandDims", decided_by=(1,), special=True, infer=_shapes.views())
def expand_dims(x: Array, axis: Array) -> Array:
    """x with an axis of size 1 at `axis`."""
    return np.expand_dims(x, int(axis.item()))


@contrib("Range", decided_by=(0, 1, 2))
def range_(start: Array, limit: Array, delta: Array | None = None) -> Array:
    """start, start + delta, ... below limit."""
    step = np.ones((), start.dtype) if delta is None else delta
    values = [np.asarray(part.reshape(-1)[0]) for part in (start, limit, step)]
    return np.asarray(constant.arange(*values))


@contrib("Unique", dynamic=True)
def unique(x: Array) -> tuple[Array, Array, Array]:
    """Distinct values of x [n] as they first occur; for each of x, its index among them; counts."""
    values, first, place, counts = np.unique(
        x, return_index=True, return_inverse=True, return_counts=True
    )
    order = np.argsort(first)
    rank = np.argsort(order)
    inverse = rank[place.reshape(-1)]
    return values[order], inverse.astype(np.int64), counts[order].astype(np.int64)


@contrib(
    "CDist", product=True, infer=_shapes.Rule(lambda a, b, **_: (len(a), len(b))), types="a a > a"
)
def cdist(a: Array, b: Array, *, metric: str = "sqeuclidean") -> Array:
    """Distances [m, k] of rows a [m, d] and b [k, d]: euclidean, or its square."""
    if metric not in ("euclidean", "sqeuclidean"):
        raise UnsupportedError(f"metric {metric!r}, expected euclidean or sqeuclidean")
    fitting((len(a), *b.shape), a.itemsize)
    squares: Array = np.square(a[:, None] - b[None]).sum(-1)
    return np.sqrt(squares) if metric == "euclidean" else squares


@contrib("ComplexMul", infer=_shapes.together, types="a a > a")
def complex_mul(a: Array, b: Array) -> Array:
    """a b of complex numbers, real and imaginary part along the last axis [..., 2]."""
    return _complex_product(a, b, 1)


@contrib("ComplexMulConj", infer=_shapes.together, types="a a > a")
def complex_mul_conj(a: Array, b: Array) -> Array:
    """a times the conjugate of b, [..., 2]."""
    return _complex_product(a, b, -1)


def _complex_product(a: Array, b: Array, sign: int) -> Array:
    (x, y), (u, v) = (np.moveaxis(widened(part), -1, 0) for part in (a, b))
    return rounded(np.stack([x * u - sign * y * v, y * u + sign * x * v], axis=-1), a.dtype)


def _spectrum(x: Array, *, signal_ndim: int = 1, **attributes: Any) -> _shapes.Shape:
    return (*x.shape[:-1], x.shape[-1] // 2 + 1, 2)


def _signal(x: Array, *, signal_ndim: int, **attributes: Any) -> _shapes.Shape:
    return (*x.shape[:-2], 2 * (x.shape[-2] - 1))


@contrib("Rfft", infer=_shapes.Rule(_spectrum), types="a > a")
def rfft(x: Array, *, signal_ndim: int = 1, normalized: int = 0, onesided: int = 1) -> Array:
    """The Fourier transform over the last `signal_ndim` axes: [..., n / 2 + 1, 2]."""
    _check_fft(normalized, onesided)
    axes = range(-signal_ndim, 0)
    spectrum = np.fft.rfftn(widened(x), axes=tuple(axes))
    return rounded(np.stack([spectrum.real, spectrum.imag], axis=-1), x.dtype)


@contrib("Irfft", infer=_shapes.Rule(_signal), types="a > a")
def irfft(x: Array, *, signal_ndim: int, normalized: int = 0, onesided: int = 1) -> Array:
    """The inverse of Rfft: [..., n / 2 + 1, 2] -> [..., n]."""
    _check_fft(normalized, onesided)
    wide = widened(x)
    spectrum = wide[..., 0] + 1j * wide[..., 1]
    return rounded(np.fft.irfftn(spectrum, axes=tuple(range(-signal_ndim, 0))), x.dtype)


def _check_fft(normalized: int, onesided: int) -> None:
    if normalized or not onesided:
        raise UnsupportedError("a Fourier transform that is normalized or two-sided")


def _sampled_shape(x: Array, grid: Array, **attributes: Any) -> _shapes.Shape:
    return (*x.shape[:2], *grid.shape[1:-1])


@contrib("GridSample", product=True, infer=_shapes.alike(_sampled_shape), types="a > a")
def grid_sample(
    x: Array,
    grid: Array,
    *,
    align_corners: int = 0,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
) -> Any:
    """ONNX's GridSample of images."""
    return interpolation.grid_sample(
        x, grid, align_corners=align_corners, mode=mode, padding_mode=padding_mode
    )


def _rows(weight: Array, indices: Array, *others: Array | None) -> _shapes.Shape:
    return (*indices.shape, *weight.shape[1:])


@contrib("TorchEmbedding", infer=_shapes.Rule(_rows), types="a > a")
def torch_embedding(
    weight: Array,
    indices: Array,
    padding_idx: Array | None = None,
    scale_grad_by_freq: Array | None = None,
) -> Array:
    """Rows of `weight` [n, m]: [..., m]. The other inputs are for training only."""
    return weight[indices]


def _unfolded(x: Array, *, size: int, dim: int = -1, step: int = 1) -> _shapes.Shape:
    at = axis_of(dim, x.ndim)
    return (*x.shape[:at], (x.shape[at] - size) // step + 1, *x.shape[at + 1 :], size)


@contrib("UnfoldTensor", infer=_shapes.Rule(_unfolded), types="a > a")
def unfold_tensor(x: Array, *, size: int, dim: int = -1, step: int = 1) -> Array:
    """Slices of `size` along `dim`, `step` apart: `dim` counts them, a new last axis is theirs."""
    slices = np.lib.stride_tricks.sliding_window_view(x, size, axis=dim)
    whole = [slice(None)] * x.ndim
    whole[dim] = slice(None, None, step)
    return slices[tuple(whole)].copy()


@contrib("IsAllFinite", infer=_shapes.Rule(lambda *inputs, **_: ()), types="- > 9")
def is_all_finite(*inputs: Array, isinf_only: int = 0, isnan_only: int = 0) -> Array:
    """Whether no tensor has an infinity or NaN (or, by the attributes, only one of the two)."""
    test = np.isinf if isinf_only else np.isnan if isnan_only else lambda x: ~np.isfinite(x)
    return np.array(not any(test(x).any() for x in inputs))


@contrib("GatedAdd", infer=_shapes.together, types="a a a > a")
def gated_add(x: Array, y: Array, gate: Array) -> Array:
    """x + y gate, the product rounded to x's type."""
    product = rounded(widened(y) * widened(gate), x.dtype)
    return rounded(widened(x) + widened(product), x.dtype)


def _dropped(
    data: Array, bias: Array, residual: Array | None = None, *others: Any, **_: Any
) -> Any:
    added = [part.shape for part in (data, bias, residual) if part is not None]
    total = np.broadcast_shapes(*added)
    return [_shapes.blank(total, data.dtype), _shapes.blank(data.shape, np.bool_)]


@contrib("BiasDropout", infer=_shapes.Rule(_dropped))
def bias_dropout(
    data: Array,
    bias: Array,
    residual: Array | None = None,
    ratio: Array | None = None,
    training_mode: Array | None = None,
    *,
    seed: int = 0,
) -> tuple[Array, Array]:
    """data + bias + residual, and a mask of True: dropout outside of training."""
    if training_mode is not None and training_mode.item():
        raise UnsupportedError("BiasDropout in training")
    total = widened(data) + widened(bias)
    total = total if residual is None else total + widened(residual)
    return rounded(total, data.dtype), np.ones(data.shape, np.bool_)


def _scores(input_ids: Array, scores: Array, **attributes: Any) -> _shapes.Shapes:
    return _shapes.blank(scores.shape, scores.dtype)


@contrib("NGramRepeatBlock", infer=_shapes.Rule(_scores))
def ngram_repeat_block(input_ids: Array, scores: Array, *, ngram_size: int) -> Array:
    """Scores [batch, tokens], -inf for tokens that would repeat an n-gram of `input_ids`."""
    if ngram_size < 1:
        raise ProgramError(f"n-grams of {ngram_size} tokens, expected at least 1")
    blocked = scores.copy()
    length = input_ids.shape[1]
    for row, out in zip(input_ids, blocked, strict=True):
        end = row[length - ngram_size + 1 :]
        for at in range(length - ngram_size + 1):
            if (row[at : at + ngram_size - 1] == end).all():
                out[row[at + ngram_size - 1]] = -np.inf
    return blocked


def _crops(
    x: Array, rois: Array, batch_indices: Array, crop_size: Array, **attributes: Any
) -> _shapes.Shape:
    return (len(rois), x.shape[1], *map(int, crop_size.reshape(-1)))


@contrib("CropAndResize", decided_by=(3,), infer=_shapes.Rule(_crops), types="a > a")
def crop_and_resize(
    x: Array,
    rois: Array,
    batch_indices: Array,
    crop_size: Array,
    *,
    mode: str = "bilinear",
    extrapolation_value: float = 0.0,
) -> Array:
    """Boxes of images x [batch, c, h, w] at one size: [boxes, c, *crop_size].

    A box (top, left, bottom, right) is in fractions of the image, whose corners are the centers of
    its corner pixels; results outside of it have the extrapolation value.
    """
    height, width = (int(size) for size in crop_size.reshape(-1))
    sizes = fitting((len(rois), x.shape[1], height, width), x.itemsize)
    result = np.full(sizes, extrapolation_value, x.dtype)
    for out, box, image in zip(result, rois, batch_indices, strict=True):
        rows, columns = (
            _places(box[i], box[i + 2], count, of)
            for i, count, of in ((0, height, x.shape[2]), (1, width, x.shape[3]))
        )
        within = (rows >= 0) & (rows <= x.shape[2] - 1)
        inside = within[:, None] & (columns >= 0) & (columns <= x.shape[3] - 1)
        sampled = _sampled(x[image], rows, columns, mode)
        out[:] = np.where(inside, sampled, out)
    return result


def _places(begin: Any, end: Any, count: int, size: int) -> Array:
    """Positions of `count` pixels from begin to end, which are fractions of an image of `size`."""
    if count > 1:
        step = (end - begin) * (size - 1) / np.float32(count - 1)
        return np.asarray(begin * (size - 1) + np.arange(count, dtype=np.float32) * step)
    return np.asarray([0.5 * (begin + end) * (size - 1)], np.float32)


def _sampled(image: Array, rows: Array, columns: Array, mode: str) -> Array:
    """[c, h, w] at rows × columns; positions outside are clipped to the edge."""
    height, width = image.shape[1:]
    if mode == "nearest":
        return image[
            :,
            _clipped(np.floor(rows + 0.5), height)[:, None],
            _clipped(np.floor(columns + 0.5), width),
        ]
    if mode != "bilinear":
        raise UnsupportedError(f"mode {mode!r}, expected bilinear or nearest")
    top, bottom = (_clipped(f(rows), height) for f in (np.floor, np.ceil))
    left, right = (_clipped(f(columns), width) for f in (np.floor, np.ceil))
    down = (rows - np.floor(rows))[:, None].astype(image.dtype)
    across = (columns - np.floor(columns)).astype(image.dtype)
    upper = image[:, top[:, None], left] * (1 - across) + image[:, top[:, None], right] * across
    lower = image[:, bottom[:, None], left] * (1 - across)
    lower = lower + image[:, bottom[:, None], right] * across
    return np.asarray(upper * (1 - down) + lower * down)


def _clipped(places: Array, size: int) -> Array:
    clipped: Array = np.clip(np.nan_to_num(places), 0, size - 1).astype(np.int64)
    return clipped
