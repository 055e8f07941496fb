"""What this machine's sensors say: temperatures, clocks, and the battery's current.

Linux has them as small files below /sys, of which Android shows some to programs in Termux and to
adb; `reports` has what commands say. Files are hostile: values that no device can have count as
none. Formats: the kernel's Documentation/driver-api/thermal/sysfs-api.rst,
admin-guide/pm/cpufreq.rst and ABI/testing/sysfs-class-power.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Protocol

BATTERY_LIMIT_C = 40.0  # assumed, where a battery says none: the Galaxy S25 begins to slow there
# Kinds of trip points, first those that slow a device; at the last active one its fan is fastest
_LIMITS = ("passive", "active", "hot", "critical")
_SANE_C = (-40.0, 200.0)  # what a sensor may report; others are broken or have no reading yet
_SANE_V, _SANE_W = (2.0, 100.0), (0.01, 500.0)
_MAX_TEXT = 1 << 16


class Files:
    """Small files below a folder, such as /sys; absent and unreadable ones are empty."""

    def __init__(self, root: Path = Path("/sys")) -> None:
        self._root = root

    def text(self, path: str) -> str:
        """The beginning of a file, without spaces around it."""
        try:
            with (self._root / path).open("rb") as file:
                return file.read(_MAX_TEXT).decode("ascii", errors="replace").strip()
        except (OSError, ValueError):
            return ""

    def matching(self, pattern: str) -> list[str]:
        """Paths that match, in the order of the numbers in their names."""
        try:
            found = [str(path.relative_to(self._root)) for path in self._root.glob(pattern)]
        except OSError:
            return []
        return sorted(found, key=lambda path: (len(path), path))


class Recorded(Files):
    """Files whose texts were read elsewhere, such as on a phone."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self.texts = texts

    def text(self, path: str) -> str:
        """A file's text."""
        return self.texts.get(path, "").strip()

    def matching(self, pattern: str) -> list[str]:
        """Files and folders that match, in the order of the numbers in their names."""
        depth = pattern.count("/") + 1
        paths = {"/".join(p.split("/")[:depth]) for p in self.texts if p.count("/") + 1 >= depth}
        return sorted(
            (path for path in paths if _matches(path, pattern)), key=lambda path: (len(path), path)
        )


def _matches(path: str, pattern: str) -> bool:
    pairs = zip(path.split("/"), pattern.split("/"), strict=True)
    return all(fnmatchcase(part, wanted) for part, wanted in pairs)


SYS = Files()


class Sensor(Protocol):
    """Something with a temperature, and a limit from which its device is slowed, if it says one."""

    @property
    def name(self) -> str: ...

    @property
    def limit_c(self) -> float | None: ...

    def celsius(self) -> float | None:
        """The temperature now; None if there is none."""


# ---- thermal zones -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Zone:
    """A thermal zone of Linux."""

    name: str
    path: str
    limit_c: float | None
    files: Files

    def celsius(self) -> float | None:
        """The temperature now; None if the sensor has none."""
        return _zone_celsius(self.files.text(f"{self.path}/temp"))


def thermal_zones(files: Files | None = None) -> list[Zone]:
    """The zones that report a temperature, in the order of their numbers."""
    files = files or SYS
    zones = [
        Zone(_name(files.text(f"{path}/type"), path), path, _limit(files, path), files)
        for path in files.matching("class/thermal/thermal_zone*")
    ]
    return [zone for zone in zones if zone.celsius() is not None]


def _limit(files: Files, path: str) -> float | None:
    trips = dict(_trips(files, path))
    return next((trips[kind] for kind in _LIMITS if kind in trips), None)


def _trips(files: Files, path: str) -> Iterator[tuple[str, float]]:
    """Kinds and temperatures of trip points, of each kind the one that counts last.

    That is the lowest, but the highest active one: below it a fan cools without slowing anything.
    """
    found = []
    for trip in files.matching(f"{path}/trip_point_*_type"):
        celsius = _zone_celsius(files.text(trip.removesuffix("_type") + "_temp"))
        if celsius is not None and celsius > 0:
            found.append((files.text(trip), celsius))
    yield from sorted(found, key=lambda one: one[1] if one[0] == "active" else -one[1])


def _zone_celsius(text: str) -> float | None:
    """A zone's millidegrees, or whole degrees, as some vendors have it.

    Millidegrees below 2 C and tenths of a degree look alike: such a zone counts as without a
    reading, as does one that says exactly 0.
    """
    raw = _integer(text)
    if raw is None or raw == 0 or 200 < abs(raw) < 2000:
        return None
    return sane_celsius(raw if abs(raw) <= 200 else raw / 1000)


