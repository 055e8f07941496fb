"""Measure how close each kind of kernel comes to this machine's limits in a browser tab.

    python -m tools.measure_tab [PASSES]

writes runtime/halfbyte/device/tab.toml: medians of several passes of three minutes, which `halfbyte
fit --tab` uses. Kernels run in Chromium on one thread; the limits are measured natively in between.
Ranges cover other processors and engines. The machine should be idle otherwise.
"""

from __future__ import annotations

import datetime
import platform
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benches.browser.python import python_tabs
from tests.browser.conftest import Python

from halfbyte.device.cost import Work
from halfbyte.device.measure import (
    HERE,
    Measured,
    Place,
    kernels_of,
    measure,
    medians,
    overheads,
)
from halfbyte.device.quantity import Quantity
from halfbyte.device.tab import Tab
from halfbyte.device.timing import Timed
from halfbyte.device.toml_writer import to_toml

TARGET = Path(__file__).parents[1] / "runtime/halfbyte/device/tab.toml"
PASSES = 3
SPREAD = (0.4, 1.2)  # other processors have other SIMD, some engines no relaxed SIMD
OVERHEAD_SPREAD = (0.5, 2.0)

RUN = """
from dataclasses import asdict
from halfbyte.device import timing
[asdict(timed) for timed in timing.{call}]
"""

Pass = tuple[Measured, float, float]  # and overheads of launch and call relative to native ones


def main() -> None:
    """Measure several times, and write the medians."""
    passes = int(sys.argv[1]) if len(sys.argv) > 1 else PASSES
    with python_tabs({}) as open_tab:
        measured = [one_pass(open_tab()) for _ in range(passes)]
    TARGET.write_text(to_toml(tab_of(measured)), encoding="utf-8")


def one_pass(tab: Python) -> Pass:
    """Measure all kinds in one tab, which is closed at the end so that its memory is freed."""

    def timed(call: str) -> list[Timed]:
        return [_timed(**one) for one in tab.run(RUN.format(call=call))]

    place = Place(
        lambda kind, weights: timed(f"decoders({kind!r}, {weights!r})"),
        lambda: timed("graphs()"),
        maps=False,
    )
    measured = measure(1, lambda what: print(what, file=sys.stderr), place)
    there, here = (
        overheads(place.decoders("Q4_0", "packed")[2]) for place in (place, HERE)
    )  # after the engine has compiled everything
    return measured, there[0] / here[0], there[1] / here[1]


def _timed(work: dict[str, Any], seconds: dict[str, float], whole: float) -> Timed:
    return Timed({kind: Work(**one) for kind, one in work.items()}, seconds, whole)


def tab_of(passes: Sequence[Pass]) -> Tab:
    """Medians of passes, with ranges."""
    middle = medians([measured for measured, _, _ in passes])
    today = datetime.datetime.now(tz=datetime.UTC).date()
    why = (
        f"measured in Chromium on {platform.machine()}, {today}, median of {len(passes)} passes; "
        "others reach 40 to 120 % of it"
    )

    def times(values: Sequence[float]) -> Quantity:
        value, (lower, upper) = statistics.median(values), OVERHEAD_SPREAD
        low, value, high = (float(f"{value * f:.3g}") for f in (lower, 1.0, upper))
        return Quantity(value, low, high, assumed=why.replace("40 to 120", "50 to 200"))

    launches, calls = zip(*((launch, call) for _, launch, call in passes), strict=True)
    return Tab(times(launches), times(calls), kernels_of(middle, why, SPREAD))


if __name__ == "__main__":
    main()
