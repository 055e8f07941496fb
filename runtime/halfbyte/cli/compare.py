"""``halfbyte compare``: models and types on devices and fleets, as a table or as a page."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from halfbyte.cli.common import Progress, add_debug, cores, given_settings
from halfbyte.cli.fit import NO
from halfbyte.cli.parser import Commands, Parser, named_size, number, whole
from halfbyte.cli.pull import located
from halfbyte.cli.replacing import add_force, is_own_page, may_replace
from halfbyte.errors import HalfbyteError, printable
from halfbyte.outputs import write_text
from halfbyte.text.planning import CACHES, LEVELS

if TYPE_CHECKING:
    from halfbyte.device.candidates import Candidate
    from halfbyte.device.comparison import Conditions, Result
    from halfbyte.device.fleet import Fleet, FleetResult
    from halfbyte.device.profile import Profile

_ABOUT = """\
Compare models and types on devices that are not at hand: memory, time to the first token, tokens/s
in the first minute and after ten minutes of heat, joules and percent of the battery for an answer
of 200 tokens, or for a run of an ONNX graph. Nothing is run or written: types that a file does not
have are planned as `quantize` would write them, and of a Hugging Face folder config.json suffices.

With --fleet, devices are drawn from shares of devices, temperatures of the air, and charges and
ages of batteries; docs/fleet.toml is an example. The exit code is 1 if nothing fits anywhere.
"""
_EXAMPLES = (
    "halfbyte compare model.gguf --device all",
    "halfbyte compare model.gguf --type int8,int4 --device pixel-6,galaxy-s25 --html report.html",
    "halfbyte compare a.gguf b.gguf --device pixel-6 --level basic --context 2048 --cache q8_0",
    "halfbyte compare stories15M.bin --tokenizer tokenizer.bin --type int4 --device pixel-6",
    "halfbyte compare model.gguf --device all --prompt 512 --minutes 5 --ambient 35 --csv",
    "halfbyte compare model.gguf --device pixel-6 --governor pacing --draws 50 --seed 1 --json",
    "halfbyte compare model.gguf --type int4 --fleet fleet.toml --html report.html --force",
    "halfbyte compare classifier.onnx --type as-is,int8 --device pixel-6 --size batch=1",
)


def add_compare(commands: Commands[Parser]) -> None:
    """The command `compare`."""
    from halfbyte.device.simulate import GOVERNORS

    parser = commands.add_parser(
        "compare", help="compare models and types on devices and fleets",
        description=_ABOUT, examples=_EXAMPLES,
    )  # fmt: skip
    add = parser.add_argument
    add(
        "models", nargs="+", metavar="MODEL", type=Path,
        help="a model file, a Hugging Face folder, or a folder with only its config.json",
    )  # fmt: skip
    add("--tokenizer", type=Path, metavar="FILE", help="tokenizer file of llama2.c models")
    add(
        "--type", metavar="TYPES",
        help="types of `quantize`, separated by commas; as-is: the file's own (default: as-is)",
    )  # fmt: skip
    add(
        "--device", metavar="NAMES",
        help="names from `halfbyte device list` or .toml files, separated by commas; or all",
    )  # fmt: skip
    add("--fleet", type=Path, metavar="FILE", help="a .toml file that describes a fleet")
    add("--level", choices=LEVELS, default="baseline", help="presets; see `halfbyte fit`")
    add("--context", type=whole, metavar="N", help="tokens the KV cache holds, not the level's")
    add("--cache", choices=CACHES, default="auto", help="type of the KV cache, not the level's")
    add(
        "--size", type=named_size, action="append", default=[], metavar="NAME=N",
        help="value of an open dimension of graphs' inputs, as in batch=32; may be repeated",
    )  # fmt: skip
    add("--prompt", type=whole, default=128, metavar="N", help="tokens before an answer")
    add("--minutes", type=number, default=10.0, metavar="N", help="of work without a pause")
    add("--ambient", type=number, metavar="C", help="temperature of the air (default: 25)")
    add("--governor", choices=tuple(GOVERNORS), default="power-allocator", help="see `simulate`")
    add("--draws", type=whole, default=100, metavar="N", help="devices of each profile, for ranges")
    add("--seed", type=whole, default=0, metavar="N", help="the same seed draws the same devices")
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--json", action="store_true", help="print JSON")
    shown.add_argument("--csv", action="store_true", help="print comma-separated values")
    add("--html", type=Path, metavar="FILE", help="write a page that needs no other file")
    add_force(parser)
    add_debug(parser)
    parser.set_defaults(command=_compare)


def _compare(options: argparse.Namespace) -> int:
    from halfbyte.cli import compare_output
    from halfbyte.device.candidates import Choices, candidates
    from halfbyte.device.fleet import load_fleet

    if options.device is None and options.fleet is None:
        raise HalfbyteError("--device: expected names of devices, all, or a --fleet; found nothing")
    if options.html is not None:
        may_replace(options.html, is_own_page, force=options.force, option="--html")
    conditions = _conditions(options)
    profiles = _profiles(options.device)
    fleet = load_fleet(options.fleet) if options.fleet is not None else None
    types = [] if options.type is None else _listed(options.type, "--type")
    choices = Choices(
        options.level, given_settings(options), options.prompt, tuple(options.size),
        options.tokenizer,
    )  # fmt: skip
    chosen = list(candidates([located(path) for path in options.models], types, choices))
    results = _on_devices(chosen, profiles, conditions)
    fleets: list[FleetResult] = []
    if fleet is not None:
        fleets = _on_fleet(chosen, *fleet, conditions)
    report = compare_output.Report(
        results, fleets, conditions, choices.prompt, profiles, options.fleet
    )
    if options.html is not None:
        from halfbyte.cli.compare_page import page

        write_text(options.html, page(report))
    as_text = (
        compare_output.as_json if options.json
        else compare_output.as_csv if options.csv
        else compare_output.as_text
    )  # fmt: skip
    print(as_text(report))
    if options.html is not None and not (options.json or options.csv):
        print(f"\nwrote {printable(str(options.html))}")
    fits = [r.memory.fits for r in results] + [f.total.fits > 0 for f in fleets]
    return 0 if any(fits) else NO


def _conditions(options: argparse.Namespace) -> Conditions:
    """The conditions, whose bounds `simulate` checks before anything takes time."""
    from halfbyte.device.comparison import Conditions
    from halfbyte.device.simulate import check_bounds

    check_bounds(options.minutes, options.ambient, options.draws, options.seed)
    return Conditions(
        options.minutes, options.ambient, options.governor, options.draws, options.seed
    )


def _listed(text: str, option: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise HalfbyteError(f"{option} {text!r}: expected names separated by commas")
    return names


def _profiles(text: str | None) -> list[Profile]:
    from halfbyte.device.profile import load_profile, profile_names

    if text is None:
        return []
    names = profile_names() if text == "all" else _listed(text, "--device")
    profiles = [load_profile(name) for name in names]
    own = [profile.name for profile in profiles]
    if twice := [name for name in own if own.count(name) > 1]:
        raise HalfbyteError(f"--device: {twice[0]!r} is given twice: expected different devices")
    return profiles


def _on_devices(
    chosen: Sequence[Candidate], profiles: Sequence[Profile], conditions: Conditions
) -> list[Result]:
    from halfbyte.device.comparison import compare

    bar = Bar(len(chosen) * len(profiles))
    results = []
    for candidate in chosen:
        for profile in profiles:
            bar.show(f"{candidate.model} {candidate.type} on {profile.name}")
            results.append(compare(candidate, profile, conditions))
            bar.add(1)
    bar.clear()
    return results


def _on_fleet(
    chosen: Sequence[Candidate], fleet: Fleet, profiles: Sequence[Profile], conditions: Conditions
) -> list[FleetResult]:
    from halfbyte.device.fleet import on_fleet

    bar = Bar(len(chosen) * fleet.devices)
    results = []
    for candidate in chosen:
        bar.show(f"{candidate.model} {candidate.type} on the fleet")
        results.append(on_fleet(candidate, fleet, profiles, conditions, bar.add, cores()))
    bar.clear()
    return results


class Bar:
    """How much of some work is done, on a line that is overwritten."""

    _WIDE = 24

    def __init__(self, total: int) -> None:
        self._total, self._done, self._what, self._line = total, 0, "", Progress()

    def show(self, what: str) -> None:
        """What is being done."""
        self._what = what
        self.add(0)

    def add(self, count: int) -> None:
        """So much more is done."""
        self._done += count
        share = self._done / max(self._total, 1)
        full = round(share * self._WIDE)
        what = printable(self._what, 60)
        self._line(f"[{'#' * full}{'.' * (self._WIDE - full)}] {share:4.0%}  {what}")

    def clear(self) -> None:
        """Remove the line."""
        self._line.clear()
