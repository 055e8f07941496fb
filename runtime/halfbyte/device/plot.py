"""Plots a simulation: panels over the same time, each with a median line in its range."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from halfbyte.device.cost import F64
from halfbyte.device.recording import Simulation
from halfbyte.device.summary import band, bands
from halfbyte.errors import HalfbyteError, OutputError
from halfbyte.outputs import write_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUFFIXES = (".svg", ".png", ".pdf")
# Okabe and Ito's colours, which people with any colour vision can tell apart
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_INK, _GREY = "#222222", "#666666"
_SIZE, _DPI = (9.0, 11.0), 100


def check_path(path: Path) -> None:
    """Check, before the simulation, that a plot can be written there.

    Raises
    ------
    HalfbyteError
        The suffix is not one of `SUFFIXES`, or matplotlib is not installed.
    OutputError
        The folder does not exist.
    """
    if path.suffix.lower() not in SUFFIXES:
        suffix = path.suffix or "no suffix"
        raise HalfbyteError(f"{path}: expected a name in {', '.join(SUFFIXES)}, found {suffix}")
    if not path.parent.is_dir():
        raise OutputError(f"{path}: cannot be written: no folder {path.parent}")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise HalfbyteError("a plot needs matplotlib: pip install 'halfbyte[plot]'") from None


def write(simulation: Simulation, path: Path) -> None:
    """Draw a simulation into a file, which replaces an existing file once it is complete.

    Raises
    ------
    OutputError
        The file cannot be written.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure = draw(simulation)
    FigureCanvasAgg(figure)  # no window, whatever backend the user has configured
    kind = path.suffix[1:].lower()
    write_file(path, lambda file: figure.savefig(file, dpi=_DPI, format=kind))


def draw(simulation: Simulation) -> Figure:
    """Panels: speed, temperatures, frequencies, power and, if there is one, the battery."""
    from matplotlib.figure import Figure

    s, minutes = simulation, simulation.seconds / 60
    battery = s.charge is not None
    heights = [3, 3, 2, 2, 1.3][: 5 if battery else 4]
    figure = Figure(figsize=_SIZE, layout="constrained")
    panels: Sequence[Axes] = figure.subplots(
        len(heights), sharex=True, gridspec_kw={"height_ratios": heights}
    )
    model = f"{s.model} on " if s.model else ""
    figure.suptitle(
        f"{model}{s.profile.title}\n{s.governor}, {s.workload}, air of {s.ambient:g} °C, "
        f"{s.threads} threads; lines: median of {s.draws} draws, bands: 10 to 90 %"
        f"{'' if s.profile.thermal.calibrated else ', hatched: a guess'}",
        fontsize=12, color=_INK,
    )  # fmt: skip
    _lines(panels[0], minutes, {"speed": s.speed}, f"{s.unit}s/s")
    _throttled(panels, s)
    guess = not s.profile.thermal.calibrated
    _lines(panels[1], minutes, s.temperatures, "°C", guess=guess)
    _limits(panels[1], s)
    ghz = {name: values / 1000 for name, values in s.megahertz.items()}
    _lines(panels[2], minutes, ghz, "GHz", zero=True)
    _lines(panels[3], minutes, {"power": s.watts}, "watts", zero=True)
    if s.charge is not None:
        _lines(panels[4], minutes, {"battery": s.charge}, "battery, %")
    panels[0].set_ylim(bottom=0)
    panels[-1].set_xlabel("minutes")
    panels[-1].set_xlim(0, float(minutes[-1]))
    return figure


def _lines(
    axes: Axes, minutes: F64, series: Mapping[str, Any], label: str, *, zero: bool = False,
    guess: bool = False,
) -> None:  # fmt: skip
    for index, (name, values) in enumerate(series.items()):
        range_, colour = band(values), _COLOURS[index % len(_COLOURS)]
        axes.fill_between(
            minutes, range_.low, range_.high, color=colour, alpha=0.15, linewidth=0,
            hatch="///" if guess else None,
        )  # fmt: skip
        axes.plot(minutes, range_.median, color=colour, linewidth=1.8, label=name)
    axes.set_ylabel(label, color=_INK)
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    if zero:
        axes.set_ylim(bottom=0)
    if len(series) > 1:
        _legend(axes)


def _legend(axes: Axes) -> None:
    """The legend above the panel, where it hides nothing."""
    axes.legend(
        loc="lower left", bbox_to_anchor=(0, 1), ncols=5, frameon=False, fontsize=9,
        borderaxespad=0.1, handlelength=1.4, columnspacing=1.2,
    )  # fmt: skip


def _throttled(panels: Sequence[Axes], s: Simulation) -> None:
    """Mark when half of the draws are throttled."""
    at = float(bands(s)["throttle_s"].median)
    if not isfinite(at):
        return
    for axes in panels:
        axes.axvline(at / 60, color=_GREY, linewidth=1, linestyle="--")
    panels[0].annotate(
        f"5 % slower from {at / 60:.1f} min", (at / 60, 0.06), xycoords=("data", "axes fraction"),
        xytext=(4, 0), textcoords="offset points", fontsize=9, color=_GREY,
    )  # fmt: skip


def _limits(axes: Axes, s: Simulation) -> None:
    """The control temperature and the trip points, if the temperatures come near them."""
    colours = dict(zip(s.temperatures, _COLOURS, strict=False))
    allocator = s.profile.thermal.allocator
    limits = {(allocator.node, allocator.control_c.value): "control"}
    if s.governor != "none":
        for trip in s.profile.thermal.trips:
            key = (trip.node, trip.start_c.value)
            limits[key] = f"{limits[key]}, trip" if key in limits else "trip"
    top = max(float(np.max(band(values).high)) for values in s.temperatures.values())
    for (node, celsius), name in limits.items():
        if celsius <= top + 8:
            label = f"{name} of {node}: {celsius:g} °C"
            axes.axhline(celsius, color=colours[node], linewidth=1.2, linestyle=":", label=label)
    _legend(axes)
