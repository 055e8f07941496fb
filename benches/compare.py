"""Compare two files of measurements: which got faster, which slower.

    python -m benches.compare OLD.json NEW.json
    python -m benches.peers --json NEW.json --compare OLD.json

Files are pytest-benchmark's, as `--json` of the benches writes them. The medians of entries with
the same name are compared. The change is that of the speed: +10 % takes 10 seconds instead of 11.
Changes beyond the threshold are marked. The comparison means nothing unless both files are of the
same machine in the same state: measure old and new directly after each other, and look at an
unchanged engine as the control.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benches.figures import digits, markdown

COLOURS = {"faster": "\033[32m", "slower": "\033[31m"}
MACHINE = ("processor", "machine", "system", "cpu")


@dataclass(frozen=True)
class Change:
    """One name's medians, in seconds."""

    name: str
    old: float
    new: float

    @property
    def percent(self) -> float:
        """The change of the speed."""
        return 100 * (self.old / self.new - 1)

    def verdict(self, threshold: float) -> str:
        """ "faster", "slower" or nothing."""
        if abs(self.percent) <= threshold:
            return ""
        return "faster" if self.percent > 0 else "slower"


def read(path: Path) -> dict[str, Any]:
    """A file's content; SystemExit says what is wrong with it."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SystemExit(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise SystemExit(f"{path}: expected JSON, found {error}") from None
    try:
        medians(content)
    except (KeyError, TypeError):
        raise SystemExit(
            f"{path}: expected pytest-benchmark's format, a list 'benchmarks' of entries with "
            "'fullname' and 'stats'"
        ) from None
    return dict(content)


def medians(content: dict[str, Any]) -> dict[str, float]:
    """Seconds by name."""
    return {b["fullname"]: float(b["stats"]["median"]) for b in content["benchmarks"]}


def report(
    old: dict[str, Any], new: dict[str, Any], threshold: float = 5, colours: bool = False
) -> str:
    """The comparison as a table, and a line with the totals."""
    before, after = medians(old), medians(new)
    changes = [Change(name, before[name], after[name]) for name in after if name in before]
    verdicts = [change.verdict(threshold) for change in changes]
    header = ["measured", "old ms", "new ms", "speed", f"beyond {threshold:g} %"]
    rows = [
        [c.name, digits(1000 * c.old), digits(1000 * c.new), f"{c.percent:+.1f} %", verdict]
        for c, verdict in zip(changes, verdicts, strict=True)
    ]
    lines = markdown(header, rows).splitlines()
    if colours:
        for number, verdict in enumerate(verdicts, 2):
            if verdict:
                lines[number] = f"{COLOURS[verdict]}{lines[number]}\033[0m"
    lines += [f"only in the old file: {name}" for name in before if name not in after]
    lines += [f"only in the new file: {name}" for name in after if name not in before]
    faster, slower = verdicts.count("faster"), verdicts.count("slower")
    same = len(changes) - faster - slower
    lines += ["", f"{faster} faster, {slower} slower, {same} within {threshold:g} %"]
    if any(_machine(old, key) != _machine(new, key) for key in MACHINE):
        lines.append("Two machines: the files were not measured on the same one.")
    return "\n".join(lines)


def _machine(content: dict[str, Any], key: str) -> Any:
    return content.get("machine_info", {}).get(key)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old", type=Path, metavar="OLD.json")
    parser.add_argument("new", type=Path, metavar="NEW.json")
    parser.add_argument("--threshold", type=float, default=5, help="percent (default 5)")
    options = parser.parse_args()
    old, new = read(options.old), read(options.new)
    print(report(old, new, options.threshold, sys.stdout.isatty()))


if __name__ == "__main__":
    main()
