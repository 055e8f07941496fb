"""``halfbyte simulate``: how fast a model runs on a device that is not here, minute by minute."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any, cast

import numpy as np

from halfbyte.cli.fit import NO
from halfbyte.cli.parser import Commands, Parser, number, whole
from halfbyte.cli.replacing import add_force, is_own_plot, may_replace
from halfbyte.cli.run_graph import add_sizes, refuse_graph_options, refuse_text_options
from halfbyte.cli.shared import command, given_settings
from halfbyte.device import plot
from halfbyte.device.electricity import SHUTDOWN_C
from halfbyte.device.fit import Room, Verdict
from halfbyte.device.profile import Profile, load_profile
from halfbyte.device.recording import Simulation
from halfbyte.device.simulate import GOVERNORS, MAX_DRAWS, MAX_MINUTES, simulate
from halfbyte.device.speed import Task, Tokens
from halfbyte.device.summary import Band, band, bands
from halfbyte.device.workload import load_workload
from halfbyte.errors import MemoryBudgetError
from halfbyte.evaluation.columns import table
from halfbyte.formats import open_model
from halfbyte.formats.model_file import ModelFile
from halfbyte.onnx.files import is_onnx_file
from halfbyte.text.planning import LEVELS, WEIGHTS, Given, plan, settings_of

_ABOUT = """\
Predict how fast a model runs on a device that is not here, minute by minute, while the device warms
up and slows down: tokens of a language model, or runs of an ONNX graph, one after the other.
Nothing is run: the program that `halfbyte run` would run is planned, its time and power follow from
the device's profile (see `halfbyte device show`), its heat from the profile's thermal network.
Where the profile has a range, 200 devices are drawn from it: results are medians, and what a tenth
and nine tenths of the devices do not exceed.

governors:
  power-allocator  Linux's: watts by the distance to the control temperature (default)
  step-wise        Linux's: a step slower while too hot and warming
  pacing           ours: each token or run takes as long as the last, at a pace that can be kept
  none             nothing slows it, not even the device's own trip points

workloads:
  continuous       one answer without an end, or run after run (default)
  30/s             the same, at most 30 tokens or runs in a second, as of a camera
  chat             prompts of 200 tokens, answers of 150, 20 s to read each, again and again;
                   not of a graph
  FILE             turns.toml of [[turn]] prompt = 200, answer = 150, pause_s = 20,
                   or turns.csv with the columns prompt,answer,pause_s; of a graph
                   bursts.toml of [[burst]] runs = 300, pause_s = 10, or a .csv of both;
                   per_s = 30 beside them, where it is wanted, is the most in a second
"""
_EXAMPLES = (
    "halfbyte simulate model.gguf --device pixel-6",
    "halfbyte simulate model.gguf --device pixel-6 --ambient 35 --minutes 30 --plot hot.svg",
    "halfbyte simulate model.gguf --device galaxy-s25 --workload chat --governor pacing",
    "halfbyte simulate model.gguf --device pixel-6 --level basic --weights mapped --threads 2",
    "halfbyte simulate model.gguf --device pixel-6 --draws 50 --seed 1 --json",
    "halfbyte simulate classifier.onnx --device pixel-6 --size batch=1 --workload 30/s",
)


def add_simulate(commands: Commands[Parser]) -> None:
    """The command `simulate`."""
    parser = command(
        commands, "simulate", _simulate, "predict a model's speed on a device as it warms up",
        *_EXAMPLES,
    )  # fmt: skip
    parser.description = _ABOUT
    add = parser.add_argument
    add(
        "--device",
        required=True,
        metavar="NAME",
        help="a name from `halfbyte device list`, or a .toml file",
    )
    add("--minutes", type=number, default=10.0, metavar="N", help=f"at most {MAX_MINUTES:g}")
    add("--ambient", type=number, metavar="C", help="the air (default: the profile's, 25)")
    add(
        "--workload",
        default="continuous",
        metavar="NAME",
        help="continuous, a rate, chat or a file (see above)",
    )
    add("--governor", choices=tuple(GOVERNORS), default="power-allocator", help="see above")
    add("--level", choices=LEVELS, help="settings that need less and less memory")
    add("--weights", choices=WEIGHTS, default="auto", help="how weights lie in memory")
    add_sizes(parser, "an open size of a graph's inputs, as in batch=32; may be repeated")
    add(
        "--threads", "-t", type=whole, metavar="N",
        help="cores that may compute (default: the fast ones)",
    )  # fmt: skip
    add("--draws", type=whole, default=200, metavar="N", help=f"devices, at most {MAX_DRAWS}")
    add("--seed", type=whole, default=0, metavar="N", help="the same seed, the same devices")
    add("--plot", type=Path, metavar="FILE", help=f"also a picture: {', '.join(plot.SUFFIXES)}")
    add_force(parser)
    add("--json", action="store_true", help="print JSON, with the series over time")


@dataclass(frozen=True)
class _Asked:
    """What is simulated: its task, a sentence of warning or nothing, and a language model's context
    or a graph's shapes."""

    task: Task
    note: str = ""
    context: int | None = None
    inputs: Mapping[str, tuple[int, ...]] | None = None


