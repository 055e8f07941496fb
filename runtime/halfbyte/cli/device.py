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
from halfbyte.cli.phone_report import phone_report
from halfbyte.cli.replacing import add_force, may_replace
from halfbyte.columns import table
from halfbyte.core.backends.cores import default_threads
from halfbyte.errors import HalfbyteError, ProfileError
from halfbyte.outputs import reporting, write_text

if TYPE_CHECKING:
    from halfbyte.device.profile import Profile


_MAX_SECONDS = 3600


def add_device(commands: Commands[Parser]) -> None:
    """The command `device`, with its subcommands."""
    parser = commands.add_parser(
        "device",
        help="show the devices that `fit` and `simulate` know, or measure this machine or a phone",
        description="Show the devices that `halfbyte fit` and `halfbyte simulate` know, or measure "
        "this machine or an attached phone.",
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
    measuring = _add_measure(parts)
    for part, command in ((measuring, _measure), (listing, _list), (showing, _show)):
        part.add_argument("--json", action="store_true", help="print JSON")
        add_debug(part)
        part.set_defaults(command=command)


def _add_measure(commands: Commands[Parser]) -> Parser:
    """The command `device measure`, with the options of this machine and of phones."""
    measuring = commands.add_parser(
        "measure",
        help="measure this machine, in about three minutes, and save it as `this-machine`; or "
        "with --adb an attached Android phone",
        examples=[
            "halfbyte device measure",
            "halfbyte device measure --name my-pc --threads 4 --json",
            "halfbyte device measure --adb  # an attached phone, in about two minutes",
            "halfbyte device measure --adb --serial emulator-5554 --name phone --seconds 120",
            "halfbyte device measure --adb --like pixel-6",
        ],
        description="Measure this machine, or with --adb an Android phone with USB debugging: its "
        "memory, clocks, thermal zones and battery at rest, how fast its cores fill memory, and "
        "what it is like while all its cores are busy. Nothing is installed or written on the "
        "phone. While USB charges it, its battery does not say what it gives: connect by Wi-Fi "
        "(`adb tcpip 5555`, `adb connect ADDRESS`) to measure watts too. Numbers that were read "
        "say so in the profile; others are assumed, as those of a similar phone.",
    )
    measuring.add_argument(
        "--threads", "-t", type=whole, metavar="N", help="cores (default: the fast ones)"
    )
    measuring.add_argument(
        "--name", help="the name of the device (default: this-machine, or my- and a phone's model)"
    )
    phone = measuring.add_argument_group("phones")
    phone.add_argument(
        "--adb", action="store_true", help="measure an attached Android phone, through adb"
    )
    phone.add_argument("--serial", metavar="SERIAL", help="which phone, as `adb devices` lists it")
    phone.add_argument(
        "--seconds", type=whole, metavar="N",
        help="keep all its cores busy for so long (default: 60)",
    )  # fmt: skip
    phone.add_argument(
        "--like", metavar="DEVICE",
        help="the device whose numbers are assumed where the phone says none (default: the phone "
        "whose memory and clocks are most similar)",
    )  # fmt: skip
    add_force(measuring)
    return measuring


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
    given = [name for name in ("serial", "seconds", "like") if getattr(options, name) is not None]
    if given and not options.adb:
        raise HalfbyteError(f"--{given[0]}: expected --adb too")
    if options.adb and options.threads is not None:
        raise HalfbyteError("--threads: for this machine only: expected none with --adb")
    return _measure_phone(options) if options.adb else _measure_here(options)


def _measure_here(options: argparse.Namespace) -> int:
    from halfbyte.device.machine import machine_profile
    from halfbyte.device.measure import measure

    cores = os.cpu_count() or 1
    if options.threads is not None and not 1 <= options.threads <= cores:
        raise HalfbyteError(
            f"--threads {options.threads}: expected 1 to {cores}, the cores of this machine"
        )
    name = options.name or "this-machine"
    path = _target(name, force=options.force)
    progress = Progress()
    measured = measure(options.threads or default_threads(), lambda what: progress(f"{what} ..."))
    progress.clear()
    profile = machine_profile(measured, name)
    if _save(profile, path, as_json=options.json):
        return 0
    heads = ["threads", "GB/s", "int8 GOP/s"]
    rows = [
        [str(n), f"{measured.bandwidth[n] / 1e9:.1f}", f"{measured.int8[n] / 1e9:.0f}"]
        for n in measured.int8
    ]
    print("\n".join(table(heads, rows)))
    print(f"float32 {measured.float32 / 1e9:.0f} GFLOP/s per core")
    return 0


def _measure_phone(options: argparse.Namespace) -> int:
    from halfbyte.device.adb import Phone
    from halfbyte.device.phone import phone_profile, similar, slug
    from halfbyte.device.profile import load_profile

    seconds = 60 if options.seconds is None else options.seconds
    if not 1 <= seconds <= _MAX_SECONDS:
        raise HalfbyteError(f"--seconds {seconds}: expected 1 to {_MAX_SECONDS}")
    if options.like is not None:
        load_profile(options.like)
    if options.name is not None:
        _target(options.name, force=options.force)  # refused before anything is measured
    progress = Progress()
    try:
        reading = Phone(options.serial).read(seconds, lambda what: progress(f"{what} ..."))
    finally:
        progress.clear()
    name = options.name or slug(reading)
    path = _target(name, force=options.force)
    profile = phone_profile(reading, name, options.like or similar(reading))
    if _save(profile, path, as_json=options.json):
        return 0
    print(phone_report(reading, profile))
    return 0


def _target(name: str, *, force: bool) -> Path:
    """The file of a device; refused if something else has its place."""
    from halfbyte.device.profile import user_folder
    from halfbyte.device.schema import NAME

    path = user_folder() / f"{name}.toml"
    if not NAME.fullmatch(name):
        raise HalfbyteError(f"--name {name!r}: expected up to 64 of a-z, 0-9, - and _")
    with reporting(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    may_replace(path, _is_own, force=force, option="--name")
    return path


def _save(profile: Profile, path: Path, *, as_json: bool) -> bool:
    """Write a profile; whether all that is to be printed was, as JSON."""
    from halfbyte.device.toml_writer import to_toml

    write_text(path, to_toml(profile))
    if as_json:
        print(json.dumps(_summary(profile), indent=1))
    else:
        print(f"{profile.title}, wrote {path}")
    return as_json


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
