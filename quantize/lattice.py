"""Matrices that were trained for few bits, whose values lie on a lattice: they lose nothing.

A block of 32 weights lies on the lattice of Q4_0 if each is d q, with whole numbers q from -8 to 7
and a scale d that F16 holds; on that of Q8_0 if q are from -127 to 127; and one of 256 on that of
TQ2_0 if q are -1, 0 and 1. The product is rounded to
the type in which the weights are stored, as whoever stored them rounded it. Ordinary weights never
lie on one: even in BF16 a weight is near enough to a multiple of d in one of eighty cases, and all
32 must be.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from halfbyte.errors import HalfbyteError
from halfbyte.formats import ModelFile
from halfbyte.quantize.encode import Codec, slices
from halfbyte.quantize.recipe import Choice
from halfbyte.weights import BF16, F16, F32, Q4_0, Q8_0, U8, F32Array, ScaledFormat, Tensor
from halfbyte.weights.few_bits import TQ2_0

NOTE = "the values lie on its lattice: nothing is lost"

_BLOCK = 32
_SAMPLED = 1 << 14  # weights that are looked at after the first row
_GROUPS = (128, 64, 32)  # columns that share a scale of eight bits, if not whole rows
_NEAR = (0, 1, -1, 2, -2, 3, -3, 4, -4)  # steps of F16 from the scale of least squares

Round = Callable[[F32Array], F32Array]


def with_lattices(file: ModelFile, choices: Iterable[Choice], codec: Codec) -> Iterator[Choice]:
    """The choices, with the exact type for matrices that lie on a lattice.

    A type with more bits than the one that was asked for is not chosen.
    """
    for choice in choices:
        exact = next((f for f in _candidates(choice) if _lies_on(f, file, choice, codec)), None)
        yield choice if exact is None else replace(choice, format=exact, exact=True, note=NOTE)


def find_scales(format_: type[ScaledFormat], values: F32Array, stored: Round) -> F32Array:
    """Scales [rows, blocks] with which values are on the lattice; NaN for a block that is not.

    Parameters
    ----------
    format_ : type
        TQ2_0, Q4_0 or Q8_0.
    values : float32 [rows, columns]
        Columns are a multiple of its block.
    stored : callable
        Rounds float32 to the type in which the values were stored.
    """
    return _SEARCHES[format_](values, stored)


def encode_exactly(choice: Choice, values: F32Array) -> U8:
    """The bytes of rows [n, columns] of a matrix that :func:`with_lattices` found."""
    format_ = next(f for f in _SEARCHES if f is choice.format)
    scales = find_scales(format_, values, _rounding(choice.tensor))
    if np.isnan(scales).any():
        raise HalfbyteError(f"tensor {choice.tensor.name!r} has changed while it was read")
    scales = scales[..., None]
    data: U8 = format_.fit(values, scales, np.zeros_like(scales))
    return data


def _rounding(tensor: Tensor) -> Round:
    """Rounds float32 to a tensor's type: F32, F16 or BF16."""
    kind = tensor.format
    if kind is F32:
        return lambda x: x
    return lambda x: kind.decode(kind.encode(x))


def _candidates(choice: Choice) -> Iterator[type[ScaledFormat]]:
    """Types to try for a matrix, the smaller first."""
    tensor, wanted = choice.tensor, choice.format
    plain = tensor.format in (F32, F16, BF16) and wanted not in (F32, F16, BF16)
    if not plain or len(tensor.shape) < 2:
        return
    for format_ in _SEARCHES:
        smaller = format_.block_bytes / format_.block <= wanted.block_bytes / wanted.block
        if smaller and tensor.columns % format_.block == 0:
            yield format_