def _simulate(options: argparse.Namespace) -> int:
    if options.plot is not None:
        plot.check_path(options.plot)
        may_replace(options.plot, is_own_plot, force=options.force, option="--plot")
    profile, is_graph = load_profile(options.device), is_onnx_file(options.model)
    workload = load_workload(options.workload, "run" if is_graph else "token")
    try:
        asked = (_graph if is_graph else _language_model)(options, profile)
    except MemoryBudgetError as error:
        if options.debug:
            raise
        print(f"error: {error}", file=sys.stderr)
        return NO
    result = simulate(
        asked.task, profile, workload, options.governor, minutes=options.minutes,
        ambient=options.ambient, threads=options.threads, draws=options.draws, seed=options.seed,
        model=Path(options.model).name,
    )  # fmt: skip
    print(json.dumps(_as_json(result, asked)) if options.json else "\n".join(_text(result, asked)))
    if options.plot is not None:
        plot.write(result, options.plot)
    return 0


def _graph(options: argparse.Namespace, profile: Profile) -> _Asked:
    """Runs of a graph.

    Raises
    ------
    MemoryBudgetError
        The device has too little memory for one.
    """
    from halfbyte.device.graphs import GraphPlanner, Runs
    from halfbyte.evaluation.inputs import open_sizes
    from halfbyte.onnx.session.opening import open_model as open_graph
    from halfbyte.onnx.session.options import SessionOptions

    refuse_text_options(options)
    model = open_graph(options.model, SessionOptions())
    room = Room(profile, options.threads, options.seed, tab=False)
    planner = GraphPlanner(model, room.threads)
    try:
        planned = planner.plan(open_sizes(model, dict(options.size)))
    finally:
        planner.close()
    verdict = room.verdict("", planned.memory)
    if not verdict.fits:
        raise _too_large(options, verdict, profile, room)
    note = _dropped(verdict, profile, room)
    return _Asked(Runs(planned, verdict.from_storage), note, inputs=planned.inputs)


def _language_model(options: argparse.Namespace, profile: Profile) -> _Asked:
    refuse_graph_options(options)
    file = open_model(options.model, tokenizer=options.tokenizer)
    planned = plan(file, settings_of(options.level, _given(options)))
    room = Room(profile, options.threads, options.seed, tab=False)
    verdict = room.verdict("", planned.memory)
    if not verdict.fits:
        raise _too_large(options, verdict, profile, room, _other_level(options, file, room))
    streamed = planned.reader is not None or verdict.from_storage
    note = _dropped(verdict, profile, room)
    return _Asked(Tokens(planned, streamed), note, context=planned.settings.context)


def _too_large(
    options: argparse.Namespace, verdict: Verdict, profile: Profile, room: Room, more: str = ""
) -> MemoryBudgetError:
    return MemoryBudgetError(
        f"{options.model}: expected to need at most {room.limit.value:.0f} MB, which an app on "
        f"{profile.name} may take, found {verdict.private / 1e6:.0f} MB{more}; `halfbyte fit` says "
        "what would fit"
    )


def _given(options: argparse.Namespace) -> Given:
    """Settings that were given, with those that a simulation has no options for."""
    return given_settings(argparse.Namespace(passes="on", activations="int8", **vars(options)))


