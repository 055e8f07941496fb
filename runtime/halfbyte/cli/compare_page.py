"""The result of ``halfbyte compare`` as one HTML file: no script, and nothing is fetched."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from math import isfinite
from pathlib import Path

from halfbyte import __version__
from halfbyte.cli.compare_cards import cards
from halfbyte.cli.compare_output import (
    NO_BATTERY,
    Report,
    megabytes,
    percentiles,
    ranged,
    share,
    short,
)
from halfbyte.cli.compare_pictures import histogram, sparkline
from halfbyte.cli.replacing import PAGE_MARK
from halfbyte.device.comparison import Result
from halfbyte.device.fleet import FleetResult
from halfbyte.device.room import Spread
from halfbyte.errors import printable

_CSS = Path(__file__).with_name("compare.css")
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def page(report: Report) -> str:
    """The whole page."""
    title = _title(report)
    body = [*_head(report, title), *_map(report), *cards(report), *_fleets(report)]
    body.append(_foot(report))
    return "\n".join(
        [
            "<!doctype html>", '<html lang="en">', '<meta charset="utf-8">', PAGE_MARK,
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="referrer" content="no-referrer">', '<link rel="icon" href="data:,">',
            f"<title>{escape(title)}</title>",
            f"<style>\n{_CSS.read_text('utf-8')}{_picked()}</style>", *body, "</html>",
        ]
    )  # fmt: skip


def _title(report: Report) -> str:
    names = [r.model for r in report.results] + [f.model for f in report.fleets]
    models = list(dict.fromkeys(names))
    devices = len({r.device for r in report.results})
    what = models[0] if len(models) == 1 else f"{len(models)} models"
    if not devices:
        return f"{what} on a fleet"
    return f"{what} on {devices} device{'s' if devices > 1 else ''}"


def _head(report: Report, title: str) -> Iterator[str]:
    c = report.conditions
    air = "the air of each profile (25 °C by default)" if c.ambient is None else f"{c.ambient:g} °C"
    yield f"<h1>{escape(title)}</h1>"
    yield (
        f'<p class="soft">Predicted by halfbyte {escape(__version__)} from the program that would '
        f"run and a profile of each device: {c.minutes:g} minutes of work without a pause, "
        f"{escape(c.governor)}, {air}. Figures are medians of {c.draws} draws of all uncertain "
        "numbers; ranges hold 80 % of them.</p>"
    )
    yield from _headlines(report)


def _headlines(report: Report) -> Iterator[str]:
    """A few results in large type."""
    fits = [r for r in report.results if r.measured]
    facts = []
    if report.results:
        facts.append((f"{len(fits)} of {len(report.results)}", "combinations fit"))
    best = max(fits, key=lambda r: r.measured.hot.median if r.measured else 0, default=None)
    if best and best.measured:
        facts.append(
            (f"{short(best.measured.hot.median)} {best.unit}s/s", f"the fastest after "
             f"{report.conditions.minutes:g} minutes: {best.model} {best.type} on {best.device}")
        )  # fmt: skip
    kept = [
        (m.hot.median / m.cold.median, r) for r in fits if (m := r.measured) and m.cold.median > 0
    ]
    if kept:
        least, worst = min(kept, key=lambda one: one[0])
        facts.append(
            (f"{100 * least:.0f} %", f"of the cold speed left: {worst.model} {worst.type} on "
             f"{worst.device}, the most throttled")
        )  # fmt: skip
    facts += [
        (share(f.total.fits), f"of {f.total.devices:,} devices have room for {f.model} {f.type}")
        for f in report.fleets[:2]
    ]
    if facts:
        items = "".join(f"<li><b>{escape(a)}</b>{escape(b)}</li>" for a, b in facts)
        yield f'<ul class="headline">{items}</ul>'


# ---- the heat map --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Metric:
    """A figure of the map; shaded by the rank of its median."""

    key: str
    label: str
    of: Callable[[Result], Spread | None]
    unit: Callable[[Result], str]
    more_is_better: bool = False


def _memory(r: Result) -> Spread:
    size = r.memory.private / 1e6
    return Spread(size, size, size)


def _measured(name: str) -> Callable[[Result], Spread | None]:
    """A spread of what is measured, by its name."""
    return lambda r: getattr(r.measured, name, None)


def _speed_unit(r: Result) -> str:
    return f"{r.unit}s/s"


_METRICS = (
    Metric("hot", "speed when hot", _measured("hot"), _speed_unit, more_is_better=True),
    Metric("cold", "speed when cold", _measured("cold"), _speed_unit, more_is_better=True),
    Metric("first", "first token", _measured("first_s"), lambda r: "s"),
    Metric("memory", "memory", _memory, lambda r: f"of {r.limit_mb.value:,.0f} MB"),
    Metric("joules", "energy", _measured("joules"), lambda r: "J per answer"),
    Metric("percent", "battery", _measured("percent"), lambda r: "% per answer"),
)


def _picked() -> str:
    """Rules that show the figure whose radio button is chosen."""
    rules = []
    for metric in _METRICS:
        rules += [
            f"#m-{metric.key}:checked ~ .scroll .m-{metric.key} {{ display: flex; }}",
            f"#m-{metric.key}:checked ~ .tabs [for=m-{metric.key}] "
            "{ background: var(--ink); color: var(--page); }",
            f"#m-{metric.key}:focus-visible ~ .tabs [for=m-{metric.key}] "
            "{ outline: 2px solid var(--line-ink); outline-offset: 2px; }",
        ]
    return "\n".join([*rules, ""])


def _map(report: Report) -> Iterator[str]:
    if not report.results:
        return
    columns = list(dict.fromkeys((r.model, r.type) for r in report.results))
    devices = list(dict.fromkeys((r.device, r.title) for r in report.results))
    cells = {(r.device, r.model, r.type): r for r in report.results}
    shades = {metric.key: _shades(metric, report.results) for metric in _METRICS}
    yield "<h2>Which model, in which type, on which device</h2><section>"
    for index, metric in enumerate(_METRICS):
        checked = " checked" if not index else ""
        yield (
            f'<input class="pick" type="radio" name="metric" id="m-{metric.key}"{checked}>'
        )  # fmt: skip
    labels = "".join(f'<label for="m-{m.key}">{escape(m.label)}</label>' for m in _METRICS)
    yield f'<div class="tabs">{labels}</div>'
    heads = "".join(
        f'<th scope="col">{escape(model)}<br><small>{escape(type_)}</small></th>'
        for model, type_ in columns
    )
    yield f'<div class="scroll" tabindex="0"><table class="map"><thead><tr><th>device</th>{heads}'
    yield "</tr></thead><tbody>"
    for device, title in devices:
        row = "".join(
            f"<td>{_cell(cells[device, model, type_], shades)}</td>"
            if (device, model, type_) in cells else "<td></td>"
            for model, type_ in columns
        )  # fmt: skip
        yield (
            f'<tr><th scope="row">{escape(device)}<small>{escape(_short_title(title))}</small></th>'
            f"{row}</tr>"
        )
    yield "</tbody></table></div>"
    yield (
        '<div class="scale soft"><span>worse</span><i></i><span>better</span><i class="hatch"></i>'
        "<span>does not fit an app's memory there</span></div>"
    )
    yield f'<p class="note">{escape(_explained(report))}</p></section>'


def _explained(report: Report) -> str:
    texts = (
        "Memory is what an app needs without pages that the system may drop, of what the device is "
        f"expected to give it. Hot is the last fifth of {report.conditions.minutes:g} minutes, "
        "cold their first minute. "
    )
    if any(r.unit == "token" for r in report.results):
        texts += (
            f"The first token comes after a prompt of {report.prompt} tokens on a cool device. An "
            "answer has 200 tokens; its energy is that of the whole device, screen included. "
        )
    if any(r.unit == "run" for r in report.results):
        texts += "Of an ONNX graph, the first token and an answer are one run. "
    if any(not r.memory.sure for r in report.results):
        texts += "A question mark: the device's limit is not known exactly enough. "
    return texts.strip()


def _shades(metric: Metric, results: Sequence[Result]) -> Mapping[int, float]:
    """0 to 1 by the identity of a result, by rank: 1 for the best."""
    values = {
        id(r): spread.median
        for r in results
        if r.measured and (spread := metric.of(r)) and isfinite(spread.median)
    }
    ordered = sorted(set(values.values()), reverse=not metric.more_is_better)
    steps = max(len(ordered) - 1, 1)
    place = {value: number / steps if len(ordered) > 1 else 0.6
             for number, value in enumerate(ordered)}  # fmt: skip
    return {key: place[value] for key, value in values.items()}


def _cell(r: Result, shades: Mapping[str, Mapping[int, float]]) -> str:
    doubt = "" if r.memory.sure else "?"
    if not r.memory.fits:
        need, limit = megabytes(r.memory.private), r.limit_mb.shown
        would = (
            f"<small>fits with <span class='whole'>{escape(r.would)}</span></small>"
            if r.would
            else ""
        )
        return f'<div class="no"><b>{need} of {limit} MB{doubt}</b>{would}</div>'
    return "".join(_figure(metric, r, shades[metric.key], doubt) for metric in _METRICS)


def _figure(metric: Metric, r: Result, shades: Mapping[int, float], doubt: str) -> str:
    spread, unit = metric.of(r), metric.unit(r)
    shade = shades.get(id(r), 0.0)
    if spread is None:
        value, unit = NO_BATTERY, "on mains power"
    elif metric.key == "memory":
        value = megabytes(r.memory.private) + doubt
    else:
        value = short(spread.median)
    if r.memory.from_storage and metric.key in ("hot", "cold", "first"):
        unit += ", reads storage"
    curve = ""
    if metric.key == "hot" and r.measured:
        curve = sparkline(r.measured.minutes, r.measured.speed, f"{r.model} on {r.device}")
    range_ = f' title="{escape(ranged(spread))}"' if spread and spread.low < spread.high else ""
    return (
        f'<div class="figure m-{metric.key}" style="--v:{shade:.2f}"{range_}><b>{value}</b>'
        f"<small>{escape(unit)}</small>{curve}</div>"
    )


def _short_title(title: str) -> str:
    """A device's title without what it has inside."""
    return title.partition(" (")[0]


