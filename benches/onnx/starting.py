"""How fast ONNX models start, take new shapes and repeat a call, in turn with ONNX Runtime.

    python -m benches.onnx.starting start MODEL.onnx [-r RUNS]
    python -m benches.onnx.starting shapes MODEL.onnx -s NAME=FIRST:STEP [-s NAME=SIZE] [-r RUNS]
    python -m benches.onnx.starting repeat MODEL.onnx

`start` opens the model in fresh processes and runs it once, also with packed weights that an
earlier run kept (MODEL.onnx.packed); `shapes` runs it with other sizes each time, and once more
with the same ones; `repeat` calls it with the same feeds. Sizes are those that the model's inputs
name, 8 by default; one thread.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

ENGINES = ("onnxruntime", "halfbyte")
KEPT = "halfbyte-kept"  # which maps packed weights that an earlier run kept beside the model
OTHERWISE = 8  # a size that is not given


def session_of(engine: str, path: str) -> Any:
    """A session on one thread."""
    if engine in ("halfbyte", KEPT):
        import halfbyte as module
    else:
        import onnxruntime as module  # type: ignore[no-redef]
    options = module.SessionOptions()
    options.intra_op_num_threads = 1
    if engine == KEPT:
        options.packed_weights_filepath = f"{path}.packed"
    return module.InferenceSession(path, options)


def feeds_of(session: Any, sizes: Mapping[str, int]) -> dict[str, Any]:
    """Feeds of these sizes; "a + b" in an input's shape is the sum of two."""
    feeds = {}  # of ones: importing random numbers would take longer than a first run
    for value in session.get_inputs():
        shape = [
            d if isinstance(d, int) else sum(sizes.get(n, OTHERWISE) for n in str(d).split(" + "))
            for d in value.shape
        ]
        if "float" in value.type:
            feeds[value.name] = np.ones(shape, np.float32)
        else:
            dtype = bool if "bool" in value.type else np.int64
            feeds[value.name] = np.ones(shape, dtype)
    return feeds


def started(engine: str, path: str, sizes: Mapping[str, int]) -> None:
    """In a fresh process: print the milliseconds of each part."""
    times = [time.perf_counter()]
    __import__(engine.removesuffix("-kept"))
    if engine in ("halfbyte", KEPT):
        from halfbyte import InferenceSession  # noqa: F401 - the package imports it on first use
    times.append(time.perf_counter())
    session = session_of(engine, path)
    times.append(time.perf_counter())
    session.run(None, feeds_of(session, sizes))
    times.append(time.perf_counter())
    print(*(1e3 * part for part in np.diff(times)))


def start(path: str, sizes: Mapping[str, int], runs: int) -> None:
    """Fresh processes of both engines, in turn, and of halfbyte with kept weights."""
    given = [f"-s{name}={size}" for name, size in sizes.items()]
    parts: dict[str, list[list[float]]] = {engine: [] for engine in (*ENGINES, KEPT)}
    started(KEPT, path, sizes)  # keeps them
    for _ in range(runs):
        for engine in parts:
            command = [sys.executable, "-m", "benches.onnx.starting", engine, path, *given]
            before = time.perf_counter()
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            whole = 1e3 * (time.perf_counter() - before)
            parts[engine].append([*map(float, done.stdout.split()), whole])
    for engine, rows in parts.items():
        numbers = [median(column) for column in zip(*rows, strict=True)]
        names = ("import", "open", "first run", "process")
        print(engine, *(f"{n} {v:.0f} ms" for n, v in zip(names, numbers, strict=True)), sep="  ")
    ours, theirs, kept = (
        median(row[-1] for row in parts[engine]) for engine in ("halfbyte", "onnxruntime", KEPT)
    )
    print(
        f"process: {ours / theirs:.2f} times ONNX Runtime's, {kept / theirs:.2f} with kept weights"
    )


def shapes(path: str, sizes: Mapping[str, tuple[int, int]], runs: int) -> None:
    """Other sizes each time, both engines in turn."""
    sessions = {engine: session_of(engine, path) for engine in ENGINES}
    new: dict[str, list[float]] = {engine: [] for engine in ENGINES}
    again: dict[str, list[float]] = {engine: [] for engine in ENGINES}
    for run in range(runs + 2):  # the first two calls of halfbyte capture programs
        present = {name: first + run * step for name, (first, step) in sizes.items()}
        for engine, session in sessions.items():
            feeds = feeds_of(session, present)
            new[engine].append(_milliseconds(lambda: session.run(None, feeds)))  # noqa: B023
            again[engine].append(_milliseconds(lambda: session.run(None, feeds)))  # noqa: B023
    for engine in ENGINES:
        print(
            f"{engine}  first {new[engine][0]:.1f} ms  second {new[engine][1]:.1f} ms  "
            f"new sizes {median(new[engine][2:]):.2f} ms  again {median(again[engine][2:]):.2f} ms"
        )
    ours, theirs = (median(new[engine][2:]) for engine in ("halfbyte", "onnxruntime"))
    print(f"new sizes: {ours / theirs:.2f} times ONNX Runtime's")


def repeat(path: str, sizes: Mapping[str, int]) -> None:
    """The same call, both engines in turn."""
    sessions = {engine: session_of(engine, path) for engine in ENGINES}
    times: dict[str, list[float]] = {engine: [] for engine in ENGINES}
    for _ in range(15):
        for engine, session in sessions.items():
            feeds = feeds_of(session, sizes)
            times[engine].append(
                _milliseconds(lambda: [session.run(None, feeds) for _ in range(300)])  # noqa: B023
            )
    for engine in ENGINES:
        print(f"{engine}  {median(times[engine]) / 300 * 1e3:.1f} us")


def _milliseconds(work: Callable[[], object]) -> float:
    before = time.perf_counter()
    work()
    return 1e3 * (time.perf_counter() - before)


def _size(text: str) -> tuple[str, tuple[int, int]]:
    name, _, numbers = text.rpartition("=")
    first, _, step = numbers.partition(":")
    return name, (int(first), int(step or 0))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benches.onnx.starting", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("what", choices=("start", "shapes", "repeat", *ENGINES, KEPT))
    parser.add_argument("model", type=Path)
    parser.add_argument("-s", "--size", type=_size, action="append", default=[])
    parser.add_argument("-r", "--runs", type=int, default=7)
    options = parser.parse_args()
    sizes, path = dict(options.size), str(options.model)
    fixed = {name: first for name, (first, _) in sizes.items()}
    if options.what == "start":
        start(path, fixed, options.runs)
    elif options.what == "shapes":
        shapes(path, sizes, options.runs)
    elif options.what == "repeat":
        repeat(path, fixed)
    else:
        started(options.what, path, fixed)


if __name__ == "__main__":
    main()