def _other_level(options: argparse.Namespace, file: ModelFile, room: Room) -> str:
    """What the first level that fits needs, or that none does."""
    given = {key: value for key, value in _given(options).items() if key != "weights"}
    for level in LEVELS:
        planned = plan(file, settings_of(level, cast(Given, given)))
        verdict = room.verdict("", planned.memory)
        if verdict.fits:
            return f"; --level {level} needs {verdict.private / 1e6:.0f} MB"
    return "; no --level needs so little, a smaller context may"


def _dropped(verdict: Verdict, profile: Profile, room: Room) -> str:
    """A sentence for weights whose pages the system drops, or nothing."""
    if not verdict.from_storage:
        return ""
    return (
        f"warning: it needs {verdict.total / 1e6:.0f} MB, and an app on {profile.name} may take "
        f"{room.limit.value:.0f} MB: weights are read from storage in every run"
    )


# ---- for people ----------------------------------------------------------------------------------

_FACTORS = {"%": 100.0, "min": 1 / 60}


def _text(s: Simulation, asked: _Asked) -> list[str]:
    found = bands(s)
    rows = []
    for name, (words, unit) in _rows(s.unit).items():
        if name in found:
            values = [found[name].median, found[name].low, found[name].high]
            cells = [_shown(float(value) * _FACTORS.get(unit, 1.0), unit) for value in values]
            rows.append([words, unit, *cells])
    lines = [asked.note] if asked.note else []
    lines += [
        f"{s.model} on {s.profile.title}: {s.threads} threads, {s.governor}, {s.workload}, air of "
        f"{s.ambient:g} C; {s.draws} draws",
        *([f"a token: at the middle of a context of {asked.context}"] if asked.context else []),
        *([f"a run: {_shapes(asked.inputs)}"] if asked.inputs else []),
        "", *table(["", "", "median", "10 %", "90 %"], rows, left=2),
    ]  # fmt: skip
    if off := int(s.overheated.sum()):
        lines += ["", f"{off} of {s.draws} draws switch off: a die reaches {SHUTDOWN_C:.0f} C"]
    return [*lines, "", *_minutes(s)]


def _rows(unit: str) -> dict[str, tuple[str, str]]:
    """By name of a quantity what it is in words, and its unit."""
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
    """Three digits, or a word for what never comes and for what there is none of."""
    if not isfinite(value):
        return "never" if unit == "min" else "-"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _minutes(s: Simulation) -> list[str]:
    """Medians at the end of each minute, or of each of some twenty parts of a longer time."""
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
    """By name its unit and values [samples, draws]."""
    battery = {} if s.charge is None else {"battery": ("%", s.charge)}
    return {
        "speed": (f"{s.unit}s/s", s.speed),
        "power": ("W", s.watts),
        **{name: ("C", values) for name, values in s.temperatures.items()},
        **{name: ("MHz", values) for name, values in s.megahertz.items()},
        **battery,
    }


# ---- for programs --------------------------------------------------------------------------------


def _as_json(s: Simulation, asked: _Asked) -> dict[str, Any]:
    """All of it; what never comes, or is of nothing, is null."""
    series = {
        name: {"unit": unit, **_band(band(values))} for name, (unit, values) in _series(s).items()
    }
    return {
        "model": s.model, "device": s.profile.name, "governor": s.governor,
        "workload": s.workload, "ambient_c": s.ambient, "threads": s.threads, "draws": s.draws,
        "seed": s.seed, "warning": asked.note or None, "unit": s.unit,
        "context": asked.context, "inputs": asked.inputs,
        "summary": {name: _band(found) for name, found in bands(s).items()},
        "switched_off": float(np.mean(s.overheated)),
        "seconds": s.seconds.tolist(), "series": series,
    }  # fmt: skip


def _band(found: Band) -> dict[str, Any]:
    return {name: _plain(getattr(found, name)) for name in ("low", "median", "high")}


def _plain(values: Any) -> Any:
    """Six digits each, in lists."""
    if np.ndim(values):
        return [_plain(value) for value in values]
    return float(f"{values:.6g}") if isfinite(values) else None
