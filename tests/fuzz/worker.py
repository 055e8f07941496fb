"""One process of the runner: `python -m tests.fuzz.worker FORMAT SEED FIRST LAST`.

It prints a line of JSON for each case: its number, the outcome, a detail, and CPU seconds.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import NamedTuple, TextIO

from tests.fuzz.runner import Format, case, module_of

from halfbyte.errors import HalfbyteError
from halfbyte.text.footprint import peak_bytes, resident_bytes

FREE = 200 << 20  # bytes that any case may take
TIMES = 4  # further bytes, in sizes of the file
ADDRESSES = 1 << 30  # for threads' stacks and other reserved addresses, which are not memory
MAX_MESSAGE = 2000  # characters
REFUSAL = 2.0  # CPU seconds that a refused file may take
REFUSAL_PER_BYTE = 10e-6  # further CPU seconds


class Outcome(NamedTuple):
    """The outcome of a case, a line about a bad one, and CPU seconds."""

    name: str
    detail: str
    seconds: float


def outcome(module: Format, data: bytes, slower: float = 1.0) -> Outcome:
    """Run one case, on a process that is `slower` times as slow."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before, allowed = resident_bytes(), FREE + TIMES * len(data)
    _limit(allowed + ADDRESSES)
    start = time.process_time()
    try:
        module.target(data)
        name, detail = "accepted", ""
    except HalfbyteError as error:
        name, detail = "refused", ""
        message = str(error)
        if not message.isprintable() or not 0 < len(message) <= MAX_MESSAGE:
            name, detail = "message", f"{len(message)} characters: {message[:300]!r}"
    except BaseException as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(frame.filename).name}:{frame.lineno}"
        name, detail = "foreign", f"{type(error).__name__} at {where}: {str(error)[:300]}"
    finally:
        _limit(None)
    seconds, taken = time.process_time() - start, peak_bytes() - before
    if name in ("accepted", "refused") and taken > allowed:
        name, detail = "memory", f"{taken / 1e6:.0f} MB for a file of {len(data):,} bytes"
    elif name == "refused" and seconds > slower * (REFUSAL + REFUSAL_PER_BYTE * len(data)):
        name, detail = "slow", f"{seconds:.1f} CPU seconds for a file of {len(data):,} bytes"
    return Outcome(name, detail, seconds)


def _limit(nbytes: int | None) -> None:
    """Limit the addresses that the process may have beyond the present ones."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[1]
    if nbytes is not None:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + nbytes
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))


def main() -> None:
    name, *numbers = sys.argv[1:]
    seed, first, last = map(int, numbers)
    lines = begin()
    module = module_of(name)
    corpus = module.corpus()
    gc.freeze()  # later collections need not look at these objects
    for index in range(first, last):
        data = case(module, corpus, seed, index)
        print(json.dumps([index, *outcome(module, data)]), file=lines, flush=True)


def begin() -> TextIO:
    """The stream for the lines, to which readers cannot print; makes warnings errors."""
    lines = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    warnings.simplefilter("error", RuntimeWarning)
    return lines


if __name__ == "__main__":
    main()
