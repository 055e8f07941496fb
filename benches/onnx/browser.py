"""MiniLM in tabs: halfbyte in Pyodide, onnxruntime-web and transformers.js, taking turns.

    python -m benches.onnx.browser [-p int8] [-f own] [-t 1,2] [--pin] [--json FILE]

Each engine has a tab of the same browser for each number of threads, and runs the file that its own
quantizer writes (or, with -f, one file for both). A round gives each tab a turn, whose figure is
the median of its runs. The table shows medians of the rounds, the median of the rounds' ratios of
the engine's time to that of halfbyte on relaxed SIMD with as many threads, and the lowest cosine of
32 sentences to their embeddings in float32. Loading lasts from opening the page until the model is
ready, including Pyodide's start.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from typing import Any

from benches import prepare
from benches.arguments import Some, counts
from benches.browser.measure import Bench
from benches.figures import PEERS, Series, add_json_option, pytest_json, write_json
from benches.onnx import table
from benches.onnx.__main__ import WHOSE
from benches.onnx.files import PRECISIONS, Contest, contests
from benches.onnx.measure import (
    Feeds,
    Turn,
    in_turns,
    inputs,
    least_cosine,
    missing,
    runs_of_a_turn,
    test_name,
    turn,
)  # fmt: skip
from benches.onnx.tab import Tab, address, make_onnx_site
from benches.pinning import add_pin_option, pinned
from benches.turns import attempt


def side(engine: str) -> str:
    """Whose file an engine runs."""
    return "onnxruntime" if engine in PEERS else "halfbyte"


def measure(
    bench: Bench, contest: Contest, engines: Sequence[tuple[str, int]],
    shapes: Sequence[tuple[int, int]], rounds: int,
) -> list[Series]:  # fmt: skip
    """Measure all shapes; return a series for each engine, number of threads, and shape."""
    results: list[Series] = []
    tests = [f"{contest.name} {test_name(*shape)}" for shape in shapes]
    with bench.browser() as browser:
        window, tabs, more = browser.new_context(), [], []
        for engine, threads in engines:
            path = contest.file(side(engine))
            page = address(bench.address, path)
            load = Series(contest.model, engine, "load", threads)
            tab = attempt([load], partial(Tab, window.new_page(), engine, threads, page))
            cosine = attempt([load], partial(least_cosine, contest.model, tab)) if tab else None
            if tab is None or cosine is None:
                results += missing(load, tests)
                continue
            tabs.append(tab)
            size = path.stat().st_size
            more.append(
                {"cosine": cosine, "load_seconds": tab.load_seconds, "file_bytes": size}
            )  # fmt: skip
        for shape, test in zip(shapes, tests, strict=True):
            prepare.say(f"{contest.model}: {test}")
            feeds = inputs(contest.model, *shape)
            sides = [*zip(tabs, more, strict=True)]
            results += _measure_shape(contest.model, test, feeds, sides, rounds)
    return results


def _measure_shape(
    model: str, test: str, feeds: Feeds, tabs: Sequence[tuple[Tab, dict[str, Any]]], rounds: int
) -> list[Series]:
    """In the first turn the browser still compiles."""
    series = [Series(model, tab.engine, test, tab.threads, [], dict(more)) for tab, more in tabs]
    turns: list[Turn] = []
    for (tab, _), one in zip(tabs, series, strict=True):
        runs = attempt([one], partial(runs_of_a_turn, tab, feeds)) or 1
        turns.append((one, partial(turn, tab, feeds, runs)))
        attempt([one], turns[-1][1])
    in_turns(turns, rounds)
    return series


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benches.onnx.browser", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument(
        "-e", "--engines", type=Some(tuple(table.ENGINES)), default=list(table.ENGINES)
    )
    parser.add_argument("-p", "--precisions", type=Some(PRECISIONS), default=["int8"])
    parser.add_argument("-f", "--files", type=Some(WHOSE), default=["own"])
    parser.add_argument("-b", "--batches", type=counts, default=[1, 32], help="(default 1,32)")
    parser.add_argument("-n", "--lengths", type=counts, default=[16, 128], help="(default 16,128)")
    parser.add_argument("-t", "--threads", type=counts, default=[1, 2], help="(default 1,2)")
    parser.add_argument("-r", "--rounds", type=int, default=5, help="(default 5)")
    add_pin_option(parser)
    add_json_option(parser)
    options = parser.parse_args()
    shapes = [(batch, length) for batch in options.batches for length in options.lengths]
    asked = contests(["minilm"], options.precisions, options.files)
    files = {contest.file(side(engine)) for contest in asked for engine in options.engines}
    series: list[Series] = []
    site = make_onnx_site(sorted(files))
    with pinned(options.pin) as places, Bench(site, prepare.ROOT) as bench:
        for contest in asked:
            engines = [(e, threads) for threads in options.threads for e in options.engines]
            series += measure(bench, contest, engines, shapes, options.rounds)
    print(table.tabs(series))
    versions = {engine: prepare.VERSIONS[engine] for engine in options.engines if engine in PEERS}
    content = pytest_json(series, "benches/onnx/browser", versions=versions, pinned=len(places))
    write_json(options.json, content)


if __name__ == "__main__":
    main()
