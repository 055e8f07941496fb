"""The result of ``halfbyte compare`` as text, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from halfbyte.cli.common import has_colours
from halfbyte.columns import table
from halfbyte.device.comparison import Conditions, Result, plain
from halfbyte.device.fleet import FleetResult, Group, Percentiles
from halfbyte.device.profile import Profile
from halfbyte.device.room import Spread
from halfbyte.errors import printable

NO_BATTERY = "no battery"
_BARS = "\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"
_BAR_COUNT = 10


@dataclass(frozen=True)
class Report:
    """Everything that is shown: results by model, type and device, and those of a fleet."""

    results: Sequence[Result]
    fleets: Sequence[FleetResult]
    conditions: Conditions
    prompt: int
    profiles: Sequence[Profile] = ()
    fleet: Path | None = None


def as_json(report: Report) -> str:
    """All of it."""
    data = {
        "conditions": asdict(report.conditions), "prompt": report.prompt,
        "results": [result.as_json() for result in report.results],
        "fleet": [plain(fleet) for fleet in report.fleets],
    }  # fmt: skip
    return json.dumps(data, indent=1)


# ---- CSV -----------------------------------------------------------------------------------------

_SPREADS = ("first_s", "cold", "hot", "joules", "percent")


def as_csv(report: Report) -> str:
    """A line for each result; then, after an empty line, for each group of a fleet."""
    file = io.StringIO()
    lines = csv.writer(file, lineterminator="\n")
    if report.results:
        ends = [f"{name}_{end}" for name in _SPREADS for end in ("median", "p10", "p90")]
        lines.writerow(
            [
                "model", "type", "device", "unit", "weights_mb", "memory_mb", "memory_mapped_mb",
                "limit_mb", "fits", "sure", "from_storage", "would_fit", "answer", *ends,
                "slower_after_min", "switched_off", "sourced", "assumed",
            ]
        )  # fmt: skip
    for r in report.results:
        lines.writerow([_safe(cell) for cell in _csv_row(r)])
    if report.fleets:
        names = [f.name for f in Group.__dataclass_fields__.values() if f.name != "title"]
        heads = [head for name in names for head in _heads(name)]
        file.write("\n" if report.results else "")
        lines.writerow(["model", "type", *heads])
        for fleet in report.fleets:
            for group in (fleet.total, *fleet.groups):
                cells = [c for name in names for c in _fleet_cells(name, getattr(group, name))]
                lines.writerow([_safe(c) for c in (fleet.model, fleet.type, *cells)])
    return file.getvalue().rstrip("\n")


def _heads(name: str) -> list[str]:
    return [f"{name}_{end}" for end in ("p5", "p50", "p95")] if name in _SPREADS else [name]


def _csv_row(r: Result) -> Iterator[Any]:
    memory, m = r.memory, r.measured
    yield from (r.model, r.type, r.device, r.unit, r.size / 1e6, memory.private / 1e6)
    yield from ((memory.total - memory.private) / 1e6, r.limit_mb.value, memory.fits, memory.sure)
    yield from (memory.from_storage, r.would, r.answer)
    for name in _SPREADS:
        spread: Spread | None = getattr(m, name) if m else None
        yield from (spread.median, spread.low, spread.high) if spread else [""] * 3
    yield from (m.slower_min, m.off) if m else ["", ""]
    yield from (r.numbers["sourced"], r.numbers["assumed"])


def _fleet_cells(name: str, value: Any) -> list[Any]:
    if name not in _SPREADS:
        return [value]
    return [value.p5, value.p50, value.p95] if value else [""] * 3


def _safe(cell: Any) -> Any:
    """A cell that is a text in a spreadsheet too, whatever a model's name begins with."""
    if isinstance(cell, float):
        return f"{cell:.6g}" if isfinite(cell) else ""
    if isinstance(cell, str) and cell.startswith(("=", "+", "-", "@", "\t", "\r")):
        return f"'{cell}"
    return cell


# ---- text ----------------------------------------------------------------------------------------


def as_text(report: Report) -> str:
    """Tables, with colours and small graphs on a terminal."""
    return "\n".join(_lines(report)).strip("\n")


def _lines(report: Report) -> Iterator[str]:
    c, results = report.conditions, report.results
    colours, bars = has_colours(sys.stdout), _has_bars()
    if results:
        heads = [
            "model", "type", "device", "own MB", "of MB", "fits", "first s", "cold /s",
            f"after {c.minutes:g} min", "J/answer", "% battery", *(["speed"] if bars else []),
        ]  # fmt: skip
        rows = [_row(result, bars=bars) for result in results]
        lines = table(heads, rows, left=3)
        yield lines[0]
        for line, result in zip(lines[1:], results, strict=True):
            yield f"\033[2m{line}\033[0m" if colours and not result.memory.fits else line
        yield ""
        yield from _notes(report)
    for fleet in report.fleets:
        yield ""
        yield from _fleet_lines(fleet, c)


