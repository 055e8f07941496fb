"""python -m tests.fuzz [FORMAT ...] [--minutes 30 | --count 1000] [--seed 0]
python -m tests.fuzz [FORMAT ...] --coverage --minutes 5
python -m tests.fuzz FORMAT [--seed 0 --case N | --file build/fuzz/FORMAT-...bin]

Runs mutated files of every format through halfbyte, on all cores, and prints a table of outcomes.
With --coverage, mutations are guided by the branches that they reach, for so many minutes of each
format, on one core; this needs the package atheris. Failing files are written to build/fuzz, and
the exit status is 1 if there are any. The last form runs one file, with its traceback.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.fuzz import coverage
from tests.fuzz.runner import REPRODUCERS, Report, case, formats, module_of, run_all, table


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("formats", nargs="*", default=formats(), help=f"of {formats()}")
    parser.add_argument("--minutes", type=float, default=0.0, help="further seeds up to this time")
    parser.add_argument("--count", type=int, default=1000, help="cases of each format and seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--case", type=int, help="run only this one, in this process")
    parser.add_argument("--file", type=Path, help="run only this one, in this process")
    parser.add_argument("--coverage", action="store_true", help="guided by coverage, with atheris")
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.formats) - set(formats()))
    if unknown:
        parser.error(f"format {unknown[0]!r}: expected one of {formats()}")
    if options.case is not None or options.file is not None:
        return _one(options)
    if options.coverage:
        if options.minutes <= 0:
            parser.error("--coverage: expected --minutes, of each format")
        if not coverage.available():
            parser.error("--coverage: expected the package atheris; pip install atheris")
        seconds = 60 * options.minutes
        reports = {name: coverage.guided(name, seconds, options.seed) for name in options.formats}
    else:
        until = time.monotonic() + 60 * options.minutes
        reports = run_all(options.formats, options.seed, options.count, options.jobs, until=until)
    return _print(reports)


def _one(options: argparse.Namespace) -> int:
    module = module_of(options.formats[0])
    if options.file is not None:
        data = options.file.read_bytes()
    else:
        data = case(module, module.corpus(), options.seed, options.case)
    module.target(data)
    print("accepted")
    return 0


def _print(reports: Mapping[str, Report]) -> int:
    print(table(reports))
    failures = [failure for report in reports.values() for failure in report.failures]
    for failure in failures:
        print(failure)
    cases = sum(report.counts.total() for report in reports.values())
    where = f": their files are in {REPRODUCERS}" if failures else ""
    print(f"{cases:,} cases, {len(failures):,} failures{where}")
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
