"""The steps of encoding that look at every number: in NumPy, their definition, and on kernels.

Between them `scale_search` rounds scales, which are few. So a new format needs no kernel of its
own. Sums over a part add its numbers in order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.core.backends.single import SingleKernels
from halfbyte.weights import F32Array, ScaledFormat
from halfbyte.weights.base import Blocks
from halfbyte.weights.scaled import Rounded, extremes, inverse

U8 = npt.NDArray[np.uint8]
Pair = tuple[F32Array, F32Array]


class Steps:
    """The definition."""

    def in_one_pass(self, format_: type[ScaledFormat], x: F32Array) -> U8 | None:
        """Rows by plain rounding, where nothing between two steps is needed for it."""

    def search(
        self, format_: type[ScaledFormat], x: F32Array, importance: F32Array
    ) -> tuple[U8, F32Array] | None:
        """The same for the search: rows, and errors."""

    def extremes(
        self, format_: type[ScaledFormat], x: F32Array
    ) -> tuple[F32Array, F32Array, F32Array]:
        """Smallest, largest, and first largest in magnitude of parts: [rows, blocks, parts]."""
        return extremes(format_.split(x))

    def best(
        self,
        format_: type[ScaledFormat],
        x: F32Array,
        importance: F32Array,
        scales: F32Array,
        minima: F32Array,
    ) -> Pair:
        """The best scales and minima [rows, blocks, parts]; those given where none is better."""
        parts, w = format_.split(x), format_.split(importance[None])
        search = _lines if format_.minimum else _slopes
        return search(format_, parts, w, scales, minima)

    def quantized(
        self, format_: type[ScaledFormat], x: F32Array, importance: F32Array, by: Rounded
    ) -> tuple[U8, F32Array]:
        """Integers from 0 on [rows, columns], and weighted errors [rows, blocks, parts]."""
        parts, w = format_.split(x), format_.split(importance[None])
        integers = format_.levels.stored((parts - by.low[..., None]) * by.inverse[..., None])
        y = format_.levels.numbers(integers) * by.d[..., None] + by.m[..., None]
        off = parts - y
        return integers.reshape(x.shape), _sum((off * off) * w)

    def store(self, format_: type[ScaledFormat], blocks: Blocks, integers: U8) -> None:
        """Store integers in blocks that have their scales."""
        format_.store(blocks, integers)


class OnePass(Steps):
    """What kernels do in one pass, byte for byte; the rest is in NumPy."""

    def __init__(self, kernels: SingleKernels) -> None:
        self._kernels = kernels

    def in_one_pass(self, format_: type[ScaledFormat], x: F32Array) -> U8 | None:
        name = f"encode_{format_.dtype}"
        if not self._kernels.has(name):
            return None
        (n, k), reach = x.shape, self._kernels.memory.reach
        w = reach(np.empty((n, format_.row_bytes(k)), np.uint8))
        self._kernels.call(name, w=w, x=reach(x), n=n, k=k)
        if format_.minimum:  # the sign of a zero is as NumPy chooses it
            blocks = w.view(format_.layout).reshape(-1)
            zero = np.any([blocks[each].view(np.uint16) << 1 == 0 for each in ("d", "m")], axis=0)
            if zero.any():
                few = format_.encode(x.reshape(-1, format_.block)[zero])
                blocks[zero] = few.view(format_.layout)[:, 0]
        return w

    def search(
        self, format_: type[ScaledFormat], x: F32Array, importance: F32Array
    ) -> tuple[U8, F32Array] | None:
        if format_.part != format_.block or not self._kernels.has("encode_search"):
            return None
        (n, k), reach, levels = x.shape, self._kernels.memory.reach, format_.levels
        simple = not (format_.minimum or format_.powers or levels.values.size)
        if not (simple or self._kernels.has("encode_lines")):  # WebAssembly
            return None
        planes, offset = _places(format_), 0
        if not len(planes):  # integers are stored as signed bytes, after the scale
            planes, offset = np.array([[2, 0, 8, format_.block]], np.int32), levels.low
        w = reach(np.empty((n, format_.row_bytes(k)), np.uint8))
        error = reach(np.empty((n, 2), np.float32))
        self._call(
            "encode_search", format_, x, {"w": w, "error": error}, importance=importance,
            factors=_factors(format_), c=len(format_.factors), planes=planes,
            p=len(planes), bytes=format_.block_bytes, offset=offset,
            at=_offset(format_, "e" if format_.powers else "d"), powers=int(format_.powers),
            minimum=int(format_.minimum), bias=levels.bias, away=int(levels.away),
            **_levels(format_),
        )  # fmt: skip
        return w, error

    def _call(
        self,
        name: str,
        format_: type[ScaledFormat],
        x: F32Array,
        outputs: dict[str, Any],
        **inputs: Any,
    ) -> None:
        """Call a kernel; its outputs are in memory that it accesses, arrays of inputs anywhere."""
        n, k = x.shape
        reach = self._kernels.memory.reach
        arguments = {
            key: reach(value) if isinstance(value, np.ndarray) else value
            for key, value in inputs.items()
        }
        arguments |= outputs
        self._kernels.call(name, x=reach(x), n=n, k=k, part=format_.part, **arguments)


class KernelSteps(OnePass):
    """The same on kernels, byte for byte."""

    def extremes(
        self, format_: type[ScaledFormat], x: F32Array
    ) -> tuple[F32Array, F32Array, F32Array]:
        low, high, first = self._parts(format_, x, 3)
        self._call("encode_extremes", format_, x, {"low": low, "high": high, "first": first})
        for extreme in (low, high):
            if not extreme.all():  # the sign of a zero is as NumPy chooses it
                zero = extreme == 0
                few = format_.split(x)[zero]
                extreme[zero] = few.min(axis=-1) if extreme is low else few.max(axis=-1)
        return low, high, first

    def best(
        self,
        format_: type[ScaledFormat],
        x: F32Array,
        importance: F32Array,
        scales: F32Array,
        minima: F32Array,
    ) -> Pair:
        a, b = self._parts(format_, x, 2)
        arguments = {
            "importance": importance, "inverse": inverse(scales), "scales": scales,
            "factors": _factors(format_), "c": len(format_.factors),
        }  # fmt: skip
        if format_.minimum:
            arguments |= {
                "minima": minima, "negative": int(format_.negative), "all": int(format_.all_twice)
            }  # fmt: skip
            outputs, highest = {"a": a, "b": b}, format_.levels.high
            self._call("encode_lines", format_, x, outputs, highest=highest, **arguments)
            return a, b
        arguments |= _levels(format_)
        self._call("encode_slopes", format_, x, {"a": a}, powers=int(format_.powers), **arguments)
        return a, minima

    def quantized(
        self, format_: type[ScaledFormat], x: F32Array, importance: F32Array, by: Rounded
    ) -> tuple[U8, F32Array]:
        (errors,) = self._parts(format_, x, 1)
        integers = self._kernels.memory.reach(np.empty(x.shape, np.uint8))
        d, m = (np.broadcast_to(v, errors.shape) for v in (by.d, by.m))
        self._call(
            "encode_integers", format_, x, {"q": integers, "error": errors},
            importance=importance, inverse=by.inverse, minima=by.low, d=d, m=m,
            bias=format_.levels.bias, away=int(format_.levels.away), **_levels(format_),
        )  # fmt: skip
        return integers, errors

    def store(self, format_: type[ScaledFormat], blocks: Blocks, integers: U8) -> None:
        if not format_.planes:
            return super().store(format_, blocks, integers)
        places = _places(format_)
        n, blocks_of_row = blocks.shape
        reach = self._kernels.memory.reach
        w = reach(blocks.view(np.uint8))
        self._kernels.call(
            "encode_pack", w=w, q=reach(integers), planes=reach(places),
            p=len(places), n=n, k=blocks_of_row * format_.block, block=format_.block,
            bytes=format_.block_bytes,
        )  # fmt: skip
        blocks.view(np.uint8)[...] = w
        return None

    def _parts(self, format_: type[ScaledFormat], x: F32Array, count: int) -> list[F32Array]:
        """Arrays [rows, blocks, parts] that kernels access."""
        n, k = x.shape
        shape = (n, k // format_.block, format_.block // format_.part)
        return [self._kernels.memory.reach(np.empty(shape, np.float32)) for _ in range(count)]


def _offset(format_: type[ScaledFormat], field: str) -> int:
    """Where a field of a block is."""
    return int(format_.layout.fields[field][1])  # type: ignore[index]


def _places(format_: type[ScaledFormat]) -> npt.NDArray[np.int32]:
    """Planes, with offsets in place of names."""
    places = [(_offset(format_, name), *bits) for name, *bits in format_.planes]
    return np.array(places, np.int32).reshape(-1, 4)


def _factors(format_: type[ScaledFormat]) -> F32Array:
    """Factors, which with minima are followed by what is added."""
    added = [plus for _, plus in format_.candidates()] if format_.minimum else []
    return np.array([*format_.factors, *added], np.float32)


def _levels(format_: type[ScaledFormat]) -> dict[str, Any]:
    levels = format_.levels
    return {
        "values": levels.values, "between": levels.between, "t": len(levels.between),
        "both": int(levels.both), "lowest": float(levels.low), "highest": float(levels.high),
    }  # fmt: skip


def _sum(values: F32Array) -> F32Array:
    """Sums over the last axis, in order."""
    return np.cumsum(values, axis=-1)[..., -1]


def _slopes(
    format_: type[ScaledFormat], x: F32Array, w: F32Array, scales: F32Array, minima: F32Array
) -> Pair:
    """For parts x [..., n] without minima."""
    first = inverse(scales)
    best, slopes = np.zeros_like(scales), scales.copy()
    for factor in map(np.float32, format_.factors):
        q = format_.levels.nearest(x * (first * factor)[..., None])
        wq = w * q
        a, b = _sum(wq * x), _sum(wq * q)
        if format_.powers:
            slope = scales / factor
            gain = ((a + a) - slope * b) * slope
        else:
            slope, gain = a / b, (a * a) / b
        wins = gain > best
        best, slopes = np.where(wins, gain, best), np.where(wins, slope, slopes)
    return slopes, minima


def _lines(
    format_: type[ScaledFormat], x: F32Array, w: F32Array, scales: F32Array, minima: F32Array
) -> Pair:
    """For parts x [..., n] with minima."""
    first = (x - minima[..., None]) * inverse(scales)[..., None]
    sum_w, sum_x = _sum(np.broadcast_to(w, x.shape)), _sum(w * x)
    best, fits = np.zeros_like(scales), list[Pair]()
    for turn in range(2):
        starts = fits if format_.all_twice else [(scales, minima)]
        of_fits = ((x - b[..., None]) * inverse(a)[..., None] for a, b in starts)
        pairs = np.array(format_.candidates(), np.float32)
        of_factors = (first * by + plus for by, plus in pairs)
        fits = []
        for scaled in of_fits if turn else of_factors:
            q = format_.levels.nearest(scaled)
            wq = w * q
            sum_q, sum_qq, sum_qx = _sum(wq), _sum(wq * q), _sum(wq * x)
            det = sum_w * sum_qq - sum_q * sum_q
            a: F32Array = np.divide(sum_w * sum_qx - sum_x * sum_q, det)
            b: F32Array = np.divide(sum_qq * sum_x - sum_q * sum_qx, det)
            if format_.negative:
                a, b = np.where(b > 0, sum_qx / sum_qq, a), np.where(b < 0, b, np.float32(0))
            gain = a * sum_qx + b * sum_x
            wins = (det > 0) & (a > 0) & (gain > best)
            best = np.where(wins, gain, best)
            scales, minima = np.where(wins, a, scales), np.where(wins, b, minima)
            fits.append((a, b))
    return scales, minima
