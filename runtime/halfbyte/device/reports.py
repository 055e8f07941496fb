"""What commands say of this machine's heat, where there are no files that do.

Android's battery by `termux-battery-status` (Termux:API); macOS's thermal pressure by `notifyutil`,
and by `pmset` on Intel's processors, without root. Outputs are hostile: values that no device can
have count as none.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from halfbyte.device.commands import output_of
from halfbyte.device.sensors import (
    BATTERY_LIMIT_C,
    Battery,
    Clock,
    Sensor,
    batteries,
    clocks,
    sane_celsius,
    thermal_zones,
    watts_of,
)

TERMUX = ("termux-battery-status",)
PRESSURE = ("notifyutil", "-g", "com.apple.system.thermalpressurelevel")
POWER = ("pmset", "-g", "therm")
_TIMEOUT_S = 5.0
# Of macOS's levels (OSThermalNotification.h: nominal, moderate, heavy, trapping, sleeping), what is
# left of the highest clock; assumed, only that it is less counts
_LEVELS = (1.0, 0.9, 0.6, 0.3, 0.1)
_LEVEL = re.compile(rf"{re.escape(PRESSURE[2])} ([0-9])")
_SPEED = re.compile(r"^\s*CPU_Speed_Limit\s*=\s*([0-9]{1,3})\s*$", re.MULTILINE)


class Report:
    """A command's output, read again in the background when it is old.

    Parameters
    ----------
    words : sequence of str
        The command, found on the PATH.
    every_s : float
        Seconds after which an output is old.
    """

    def __init__(self, words: Sequence[str], every_s: float) -> None:
        self._words, self._every_s = words, every_s
        self._text, self._begun = "", -every_s
        self._reader: threading.Thread | None = None

    @property
    def exists(self) -> bool:
        """Whether the command is there."""
        return shutil.which(self._words[0]) is not None

    def text(self) -> str:
        """The last output; empty if the command failed, or has not answered in five seconds."""
        now = time.monotonic()
        reading = self._reader is not None and self._reader.is_alive()
        if not reading and now - self._begun >= self._every_s:
            first, self._begun = self._reader is None, now
            self._reader = threading.Thread(target=self._read, daemon=True)
            self._reader.start()
            if first:
                self._reader.join()
        return self._text

    def _read(self) -> None:
        output = output_of(self._words, _TIMEOUT_S)
        self._text = output.text if output.code == 0 else ""


class TermuxBattery:
    """Android's battery, as Termux:API says it."""

    name = "battery"
    limit_c = BATTERY_LIMIT_C

    def __init__(self, report: Report | None = None) -> None:
        self._report = report or Report(TERMUX, 30.0)

    def celsius(self) -> float | None:
        """Its temperature."""
        return sane_celsius(_float(self._status().get("temperature")))

    def watts(self) -> float | None:
        """What it gives now; None while it is charged, and where the phone does not say."""
        status = self._status()
        if status.get("status") != "DISCHARGING":
            return None
        return watts_of(*(_float(status.get(key)) for key in ("current", "voltage")))

    def _status(self) -> dict[str, Any]:
        try:
            status = json.loads(self._report.text())
        except (ValueError, RecursionError):
            return {}
        return status if isinstance(status, dict) else {}


class Pressure:
    """macOS's thermal pressure."""

    name = "macOS's thermal pressure"

    def __init__(self, level: Report | None = None, power: Report | None = None) -> None:
        self._level, self._power = level or Report(PRESSURE, 2.0), power or Report(POWER, 5.0)

    def allowed(self) -> float | None:
        """About the share of the highest speed that is left; None if nothing is said."""
        shares = []
        if level := _LEVEL.fullmatch(self._level.text().strip()):
            shares.append(_LEVELS[min(int(level[1]), len(_LEVELS) - 1)])
        if speed := _SPEED.search(self._power.text()):
            shares.append(min(int(speed[1]), 100) / 100)
        return min(shares, default=None)


@dataclass(frozen=True)
class Here:
    """What this machine has: sensors that say a temperature, what shows that it is slowed, and the
    batteries."""

    sensors: Sequence[Sensor]
    signals: Sequence[Clock | Pressure]
    batteries: Sequence[Battery | TermuxBattery]

    def watts(self) -> float | None:
        """What the batteries give; None if none says it."""
        known = [watts for battery in self.batteries if (watts := battery.watts()) is not None]
        return math.fsum(known) if known else None


def here() -> Here:
    """The sensors of this machine.

    Batteries, whose limit is assumed, only count where no zone says one.
    """
    zones: list[Sensor] = [*thermal_zones()]
    own: list[Battery | TermuxBattery] = [*batteries()]
    if not own and shutil.which(TERMUX[0]):
        own = [TermuxBattery()]
    if not any(zone.limit_c is not None for zone in zones):
        zones += [battery for battery in own if battery.celsius() is not None]
    signals: list[Clock | Pressure] = [c for c in clocks() if c.allowed() is not None]
    if shutil.which(PRESSURE[0]) or shutil.which(POWER[0]):
        signals += [p for p in [Pressure()] if p.allowed() is not None]
    return Here(zones, signals, own)


def _float(value: object) -> float | None:
    """A finite number, or one in a text, as older versions have it."""
    try:
        number = float(value) if isinstance(value, int | float | str) else math.nan
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