# ---- fleets --------------------------------------------------------------------------------------


def _fleets(report: Report) -> Iterator[str]:
    if not report.fleets:
        return
    name = printable(report.fleet.name) if report.fleet else "a file"
    yield "<h2>On the fleet</h2>"
    yield (
        '<p class="soft">Each device has its own numbers, air, battery and limit of memory, drawn '
        f"from {escape(name)}. Ranges hold 90 % of the "
        "devices that the model fits; the last three columns are shares of these.</p>"
    )
    for fleet in report.fleets:
        yield from _fleet(fleet, report.conditions.minutes)


def _fleet(fleet: FleetResult, minutes: float) -> Iterator[str]:
    yield f'<article class="card fleet"><h3>{escape(fleet.model)} <small>{escape(fleet.type)}'
    yield f"</small></h3><small>{fleet.total.devices:,} devices by their {fleet.unit}s/s after "
    yield f"{minutes:g} minutes</small>"
    if fleet.counts:
        yield histogram(fleet.counts, f"{fleet.model} {fleet.type}: devices by speed")
        ends = [f"{short(edge)} {fleet.unit}s/s" for edge in (fleet.edges[0], fleet.edges[-1])]
        yield f'<div class="ends"><span>{ends[0]}</span><span>{ends[1]}</span></div>'
    heads = ["", "devices", "fits", "cold /s", "hot /s", "J/answer", "% battery", "throttle",
             "overheat", "run empty"]  # fmt: skip
    yield '<div class="scroll" tabindex="0"><table><tr>'
    yield "".join(f"<th>{head}</th>" for head in heads) + "</tr>"
    for g in (fleet.total, *fleet.groups):
        battery = percentiles(g.percent) if g.percent or not g.fits else NO_BATTERY
        shares = [share(v) if g.fits else "-" for v in (g.throttles, g.overheats, g.empties)]
        cells = [g.name, f"{g.devices:,}", share(g.fits), percentiles(g.cold), percentiles(g.hot),
                 percentiles(g.joules), battery, *shares]  # fmt: skip
        yield "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"
    yield "</table></div></article>"


def _foot(report: Report) -> str:
    day = datetime.now(tz=UTC).date()
    return (
        f"<footer>halfbyte compare, {day}, seed {report.conditions.seed}. Predictions, not "
        "measurements: ranges are as wide as what is known of each device.</footer>"
    )