# ---- clocks --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Clock:
    """Cores that share a clock: a policy of cpufreq."""

    path: str
    files: Files

    @property
    def name(self) -> str:
        """What people call it."""
        return f"the clock of cores {', '.join(map(str, self.cores))}"

    @property
    def cores(self) -> list[int]:
        """The numbers of its cores."""
        text = self.files.text(f"{self.path}/related_cpus")
        return [int(n) for n in text.split() if re.fullmatch("[0-9]{1,4}", n)]

    @property
    def highest_mhz(self) -> float | None:
        """The fastest that it can be."""
        return self._mhz("cpuinfo_max_freq")

    @property
    def frequencies_mhz(self) -> list[float]:
        """All its steps, the slowest first; empty where the driver does not list them."""
        words = self.files.text(f"{self.path}/scaling_available_frequencies").split()
        return sorted({mhz for word in words if (mhz := _mhz(word)) is not None})

    def now_mhz(self) -> float | None:
        """Its frequency."""
        return self._mhz("scaling_cur_freq")

    def allowed(self) -> float | None:
        """The share of its highest frequency that the system allows now."""
        limit, highest = self._mhz("scaling_max_freq"), self.highest_mhz
        return None if limit is None or highest is None else min(limit / highest, 1.0)

    def _mhz(self, name: str) -> float | None:
        return _mhz(self.files.text(f"{self.path}/{name}"))


def clocks(files: Files | None = None) -> list[Clock]:
    """The clocks that say how fast they can be."""
    files = files or SYS
    every = [Clock(p, files) for p in files.matching("devices/system/cpu/cpufreq/policy*")]
    return [clock for clock in every if clock.highest_mhz is not None]


def _mhz(text: str) -> float | None:
    khz = _integer(text)
    return None if khz is None else _sane(khz / 1000, (10.0, 20_000.0))


# ---- batteries -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Battery:
    """A battery of Linux."""

    name: str
    path: str
    files: Files
    limit_c: float | None = BATTERY_LIMIT_C

    def celsius(self) -> float | None:
        """Its temperature, which Linux has in tenths of a degree."""
        tenths = _integer(self.files.text(f"{self.path}/temp"))
        return sane_celsius(tenths / 10) if tenths else None

    def watts(self) -> float | None:
        """What it gives now; None while it is charged, and where it does not say."""
        if self.files.text(f"{self.path}/status") not in ("Discharging", "Not charging"):
            return None
        power = _integer(self.files.text(f"{self.path}/power_now"))
        if power:
            return _sane(abs(power) / 1e6, _SANE_W)
        texts = (self.files.text(f"{self.path}/{key}_now") for key in ("current", "voltage"))
        return watts_of(*map(_integer, texts))

    def watt_hours(self) -> float | None:
        """What it holds by design."""
        texts = ("energy_full_design", "charge_full_design", "voltage_min_design", "voltage_now")
        energy, charge, *volts = (_integer(self.files.text(f"{self.path}/{key}")) for key in texts)
        if energy:
            return _sane(energy / 1e6, (0.1, 1e4))
        volt = next((v for v in map(_volts, volts) if v is not None), None)
        return None if not charge or volt is None else _sane(charge / 1e6 * volt, (0.1, 1e4))


def batteries(files: Files | None = None) -> list[Battery]:
    """The machine's batteries: a mouse's has the scope "Device"."""
    files = files or SYS
    return [
        Battery(_name("", path), path, files)
        for path in files.matching("class/power_supply/*")
        if files.text(f"{path}/type") == "Battery" and files.text(f"{path}/scope") != "Device"
    ]


def has_battery(files: Files | None = None) -> bool:
    """Whether this machine runs on a battery; systems other than Linux do not say, and may."""
    return sys.platform != "linux" or bool(batteries(files))


def _volts(raw: float | None) -> float | None:
    """Volts from microvolts, or from millivolts, as some vendors have it."""
    return None if raw is None else _sane(abs(raw) / (1e6 if abs(raw) >= 2e5 else 1e3), _SANE_V)


def watts_of(current: float | None, voltage: float | None) -> float | None:
    """Watts from a battery's current and voltage, in millionths or thousandths.

    Currents below 20,000 are milliamperes, as some vendors have it: no device that computes takes
    as little as 20,000 microamperes, and none as much as 20,000 milliamperes.
    """
    volts = _volts(voltage)
    if not current or volts is None:
        return None
    return _sane(abs(current) / (1e3 if abs(current) < 20_000 else 1e6) * volts, _SANE_W)


# ---- texts ---------------------------------------------------------------------------------------


def _integer(text: str) -> int | None:
    return int(text) if re.fullmatch(r"-?[0-9]{1,15}", text) else None


def sane_celsius(celsius: float | None) -> float | None:
    """A temperature, if something that works can have it."""
    return None if celsius is None else _sane(celsius, _SANE_C)


def _sane(value: float, span: tuple[float, float]) -> float | None:
    return value if span[0] <= value <= span[1] else None


def _name(text: str, path: str) -> str:
    """What a sensor calls itself, if people can read it, else its folder's name."""
    text = text or path.rpartition("/")[2]
    return text[:64] if text.isprintable() else path.rpartition("/")[2]
