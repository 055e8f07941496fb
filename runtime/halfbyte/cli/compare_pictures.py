"""Small pictures of a page, as SVG within it."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import isfinite

from halfbyte.device.room import Spread

_WIDE, _HIGH = 300.0, 54.0
_MARGIN = 2.0


def sparkline(minutes: Sequence[float], speed: Sequence[Spread], label: str) -> str:
    """Medians over time in their band, from 0 to the highest value."""
    top = max((s.high for s in speed if isfinite(s.high)), default=0.0)

    def at(minute: float, value: float) -> str:
        way = value / top if top and isfinite(value) else 0.0
        x = _WIDE * minute / max(minutes[-1], 1e-9)
        return f"{x:.1f},{_HIGH - _MARGIN - way * (_HIGH - 2 * _MARGIN):.1f}"

    pairs = list(zip(minutes, speed, strict=True))
    median = " ".join(at(minute, s.median) for minute, s in pairs)
    band = " ".join(
        [at(minute, s.high) for minute, s in pairs]
        + [at(minute, s.low) for minute, s in reversed(pairs)]
    )
    return _svg(
        _HIGH, label,
        f'<line class="axis" x1="0" x2="{_WIDE:g}" y1="{_HIGH - 1:g}" y2="{_HIGH - 1:g}"/>'
        f'<polygon class="band" points="{band}"/><polyline class="median" points="{median}"/>',
    )  # fmt: skip


def histogram(counts: Sequence[int], label: str) -> str:
    """A bar for each count."""
    high, top, each = 120.0, max(counts), _WIDE / len(counts)
    bars = "".join(
        f'<rect class="bar" x="{each * i + 0.4:.2f}" width="{each - 0.8:.2f}" '
        f'y="{high - 1 - (high - 4) * n / top:.1f}" height="{(high - 4) * n / top:.1f}"/>'
        for i, n in enumerate(counts)
    )
    axis = f'<line class="axis" x1="0" x2="{_WIDE:g}" y1="{high - 1:g}" y2="{high - 1:g}"/>'
    return _svg(high, label, bars + axis)


def _svg(high: float, label: str, inside: str) -> str:
    return (
        f'<svg viewBox="0 0 {_WIDE:g} {high:g}" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(label)}">{inside}</svg>'
    )
