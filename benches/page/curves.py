"""The report's curves: the roofline, how speed scales, and how it changed over time."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence

from benches.charts import COLOURS, Line, around, chart
from benches.figures import Content, Series, digits, series_of
from benches.yardstick import rate

ROOFLINE = "benches/products", "benches/attention"
SCALING = {
    "Threads": (
        "A product of 4096 x 4096: times as fast as one thread.", "benches/backends", "threads",
    ),
    "Workers": (
        "SmolLM2-135M's shape in a tab, a prompt (pp) and decoding (tg): times as fast as one.",
        "benches/browser", "workers",
    ),
    "Batches": (
        "Tokens/s of a prompt by the tokens that are processed at once.", "benches/models", "batch",
    ),
}  # fmt: skip


# ---- roofline ------------------------------------------------------------------------------------


def peaks(series: Iterable[Series]) -> dict[str, float]:
    """GB/s of memory and GOP/s of the int8 dot product on one thread, from the yardsticks."""
    readings: dict[str, list[float]] = {"memory": [], "dot": []}
    for one in series:
        if one.threads == 1 and one.yardstick in readings:
            readings[one.yardstick] += one.beside
    return {name: rate(name, statistics.median(all_)) for name, all_ in readings.items() if all_}


def roofline(series: Sequence[Series]) -> str:
    """Each kernel's operations per byte and per second, below what the machine can do."""
    shown = [
        one for one in series
        if one.source in ROOFLINE and one.more.get("operations") and one.more.get("bytes")
    ]  # fmt: skip
    limits = peaks(series)
    if not shown or len(limits) < 2:
        return ""
    kinds = list(dict.fromkeys(_kind(one) for one in shown))
    lines = []
    for number, kind in enumerate(kinds):
        points = [_point(one) for one in shown if _kind(one) == kind]
        lines.append(Line(kind, points, joined=False, colour=number))
    every = [point for line in lines for point in line.points]
    x = around("operations per byte", [point[0] for point in every])
    roof = limits["dot"]
    y = around("GOP/s", [*(point[1] for point in every), roof])
    ridge = min(max(roof / limits["memory"], x.low), x.high)
    corners = [(x.low, limits["memory"] * x.low), (ridge, limits["memory"] * ridge), (x.high, roof)]
    inside = [(a, max(min(b, roof), y.low), "") for a, b in corners]
    name = f"memory {digits(limits['memory'])} GB/s, int8 dot product {digits(roof)} GOP/s"
    lines.insert(0, Line(name, inside, dots=False, colour=7, dashed=True))
    text = (
        "Kernels on one thread. Points above the slope have their operands in the cache; products "
        "of floats have a lower roof than the int8 dot product's."
    )
    return f"<p>{text}</p>{chart('Roofline', x, y, lines)}"


def _kind(series: Series) -> str:
    if series.source.endswith("attention"):
        return "attention"
    rows = "decode" if series.test.startswith("1 ") else "prompt"
    kind = "int8 products" if "_" in series.model.split()[0] else "float products"
    return f"{kind}, {rows}"


def _point(series: Series) -> tuple[float, float, str]:
    operations, moved = series.more["operations"], series.more["bytes"]
    speed = operations / series.median / 1e9
    return operations / moved, speed, f"{series.model}, {series.test}: {digits(speed)} GOP/s"


# ---- scaling -------------------------------------------------------------------------------------


def scaling(series: Sequence[Series]) -> str:
    """How speed grows with threads, and with the tokens of a batch."""
    parts = []
    for title, (text, source, word) in SCALING.items():
        chosen = [one for one in series if one.source == source and word in one.test]
        if chosen:
            batch = word == "batch"
            lines = _batch_lines(chosen) if batch else _thread_lines(chosen)
            every = [point for line in lines for point in line.points]
            x = around(word, [point[0] for point in every], log=batch, whole=not batch)
            y_title = "tokens/s" if batch else "times as fast"
            y = around(y_title, [point[1] for point in every], log=batch)
            parts.append(f"<h3>{title}</h3><p>{text}</p>{chart(title, x, y, lines)}")
    return "".join(parts)


def _thread_lines(series: Sequence[Series]) -> list[Line]:
    lines = []
    for number, key in enumerate(dict.fromkeys((one.model, one.test) for one in series)):
        group = [one for one in series if (one.model, one.test) == key]
        first = group[0]
        points = [
            (float(one.threads), first.median / one.median, f"{one.threads} threads")
            for one in group
        ]
        lines.append(Line(f"{key[0]}, {key[1].split(',')[0]}", points, colour=number))
    return lines


def _batch_lines(series: Sequence[Series]) -> list[Line]:
    lines = []
    for number, model in enumerate(dict.fromkeys(one.model for one in series)):
        points = []
        for one in series:
            if one.model == model:
                size = int(one.test.split()[-1])
                speed = size / one.median
                points.append((float(size), speed, f"{size}: {digits(speed)} tokens/s"))
        lines.append(Line(model, points, colour=number))
    return lines


# ---- history -------------------------------------------------------------------------------------


def history(contents: Sequence[Content]) -> str:
    """For each source the mean of its cases' ratios to the yardstick, relative to the first."""
    if len(contents) < 2:
        return ""
    sessions = [
        {(s.source, s.name): s for s in series_of(content) if s.beside} for content in contents
    ]
    sources = dict.fromkeys(source for session in sessions for source, _ in session)
    lines = []
    for number, source in enumerate(sources):
        points = _changes(source, sessions, [content["datetime"] for content in contents])
        if len(points) > 1:
            name = source.removeprefix("benches/")
            lines.append(Line(name, points, colour=number, dashed=number >= COLOURS))
    if not lines:
        return ""
    every = [point for line in lines for point in line.points]
    x = around("session", [point[0] for point in every], log=False, whole=True)
    y = around("time, relative to the first", [point[1] for point in every], log=False)
    text = "Geometric means over the cases that both sessions have, as ratios to the yardsticks."
    return f"<p>{text}</p>{chart('Over time', x, y, lines)}"


def _changes(
    source: str, sessions: Sequence[dict[tuple[str, str], Series]], dates: Sequence[str]
) -> list[tuple[float, float, str]]:
    points: list[tuple[float, float, str]] = []
    first: dict[tuple[str, str], Series] = {}
    for number, (session, date) in enumerate(zip(sessions, dates, strict=True)):
        ours = {key: s for key, s in session.items() if key[0] == source}
        first = first or ours
        logs = [
            math.log(statistics.median(s.ratios) / statistics.median(first[key].ratios))
            for key, s in ours.items() if key in first
        ]  # fmt: skip
        if logs:
            mean = math.exp(statistics.fmean(logs))
            points.append((number + 1.0, mean, f"{date[:16]}: {mean:.3f}"))
    return points
