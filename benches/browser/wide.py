"""Memory of 64 bits in a tab: what its addresses cost, and a model beyond 4 GB.

    python -m benches.browser.wide [-m 135M] [-p 128] [-n 64] [-r 5] [--pin] [--json FILE]
    python -m benches.browser.wide --large mistral-7b-q4_0.gguf

The first compares one model in memory of 32 and of 64 bits, on one thread and on two: every choice
has a tab of the same browser, and they take turns. The second fetches a model (such as one that
`tools/make_model.py --shape mistral-7b --type Q4_0` writes) from a local server into a tab, at a
context of 4096 tokens, and writes some.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any

from benches import prepare
from benches.browser.measure import Bench
from benches.browser.python import python_site
from benches.figures import Series, add_json_option, pytest_json, write_json
from benches.pinning import add_pin_option, pinned
from benches.prepare import ROOT
from tests.browser.conftest import Python

CHOICES = [(threads, bits) for threads in (1, 2) for bits in (32, 64)]

OPEN = """
import asyncio, time
import halfbyte
from halfbyte.core.backends import libraries
from halfbyte.text import placing

placing.HEAP_BYTES = 0  # in shared memory in any case
if {bits} == 64:
    libraries.shared_library().memory.bytes.limit = 0
start = time.perf_counter()
model = halfbyte.opened = await halfbyte.load_url(
    "/models/model.gguf", keep=False, context={context}, threads={threads})
await asyncio.sleep(0.2)
[model.executable.backend, model.executable.threads, time.perf_counter() - start]
"""
MEASURE = """
import time
import halfbyte
model, ids = halfbyte.opened, {ids}
model.reset()
times = [time.perf_counter()]
model.feed(ids)
times.append(time.perf_counter())
model.reset()
model.feed(ids[:1])
times.append(time.perf_counter())
for number in range({count}):
    model.feed([ids[number % len(ids)]])
times.append(time.perf_counter())
[(times[1] - times[0]) / len(ids), (times[3] - times[2]) / {count}]
"""
WRITE = """
import halfbyte, pyodide_js
model = halfbyte.opened
memory = model.executable._library.memory
text = model.generate("Once upon a time", max_tokens={count}, temperature=0)
[text, memory.allocated, memory.bytes.size, len(pyodide_js._module.HEAPU8)]
"""


def compare(name: str, prompt: int, count: int, rounds: int) -> list[Series]:
    """Seconds of a token in each memory, for prompts and decoding."""
    results: dict[tuple[int, int], tuple[list[float], list[float]]] = {}
    ids = [1 + number % 200 for number in range(prompt)]
    context = 128 * ((prompt + count) // 128 + 1)
    site = python_site({"model.gguf": prepare.model(name)})
    with Bench(site, ROOT) as bench, bench.browser() as browser:
        tabs = {}
        for threads, bits in CHOICES:
            tab = Python(browser.new_page(), bench.address, "", "worker")
            opened = tab.run(OPEN.format(bits=bits, threads=threads, context=context))
            expected = [f"native-relaxed{'64' if bits == 64 else ''}", threads]
            if opened[:2] != expected:
                raise SystemExit(f"expected {expected}, found {opened[:2]}")
            tabs[threads, bits] = tab
            results[threads, bits] = [], []
        for turn in range(rounds + 1):
            for choice, tab in tabs.items():
                times = tab.run(MEASURE.format(ids=ids, count=count))
                for values, seconds in zip(results[choice], times, strict=True):
                    values += [seconds] * (turn > 0)  # the first round warms up
    return [
        Series(name, f"{bits} bits", test, threads=threads, seconds=values)
        for (threads, bits), pair in results.items()
        for test, values in zip((f"pp{prompt}", f"tg{count}"), pair, strict=True)
    ]


def table(series: list[Series]) -> str:
    """Medians, and the ratio of each speed to that with 32 bits."""
    lines = ["| test | threads | 32 bits, tokens/s | 64 bits | 64 : 32 |", "|---|--:|--:|--:|--:|"]
    speeds: dict[tuple[str, int], list[float]] = {}
    for s in series:
        speeds.setdefault((s.test, s.threads), []).append(1 / statistics.median(s.seconds))
    for (test, threads), (narrow, wide) in speeds.items():
        lines.append(f"| {test} | {threads} | {narrow:.4g} | {wide:.4g} | {wide / narrow:.3f} |")
    return "\n".join(lines)


def run_large(path: Path, threads: int, count: int) -> str:
    """What a tab does with a large model, in lines."""
    with Bench(python_site({"model.gguf": path}), ROOT) as bench, bench.browser() as browser:
        tab = Python(browser.new_page(), bench.address, "", "worker")
        tab_opened: Any = tab.run(
            OPEN.replace("placing.HEAP", "#").format(bits=32, threads=threads, context=4096)
        )
        backend, threads, seconds = tab_opened
        ids = [1 + number % 200 for number in range(128)]
        prompt, decode = tab.run(MEASURE.format(ids=ids, count=count))
        text, allocated, size, heap = tab.run(WRITE.format(count=count))
    return "\n".join((
        f"{path.name}: {path.stat().st_size / 1e6:,.0f} MB, {backend}, {threads} threads",
        f"fetched and packed in {seconds:.0f} s; then {allocated / 1e6:,.0f} MB are used of "
        f"{size / 1e6:,.0f} MB; Pyodide's heap has {heap / 1e6:.0f} MB",
        f"prompt of 128: {1 / prompt:.3g} tokens/s; decoding {count}: {1 / decode:.3g} tokens/s",
        f"it writes: {text!r}",
    ))  # fmt: skip


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benches.browser.wide", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("-m", "--model", default="135M Q4_0", help="default: 135M Q4_0")
    parser.add_argument("-p", type=int, default=128, help="prompt tokens (default 128)")
    parser.add_argument("-n", type=int, default=64, help="decoded tokens (default 64)")
    parser.add_argument("-r", type=int, default=5, help="rounds (default 5)")
    parser.add_argument("-t", "--threads", type=int, default=2, help="of --large (default 2)")
    parser.add_argument("--large", type=Path, metavar="FILE", help="run this model instead")
    add_pin_option(parser)
    add_json_option(parser)
    options = parser.parse_args()
    with pinned(options.pin) as places:
        if options.large:
            print(run_large(options.large, options.threads, options.n))
            return
        series = compare(options.model, options.p, options.n, options.r)
    print(table(series))
    write_json(options.json, pytest_json(series, "benches/browser/wide", pinned=len(places)))


if __name__ == "__main__":
    main()
