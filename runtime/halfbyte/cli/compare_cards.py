"""Cards of single devices in the page of ``halfbyte compare``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from math import isfinite

from halfbyte.cli.compare_output import NO_BATTERY, Report, megabytes, share, short
from halfbyte.cli.compare_pictures import sparkline
from halfbyte.device.comparison import Result
from halfbyte.device.profile import Profile
from halfbyte.device.quantity import Quantity


def cards(report: Report) -> Iterator[str]:
    """A card for each device: its models while it warms up, and where its numbers come from."""
    if not report.results:
        return
    yield f"<h2>{report.conditions.minutes:g} minutes, device by device</h2>"
    yield (
        '<p class="soft">Speed while the device warms up: the line is the median, the band holds '
        "80 % of the draws. Each curve begins at 0 and has its own scale.</p>"
    )
    profiles = {profile.name: profile for profile in report.profiles}
    yield '<div class="cards">'
    for device in dict.fromkeys(r.device for r in report.results):
        own = [r for r in report.results if r.device == device]
        yield "".join(_card(own, profiles[device]))
    yield "</div>"


def _card(results: Sequence[Result], profile: Profile) -> Iterator[str]:
    first, numbers = results[0], results[0].numbers
    total = numbers["sourced"] + numbers["assumed"]
    yield f'<article class="card"><h3>{escape(profile.title)}</h3>'
    yield (
        f"<small>{escape(profile.kind)} of {profile.year}, {first.threads} threads, "
        f"{escape(first.limit_mb.shown)} MB for an app</small>"
    )
    for r in results:
        yield from _run(r)
    sourced = 100 * numbers["sourced"] / max(total, 1)
    yield f'<div class="origin"><i style="width:{sourced:.0f}%"></i><i></i></div>'
    yield (
        f"<small>{numbers['sourced']} of {total} numbers of this profile have a source, the others "
        'are <span class="assumed">assumed</span>. Temperatures: '
    )
    known = profile.thermal.calibrated
    yield (
        "checked against recordings.</small>" if known
        else '<span class="assumed">a guess</span>, never recorded.</small>'
    )  # fmt: skip
    yield _origins(profile)
    yield "</article>"


def _run(r: Result) -> Iterator[str]:
    name = f"<b>{escape(r.model)} <small>{escape(r.type)}</small></b>"
    m = r.measured
    if m is None:
        need = f"{megabytes(r.memory.private)} of {r.limit_mb.shown} MB"
        yield f'<div class="run out"><header>{name}<span>does not fit: {need}</span></header></div>'
        return
    yield f'<div class="run"><header>{name}<span>{short(m.cold.median)} \u2192 '
    yield f"<b>{short(m.hot.median)}</b> {r.unit}s/s</span></header>"
    label = f"{r.model} {r.type}: {short(m.cold.median)}, later {short(m.hot.median)} {r.unit}s/s"
    yield sparkline(m.minutes, m.speed, label)
    hot = f"{short(m.hot.low)} to {short(m.hot.high)} {r.unit}s/s when hot"
    slower = (
        f"5 % slower after {m.slower_min:.1f} min" if isfinite(m.slower_min) else "keeps its speed"
    )
    first = f"{short(m.first_s.median)} s to the first token"
    if r.unit == "run":
        first = f"{short(m.first_s.median)} s a run"
    answer = f"{short(m.joules.median)} J an answer, {NO_BATTERY}"
    if m.percent is not None:
        battery = f"{short(m.percent.median)} % of the battery"
        answer = f"{short(m.joules.median)} J and {battery} an answer"
    facts = [hot, slower, first, answer]
    if m.off:
        facts.append(f"heat switches {share(m.off)} off")
    if r.memory.from_storage:
        facts.append("reads weights from storage")
    yield "<p>" + " \u00b7 ".join(map(escape, facts)) + "</p></div>"


def _origins(profile: Profile) -> str:
    """Where the numbers come from that decide most."""
    cluster, thermal = profile.clusters[0], profile.thermal
    numbers: dict[str, Quantity] = {
        "MB for an app": profile.memory.app_mb,
        "GB/s of memory": profile.memory.bandwidth_gb_s,
        "int8 operations per cycle": cluster.int8_ops_per_cycle,
        "W that can be sustained": thermal.allocator.sustainable_w,
        "W when idle": profile.power.idle_w,
    }
    if profile.battery is not None:
        numbers["Wh of the battery"] = profile.battery.capacity_wh
    items = "".join(
        f"<li>{escape(number.shown)} {name} <small>({escape(number.span)})</small>: "
        f"{_origin(number)}</li>"
        for name, number in numbers.items()
    )
    return f"<details><summary>where the main numbers come from</summary><ul>{items}</ul></details>"


def _origin(number: Quantity) -> str:
    if number.source:
        return escape(number.source)
    return f'<span class="assumed">assumed</span>: {escape(number.assumed)}'
