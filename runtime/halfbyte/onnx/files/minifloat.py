"""Floats of 4 to 16 bits that NumPy lacks: conversion from and to their bit patterns.

A format has a sign bit, `exponent` bits and `mantissa` bits. Without its sign, a bit pattern is an
integer that grows with its number. With E the exponent's field, M the mantissa's and m its width:

    E = 0:  M 2^(1 - bias - m)              (subnormal)
    E > 0:  (2^m + M) 2^(E - bias - m)

up to the pattern `largest`; `infinity` and `nan` are patterns above it, if the format has them.
Formats: OCP 8-bit floating point 1.0 (E4M3, E5M2), OCP Microscaling 1.0 (E2M1, E2M3, E3M2, E8M0),
arXiv:2206.02915 (FNUZ: no infinity, no -0, one NaN in its place).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.errors import UnsupportedError

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Minifloat:
    """A format; see above. `infinity` and `nan` are None in formats without them."""

    exponent: int
    mantissa: int
    bias: int
    largest: int
    infinity: int | None = None
    nan: int | None = None

    @property
    def sign(self) -> int:
        """The sign's bit."""
        return 1 << (self.exponent + self.mantissa)

    @property
    def unsigned_zero(self) -> bool:
        """Whether the pattern of -0 is NaN (FNUZ)."""
        return self.nan == self.sign

    def table(self) -> npt.NDArray[np.float32]:
        """The number of every bit pattern of the format's width."""
        patterns = np.arange(self.sign)
        field, fraction = patterns >> self.mantissa, patterns & ((1 << self.mantissa) - 1)
        whole = np.where(field > 0, fraction + (1 << self.mantissa), fraction)
        value = np.ldexp(whole, np.maximum(field, 1) - self.bias - self.mantissa)
        value[patterns > self.largest] = np.nan
        if self.infinity is not None:
            value[self.infinity] = np.inf
        both = np.concatenate([value, -value]).astype(np.float32)
        if self.unsigned_zero:
            both[self.sign] = np.nan
        return both

    def encode(self, array: Array, *, saturate: bool) -> Array:
        """Bit patterns of the nearest numbers, ties to even; int32.

        Beyond the largest number (after rounding): that number if `saturate` or if the format has
        neither infinity nor NaN, else infinity, else NaN. NaN is 0 in formats without it.
        """
        wide = widest(array)
        lowest = 1 - self.bias  # exponent of the smallest normal number and of subnormal numbers
        magnitude = np.where(np.isfinite(wide), np.abs(wide), np.inf)
        exponent = np.frexp(np.maximum(magnitude, np.ldexp(1.0, lowest)))[1] - 1
        steps = np.rint(np.ldexp(magnitude, self.mantissa - exponent))
        # A carry out of the mantissa goes into the exponent's field.
        pattern = (exponent - lowest) * float(1 << self.mantissa) + steps
        beyond = self.infinity if self.infinity is not None else self.nan
        pattern = np.where(
            pattern <= self.largest, pattern, self.largest if saturate or beyond is None else beyond
        )
        pattern = np.where(np.isnan(wide), self.nan or 0, pattern).astype(np.int32)
        negative = np.signbit(wide) & ((pattern > 0) if self.unsigned_zero else True)
        return np.where(negative, pattern | self.sign, pattern)


def widest(array: Array) -> npt.NDArray[np.float64]:
    """Numbers as float64, which is exact for all types except 64-bit integers."""
    with np.errstate(invalid="ignore"):  # of signaling NaNs
        return np.asarray(array, np.float64)


BFLOAT16 = Minifloat(8, 7, 127, 0x7F7F, infinity=0x7F80, nan=0x7FC0)
EIGHT_BITS = {
    "float8e4m3fn": Minifloat(4, 3, 7, 0x7E, nan=0x7F),
    "float8e4m3fnuz": Minifloat(4, 3, 8, 0x7F, nan=0x80),
    "float8e5m2": Minifloat(5, 2, 15, 0x7B, infinity=0x7C, nan=0x7E),
    "float8e5m2fnuz": Minifloat(5, 2, 16, 0x7F, nan=0x80),
    "float4e2m1": Minifloat(2, 1, 1, 0x07),
    "float6e2m3": Minifloat(2, 3, 1, 0x1F),
    "float6e3m2": Minifloat(3, 2, 3, 0x1F),
}


@functools.cache
def table(name: str) -> npt.NDArray[np.float32]:
    """The numbers of all bit patterns of a format of at most 8 bits, by its name."""
    if name == "float8e8m0":
        return np.append(np.ldexp(np.float32(1), np.arange(255) - 127), np.float32(np.nan))
    return EIGHT_BITS[name].table()


def bfloat16_encode(array: Array) -> npt.NDArray[np.uint16]:
    """Bit patterns of the nearest bfloat16 numbers, ties to even."""
    if array.dtype != np.float32 and array.dtype != np.float16:
        return BFLOAT16.encode(array, saturate=False).astype(np.uint16)
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32).reshape(array.shape)
    rounded = (bits + (np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1)))) >> np.uint32(
        16
    )
    quiet = (bits >> np.uint32(16)) & np.uint32(0x8000) | np.uint32(0x7FC0)
    nan = (bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
    return np.where(nan, quiet, rounded).astype(np.uint16)


def bfloat16_decode(patterns: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
    """The numbers of bfloat16 bit patterns."""
    wide = np.left_shift(patterns, np.uint32(16), dtype=np.uint32)
    return np.asarray(wide).view(np.float32)


def e8m0_encode(array: Array, *, saturate: bool, round_mode: str) -> npt.NDArray[np.uint8]:
    """Bit patterns c of powers of two, 2^(c - 127); 255 is NaN, also for negative numbers.

    Powers out of range, such as infinity and 0, become the nearest one if `saturate`, else NaN.
    Source: ONNX Cast-24, whose `round_mode` is "up", "down", or "nearest" with ties upwards.
    """
    wide = widest(array)
    fraction, exponent = np.frexp(np.abs(wide))  # in [1/2, 1): a power of two is 1/2
    up = {"up": fraction > 0.5, "down": False, "nearest": fraction >= 0.75}
    if round_mode not in up:
        raise UnsupportedError(f"round_mode {round_mode!r}: expected one of {sorted(up)}")
    pattern = exponent - 1 + 127 + np.asarray(up[round_mode]).astype(np.int64)
    pattern = np.where(wide == 0, -1, np.where(np.isinf(wide), 255, pattern))
    invalid = np.isnan(wide) | (wide < 0)
    if saturate:
        pattern = np.clip(pattern, 0, 254)
    else:
        invalid |= (pattern < 0) | (pattern > 254)
    return np.where(invalid, 255, pattern).astype(np.uint8)
