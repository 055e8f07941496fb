"""Measure how near each kind of kernel comes to this machine's limits, for devices in general.

    python tools/measure_kernels.py

writes runtime/halfbyte/device/kernels.toml: what profiles without measurements of their own count
on. Other processors have other latencies, caches and compilers, so each number gets a range. Let
nothing else run meanwhile.
"""

from __future__ import annotations

import datetime
import platform
import sys
from pathlib import Path

from halfbyte.device.kernels import Kernels
from halfbyte.device.measure import kernels_of, measure
from halfbyte.device.writer import to_toml

TARGET = Path(__file__).parents[1] / "runtime/halfbyte/device/kernels.toml"
SPREAD = (0.7, 1.15)  # how much of it other processors may reach


def main() -> None:
    """Measure, and replace the file."""
    measured = measure(1, lambda what: print(what, file=sys.stderr))
    today = datetime.datetime.now(tz=datetime.UTC).date()
    why = f"measured on {platform.machine()}, {today}; others reach 70 to 115 % of it"
    TARGET.write_text(to_toml(Kernels(kernels_of(measured, why, SPREAD))), encoding="utf-8")


if __name__ == "__main__":
    main()
