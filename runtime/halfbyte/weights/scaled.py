"""Formats that are encoded in two steps: scales and minima first, then integers for these.

A format says which integers there are (`Levels`), the scales of plain rounding, and how scales and
minima are stored, which rounds them. With this, `encode` rounds to nearest here, and the quantizer
searches for better scales (:mod:`halfbyte.quantize.scale_search`).
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from halfbyte.weights.base import U8, Blocks, F32Array, WeightFormat

I8 = npt.NDArray[np.int8]


class Levels(NamedTuple):
    """What a weight over its scale may be: whole numbers from `low` to `high`, or those of a table.

    They are stored as integers from 0 on. Whole numbers are rounded to nearest, ties to even or
    `away` from zero, or where there is a `bias` by truncating after it is added. In a table, value
    i is taken for x from just above between[i - 1] to between[i]. The values of a table may be the
    magnitudes of numbers of `both` signs; the integers of all negative ones follow.
    """

    low: int
    high: int
    bias: float = 0
    away: bool = False
    values: F32Array = np.empty(0, np.float32)
    between: F32Array = np.empty(0, np.float32)
    both: bool = False

    def nearest(self, x: F32Array) -> F32Array:
        """The nearest of these numbers, whole ones with ties to even."""
        if self.both:
            return np.copysign(self.values[np.searchsorted(self.between, np.abs(x))], x)
        if self.values.size:
            return self.values[np.searchsorted(self.between, x)]
        return np.clip(np.rint(x), np.float32(self.low), np.float32(self.high))

    def stored(self, x: F32Array) -> U8:
        """The integers from 0 on that stand for x."""
        if self.both:
            place: U8 = np.searchsorted(self.between, np.abs(x)).astype(np.uint8)
            place += np.uint8(self.values.size) * (x < -self.between[0])
            return place
        if self.values.size:
            return np.searchsorted(self.between, x).astype(np.uint8)
        if self.bias:
            top = np.float32(self.high - self.low)
            shifted: F32Array = np.clip(x + np.float32(self.bias), np.float32(0), top)
            return shifted.astype(np.uint8)
        nearest = self._away(x) if self.away else self.nearest(x)
        return (nearest - np.float32(self.low)).astype(np.uint8)

    def _away(self, x: F32Array) -> F32Array:
        magnitude = np.minimum(np.abs(x), np.float32(self.high))
        whole = np.floor(magnitude)
        whole += (magnitude - whole) >= np.float32(0.5)
        return np.copysign(whole, x)

    def numbers(self, stored: U8) -> F32Array:
        """The numbers for which integers stand."""
        if self.both:
            return np.concatenate([self.values, -self.values])[stored]
        if self.values.size:
            return self.values[stored]
        return stored.astype(np.float32) + np.float32(self.low)


def table(*values: int, both: bool = False) -> Levels:
    """Levels of a table, in ascending order; between two numbers, the smaller one is taken."""
    numbers = np.array(values, np.float32)
    between = (numbers[1:] + numbers[:-1]) / np.float32(2)
    return Levels(-values[-1] if both else values[0], values[-1], 0, False, numbers, between, both)


class ScaledFormat(WeightFormat):
    """A format that is encoded in two steps."""

    layout: ClassVar[np.dtype[np.void]]
    levels: ClassVar[Levels]
    part: ClassVar[int] = 32  # numbers with a scale of their own
    minimum: ClassVar[bool] = False  # whether they have a minimum too
    negative: ClassVar[bool] = False  # whether minima are at most 0
    powers: ClassVar[bool] = False  # whether scales are powers of two

    # Of plain rounding's scale, the parts of its inverse that the search tries, each chosen for
    # what it adds to those before it
    factors: ClassVar[tuple[float, ...]]
    # With minima: what is added to each product, at least -1/2; nothing by default
    added: ClassVar[tuple[float, ...]] = ()
    all_twice: ClassVar[bool] = False  # with minima: fit for all again, not for the best only

    @classmethod
    def split(cls, values: F32Array) -> F32Array:
        """[rows, columns] -> [rows, blocks, parts of a block, numbers of a part]."""
        rows, columns = values.shape
        return values.reshape(rows, columns // cls.block, cls.block // cls.part, cls.part)

    @classmethod
    def plain(cls, low: F32Array, high: F32Array, first: F32Array) -> tuple[F32Array, F32Array]:
        """Scales of plain rounding, and minima or zeros, for parts of these extremes."""
        raise NotImplementedError

    @classmethod
    def candidates(cls) -> list[tuple[float, float]]:
        """Factors and what is added after them."""
        return [*zip(cls.factors, cls.added or (0.0,) * len(cls.factors), strict=True)]

    @classmethod
    def start(cls, values: F32Array) -> tuple[F32Array, F32Array]:
        """The same for all parts of rows: [rows, blocks, parts]."""
        return cls.plain(*extremes(cls.split(values)))

    @classmethod
    def rounded(cls, blocks: Blocks, scales: F32Array, minima: F32Array) -> Rounded:
        """Store scales and minima [rows, blocks, parts], which rounds them."""
        raise NotImplementedError

    @classmethod
    def fit(cls, values: F32Array, scales: F32Array, minima: F32Array) -> U8:
        """The blocks' bytes for these scales and minima."""
        x = cls.split(values)
        blocks = np.zeros(x.shape[:2], cls.layout)
        with np.errstate(over="ignore", invalid="ignore"):
            by = cls.rounded(blocks, scales, minima)
            scaled = (x - by.low[..., None]) * by.inverse[..., None]
        cls.store(blocks, cls.levels.stored(scaled))
        return blocks.view(np.uint8)

    @classmethod
    def store(cls, blocks: Blocks, integers: U8) -> None:
        """Store the integers of all parts, in blocks that have their scales."""
        cls.store_quantized(blocks, integers.reshape(*blocks.shape, cls.block))

    @classmethod
    def encode(cls, values: F32Array) -> U8:
        rows = cls.fit(values, *cls.start(values))
        cls.finish(rows, values)
        return rows

    @classmethod
    def finish(cls, rows: U8, values: F32Array) -> None:
        """Encode again, in place, blocks that have no inverse of their scale; none by default."""