def _row(r: Result, *, bars: bool) -> list[str]:
    m = r.measured
    cells = [printable(r.model, 40), r.type, r.device, megabytes(r.memory.private),
             r.limit_mb.shown, verdict_of(r)]  # fmt: skip
    if m is None:
        return [*cells, *["-"] * 5, *([""] if bars else [])]
    percent = m.percent.median if m.percent else None
    return [
        *cells, short(m.first_s.median), ranged(m.cold), ranged(m.hot), short(m.joules.median),
        NO_BATTERY if percent is None else short(percent),
        *([sparkline([s.median for s in m.speed])] if bars else []),
    ]  # fmt: skip


def verdict_of(r: Result) -> str:
    """Whether it fits, in few words."""
    doubt = "" if r.memory.sure else "?"
    if not r.memory.fits:
        return f"no{doubt}, {r.would}" if r.would else f"no{doubt}"
    return f"yes{doubt}, from storage" if r.memory.from_storage else f"yes{doubt}"


def _notes(report: Report) -> Iterator[str]:
    c = report.conditions
    texts = {r.unit for r in report.results}
    air = "the profiles' air, 25 C by default" if c.ambient is None else f"air of {c.ambient:g} C"
    yield (
        f"medians of {c.draws} draws, with 10 to 90 %; {c.governor}, {air}; own MB: without pages "
        "that the system may drop"
    )
    if "token" in texts:
        yield (
            f"first: to the first token after a prompt of {report.prompt}; then tokens/s; an "
            f"answer: {report.results[0].answer if texts == {'token'} else 200} tokens, without "
            "the prompt"
        )
    if "run" in texts:
        yield "graphs: runs/s; first and answer: one run"
    if any(not r.memory.sure for r in report.results):
        yield "?: uncertain, as the device's limit is not known exactly"
    if any(r.would for r in report.results):
        yield "no, --level ...: the first level that fits"
    numbers = {r.device: r.numbers for r in report.results}
    yield "numbers with a source, of all: " + ", ".join(
        f"{name} {n['sourced']}/{n['sourced'] + n['assumed']}" for name, n in numbers.items()
    )


def _fleet_lines(fleet: FleetResult, c: Conditions) -> Iterator[str]:
    yield f"{printable(fleet.model, 60)} {fleet.type} on {fleet.total.devices:,} devices"
    heads = [
        "", "devices", "fits", f"{fleet.unit}s/s cold", f"after {c.minutes:g} min", "J/answer",
        "% battery", "throttle", "overheat", "run empty",
    ]  # fmt: skip
    rows = [
        [
            g.name, f"{g.devices:,}", share(g.fits), *map(percentiles, (g.cold, g.hot, g.joules)),
            percentiles(g.percent) if g.percent or not g.fits else NO_BATTERY,
            *(share(value) if g.fits else "-" for value in (g.throttles, g.overheats, g.empties)),
        ]
        for g in (fleet.total, *fleet.groups)
    ]  # fmt: skip
    yield from table(heads, rows)
    yield "medians, with 5 to 95 % of the devices that it fits; the last three are shares of these"


# ---- numbers -------------------------------------------------------------------------------------


def short(value: float) -> str:
    """Three digits; "never" for what does not happen."""
    if not isfinite(value):
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def ranged(spread: Spread) -> str:
    """The median with its range."""
    return f"{short(spread.median)} ({short(spread.low)} to {short(spread.high)})"


def percentiles(values: Percentiles | None) -> str:
    """The median with 5 and 95 %."""
    return "-" if values is None else (
        f"{short(values.p50)} ({short(values.p5)} to {short(values.p95)})"
    )  # fmt: skip


def share(value: float) -> str:
    """A share in percent."""
    return f"{100 * value:.3g} %"


def megabytes(size: float) -> str:
    """Bytes as MB."""
    return f"{size / 1e6:,.0f}" if size >= 1e7 else f"{size / 1e6:.1f}"


def sparkline(values: Sequence[float]) -> str:
    """Blocks from 0 to the highest value."""
    top = max(values, default=0.0)
    if not top or not isfinite(top):
        return ""
    chosen = [values[round(i * (len(values) - 1) / (_BAR_COUNT - 1))] for i in range(_BAR_COUNT)]
    return "".join(_BARS[min(int(len(_BARS) * value / top), len(_BARS) - 1)] for value in chosen)


def _has_bars() -> bool:
    """Whether stdout is a terminal that shows blocks."""
    encoding = (getattr(sys.stdout, "encoding", "") or "").lower().replace("-", "")
    return sys.stdout.isatty() and encoding == "utf8"
