"""Charts as SVG that takes its colours from the page: var(--ink), var(--line), var(--c0) ..."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from benches.figures import digits

WIDTH, HEIGHT = 640, 380
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 34, 50
COLOURS = 8  # --c0 to --c7 of the page


@dataclass(frozen=True)
class Axis:
    """From low to high, which both count as places; logarithmic or not; of whole numbers or not."""

    title: str
    low: float
    high: float
    log: bool = True
    whole: bool = False

    def place(self, value: float) -> float:
        """0 at the low end, 1 at the high one."""
        scale: Callable[[float], float] = math.log10 if self.log else float
        low, high = scale(self.low), scale(self.high)
        return (scale(value) - low) / (high - low)

    def ticks(self) -> list[float]:
        """Powers of ten with some numbers between them, or multiples of 1, 2 or 5 times one."""
        if not self.log:
            size = 10.0 ** math.floor(math.log10((self.high - self.low) / 2))
            step = next(n * size for n in (1, 2, 5) if (self.high - self.low) / (n * size) <= 8)
            step = max(step, 1.0) if self.whole else step
            first, last = math.ceil(self.low / step), math.floor(self.high / step)
            return [number * step for number in range(first, last + 1)]
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        steps = (1,) if self.high > 500 * self.low else (1, 2, 5)
        values = [step * 10.0**power for power in powers for step in steps]
        return [value for value in values if self.low <= value <= self.high]


@dataclass(frozen=True)
class Line:
    """Points (x, y, text of the tooltip), joined or not."""

    name: str
    points: Sequence[tuple[float, float, str]]
    joined: bool = True
    dots: bool = True
    colour: int = 0
    dashed: bool = False


def around(title: str, values: Sequence[float], *, log: bool = True, whole: bool = False) -> Axis:
    """An axis with room for all values."""
    low, high = min(values), max(values)
    if log:
        return Axis(title, low / 1.3, high * 1.3)
    room = (high - low) / 10 or abs(high) / 10 or 1
    return Axis(title, low - room, high + room, log=False, whole=whole)


def chart(label: str, x: Axis, y: Axis, lines: Sequence[Line]) -> str:
    """A chart of lines or of points, with a legend below it."""
    across, up = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def at(point: tuple[float, float, str]) -> tuple[float, float]:
        return LEFT + across * x.place(point[0]), TOP + up * (1 - y.place(point[1]))

    parts = [_grid(x, y, across, up)]
    for line in lines:
        colour, places = f"var(--c{line.colour % COLOURS})", [at(point) for point in line.points]
        if line.joined:
            path = " ".join(f"{px:.1f},{py:.1f}" for px, py in places)
            dash = ' stroke-dasharray="5 4"' if line.dashed else ""
            parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}"{dash}/>')
        if line.dots:
            parts += [
                f'<circle cx="{px:.1f}" cy="{py:.1f}" r="4" fill="{colour}">'
                f"<title>{escape(point[2])}</title></circle>"
                for point, (px, py) in zip(line.points, places, strict=True)
            ]
    svg = (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(label)}">'
        f"{''.join(parts)}</svg>"
    )
    named = [line for line in lines if line.name]
    keys = "".join(
        f'<li><i class="{"dash" if line.dashed else "dot"}" '
        f'style="color:var(--c{line.colour % COLOURS})"></i>{escape(line.name)}</li>'
        for line in named
    )
    return f'<figure>{svg}<ul class="legend">{keys}</ul></figure>'


def _grid(x: Axis, y: Axis, across: int, up: int) -> str:
    parts = []
    for tick in x.ticks():
        px, text = LEFT + across * x.place(tick), digits(tick)
        parts.append(f'<line x1="{px:.1f}" x2="{px:.1f}" y1="{TOP}" y2="{TOP + up}"/>')
        parts.append(f'<text x="{px:.1f}" y="{TOP + up + 18}" text-anchor="middle">{text}</text>')
    for tick in y.ticks():
        py, text = TOP + up * (1 - y.place(tick)), digits(tick)
        parts.append(f'<line x1="{LEFT}" x2="{LEFT + across}" y1="{py:.1f}" y2="{py:.1f}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{py + 4:.1f}" text-anchor="end">{text}</text>')
    middle, bottom = LEFT + across / 2, HEIGHT - 6
    parts.append(f'<text x="{middle}" y="{bottom}" text-anchor="middle">{escape(x.title)}</text>')
    parts.append(f'<text x="8" y="20">{escape(y.title)}</text>')
    return f'<g class="grid">{"".join(parts)}</g>'


def bars(rows: Sequence[tuple[str, float, str]]) -> str:
    """Horizontal bars (name, length from 0 to 1, text beside it), as HTML."""
    lines = [
        f'<div class="bar"><span>{escape(name)}</span>'
        f'<b><i style="width:{100 * length:.1f}%"></i></b><em>{escape(text)}</em></div>'
        for name, length, text in rows
    ]
    return "".join(lines)
