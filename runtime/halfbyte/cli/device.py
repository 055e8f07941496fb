"""``halfbyte device``: lists devices, shows the profile of one, and measures this machine."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from halfbyte.cli.common import Progress, add_debug
from halfbyte.cli.parser import Commands, Parser, whole
from halfbyte.cli.replacing import add_force, may_replace
from halfbyte.core.backends.cores import default_threads
from halfbyte.errors import HalfbyteError, ProfileError
from halfbyte.evaluation.columns import table
from halfbyte.outputs import reporting, write_text

if TYPE_CHECKING:
    from halfbyte.device.profile import Profile


def add_device(commands: Commands[Parser]) -> None:
    """The command `device`, with its subcommands."""
    parser = commands.add_parser(
        "device",
        help="show the devices that `fit` and `simulate` know, or measure this machine",
        description="Show the devices that `halfbyte fit` and `halfbyte simulate` know, or measure "
        "this machine.",
        examples=[
            "halfbyte device list",
            "halfbyte device show pixel-6",
            "halfbyte device measure --help",
        ],
    )
    parts = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    listing = parts.add_parser(
        "list", help="list the known devices, one per line",
        examples=["halfbyte device list --json"],
    )  # fmt: skip
    showing = parts.add_parser(
        "show", help="show all numbers of a device, and their origins",
        examples=["halfbyte device show pixel-6", "halfbyte device show my-phone.toml --json"],
    )  # fmt: skip
    showing.add_argument("device", metavar="DEVICE", help="a name from the list, or a .toml file")
    measuring = parts.add_parser(
        "measure",
        help="measure this machine, in about three minutes, and save it as `this-machine`",
        examples=[
            "halfbyte device measure",
            "halfbyte device measure --name my-pc --threads 4 --json",
        ],
    )
    measuring.add_argument(
        "--threads", "-t", type=whole, metavar="N", help="cores (default: the fast ones)"
    )
    measuring.add_argument("--name", default="this-machine", help="the name of the device")
    add_force(measuring)
    for part, command in ((measuring, _measure), (listing, _list), (showing, _show)):
        part.add_argument("--json", action="store_true", help="print JSON")
        add_debug(part)
        part.set_defaults(command=command)


def _list(options: argparse.Namespace) -> int:
    from halfbyte.device.profile import load_profile, profile_names

    profiles = [load_profile(name) for name in profile_names()]
    if options.json:
        print(json.dumps([_summary(profile) for profile in profiles], indent=1))
        return 0
    heads = ["device", "title", "cores", "int8 GOP/s", "GB/s", "RAM MB", "app MB", "sustained W"]
    rows = [
        [_rounded(value) for key, value in _summary(profile).items() if key != "kind"]
        for profile in profiles
    ]
    print("\n".join(table(heads, rows, left=2)))
    return 0


def _summary(profile: Profile) -> dict[str, Any]:
    """The numbers that compare devices."""
    return {
        "name": profile.name,
        "title": profile.title,
        "kind": profile.kind,
        "cores": profile.cores,
        "int8_gops": profile.int8_gops,
        "bandwidth_gb_s": profile.memory.bandwidth_gb_s.value,
        "ram_mb": profile.memory.ram_mb.value,
        "app_mb": profile.memory.app_mb.value,
        "sustainable_w": profile.thermal.allocator.sustainable_w.value,
    }


def _show(options: argparse.Namespace) -> int:
    from halfbyte.device.profile import load_profile

    profile = load_profile(options.device)
    if options.json:
        derived = {"int8_gops": profile.int8_gops, "float32_gops": profile.float32_gops}
        print(json.dumps({**dataclasses.asdict(profile), "derived": derived}, indent=1))
        return 0
    full = sum(cluster.full_w for cluster in profile.clusters)
    print(f"{profile.title}: a {profile.kind} of {profile.year}")
    print(
        f"{profile.cores} cores, at most {profile.int8_gops:.0f} GOP/s on int8 and "
        f"{profile.float32_gops:.0f} on float32, at which they take {full:.1f} W\n"
    )
    for cluster in profile.clusters:
        print(f"{cluster.name} warms {cluster.node}")
    for link in profile.thermal.links:
        print(f"{link.between[0]} warms {link.between[1]}")
    print()
    numbers = list(profile.numbers())
    rows = [[key, number.shown, number.span] for key, number in numbers]
    lines = table(["", "value", "range"], rows)
    origins = ["", *(number.origin for _, number in numbers)]
    print(
        "\n".join(f"{line}  {origin}".rstrip() for line, origin in zip(lines, origins, strict=True))
    )
    return 0


def _measure(options: argparse.Namespace) -> int:
    from halfbyte.device.machine import machine_profile
    from halfbyte.device.measure import measure
    from halfbyte.device.profile import user_folder
    from halfbyte.device.schema import NAME
    from halfbyte.device.toml_writer import to_toml

    cores = os.cpu_count() or 1
    if options.threads is not None and not 1 <= options.threads <= cores:
        raise HalfbyteError(
            f"--threads {options.threads}: expected 1 to {cores}, the cores of this machine"
        )
    path = user_folder() / f"{options.name}.toml"
    if not NAME.fullmatch(options.name):
        raise HalfbyteError(f"--name {options.name!r}: expected up to 64 of a-z, 0-9, - and _")
    with reporting(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    may_replace(path, _is_own, force=options.force, option="--name")
    progress = Progress()
    measured = measure(options.threads or default_threads(), lambda what: progress(f"{what} ..."))
    progress.clear()
    profile = machine_profile(measured, options.name)
    write_text(path, to_toml(profile))
    if options.json:
        print(json.dumps(_summary(profile), indent=1))
        return 0
    print(f"{profile.title}, wrote {path}")
    heads = ["threads", "GB/s", "int8 GOP/s"]
    rows = [
        [str(n), f"{measured.bandwidth[n] / 1e9:.1f}", f"{measured.int8[n] / 1e9:.0f}"]
        for n in measured.int8
    ]
    print("\n".join(table(heads, rows)))
    print(f"float32 {measured.float32 / 1e9:.0f} GFLOP/s per core")
    return 0


def _is_own(path: Path) -> bool:
    """Whether `device measure` wrote a profile."""
    from halfbyte.device.machine import is_measured
    from halfbyte.device.profile import load_profile

    try:
        return is_measured(load_profile(path))
    except ProfileError:
        return False


def _rounded(value: object) -> str:
    """At least three digits, and all before the decimal point."""
    if isinstance(value, float):
        return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
    return str(value)
