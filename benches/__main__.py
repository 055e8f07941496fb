"""The benchmark suite: every case measured in several processes, with its uncertainty.

    make bench                              all cases
    make bench ARGS=--short                 a part, in a few minutes
    make bench ARGS="-k products"           some of them; pytest's expressions
    make bench ARGS="--compare OLD.json"    exit code 1 if anything is slower than there

Cases are the functions of benches/suite/. Contenders of a case take turns, round by round, with a
yardstick: reading memory, the int8 dot product or a chain of additions. What is compared are ratios
to the yardstick, so a file of another machine of the same kind will do as a baseline. A case whose
coefficient of variation is above 0.1 is measured again, and if that does not help it is marked and
not judged. What seems slower is measured again, too. The peers need `make peers` once.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benches.comparison import Pair, read, report
from benches.figures import Content, Series, command_of, digits, markdown, series_of, write_json
from benches.pinning import add_pin_option
from benches.progress import minutes
from benches.report import HISTORY, LATEST
from benches.samples import quartiles, variation
from benches.session import compared, passes

PASSES, SHORT_PASSES = 3, 2


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="make bench ARGS=", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("cases", nargs="*", help="files or cases, as pytest names them")
    parser.add_argument("--short", action="store_true", help="only cases marked short")
    parser.add_argument("-k", metavar="EXPRESSION", help="only cases whose names match")
    parser.add_argument("--passes", type=int, metavar="N", help="processes (default 3, short 2)")
    add_pin_option(parser)
    parser.add_argument("--json", type=Path, default=LATEST, metavar="FILE", help="for the figures")
    parser.add_argument("--keep", action="store_true", help="keep the figures in benches/history")
    parser.add_argument("--compare", type=Path, metavar="OLD.json", help="the baseline")
    options = parser.parse_args()
    options.passes = options.passes or (SHORT_PASSES if options.short else PASSES)
    return options


def table(content: Content) -> str:
    """One row per series: median, quartiles, variation, and the ratio to the yardstick."""
    header = ["case", "median", "quartiles", "variation", "yardstick", "ratio"]
    return markdown(header, [_cells(series) for series in series_of(content)], left=1)


def _cells(series: Series) -> list[str]:
    name = f"{series.source.removeprefix('benches/')} {series.name}"
    if not series.seconds:
        return [name, str(series.more.get("reason", "-")), "", "", "", ""]
    scale, unit = (1e-6, "MB") if series.unit == "B" else (1e3, "ms")
    low, high = (digits(scale * value) for value in quartiles(series.seconds))
    mark = " (varies)" if series.noisy else ""
    ratio = digits(sorted(series.ratios)[len(series.ratios) // 2]) if series.beside else ""
    spread = f"{variation(series.ratios):.3f}{mark}"
    figures = f"{digits(scale * series.median)} {unit}", f"{low} to {high}", spread
    return [name, *figures, series.yardstick, ratio]


def alarm(pair: Pair) -> str:
    """A line with the change, and the kernels where they are known."""
    kernels = ", ".join(pair.new.more.get("kernels", []))
    return f"ALARM: {pair.name}: {pair.cells('')[3]}{f' ({kernels})' if kernels else ''}"


def main() -> int:
    """Measure, print, write, compare."""
    options = parse()
    old = read(options.compare) if options.compare else None
    chosen = [f"--{name}" for name in ("short", "pin") if getattr(options, name)]
    chosen += [f"-k={options.k}"] if options.k else []

    def measure(cases: Sequence[str]) -> Content:
        return passes(options.passes, chosen, cases)

    content, alarms = measure(options.cases), []
    if old:
        content, alarms = compared(old, content, measure)
    failed = content.pop("failed")
    content["command"] = command_of("benches", sys.argv[1:])
    options.json.parent.mkdir(parents=True, exist_ok=True)
    write_json(options.json, content)
    if options.keep:
        HISTORY.mkdir(exist_ok=True)
        write_json(HISTORY / f"{content['datetime'][:16].replace(':', '')}.json", content)
    print(table(content))
    print(f"\n{markdown(['file', 'minutes'], minutes(content['taken']))}")
    if old:
        print(f"\nCompared with {options.compare}:\n")
        print(report(old, content, colours=sys.stdout.isatty()))
        print("\n".join(map(alarm, alarms)) or "No alarm.")
    return 1 if alarms or failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
