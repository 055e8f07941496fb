"""Run a model on two threads in a tab for minutes, and check that memory stays flat and none waits.

    make soak-tab          or          python -m tools.soak_tab [--scale 0.1]

Text of 10,000 tokens, 200 loads, then 100,000 runs of one instruction with random pauses around the
time after which workers fall asleep, each result compared. The exit code is 1 if Python's heap or
the shared memory has grown, or a result differs; a run that hangs fails after ten minutes.
"""

from __future__ import annotations

import argparse
import faulthandler
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benches.browser.python import python_tabs
from tests.browser.conftest import Python

from halfbyte.quantize import quantize_file

MODEL = Path(__file__).parents[1] / "runtime/halfbyte/data/storyteller.bin"
TOKENS, LOADS, WAKES = 10_000, 200, 100_000
EACH_TOKENS, EACH_LOADS, EACH_WAKES = 250, 20, 5_000  # in one call, which blocks the tab
HANGS = 600  # seconds after which a call will never return

SIZES = """
import asyncio, builtins, gc
import halfbyte, pyodide_js
from halfbyte.core.backends import libraries, workers

async def load():
    return await halfbyte.load_url("/models/model.gguf", keep=False, threads=2)

def sizes():
    gc.collect()
    memory = libraries.shared_library().memory
    return [len(pyodide_js._module.HEAPU8), memory.bytes.size, memory.allocated]
builtins.load, builtins.sizes = load, sizes
builtins.model = await load()
model.generate("", max_tokens=20, temperature=0)
with await load() as other:  # memory for two models at once, as the loads below need it
    other.generate("Tom", max_tokens=3)
del other
await asyncio.sleep(0.3)
[sum(crew.ready for crew in workers._crews.values()), sizes()]
"""
GENERATE = """
done = 0
while done < {count}:
    generation = model.generation("", max_tokens={count} - done, temperature=1, seed=done)
    for _ in generation:
        pass
    done += len(generation.ids)
[0, sizes()]
"""
CYCLE = """
import asyncio, random
for _ in range({count}):
    with await load() as other:
        other.generate("Tom", max_tokens=3)
    del other
    await asyncio.sleep(0)
[0, sizes()]
"""
WAKE = """
import random, time
import numpy as np
from halfbyte.core.backends import libraries
from halfbyte.core.backends.single import SingleKernels
kernels = SingleKernels(libraries.shared_library(), threads=2)
reach, n, k, m = kernels.memory.reach, 1, 256, 1024
random_ = np.random.default_rng(1)
x, w = random_.standard_normal((n, k), np.float32), random_.standard_normal((m, k), np.float32)
y = reach(np.zeros((n, m), np.float32))
given = dict(x=reach(x), w=reach(w), y=y)
wrong, expected = 0, None
for number in range({count}):
    y[...] = 0
    kernels.call("matmul_f32", **given, n=n, k=k, m=m)
    result = np.asarray(y).tobytes()
    expected = expected or result
    wrong += result != expected
    end = time.perf_counter() + random.choice([0, 0, 0, 1e-4, 5e-4, 1e-3, 2e-3])
    while time.perf_counter() < end:
        pass
kernels.close()
del kernels, given, x, w, y
[wrong, sizes()]
"""


def part(tab: Python, name: str, code: str, total: int, each: int, before: list[int]) -> bool:
    """Run code until it has counted to a total; whether results are right and memory is flat."""
    start, wrong, after = time.monotonic(), 0, before
    for done in range(0, total, each):
        faulthandler.dump_traceback_later(HANGS, exit=True)
        result: Any = tab.run(code.format(count=min(each, total - done)))
        wrong, after = wrong + result[0], result[1]
    faulthandler.cancel_dump_traceback_later()
    seconds = time.monotonic() - start
    grown = ", ".join(
        f"{(now - then) / 1e3:+.0f} kB" for then, now in zip(before, after, strict=True)
    )
    print(f"{name:12} {total:7,} in {seconds:4.0f} s: {wrong} wrong; {grown}", flush=True)
    return not wrong and after == before


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scale", type=float, default=1.0, help="of all counts")
    scale = parser.parse_args().scale
    counts = [max(int(scale * count), 1) for count in (TOKENS, LOADS, WAKES)]
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model.gguf"
        quantize_file(MODEL, "int8", model)
        with python_tabs({model.name: model}) as open_tab:
            tab = open_tab()
            helpers, before = tab.run(SIZES)
            sizes = ", ".join(f"{size / 1e6:.1f} MB" for size in before)
            print(f"{helpers} helper; heap, shared memory, allocated there: {sizes}")
            flat = [
                part(tab, "tokens", GENERATE, counts[0], EACH_TOKENS, before),
                part(tab, "loads", CYCLE, counts[1], EACH_LOADS, before),
                part(tab, "wakes", WAKE, counts[2], EACH_WAKES, before),
            ]
    sys.exit(helpers != 1 or not all(flat))


if __name__ == "__main__":
    main()
