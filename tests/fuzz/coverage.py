"""Mutations that are guided by coverage, if atheris is installed.

`python -m tests.fuzz.coverage FORMAT SECONDS SEED` is the process, in build/fuzz; `guided` follows
it. Files that reach new branches are kept in FORMAT-corpus there, where the next run begins.
"""

from __future__ import annotations

import gc
import json
import random
import re
import sys
from contextlib import suppress
from importlib import import_module
from itertools import count
from pathlib import Path
from types import FunctionType
from typing import Any, TypeGuard

from tests.fuzz import runner
from tests.fuzz.runner import BAD, Report, followed, module_of
from tests.fuzz.worker import begin, outcome

SLOWER = 5.0  # times as slow, with every branch counted


def guided(name: str, seconds: float, seed: int) -> Report:
    """Run new files of a format for so long, or until one ends the process."""
    report, seen = Report(), set[str]()
    folder = runner.REPRODUCERS
    corpus = folder / _corpus(name)
    corpus.mkdir(parents=True, exist_ok=True)
    log = folder / f"{name}-coverage.stderr"
    arguments = ("tests.fuzz.coverage", name, max(1, round(seconds)), seed)
    for line in followed(arguments, log, SLOWER * runner.SECONDS):
        path = folder / _file_name(name, line.index)
        failure = f"{line.outcome} {line.detail.partition(': ')[0]}"
        if line.outcome in BAD and failure in seen:
            path.unlink()  # the same place again
            report.counts[line.outcome] += 1
            continue
        seen.add(failure)
        report.add(line, f"{name} --file {path}")
    reached = re.findall(rb"cov: (\d+)", log.read_bytes()) or [b"0"]
    kept = sum(1 for _ in corpus.iterdir())
    print(f"{name}: {int(reached[-1]):,} branches reached; {kept:,} files in {corpus}")
    log.unlink()
    return report


def available() -> bool:
    """Whether atheris is installed."""
    try:
        import_module("atheris")
    except ImportError:
        return False
    return True


def main() -> None:
    """Run until atheris ends the process, when the time is over."""
    name, seconds, seed = sys.argv[1:]
    atheris: Any = import_module("atheris")
    lines, module, numbers = begin(), module_of(name), count()

    def one(data: bytes) -> None:
        index = next(numbers)
        path = Path(_file_name(name, index))  # which stays if it ends the process
        path.write_bytes(data)
        result = outcome(module, data, SLOWER)
        if result.name not in BAD:
            path.unlink()
        print(json.dumps([index, *result]), file=lines, flush=True)

    corpus = module.corpus()
    for data in corpus:  # imports the modules that are imported when needed
        one(data)
    for function in filter(_is_ours, gc.get_objects()):
        atheris.instrument_func(function)
    gc.freeze()
    for index, data in enumerate(corpus):
        Path(_corpus(name), f"seed-{index}").write_bytes(data)

    def mutate(data: bytes, limit: int, seed: int) -> bytes:
        chance = random.Random(seed)
        if chance.random() < 0.8:
            with suppress(Exception):  # of files that cannot be parsed any more
                return module.mutate(data, chance)[:limit] or b"\0"
        return bytes(atheris.Mutate(data, limit))  # bytes, with operands of comparisons

    options = {
        "max_total_time": seconds, "seed": int(seed) + 1, "len_control": 0, "mutate_depth": 2,
        "max_len": 2 * max(map(len, corpus)), "rss_limit_mb": 0, "malloc_limit_mb": 0,
    }  # fmt: skip
    arguments = [f"-{option}={value}" for option, value in options.items()]
    atheris.Setup([sys.argv[0], *arguments, _corpus(name)], one, custom_mutator=mutate)
    atheris.Fuzz()


def _is_ours(thing: object) -> TypeGuard[FunctionType]:
    """Whether it is a function of halfbyte; atheris' import hook does not see editable ones."""
    return isinstance(thing, FunctionType) and (thing.__module__ or "").startswith("halfbyte.")


def _file_name(name: str, index: int) -> str:
    return f"{name}-coverage-{index}.bin"


def _corpus(name: str) -> str:
    return f"{name}-corpus"


if __name__ == "__main__":
    main()
