"""The report as one HTML file that needs no other."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape

from benches.charts import Line, around, bars, chart
from benches.figures import PEERS, Content, Series, digits, series_of
from benches.samples import quartiles, variation
from benches.yardstick import rate

STYLE = """
:root { color-scheme: light dark; --ink: #1d2530; --soft: #5b6675; --line: #d9dee5; --back: #fff;
  --card: #f5f7f9; --c0: #1f6feb; --c1: #c2410c; --c2: #15803d; --c3: #7c3aed; --c4: #be185d;
  --c5: #0e7490; --c6: #a16207; --c7: #475569; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaf0; --soft: #9aa6b5; --line: #333c48;
  --back: #12161c; --card: #1a2028; --c0: #6ea8fe; --c1: #fb923c; --c2: #4ade80; --c3: #b794f6;
  --c4: #f472b6; --c5: #22d3ee; --c6: #facc15; --c7: #94a3b8; } }
* { box-sizing: border-box; min-width: 0 } body { margin: 0 auto;
  max-width: 62rem; padding: 1.5rem 1rem 4rem; overflow-wrap: anywhere;
  font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--back); }
h1 { font-size: 1.7rem; margin: 0 } h2 { margin: 2.5rem 0 .3rem; font-size: 1.25rem }
h3 { margin: 1.2rem 0 .2rem; font-size: 1rem } p { margin: .3rem 0 .8rem; color: var(--soft) }
nav a { margin-right: 1rem } a { color: var(--c0) } figure { margin: .5rem 0 }
svg { width: 100%; height: auto; background: var(--card); border-radius: .5rem; }
svg text { fill: var(--soft); font-size: 12px } .grid line { stroke: var(--line) }
polyline { stroke-width: 2 } .legend { display: flex; flex-wrap: wrap; gap: .2rem 1rem; padding: 0;
  margin: .4rem 0; list-style: none; font-size: .875rem } .legend i { display: inline-block;
  margin-right: .35rem } .dot { width: .7rem; height: .7rem; border-radius: 50%;
  background: currentColor } .dash { width: 1.2rem; border-top: 2px dashed; vertical-align: middle }
.bar { display: grid; grid-template-columns: 11rem 1fr 9rem; gap: .6rem; align-items: center;
  font-size: .875rem } .bar b { background: var(--card); height: .8rem; border-radius: .2rem }
.bar i { display: block; height: 100%; min-width: 2px; background: var(--c0); border-radius: .2rem }
.bar em { font-style: normal; color: var(--soft) }
.scroll { overflow-x: auto } table { border-collapse: collapse; font-size: .875rem; width: 100% }
th, td { padding: .25rem .6rem; border-bottom: 1px solid var(--line); text-align: right;
  white-space: nowrap } th:first-child, td:first-child,
  .peers td:nth-child(2), .peers th:nth-child(2) { text-align: left }
summary { cursor: pointer; padding: .4rem 0; font-weight: 600 } .mark { color: var(--c1) }
details p { margin: .8rem 0 .2rem; color: var(--ink) } .ahead { color: var(--c2) } code {
  font-size: .8em } details { border-top: 1px solid var(--line) }
@media (max-width: 40rem) { h1 { font-size: 1.4rem }
  .bar { grid-template-columns: 1fr 1fr }
  .bar b { grid-column: 1 / 3; grid-row: 2 }
  .bar em { text-align: right } svg text { font-size: 20px } }
