"""The report's cases: beside peers, beside other builds of halfbyte, and all of them in a table."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape

from benches.charts import bars
from benches.figures import PEERS, Series, counterpart, digits
from benches.samples import quartiles, variation

Group = list[Series]  # the engines of one test
SCALED = ("threads", "workers")  # ends of tests that have a curve


def _groups(series: Sequence[Series], *, peers: bool) -> dict[str, list[Group]]:
    """Tests that several engines ran, with peers or without, by their source."""
    groups: dict[tuple[str, str, str, int], Group] = {}
    for one in series:
        if one.unit == "s" and not one.test.endswith(SCALED) and not one.test.startswith("load"):
            groups.setdefault((one.source, one.model, one.test, one.threads), []).append(one)
    found: dict[str, list[Group]] = {}
    for (source, *_), group in groups.items():
        several = len(group) > 1 and any(one.seconds for one in group)
        if several and any(one.engine in PEERS for one in group) == peers:
            found.setdefault(source, []).append(group)
    return found


def peers(series: Sequence[Series]) -> str:
    """How many times as fast halfbyte is, by peer and source; then bars for each test."""
    groups = _groups(series, peers=True)
    ratios: dict[tuple[str, str], list[float]] = {}
    reasons: dict[tuple[str, str], str] = {}
    for source, tests in groups.items():
        for group in tests:
            ours = counterpart(group)
            for one in group:
                key = one.engine, source
                if ours and one.engine in PEERS and one.seconds:
                    ratios.setdefault(key, []).append(ours.times_as_fast_as(one))
                elif not one.seconds:
                    reasons[key] = _reason(one)
    if not ratios:
        return _bars(groups)
    head = "".join(f"<th>{name}</th>" for name in ("peer", "in", "tests", "mean", "from", "to"))
    rows = "".join(_peer_row(*key, values) for key, values in sorted(ratios.items()))
    without = sorted((*key, why) for key, why in reasons.items() if key not in ratios)
    rows += "".join(map(_reason_row, without))
    text = (
        "How many times as fast halfbyte is, both sides taking turns: geometric mean, lowest and "
        "highest. Of several builds of halfbyte the first counts; where a peer searches scales, "
        "the one that does."
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


def _reason_row(peer: tuple[str, str, str]) -> str:
    """Of a peer without any figure in a source."""
    engine, source, why = map(escape, peer)
    name = source.removeprefix("benches/")
    return f'<tr><td>{engine}</td><td>{name}</td><td class="why" colspan="4">{why}</td></tr>'


def _reason(series: Series) -> str:
    return str(series.more.get("reason", "failed"))


def side_by_side(series: Sequence[Series]) -> str:
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
        return series.engine, 0.0, _reason(series)
    return series.engine, fastest / series.median, f"{digits(1000 * series.median)} ms"


# ---- all cases -----------------------------------------------------------------------------------


def all_cases(series: Sequence[Series]) -> str:
    """A table of each source's cases."""
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
        return [*name, escape(_reason(one)), "", "", ""]
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
