"""The result of ``halfbyte simulate`` as text and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np

from halfbyte.cli.fit import origins
from halfbyte.columns import table
from halfbyte.device.electricity import SHUTDOWN_C
from halfbyte.device.recording import Simulation
from halfbyte.device.speed import Task
from halfbyte.device.summary import Band, band, bands


@dataclass(frozen=True)
class Subject:
    """What is simulated: the task, a warning or an empty string, and a language model's context or
    the shapes of a graph's inputs."""

    task: Task
    note: str = ""
    context: int | None = None
    inputs: Mapping[str, tuple[int, ...]] | None = None


# ---- text ----------------------------------------------------------------------------------------

_FACTORS = {"%": 100.0, "min": 1 / 60}


def as_text(s: Simulation, subject: Subject) -> str:
    """The summary and the minutes as tables."""
    by_name = bands(s)
    rows = []
    for name, (title, unit) in _rows(s.unit).items():
        if name in by_name:
            values = [by_name[name].median, by_name[name].low, by_name[name].high]
            cells = [_shown(float(value) * _FACTORS.get(unit, 1.0), unit) for value in values]
            rows.append([title, unit, *cells])
    lines = [subject.note] if subject.note else []
    lines += [
        f"{s.model} on {s.profile.title}: {s.threads} threads, {s.governor}, {s.workload}, air of "
        f"{s.ambient:g} C; {s.draws} draws",
        *([f"a token: at the middle of a context of {subject.context}"] if subject.context else []),
        *([f"a run: {_shapes(subject.inputs)}"] if subject.inputs else []),
        origins(s.profile.origins()), _bands(s),
        "", *table(["", "", "median", "10 %", "90 %"], rows, left=2),
    ]  # fmt: skip
    if s.profile.battery is None:
        lines += ["", "no battery: it runs on mains power"]
    if off := int(s.overheated.sum()):
        lines += ["", f"{off} of {s.draws} draws switch off: a die reaches {SHUTDOWN_C:.0f} C"]
    return "\n".join([*lines, "", *_minutes(s)])


def _bands(s: Simulation) -> str:
    """What is known of the bands of temperatures."""
    if known := s.profile.thermal.calibrated:
        return f"10 to 90 % of temperatures: {known}"
    return "10 to 90 % of temperatures: a guess; this device was never recorded"


def _rows(unit: str) -> dict[str, tuple[str, str]]:
    """The title and unit of each quantity, by its name."""
    return {
        f"first_minute_{unit}s_s": ("first minute", f"{unit}s/s"),
        f"sustained_{unit}s_s": ("sustained (last fifth)", f"{unit}s/s"),
        "kept": ("of the first minute's speed", "%"),
        "throttle_s": ("slower by 5 % after", "min"),
        f"{unit}_spread": (f"spread of {unit}s' times", "%"),
        f"joules_per_{unit}": (f"whole device, for a {unit}", "J"),
        "watts": ("whole device", "W"),
        f"{unit}s_per_percent": ("for 1 % of the battery", f"{unit}s"),
    }


def _shapes(inputs: Mapping[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{name} {list(shape)}" for name, shape in inputs.items())


def _shown(value: float, unit: str) -> str:
    """At least three digits; "never" for times that are infinite, "-" for undefined values."""
    if not isfinite(value):
        return "never" if unit == "min" else "-"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _minutes(s: Simulation) -> list[str]:
    """Medians at the end of each minute, or of up to about twenty parts of a longer time."""
    columns = _series(s)
    heads = ["min", *(f"{name} {unit}" for name, (unit, _) in columns.items())]
    medians = [band(values).median for _, values in columns.values()]
    every = max(1.0, np.ceil(s.seconds[-1] / 60 / 20)) * 60
    ends = [*np.arange(every, s.seconds[-1], every), s.seconds[-1]]
    rows = []
    for end in ends:
        at = int(np.searchsorted(s.seconds, end - 1e-6))
        cells = [_shown(float(values[at]), "") for values in medians]
        rows.append([f"{s.seconds[at] / 60:.3g}", *cells])
    return table(heads, rows, left=0)


def _series(s: Simulation) -> dict[str, tuple[str, Any]]:
    """Each series' unit and values [samples, draws], by name."""
    battery = {} if s.charge is None else {"battery": ("%", s.charge)}
    return {
        "speed": (f"{s.unit}s/s", s.speed),
        "power": ("W", s.watts),
        **{name: ("C", values) for name, values in s.temperatures.items()},
        **{name: ("MHz", values) for name, values in s.megahertz.items()},
        **battery,
    }


# ---- JSON ----------------------------------------------------------------------------------------


def as_json(s: Simulation, subject: Subject) -> dict[str, Any]:
    """The whole simulation; infinite and undefined numbers are null."""
    series = {
        name: {"unit": unit, **_band(band(values))} for name, (unit, values) in _series(s).items()
    }
    return {
        "model": s.model, "device": s.profile.name, "governor": s.governor,
        "workload": s.workload, "ambient_c": s.ambient, "threads": s.threads, "draws": s.draws,
        "seed": s.seed, "numbers": s.profile.origins(),
        "calibrated": s.profile.thermal.calibrated,
        "warning": subject.note or None, "unit": s.unit,
        "context": subject.context, "inputs": subject.inputs,
        "summary": {name: _band(values) for name, values in bands(s).items()},
        "switched_off": float(np.mean(s.overheated)), "battery": s.profile.battery is not None,
        "seconds": s.seconds.tolist(), "series": series,
    }  # fmt: skip


def _band(values: Band) -> dict[str, Any]:
    return {name: _plain(getattr(values, name)) for name in ("low", "median", "high")}


def _plain(values: Any) -> Any:
    """Numbers of six digits, in lists."""
    if np.ndim(values):
        return [_plain(value) for value in values]
    return float(f"{values:.6g}") if isfinite(values) else None
