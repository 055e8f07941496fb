"""Measure how near each kind of kernel comes to this machine's limits in a tab of a browser.

    python -m tools.measure_tab [PASSES]

writes runtime/halfbyte/device/tab.toml, medians of some passes of three minutes: what `halfbyte fit
--tab` counts on. Kernels run in Chromium, on one thread; limits are those of the machine outside of
it, measured in between. Other processors and engines get a range. Let nothing else run meanwhile.
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

Pass = tuple[Measured, float, float]  # launch and call in those of a native program


def main() -> None:
    """Measure some times, and write the file of medians."""
    passes = int(sys.argv[1]) if len(sys.argv) > 1 else PASSES
    with python_tabs({}) as open_tab:
        found = [one_pass(open_tab()) for _ in range(passes)]
    TARGET.write_text(to_toml(tab_of(found)), encoding="utf-8")


def one_pass(tab: Python) -> Pass:
    """All kinds in a tab that lives on, so that its memory is given back at the end."""

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
    )  # once the engine has compiled all
    return measured, there[0] / here[0], there[1] / here[1]


def _timed(work: dict[str, Any], seconds: dict[str, float], whole: float) -> Timed:
    return Timed({kind: Work(**one) for kind, one in work.items()}, seconds, whole)


def tab_of(found: Sequence[Pass]) -> Tab:
    """Medians of passes, with ranges."""
    middle = medians([measured for measured, _, _ in found])
    today = datetime.datetime.now(tz=datetime.UTC).date()
    why = (
        f"measured in Chromium on {platform.machine()}, {today}, median of {len(found)} passes; "
        "others reach 40 to 120 % of it"
    )

    def times(values: Sequence[float]) -> Quantity:
        value, (least, most) = statistics.median(values), OVERHEAD_SPREAD
        low, value, high = (float(f"{value * f:.3g}") for f in (least, 1.0, most))
        return Quantity(value, low, high, why.replace("40 to 120", "50 to 200"))

    launches, calls = zip(*((launch, call) for _, launch, call in found), strict=True)
    return Tab(times(launches), times(calls), kernels_of(middle, why, SPREAD))


if __name__ == "__main__":
    main()
