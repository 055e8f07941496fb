"""``halfbyte simulate``: predicts a model's speed on another device, minute by minute."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import cast

from halfbyte.cli.common import command, given_settings
from halfbyte.cli.fit import NO, opened
from halfbyte.cli.parser import Commands, Parser, number, whole
from halfbyte.cli.replacing import add_force, is_own_plot, may_replace
from halfbyte.cli.run_graph import add_sizes, refuse_graph_options, refuse_text_options
from halfbyte.cli.simulate_report import Subject, as_json, as_text
from halfbyte.device import plot
from halfbyte.device.profile import Profile, load_profile
from halfbyte.device.room import Room, Verdict
from halfbyte.device.simulate import GOVERNORS, MAX_DRAWS, MAX_MINUTES, simulate
from halfbyte.device.speed import Tokens
from halfbyte.device.workload import load_workload
from halfbyte.errors import MemoryBudgetError
from halfbyte.formats.model_file import ModelFile
from halfbyte.onnx.files import is_onnx_file
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
    print(json.dumps(as_json(result, subject)) if options.json else as_text(result, subject))
    if options.plot is not None:
        plot.write(result, options.plot)
    return 0


def _graph(options: argparse.Namespace, profile: Profile) -> Subject:
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
    return Subject(Runs(planned, verdict.from_storage), note, inputs=planned.inputs)


def _language_model(options: argparse.Namespace, profile: Profile) -> Subject:
    refuse_graph_options(options)
    file = opened(options)
    planned = plan(file, settings_of(options.level, _given(options)))
    room = Room(profile, options.threads, options.seed, tab=False)
    verdict = room.verdict("", planned.memory)
    if not verdict.fits:
        raise _too_large(options, verdict, profile, room, _other_level(options, file, room))
    streamed = planned.reader is not None or verdict.from_storage
    note = _dropped(verdict, profile, room)
    return Subject(Tokens(planned, streamed), note, context=planned.settings.context)


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
