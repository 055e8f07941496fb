"""What `halfbyte device measure --adb` prints of a phone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from halfbyte.columns import table
from halfbyte.errors import printable

if TYPE_CHECKING:
    from halfbyte.device.adb import Reading
    from halfbyte.device.profile import Profile

_ZONES = 8  # those that warmed most


def phone_report(reading: Reading, profile: Profile) -> str:
    """Clocks, zones and power at rest and under load, and how many numbers were measured."""
    return "\n".join(
        [
            *_clocks(reading),
            *_zones(reading),
            *_power(reading),
            *_memory(reading),
            _origins(profile),
        ]
    )


def _clocks(reading: Reading) -> list[str]:
    last = reading.load[-1] if reading.load else reading.files
    rows = [
        [
            ", ".join(map(str, clock.cores)), f"{clock.highest_mhz or 0:.0f}",
            "-" if (mhz := type(clock)(clock.path, last).now_mhz()) is None else f"{mhz:.0f}",
        ]
        for clock in reading.clocks
    ]  # fmt: skip
    return ["", *table(["cores", "highest MHz", "after the load"], rows, left=1)] if rows else []


def _zones(reading: Reading) -> list[str]:
    heat = sorted(reading.heat(), key=lambda zone: zone[1] - zone[2])[:_ZONES]
    rows = [
        [printable(name), f"{rest:.1f}", f"{busy:.1f}", "-" if limit is None else f"{limit:.0f}"]
        for name, rest, busy, limit in heat
    ]
    heads = ["zone", "at rest °C", "after the load", "slowed from"]
    return ["", *table(heads, rows, left=1)] if rows else ["", "no thermal zone can be read"]


def _power(reading: Reading) -> list[str]:
    rest, busy = reading.watts()
    if rest is None or busy is None:
        return ["the battery does not say what it gives: it is charged, or its maker hides it"]
    return [f"the battery gives {rest:.1f} W at rest, {busy:.1f} W with all cores busy"]


def _memory(reading: Reading) -> list[str]:
    speeds = [f"{speed / 1e9:.1f} by {n}" for n, speed in reading.filled.items() if speed]
    return [f"GB/s of memory that cores fill: {', '.join(speeds)}"] if speeds else []


def _origins(profile: Profile) -> str:
    read = sum(number.source.startswith("halfbyte") for _, number in profile.numbers())
    every = sum(1 for _ in profile.numbers())
    return f"{read} of {every} numbers were read from the phone; `halfbyte device show` has all"
