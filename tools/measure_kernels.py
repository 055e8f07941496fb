"""Measure how close each kind of kernel comes to this machine's limits, for all devices.

    python tools/measure_kernels.py [PASSES]

writes runtime/halfbyte/device/kernels.toml: medians of several passes, which profiles without
measurements of their own use. Other processors have other latencies, caches and compilers, so each
number gets a range. The machine should be idle otherwise.
"""

from __future__ import annotations

import datetime
import platform
import sys
from pathlib import Path

from halfbyte.device.kernels import Kernels
from halfbyte.device.measure import kernels_of, measure, medians
from halfbyte.device.toml_writer import to_toml

TARGET = Path(__file__).parents[1] / "runtime/halfbyte/device/kernels.toml"
PASSES = 4  # a shared machine changes from minute to minute
SPREAD = (0.7, 1.15)  # range of other processors, relative


def main() -> None:
    """Measure several times, and replace the file by medians."""
    passes = int(sys.argv[1]) if len(sys.argv) > 1 else PASSES
    measurements = [measure(1, lambda what: print(what, file=sys.stderr)) for _ in range(passes)]
    today = datetime.datetime.now(tz=datetime.UTC).date()
    why = (
        f"measured on {platform.machine()}, {today}, median of {passes} passes; others reach 70 to "
        "115 % of it"
    )
    TARGET.write_text(
        to_toml(Kernels(kernels_of(medians(measurements), why, SPREAD))), encoding="utf-8"
    )


if __name__ == "__main__":
    main()