"""
ROOFLINE = "benches/products", "benches/attention"
SCALING = {
    "Threads": (
        "A product of 4096 x 4096: times as fast as one thread.", "benches/backends", "threads",
    ),
    "Batches": (
        "Tokens/s of a prompt by the tokens that are processed at once.", "benches/models", "batch",
    ),
}  # fmt: skip


def page(latest: Content, history: Sequence[Content] = ()) -> str:
    """The whole file; `history` is of other sessions, the oldest first."""
    series = series_of(latest)
    measured = [one for one in series if one.seconds]
    sections = {
        "Peers": _peers(series), "Roofline": _roofline(measured), "Scaling": _scaling(measured),
        "Side by side": _side_by_side(series), "Over time": _history([*history, latest]),
        "All cases": _cases(series),
    }  # fmt: skip
    shown = {title: body for title, body in sections.items() if body}
    names = {title: title.lower().replace(" ", "-") for title in shown}
    links = "".join(f'<a href="#{names[title]}">{title}</a>' for title in shown)
    body = "".join(f'<h2 id="{names[t]}">{t}</h2>{text}' for t, text in shown.items())
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>halfbyte: benchmarks</title><style>{STYLE}</style>"
        f"<h1>halfbyte: benchmarks</h1><p>{_conditions(latest)}</p><nav>{links}</nav>"
        f"<main>{body}</main></html>"
    )


def _conditions(content: Content) -> str:
    info = content["machine_info"]
    parts = [
        content["datetime"][:10], info["processor"], f"{info['cpu']['count']} cores",
        f"kernels {info['instruction_sets'][0]}", *content["versions"].values(),
    ]  # fmt: skip
    return f"{escape(', '.join(parts))}; <code>{escape(content['command'])}</code>"


# ---- roofline ------------------------------------------------------------------------------------


def peaks(series: Iterable[Series]) -> dict[str, float]:
    """GB/s of memory and GOP/s of the int8 dot product on one thread, from the yardsticks."""
    readings: dict[str, list[float]] = {"memory": [], "dot": []}
    for one in series:
        if one.threads == 1 and one.yardstick in readings:
            readings[one.yardstick] += one.beside
    return {name: rate(name, statistics.median(all_)) for name, all_ in readings.items() if all_}


def _roofline(series: Sequence[Series]) -> str:
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


def _scaling(series: Sequence[Series]) -> str:
    parts = []
    for title, (text, source, word) in SCALING.items():
        chosen = [one for one in series if one.source == source and word in one.test]
        if chosen:
            lines = _thread_lines(chosen) if word == "threads" else _batch_lines(chosen)
            every = [point for line in lines for point in line.points]
            batch = word == "batch"
            x = around(word, [point[0] for point in every], log=batch, whole=not batch)
            y_title = "times as fast" if word == "threads" else "tokens/s"
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


# ---- peers ---------------------------------------------------------------------------------------


Group = list[Series]  # the engines of one test


def _groups(series: Sequence[Series], *, peers: bool) -> dict[str, list[Group]]:
    """Tests that several engines ran, with peers or without, by their source."""
    groups: dict[tuple[str, str, str, int], Group] = {}
    for one in series:
        if one.unit == "s" and "threads" not in one.test and not one.test.startswith("load"):
            groups.setdefault((one.source, one.model, one.test, one.threads), []).append(one)
    found: dict[str, list[Group]] = {}
    for (source, *_), group in groups.items():
        several = len(group) > 1 and any(one.seconds for one in group)
        if several and any(one.engine in PEERS for one in group) == peers:
            found.setdefault(source, []).append(group)
    return found


def _peers(series: Sequence[Series]) -> str:
    """How many times as fast halfbyte is, by peer and source; then bars for each test."""
    groups = _groups(series, peers=True)
    ratios: dict[tuple[str, str], list[float]] = {}
    for source, tests in groups.items():
        for group in tests:
            ours = next((s for s in group if s.engine not in PEERS and s.seconds), None)
            for one in group:
                if ours and one.engine in PEERS and one.seconds:
                    key = one.engine, source
                    ratios.setdefault(key, []).append(ours.times_as_fast_as(one))
    if not ratios:
        return _bars(groups)
    head = "".join(f"<th>{name}</th>" for name in ("peer", "in", "tests", "mean", "from", "to"))
    rows = "".join(_peer_row(*key, values) for key, values in sorted(ratios.items()))
    text = (
        "How many times as fast halfbyte is, both sides taking turns: geometric mean, lowest and "
        "highest. Of several builds of halfbyte the first counts."
    )
    return (
        f'<p>{text}</p><div class="scroll"><table class="peers"><tr>{head}</tr>{rows}</table></div>'
        f"{_bars(groups)}"
    )


def _peer_row(engine: str, source: str, ratios: Sequence[float]) -> str:
    mean = statistics.geometric_mean(ratios)
    shown = [f"<b>{digits(mean)}</b>", digits(min(ratios)), digits(max(ratios))]
    ahead = ' class="ahead"' if mean >= 1 else ""
    cells = [escape(engine), escape(source.removeprefix("benches/")), str(len(ratios)), *shown[1:]]
    cells.insert(3, f"<span{ahead}>{shown[0]}</span>")
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def _side_by_side(series: Sequence[Series]) -> str:
    """Bars for the tests that several builds or ways of halfbyte ran."""
    return _bars(_groups(series, peers=False))


def _bars(groups: Mapping[str, Sequence[Group]]) -> str:
    """Bars for each test; the fastest has the longest."""
    parts = []
    for source, tests in groups.items():
        name, blocks = source.removeprefix("benches/"), []
        for group in tests:
            first, times = group[0], [one.median for one in group if one.seconds]
            plural = f", {first.threads} threads" if first.threads > 1 else ""
            rows = [_bar(one, min(times)) for one in group]
            title = escape(f"{first.model}, {first.test}{plural}")
            blocks.append(f"<p>{title}</p>{bars(rows)}")
        parts.append(_details(name, len(tests), "".join(blocks)))
    return "".join(parts)


def _details(name: str, count: int, body: str) -> str:
    plural = "s" if count != 1 else ""
    return (
        f"<details><summary>{escape(name.capitalize())}: {count} test{plural}</summary>"
        f"{body}</details>"
    )


def _bar(series: Series, fastest: float) -> tuple[str, float, str]:
    if not series.seconds:
        return series.engine, 0.0, str(series.more.get("reason", "failed"))
    return series.engine, fastest / series.median, f"{digits(1000 * series.median)} ms"


# ---- history -------------------------------------------------------------------------------------


def _history(contents: Sequence[Content]) -> str:
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
            lines.append(Line(source.removeprefix("benches/"), points, colour=number))
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


# ---- all cases -----------------------------------------------------------------------------------


def _cases(series: Sequence[Series]) -> str:
    parts = ["<p>Marked cases vary by more than a tenth and are not judged.</p>"]
    for source in dict.fromkeys(one.source for one in series):
        rows = [one for one in series if one.source == source]
        head = ("case", "engine", "threads", "median", "quartiles", "variation", "by yardstick")
        cells = _table(head, rows, _row)
        name = source.removeprefix("benches/")
        parts.append(_details(name, len(rows), f'<div class="scroll">{cells}</div>'))
    return "".join(parts)


def _row(one: Series) -> list[str]:
    name = [escape(f"{one.model}, {one.test}"), escape(one.engine), str(one.threads)]
    if not one.seconds:
        return [*name, escape(str(one.more.get("reason", "failed"))), "", "", ""]
    scale, unit = (1e-6, "MB") if one.unit == "B" else (1e3, "ms")
    low, high = (digits(scale * value) for value in quartiles(one.seconds))
    spread = f"{variation(one.ratios):.3f}"
    ratio = f"{digits(statistics.median(one.ratios))} {one.yardstick}" if one.beside else ""
    return [
        *name, f"{digits(scale * one.median)} {unit}", f"{low} to {high}",
        f'<span class="mark">{spread} !</span>' if one.noisy else spread, ratio,
    ]  # fmt: skip


def _table(
    head: Sequence[str], rows: Iterable[Series], cells: Callable[[Series], list[str]]
) -> str:
    top = "".join(f"<th>{name}</th>" for name in head)
    body = "".join("<tr>" + "".join(f"<td>{c}</td>" for c in cells(r)) + "</tr>" for r in rows)
    return f"<table><tr>{top}</tr>{body}</table>"
