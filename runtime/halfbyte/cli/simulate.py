"""``halfbyte simulate``: predicts a model's speed on another device, minute by minute."""

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

from halfbyte.cli.common import command, given_settings
from halfbyte.cli.fit import NO
from halfbyte.cli.parser import Commands, Parser, number, whole
from halfbyte.cli.replacing import add_force, is_own_plot, may_replace
from halfbyte.cli.run_graph import add_sizes, refuse_graph_options, refuse_text_options
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
from halfbyte.formats.model_file import ModelFile
from halfbyte.onnx.files import is_onnx_file
from halfbyte.text.opening import open_model
from halfbyte.text.planning import LEVELS, WEIGHTS, Given, plan, settings_of

_ABOUT = """\
Predict how fast a model runs on a device that is not at hand, minute by minute, while the device
warms up and slows down: tokens of a language model, or runs of an ONNX graph, one after the other.
Nothing is run: the program that `halfbyte run` would run is planned; its time and power follow from
the device's profile (see `halfbyte device show`), its heat from the profile's thermal network.
Where the profile has ranges, 200 devices are drawn from them; results are medians, and the 10 % and
90 % quantiles of the devices.

governors:
  power-allocator  Linux's: a power budget by the distance to the control temperature (default)
  step-wise        Linux's: a frequency step slower while too hot and warming
  pacing           halfbyte's: an even time per token or run, at a pace that can be kept
  none             no limits, not even the device's own trip points

workloads:
  continuous       one endless answer, or run after run (default)
  30/s             the same, with at most 30 tokens or runs per second, such as a camera's
  chat             prompts of 200 tokens, answers of 150, and 20 s to read each, repeated;
                   only for language models
  FILE             for language models turns.toml of [[turn]] prompt = 200, answer = 150,
                   pause_s = 20, or turns.csv with the columns prompt,answer,pause_s;
                   for graphs bursts.toml of [[burst]] runs = 300, pause_s = 10, or a .csv;
                   optionally with per_s = 30, the most tokens or runs per second
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
    add(
        "--ambient", type=number, metavar="C",
        help="temperature of the air (default: the profile's, 25)",
    )  # fmt: skip
    add(
        "--workload",
        default="continuous",
        metavar="NAME",
        help="continuous, a rate, chat or a file (see above)",
    )
    add("--governor", choices=tuple(GOVERNORS), default="power-allocator", help="see above")
    add("--level", choices=LEVELS, help="presets that need less and less memory")
    add("--weights", choices=WEIGHTS, default="auto", help="how weights are kept in memory")
    add_sizes(parser, "value of an open dimension of a graph's inputs, as in batch=32; may be "
              "repeated")  # fmt: skip
    add(
        "--threads", "-t", type=whole, metavar="N",
        help="cores that may compute (default: the fast ones)",
    )  # fmt: skip
    add("--draws", type=whole, default=200, metavar="N", help=f"devices, at most {MAX_DRAWS}")
    add("--seed", type=whole, default=0, metavar="N", help="the same seed draws the same devices")
    add("--plot", type=Path, metavar="FILE", help=f"write a plot: {', '.join(plot.SUFFIXES)}")
    add_force(parser)
    add("--json", action="store_true", help="print JSON, with the series over time")


@dataclass(frozen=True)
class _Subject:
    """What is simulated: the task, a warning or an empty string, and a language model's context or
    the shapes of a graph's inputs."""

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
        subject = (_graph if is_graph else _language_model)(options, profile)
    except MemoryBudgetError as error:
        if options.debug:
            raise
        print(f"error: {error}", file=sys.stderr)
        return NO
    result = simulate(
        subject.task, profile, workload, options.governor, minutes=options.minutes,
        ambient=options.ambient, threads=options.threads, draws=options.draws, seed=options.seed,
        model=Path(options.model).name,
    )  # fmt: skip
    as_text = json.dumps(_as_json(result, subject)) if options.json else _text(result, subject)
    print(as_text)
    if options.plot is not None:
        plot.write(result, options.plot)
    return 0


