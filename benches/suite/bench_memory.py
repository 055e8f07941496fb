"""Memory, in processes of their own: peaks, and growth over tokens and over loads.

Values are bytes of resident memory; see `benches.memory`.
"""

from __future__ import annotations

import subprocess
import sys

import pytest
from benches import prepare
from benches.case import Bench
from benches.figures import Series

NAME = "135M Q4_0"
LIMIT = 4e6  # bytes of growth
WEIGHTS = {"eager": "packed", "lazy": "mapped", "streamed": "streamed"}


def measured(kind: str, *arguments: str) -> list[float]:
    command = [sys.executable, "-m", "benches.memory", kind, str(prepare.model(NAME)), *arguments]
    done = subprocess.run(command, cwd=prepare.ROOT, check=True, capture_output=True, text=True)
    return [float(word) for word in done.stdout.split()]


@pytest.mark.short
@pytest.mark.parametrize("how", WEIGHTS)
def bench_peak(bench: Bench, how: str) -> None:
    """The peak of loading, a prompt of 128 and 16 tokens."""
    peaks = [measured("peak", WEIGHTS[how])[0] for _ in range(2)]
    bench.keep(Series(NAME, how, "peak", 1, peaks, unit="B"))


@pytest.mark.once
@pytest.mark.parametrize("kind", ["tokens", "loads"])
def bench_growth(bench: Bench, kind: str) -> None:
    """Over 1,000 tokens once the cache was full, and over 20 loads after the first ten."""
    test = {"tokens": "after 1,000 tokens", "loads": "after 20 loads"}[kind]
    after, grown = measured(kind)
    assert grown < LIMIT, f"{test}: grown by {grown / 1e6:.1f} MB, expected less than 4"
    bench.keep(Series(NAME, "halfbyte", test, 1, [after], {"grown_bytes": grown}, unit="B"))
