"""python -m tests.fuzz [FORMAT ...] [--minutes 30 | --count 1000] [--seed 0] [--case N]

Mutated files of every format through halfbyte, on all cores, and a table of what became of them.
Files that are not treated as they should be are written to build/fuzz. Exit status 1 if there are.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

from tests.fuzz.runner import REPRODUCERS, case, formats, module_of, run_all, table


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("formats", nargs="*", default=formats(), help=f"of {formats()}")
    parser.add_argument("--minutes", type=float, default=0.0, help="further seeds up to this time")
    parser.add_argument("--count", type=int, default=1000, help="cases of each format and seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--case", type=int, help="this one alone, in this process")
    parser.add_argument("--coverage", action="store_true", help="guided by coverage, with atheris")
    given = parser.parse_args()
    unknown = sorted(set(given.formats) - set(formats()))
    if unknown:
        parser.error(f"format {unknown[0]!r}: expected one of {formats()}")
    if given.coverage:
        from tests.fuzz.coverage import fuzz

        fuzz(given.formats[0])
    if given.case is not None:
        module = module_of(given.formats[0])
        module.target(case(module, module.corpus(), given.seed, given.case))
        print("accepted")
        return 0
    until = time.monotonic() + 60 * given.minutes
    reports = run_all(given.formats, given.seed, given.count, given.jobs, until=until)
    print(table(reports))
    failures = [failure for report in reports.values() for failure in report.failures]
    for failure in failures:
        print(failure)
    if failures:
        print(f"{len(failures)} files are in {REPRODUCERS}")
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
