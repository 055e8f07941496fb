"""``--pace``: tokens at an even pace that keeps this machine below its limit."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from halfbyte.cli.common import given_settings
from halfbyte.cli.parser import Parser, number
from halfbyte.errors import HalfbyteError

if TYPE_CHECKING:
    from halfbyte.device.live import Pacer
    from halfbyte.text.model import LanguageModel

MARGIN_K = 2.0  # by which the governor stays below the temperature at which a machine is slowed


def add_pace(parser: Parser) -> None:
    """Add the options `--pace` and `--pace-at`."""
    parser.add_argument(
        "--pace", action="store_true",
        help="write at an even pace that the machine can keep: its sensors stay below the "
        "temperature at which it would be slowed (Linux; for long texts on phones and laptops)",
    )  # fmt: skip
    parser.add_argument(
        "--pace-at", type=number, metavar="CELSIUS",
        help="the same, with this limit for all sensors",
    )  # fmt: skip


def check_pace(options: argparse.Namespace) -> None:
    """Refuse a limit that no machine has, and beam search, which has no tokens to wait for."""
    at = options.pace_at
    if at is not None and not 20 <= at <= 120:
        raise HalfbyteError(f"--pace-at {at:g}: expected 20 to 120 degrees Celsius")
    if options.beams is not None and (options.pace or at is not None):
        raise HalfbyteError(
            "--pace: --beams chooses all of a text at its end: expected one of the two"
        )


def pacer_of(options: argparse.Namespace, model: LanguageModel) -> tuple[Pacer, str] | None:
    """What paces a model's tokens, and the name of the sensor; None if that is not asked for."""
    if not options.pace and options.pace_at is None:
        return None
    from halfbyte.device.live import Pacer, live_board
    from halfbyte.device.machine import profile_of_this_machine
    from halfbyte.device.sensors import hottest, thermal_zones
    from halfbyte.device.speed import Tokens
    from halfbyte.text.planning import plan, settings_of

    zone, limit = hottest(thermal_zones(), options.pace_at)
    profile = profile_of_this_machine()
    settings = settings_of(options.level, given_settings(options))
    threads = min(model.executable.threads, profile.cores)
    margin = MARGIN_K if options.pace_at is None else 0.0
    board = live_board(profile, Tokens(plan(model.file, settings)), threads, limit - margin)
    return Pacer(board, zone.celsius), f"{zone.name}, whose limit is {limit:g} °C"
