"""``--pace``: tokens at an even pace that keeps this machine below its limit."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
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
        "temperature at which it would be slowed (Linux, Android in Termux, macOS; for long texts "
        "on phones and laptops)",
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
    if getattr(options, "beams", None) is not None and (options.pace or at is not None):
        raise HalfbyteError(
            "--pace: --beams chooses all of a text at its end: expected one of the two"
        )


class Pace:
    """What paces a model's tokens, and what to say of it; paces nothing if that was not asked for.

    Raises
    ------
    HalfbyteError
        This machine has nothing to pace by.
    """

    def __init__(self, options: argparse.Namespace, model: LanguageModel) -> None:
        self._pacer: Pacer | None = None
        self._by = ""
        if options.pace or options.pace_at is not None:
            self._pacer, self._by = _pacer(options, model)

    def __call__(self, pieces: Iterable[str]) -> Iterable[str]:
        """The pieces of a text, each not before its turn."""
        return pieces if self._pacer is None else self._pacer.paced(pieces)

    @property
    def note(self) -> str:
        """What paced the texts so far; empty without pacing."""
        if self._pacer is None:
            return ""
        watts = self._pacer.battery_w
        battery = "" if watts is None else f"; the battery gave {watts:.1f} W"
        return f"paced by {self._by}: waited {self._pacer.waited_s:.1f} s between tokens{battery}"


def _pacer(options: argparse.Namespace, model: LanguageModel) -> tuple[Pacer, str]:
    from halfbyte.device.live import Pacer, live_board
    from halfbyte.device.machine import profile_of_this_machine
    from halfbyte.device.nearest import Nearest
    from halfbyte.device.reports import here
    from halfbyte.device.speed import Tokens
    from halfbyte.text.planning import plan, settings_of

    found = here()
    watts = found.watts
    if not found.sensors and found.signals and options.pace_at is None:
        names = ", ".join(signal.name for signal in found.signals)
        return Pacer(None, lambda: None, signals=found.signals, watts=watts), names
    nearest = Nearest(found.sensors, options.pace_at)
    profile = profile_of_this_machine()
    settings = settings_of(options.level, given_settings(options))
    threads = min(model.executable.threads, profile.cores)
    margin = MARGIN_K if options.pace_at is None else 0.0
    task = Tokens(plan(model.file, settings))
    board = live_board(profile, task, threads, nearest.limit_c - margin)
    by = f"{nearest.sensor.name}, whose limit is {nearest.limit_c:g} °C"
    return Pacer(board, nearest.celsius, signals=found.signals, watts=watts), by
