"""From a model in the origin's storage to its first token, and what Python's heap takes for it.

    python -m benches.browser.load [-r 5]

The model has random weights in the shape of SmolLM2 135M, in Q4_0. Each round loads it in new tabs,
in which halfbyte is imported, on as many threads as by default and on one, and continues a text by
one token. The browser has a profile on disk, as a visitor's: a private window keeps files in the
memory of another process. Medians. Run nothing else meanwhile.
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

from benches.browser.measure import Bench
from benches.browser.python import python_site
from benches.cost import model
from benches.prepare import ROOT
from playwright.sync_api import BrowserContext
from tests.browser.conftest import Python

KEEP = """
import halfbyte
with await halfbyte.load_url("/models/{name}") as model:
    size = model.file.size
size
"""
LOAD = """
import ctypes, time
import halfbyte
from halfbyte.download import kept
load, taken = halfbyte.load_url, ctypes.CDLL(None).sbrk  # imports its modules
taken.restype = ctypes.c_size_t
times, before = [time.perf_counter()], taken(0)

def progress(done, total):
    if done == total:
        times.append(time.perf_counter())

model = await load("/models/{name}", progress=progress, threads={threads})
times.append(time.perf_counter())
model.generate("Once upon a time", max_tokens=1)
times.append(time.perf_counter())
[[end - times[0] for end in times[1:]], (taken(0) - before) / 1e6, model.file.size / 1e6,
 model.executable.threads]
"""


def run(context: BrowserContext, address: str, code: str) -> Any:
    """The value of Python code in a new tab."""
    page = context.new_page()
    value = Python(page, address, "", "worker").run(code)
    page.close()
    return value


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-r", type=int, default=5, help="rounds")
    path = model("smollm2-135m", "Q4_0")
    rounds = parser.parse_args().r
    codes = [LOAD.format(name=path.name, threads=threads) for threads in (None, 1)]
    with Bench(python_site({path.name: path}), ROOT) as bench, bench.profile() as context:
        run(context, bench.address, KEEP.format(name=path.name))
        turns = [[run(context, bench.address, code) for code in codes] for _ in range(rounds)]
    print("| threads | MB | read, s | loaded, s | first token, s | heap, MB |")
    print("|--:|--:|--:|--:|--:|--:|")
    for runs in zip(*turns, strict=True):
        medians = map(statistics.median, zip(*(r[0] for r in runs), strict=True))
        times = " | ".join(f"{value:.2f}" for value in medians)
        heap = statistics.median(r[1] for r in runs)
        print(f"| {runs[0][3]} | {runs[0][2]:.0f} | {times} | {heap:.1f} |")


if __name__ == "__main__":
    main()