def _lies_on(format_: type[ScaledFormat], file: ModelFile, choice: Choice, codec: Codec) -> bool:
    """Whether a matrix lies on a lattice: mostly its first row tells, otherwise all of it does."""
    tensor, stored = choice.tensor, _rounding(choice.tensor)
    file.check()

    def fits(values: F32Array) -> bool:
        finite = bool(np.isfinite(values).all())
        return finite and not np.isnan(find_scales(format_, values, stored)).any()

    first_rows = (1, max(1, _SAMPLED // tensor.columns))
    samples = (codec.values(tensor, 0, rows) for rows in first_rows)
    parts = (part.values for part in slices(file, tensor, codec))
    return all(fits(values) for values in itertools.chain(samples, parts))


def _ternary(values: F32Array, stored: Round) -> F32Array:
    """All of a block's weights but those of 0 have one magnitude."""
    blocks = np.abs(values.reshape(-1, TQ2_0.block))
    largest = blocks.max(axis=1)
    with np.errstate(over="ignore"):
        d = largest.astype(np.float16).astype(np.float32)
        fits = np.isfinite(d) & (stored(d[:, None])[:, 0] == largest)
    fits &= ((blocks == largest[:, None]) | (blocks == 0)).all(axis=1)
    return np.where(fits, d, np.float32(np.nan)).reshape(len(values), -1)


def _four_bits(values: F32Array, stored: Round) -> F32Array:
    """Each block's largest weight is d times one of eight whole numbers: all are tried."""
    blocks = values.reshape(-1, _BLOCK)
    scales = np.where(blocks.any(axis=1), np.float32(np.nan), np.float32(0))
    for whole in (7, -8, 6, 5, 4, 3, 2, 1):
        open_ = np.flatnonzero(np.isnan(scales))
        x = blocks[open_]
        largest = np.take_along_axis(x, np.abs(x).argmax(axis=1)[:, None], axis=1)[:, 0]
        d = (largest if whole < 0 else np.abs(largest)) / np.float32(whole)
        scales[open_] = _fitted(x, d.astype(np.float32), -8, 7, stored)
    return scales.reshape(len(values), -1)


def _eight_bits(values: F32Array, stored: Round) -> F32Array:
    """The largest weight of a row, or of a group of columns, is 127 d."""
    columns = values.shape[1]
    scales = np.full((len(values), columns // _BLOCK), np.nan, np.float32)
    for group in (columns, *(size for size in _GROUPS if columns % size == 0)):
        x = values.reshape(-1, group)
        fitted = _fitted(x, np.abs(x).max(axis=1) / np.float32(127), -127, 127, stored)
        each = np.repeat(fitted.reshape(len(values), -1), group // _BLOCK, axis=1)
        scales = np.where(np.isnan(scales), each, scales)
    return scales


_SEARCHES: Mapping[type[ScaledFormat], Callable[[F32Array, Round], F32Array]] = {
    TQ2_0: _ternary, Q4_0: _four_bits, Q8_0: _eight_bits
}  # fmt: skip


def _fitted(x: F32Array, d: F32Array, low: int, high: int, stored: Round) -> F32Array:
    """For each row of x, the scale near d that F16 holds and that makes it exactly, or NaN.

    With the integers that d gives, least squares tell the scale better than one rounded weight.
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        q = np.clip(np.nan_to_num(np.rint(x / d[:, None])), low, high)
        middle = np.einsum("ij,ij->i", x, q, dtype=np.float64) / np.square(q).sum(axis=1)
        bits = np.nan_to_num(middle).astype(np.float16).view(np.uint16)
    # Rows are left out early that rounding to BF16, the coarsest type, does not explain
    near = np.abs(q * d[:, None] - x).max(axis=1, initial=0) <= (0.02 + high / 256) * np.abs(d)
    scales = np.full(len(x), np.nan, np.float32)
    for offset in _NEAR:
        open_ = np.flatnonzero(near & np.isnan(scales))
        if not open_.size:
            break
        trial = (bits[open_] + np.uint16(offset & 0xFFFF)).view(np.float16).astype(np.float32)
        with np.errstate(invalid="ignore", over="ignore"):
            fits = (stored(q[open_] * trial[:, None]) == x[open_]).all(axis=1)
        scales[open_[fits]] = trial[fits]
    return scales
