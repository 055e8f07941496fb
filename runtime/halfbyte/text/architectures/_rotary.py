"""Rotary positions: tables of cos and sin, and how their frequencies are scaled."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from halfbyte.core.buffer import Buffer
from halfbyte.text.architectures._keys import Keys

_TABLE_ROWS = 4096


@dataclass(frozen=True)
class Rope:
    """cos and sin of each position, and how a head's elements are paired."""

    cos: Buffer
    sin: Buffer
    interleaved: bool


@dataclass(frozen=True)
class Yarn:
    """YaRN: slow frequencies are divided by the factor, fast ones stay (Peng et al. 2023)."""

    original_context: int
    fast: float  # rotations within the original context from which a frequency stays
    slow: float  # rotations up to which it is divided by the whole factor
    gain: float  # of cos and sin
    whole: bool = True  # pairs between fast and slow ones begin and end with whole numbers

    def divisors(self, base: float, factor: float, rotated: int) -> npt.NDArray[np.float64]:
        """The divisor of each pair's frequency, [rotated / 2]."""

        def pair(rotations: float) -> float:
            wavelength = self.original_context / (rotations * 2 * math.pi)
            return rotated * math.log(wavelength) / (2 * math.log(base))

        low, high = pair(self.fast), pair(self.slow)
        if self.whole:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, rotated - 1)
        ramp = np.clip((np.arange(rotated // 2) - low) / max(high - low, 0.001), 0, 1)
        divisors: npt.NDArray[np.float64] = 1 / (ramp / factor + (1 - ramp))
        return divisors


def read_yarn(keys: Keys, *, whole: bool = True) -> Yarn | None:
    """The scaling of a file, if it is YaRN's; `whole` as there."""
    if keys.rope_scaling() != "yarn":
        return None
    factor = keys.number("rope.scaling.factor")
    gain = keys.number("rope.scaling.attn_factor", 1.0)
    stretch = math.log(max(factor, 1.0))
    multiplier = keys.optional("rope.scaling.yarn_log_multiplier")
    return Yarn(
        original_context=keys.size("rope.scaling.original_context_length", 1 << 24),
        fast=keys.number("rope.scaling.yarn_beta_fast", 32.0),
        slow=keys.number("rope.scaling.yarn_beta_slow", 1.0),
        gain=gain * (1 + 0.1 * stretch) / (1 + 0.1 * multiplier * stretch),
        whole=whole,
    )


def rotary_table(
    function: np.ufunc, shape: tuple[int, int], base: float, factor: float,
    divisors: npt.NDArray[np.float64] | None, gain: float, growth: tuple[float, int] | None,
) -> npt.NDArray[np.float32]:  # fmt: skip
    """gain * cos or sin [context, pairs] of position / factor * base^(-j / pairs) / divisor_j.

    `divisors` are those of YaRN, or of Llama 3's scaling (GGUF's ``rope_freqs.weight``).
    Source: Su et al. 2021, RoFormer; Chen et al. 2023, Position Interpolation.
    """
    context, pairs = shape
    frequency = base ** (-np.arange(pairs, dtype=np.float64) / pairs) / factor
    if divisors is not None:
        frequency = frequency / divisors
    table = np.empty(shape, np.float32)
    for first in range(0, context, _TABLE_ROWS):  # float64 only for a few rows at a time
        position = np.arange(first, min(first + _TABLE_ROWS, context), dtype=np.float64)
        size = np.full(len(position), gain)
        if growth is not None:
            size *= 1 + growth[0] * np.log1p(position // growth[1])
        table[first : first + _TABLE_ROWS] = size[:, None] * function(position[:, None] * frequency)
    return table
