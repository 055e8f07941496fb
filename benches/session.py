"""A session of the suite: passes over the cases, each in a process of its own, joined to one file.

Cases that seem slower than in a baseline are measured again. An alarm is what is slower in the
second measurement as well as in both together.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from benches.comparison import Pair, pairs, read, worse
from benches.figures import Content, entries, series_of
from benches.prepare import ROOT, say

SUITE = "benches/suite"
NOTHING_RAN = 5  # pytest's exit code
Measure = Callable[[Sequence[str]], Content]  # of these cases; of all if none is named


def one_pass(number: int, options: Sequence[str], cases: Sequence[str]) -> Content:
    """Run the cases once in a new process; failures of cases are shown, and the rest is kept."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "figures.json"
        command = [sys.executable, "-m", "pytest", "-qq", "-p", "no:cacheprovider"]
        command += ["-p", "no:xdist", f"--number={number}", f"--figures={path}"]
        command += [*options, *(cases or [SUITE])]
        status = subprocess.run(command, cwd=ROOT, check=False, stdout=sys.stderr).returncode
        if not path.exists():
            ran = "no case was chosen" if status == NOTHING_RAN else f"exit code {status}"
            raise SystemExit(f"pass {number + 1} measured nothing: {ran}")
        return {**read(path), "failed": status not in (0, NOTHING_RAN)}


def passes(count: int, options: Sequence[str], cases: Sequence[str] = ()) -> Content:
    """Several passes as one content."""
    options = [*options, f"--passes={count}", f"--started={time.time()}"]
    return joined([one_pass(number, options, cases) for number in range(count)])


def joined(contents: Sequence[Content]) -> Content:
    """The first content with the rounds of all; each content's processes stay apart."""
    merged = {}
    first_pass = 0
    for content in contents:
        last = first_pass
        for series in series_of(content):
            numbers = series.passes or [0] * len(series.seconds)
            moved = [first_pass + number for number in numbers]
            last = max(last, *moved, first_pass)
            key = series.source, series.name
            known = merged.setdefault(key, replace(series, seconds=[], beside=[], passes=[]))
            known.seconds += series.seconds
            known.beside += series.beside
            known.passes += moved
        first_pass = last + 1
    result = dict(contents[0])
    result["benchmarks"] = entries(merged.values())
    result["rows"] = [row for content in contents for row in content["rows"]]
    taken: Counter[str] = Counter()
    for content in contents:
        taken.update(content.get("taken", {}))
    result["taken"] = dict(taken)
    result["failed"] = any(content.get("failed") for content in contents)
    return result


def compared(old: Content, new: Content, measure: Measure) -> tuple[Content, list[Pair]]:
    """The new content, with what seemed slower measured again, and the alarms."""
    suspects = worse(pairs(old, new))
    if not suspects:
        return new, []
    say(f"measuring again: {', '.join(pair.name for pair in suspects)}")
    again = measure(list(dict.fromkeys(pair.new.more["case"] for pair in suspects)))
    both = joined([new, again])
    return both, confirmed(worse(pairs(old, again)), worse(pairs(old, both)), suspects)


def confirmed(*comparisons: Iterable[Pair]) -> list[Pair]:
    """What is in all of them, as the last says."""
    names = [{pair.name for pair in each} for each in comparisons]
    return [pair for pair in comparisons[-1] if all(pair.name in each for each in names)]
