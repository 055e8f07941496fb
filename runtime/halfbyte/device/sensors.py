"""What this machine's sensors say: temperatures of thermal zones, their trip points, and whether
there is a battery (Linux).

Android shows the same folder to programs in Termux, as far as its vendor allows. Formats: the
kernel's Documentation/driver-api/thermal/sysfs-api.rst; millidegrees Celsius.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from halfbyte.errors import HalfbyteError

FOLDER = Path("/sys/class/thermal")
SUPPLIES = Path("/sys/class/power_supply")
# Kinds of trip points, from the first that slows a device
_LIMITS = ("passive", "active", "hot", "critical")
_SANE_C = (-40.0, 200.0)  # what a sensor may report; others are broken or have no reading yet


@dataclass(frozen=True)
class Zone:
    """A thermal zone, with the temperature from which its device is slowed, if it says one."""

    name: str
    path: Path
    limit_c: float | None

    def celsius(self) -> float | None:
        """The temperature now; None if the sensor has none."""
        return _celsius(self.path / "temp")


def thermal_zones(folder: Path | None = None) -> list[Zone]:
    """The zones that report a temperature, in the order of their numbers."""
    folder = FOLDER if folder is None else folder
    paths = sorted(folder.glob("thermal_zone*"), key=lambda path: (len(path.name), path.name))
    zones = [Zone(_text(path / "type") or path.name, path, _limit(path)) for path in paths]
    return [zone for zone in zones if zone.celsius() is not None]


def has_battery(folder: Path | None = None) -> bool:
    """Whether this machine runs on a battery; systems other than Linux do not say, and may."""
    folder = SUPPLIES if folder is None else folder
    if sys.platform != "linux":
        return True
    # a mouse's battery has the scope "Device"
    return any(
        _text(path / "type") == "Battery" and _text(path / "scope") != "Device"
        for path in folder.glob("*")
    )


def hottest(zones: list[Zone], target_c: float | None = None) -> tuple[Zone, float]:
    """The zone that is nearest to its limit, and that limit; `target_c` is one for all zones.

    Raises
    ------
    HalfbyteError
        No zone reports a temperature, or none says a limit and `target_c` is None.
    """
    if not zones:
        raise HalfbyteError(f"{FOLDER}: expected a thermal zone with a temperature, found none")
    limited = [
        (limit - celsius, zone, limit)
        for zone in zones
        if (limit := target_c if target_c is not None else zone.limit_c) is not None
        and (celsius := zone.celsius()) is not None
    ]
    if not limited:
        names = ", ".join(zone.name for zone in zones)
        raise HalfbyteError(
            f"{FOLDER}: expected a zone that says from which temperature it is slowed, found none "
            f"among {names}; give one in degrees Celsius"
        )
    _, zone, limit = min(limited, key=lambda one: one[0])
    return zone, limit


def _limit(path: Path) -> float | None:
    trips = dict(_trips(path))
    return next((trips[kind] for kind in _LIMITS if kind in trips), None)


def _trips(path: Path) -> Iterator[tuple[str, float]]:
    """Kinds and temperatures of trip points, the lowest of a kind last."""
    found = []
    for trip in path.glob("trip_point_*_type"):
        celsius = _celsius(trip.with_name(trip.name.replace("_type", "_temp")))
        if celsius is not None and celsius > 0:
            found.append((_text(trip), celsius))
    yield from sorted(found, key=lambda one: -one[1])


def _celsius(path: Path) -> float | None:
    try:
        value = int(_text(path)) / 1000
    except ValueError:
        return None
    return value if _SANE_C[0] <= value <= _SANE_C[1] else None


def _text(path: Path) -> str:
    try:
        return path.read_text("ascii", errors="replace").strip()
    except OSError:
        return ""