def _graph(options: argparse.Namespace, profile: Profile) -> _Subject:
    """Runs of a graph.

    Raises
    ------
    MemoryBudgetError
        The device has too little memory for a run.
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
    return _Subject(Runs(planned, verdict.from_storage), note, inputs=planned.inputs)


def _language_model(options: argparse.Namespace, profile: Profile) -> _Subject:
    refuse_graph_options(options)
    file = open_model(options.model, tokenizer=options.tokenizer)
    planned = plan(file, settings_of(options.level, _given(options)))
    room = Room(profile, options.threads, options.seed, tab=False)
    verdict = room.verdict("", planned.memory)
    if not verdict.fits:
        raise _too_large(options, verdict, profile, room, _other_level(options, file, room))
    streamed = planned.reader is not None or verdict.from_storage
    note = _dropped(verdict, profile, room)
    return _Subject(Tokens(planned, streamed), note, context=planned.settings.context)


def _too_large(
    options: argparse.Namespace, verdict: Verdict, profile: Profile, room: Room, more: str = ""
) -> MemoryBudgetError:
    return MemoryBudgetError(
        f"{options.model}: expected to need at most {room.limit.value:.0f} MB, which an app on "
        f"{profile.name} may take, found {verdict.private / 1e6:.0f} MB{more}; `halfbyte fit` says "
        "what would fit"
    )


def _given(options: argparse.Namespace) -> Given:
    """The settings that were given, with defaults for those without an option here."""
    return given_settings(argparse.Namespace(passes="on", activations="int8", **vars(options)))


def _other_level(options: argparse.Namespace, file: ModelFile, room: Room) -> str:
    """A hint: the first level that fits, or that none does."""
    settings = {key: value for key, value in _given(options).items() if key != "weights"}
    for level in LEVELS:
        planned = plan(file, settings_of(level, cast(Given, settings)))
        verdict = room.verdict("", planned.memory)
        if verdict.fits:
            return f"; --level {level} needs {verdict.private / 1e6:.0f} MB"
    return "; no --level fits, but a smaller context may"


def _dropped(verdict: Verdict, profile: Profile, room: Room) -> str:
    """A warning if the system would drop pages of weights, else an empty string."""
    if not verdict.from_storage:
        return ""
    return (
        f"warning: the model needs {verdict.total / 1e6:.0f} MB, and an app on {profile.name} may "
        f"take {room.limit.value:.0f} MB: weights are read from storage in every run"
    )


# ---- text ----------------------------------------------------------------------------------------

_FACTORS = {"%": 100.0, "min": 1 / 60}


def _text(s: Simulation, subject: _Subject) -> str:
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
        "", *table(["", "", "median", "10 %", "90 %"], rows, left=2),
    ]  # fmt: skip
    if off := int(s.overheated.sum()):
        lines += ["", f"{off} of {s.draws} draws switch off: a die reaches {SHUTDOWN_C:.0f} C"]
    return "\n".join([*lines, "", *_minutes(s)])


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


def _as_json(s: Simulation, subject: _Subject) -> dict[str, Any]:
    """The whole simulation; infinite and undefined numbers are null."""
    series = {
        name: {"unit": unit, **_band(band(values))} for name, (unit, values) in _series(s).items()
    }
    return {
        "model": s.model, "device": s.profile.name, "governor": s.governor,
        "workload": s.workload, "ambient_c": s.ambient, "threads": s.threads, "draws": s.draws,
        "seed": s.seed, "warning": subject.note or None, "unit": s.unit,
        "context": subject.context, "inputs": subject.inputs,
        "summary": {name: _band(values) for name, values in bands(s).items()},
        "switched_off": float(np.mean(s.overheated)),
        "seconds": s.seconds.tolist(), "series": series,
    }  # fmt: skip


def _band(values: Band) -> dict[str, Any]:
    return {name: _plain(getattr(values, name)) for name in ("low", "median", "high")}


def _plain(values: Any) -> Any:
    """Numbers of six digits, in lists."""
    if np.ndim(values):
        return [_plain(value) for value in values]
    return float(f"{values:.6g}") if isfinite(values) else None
