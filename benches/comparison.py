"""Compare two files of measurements: what takes longer, and what does not.

    python -m benches.comparison OLD.json NEW.json
    make bench ARGS="--compare OLD.json"

Files are pytest-benchmark's, as the benches write them. Entries of the same name are compared: the
medians of their times, each divided by that of its yardstick in the same round, so that a file of
another machine of the same kind will do. A change counts if it is larger than the threshold and its
confidence interval excludes 0. Peers are not judged, nor what varies too much, has too few values
or, in the suite, was measured by one process only. The exit code is 1 if anything takes longer.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benches.figures import PEERS, Series, digits, markdown, series_of
from benches.samples import Change, change

THRESHOLD = 5.0  # percent
GREEN, RED = "\033[32m", "\033[31m"
COLOURS = {"slower": RED, "larger": RED, "faster": GREEN, "smaller": GREEN}
WORSE = ("slower", "larger")
VERDICTS = {"s": ("slower", "faster"), "B": ("larger", "smaller")}
MACHINE = ("processor", "machine", "system", "cpu")
UNITS = {"s": (1e3, "ms"), "B": (1e-6, "MB")}


@dataclass(frozen=True)
class Pair:
    """The same entry of two files."""

    name: str
    old: Series
    new: Series

    @property
    def change(self) -> Change | None:
        """Of time or size, relative; None if there are too few values."""
        return change(self.old.by_pass, self.new.by_pass)

    def verdict(self, threshold: float) -> str:
        """ "slower", "faster", "larger", "smaller", "not judged: ..." or nothing."""
        if self.new.engine in PEERS:
            return "not judged: a peer"
        if self.new.unit == "s" and 1 in (len({*s.passes}) for s in (self.old, self.new)):
            return "not judged: one process"  # whose place in memory is one of many
        if self.old.yardstick != self.new.yardstick:
            return "not judged: another yardstick"
        if self.old.noisy or self.new.noisy:
            return "not judged: varies"
        if (ratio := self.change) is None:
            return "not judged: few values"
        worse, better = VERDICTS[self.new.unit]
        return (worse if ratio.value > 0 else better) if ratio.beyond(threshold / 100) else ""

    def cells(self, verdict: str) -> list[str]:
        """A row of the table."""
        scale, unit = UNITS[self.new.unit]
        values = [f"{digits(scale * series.median)} {unit}" for series in (self.old, self.new)]
        if (ratio := self.change) is None:
            return [self.name, *values, "", "", verdict]
        interval = f"{100 * ratio.low:+.1f} to {100 * ratio.high:+.1f}"
        return [self.name, *values, f"{100 * ratio.value:+.1f} %", interval, verdict]


def read(path: Path) -> dict[str, Any]:
    """A file's content; SystemExit says what is wrong with it."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SystemExit(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise SystemExit(f"{path}: expected JSON, found {error}") from None
    try:
        by_name(content)
    except (KeyError, TypeError):
        raise SystemExit(
            f"{path}: expected pytest-benchmark's format, a list 'benchmarks' of entries with "
            "'fullname', 'params' and 'stats'"
        ) from None
    return dict(content)


def by_name(content: dict[str, Any]) -> dict[str, Series]:
    """The measured series by full name, without those of peers that failed."""
    return {f"{s.source}::{s.name}": s for s in series_of(content) if s.seconds}


def pairs(old: dict[str, Any], new: dict[str, Any]) -> list[Pair]:
    """What both files have, in the new one's order."""
    before = by_name(old)
    return [Pair(n, before[n], series) for n, series in by_name(new).items() if n in before]


def worse(compared: Sequence[Pair], threshold: float = THRESHOLD) -> list[Pair]:
    """What takes longer, or more memory."""
    return [pair for pair in compared if pair.verdict(threshold) in WORSE]


def report(
    old: dict[str, Any], new: dict[str, Any], threshold: float = THRESHOLD, colours: bool = False
) -> str:
    """The comparison as a table, and a line with the totals."""
    compared = pairs(old, new)
    verdicts = [pair.verdict(threshold) for pair in compared]
    header = ["measured", "old", "new", "change", "95 % interval", f"beyond {threshold:g} %"]
    cells = [pair.cells(verdict) for pair, verdict in zip(compared, verdicts, strict=True)]
    lines = markdown(header, cells).splitlines()
    if colours:
        for number, verdict in enumerate(verdicts, 2):
            if verdict in COLOURS:
                lines[number] = f"{COLOURS[verdict]}{lines[number]}\033[0m"
    before, after = by_name(old), by_name(new)
    lines += [f"only in the old file: {name}" for name in before if name not in after]
    lines += [f"only in the new file: {name}" for name in after if name not in before]
    lines += ["", totals(verdicts, threshold)]
    if any(_machine(old, key) != _machine(new, key) for key in MACHINE):
        lines.append("Two machines: the files were not measured on the same one.")
    return "\n".join(lines)


def totals(verdicts: Sequence[str], threshold: float) -> str:
    """How many of each."""
    counts = {word: verdicts.count(word) for word in COLOURS}
    unjudged = sum(verdict.startswith("not judged") for verdict in verdicts)
    same = len(verdicts) - sum(counts.values()) - unjudged
    parts = [f"{n} {word}" for word, n in counts.items() if n or word in VERDICTS["s"]]
    return ", ".join([*parts, f"{same} within {threshold:g} %", f"{unjudged} not judged"])


def _machine(content: dict[str, Any], key: str) -> Any:
    return content.get("machine_info", {}).get(key)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old", type=Path, metavar="OLD.json")
    parser.add_argument("new", type=Path, metavar="NEW.json")
    parser.add_argument("--threshold", type=float, default=THRESHOLD, help="percent (default 5)")
    options = parser.parse_args()
    old, new = read(options.old), read(options.new)
    print(report(old, new, options.threshold, sys.stdout.isatty()))
    return 1 if worse(pairs(old, new), options.threshold) else 0


if __name__ == "__main__":
    raise SystemExit(main())