class Rounded(NamedTuple):
    """Scales and minima as stored; x is stored as the integer of (x - low) inverse: all alike."""

    inverse: F32Array
    low: F32Array
    d: F32Array  # a weight is d q + m
    m: F32Array


class OneScale(ScaledFormat):
    """A block with one F16 scale: d q."""

    @classmethod
    def plain(cls, low: F32Array, high: F32Array, first: F32Array) -> tuple[F32Array, F32Array]:
        return first / np.float32(cls.levels.low), np.zeros_like(first)

    @classmethod
    def rounded(cls, blocks: Blocks, scales: F32Array, minima: F32Array) -> Rounded:
        blocks["d"] = scales[..., 0]
        d = blocks["d"].astype(np.float32)[..., None]
        return Rounded(inverse(scales), minima, d, np.zeros_like(d))


class SignedScales(ScaledFormat):
    """An F16 scale d times a signed integer s for every part: (d s) q.

    d = F16(the first of the largest scales / the smallest s), s = round(scale (1 / d)).
    """

    smallest: ClassVar[int]  # s; the largest is -smallest - 1

    @classmethod
    def plain(cls, low: F32Array, high: F32Array, first: F32Array) -> tuple[F32Array, F32Array]:
        return first / np.float32(cls.levels.low), np.zeros_like(first)

    @classmethod
    def store_scales(cls, blocks: Blocks, scales: I8) -> None:
        """Store the integers s [..., parts]."""
        raise NotImplementedError

    @classmethod
    def rounded(cls, blocks: Blocks, scales: F32Array, minima: F32Array) -> Rounded:
        lowest, highest = np.float32(cls.smallest), np.float32(-cls.smallest - 1)
        blocks["d"] = (first_largest(scales) / lowest)[..., 0]
        d = blocks["d"].astype(np.float32)[..., None]
        s = np.clip(np.rint(scales * inverse(d)), lowest, highest)
        cls.store_scales(blocks, s.astype(np.int8))
        return Rounded(inverse(d * s), minima, d * s, np.zeros_like(minima))


class PairedScales(ScaledFormat):
    """F16 numbers d and dmin times unsigned integers s and m for every part: (d s) q - (dmin m).

    For a part, lo = min(0, min x), scale = (max x - lo) / the largest q; d = F16(largest scale /
    the largest s), s = round(scale (1 / d)), dmin and m likewise from -lo.
    """

    minimum = True
    negative = True
    all_twice = True
    largest: ClassVar[int]  # s and m

    @classmethod
    def plain(cls, low: F32Array, high: F32Array, first: F32Array) -> tuple[F32Array, F32Array]:
        low = np.where(low < 0, low, np.float32(0))
        return (high - low) / np.float32(cls.levels.high), low

    @classmethod
    def store_scales(cls, blocks: Blocks, s: U8, m: U8) -> None:
        """Store the integers s and m, [..., parts] each."""
        raise NotImplementedError

    @classmethod
    def rounded(cls, blocks: Blocks, scales: F32Array, minima: F32Array) -> Rounded:
        (d, s), (e, m) = cls._whole(scales), cls._whole(-minima)
        blocks["d"], blocks["dmin"] = d[..., 0], e[..., 0]
        cls.store_scales(blocks, s.astype(np.uint8), m.astype(np.uint8))
        return Rounded(inverse(d * s), -(e * m), d * s, -(e * m))

    @classmethod
    def _whole(cls, scales: F32Array) -> tuple[F32Array, F32Array]:
        """Scales [..., parts] as F16(d) [..., 1] times integers."""
        top = np.float32(cls.largest)
        d = (scales.max(axis=-1, keepdims=True) / top).astype("<f2").astype(np.float32)
        return d, np.minimum(np.rint(scales * inverse(d)), top)


def inverse(d: F32Array) -> F32Array:
    """1 / d, or 0 where d is 0 or so small that 1 / d overflows: the block becomes zero."""
    with np.errstate(divide="ignore", over="ignore"):
        inverse: F32Array = np.float32(1) / d
    np.copyto(inverse, np.float32(0), where=~np.isfinite(inverse))
    return inverse


def first_largest(x: F32Array) -> F32Array:
    """The first of the numbers that are largest in magnitude: [..., n] -> [..., 1]."""
    return np.take_along_axis(x, np.abs(x).argmax(axis=-1, keepdims=True), axis=-1)


def extremes(x: F32Array) -> tuple[F32Array, F32Array, F32Array]:
    """The smallest, the largest, and the first of the largest in magnitude: [..., n] -> [...]."""
    return x.min(axis=-1), x.max(axis=-1), first_largest(x)[..., 0]
