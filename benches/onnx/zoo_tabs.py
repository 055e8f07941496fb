"""Models of the zoo in tabs: halfbyte in Pyodide beside onnxruntime-web, taking turns.

    python -m benches.onnx.zoo_tabs [-m unet,yolo] [-p fp32,int8] [-t 1] [--pin] [--json NEW.json]

Each model has a browser of its own with a tab for each engine. The ratio is the median of the
rounds' ratios, above 1 where halfbyte (relaxed SIMD) is faster; the difference is the largest one
to onnxruntime-web's outputs, by the largest number of an output; loading lasts from opening the
page until the model is ready, for halfbyte with Pyodide's start. A model that fails says why.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from benches.arguments import Some, counts
from benches.browser.measure import Bench
from benches.figures import Series, add_json_option, digits, markdown, pytest_json, write_json
from benches.onnx import zoo_files
from benches.onnx.measure import Turn, in_turns, runs_of_a_turn, turn
from benches.onnx.tab import Tab, address, make_onnx_site
from benches.onnx.zoo import LIMIT, Case, difference, summary
from benches.peers.errors import PeerError, reason
from benches.pinning import add_pin_option, pinned
from benches.prepare import ORT_WEB, ROOT, VERSIONS, say
from onnxruntime import InferenceSession
from playwright.sync_api import Error as PlaywrightError

ENGINES = ("relaxed", ORT_WEB)
HEADER = ["model", "type", "halfbyte ms", "ORT ms", "ratio", "difference", "load s", "ORT's"]


def measured(bench: Bench, case: Case) -> list[Series]:
    """A series of each engine; of a model that fails, one with the reason."""
    say(f"{case.name}: {case.precision}, threads: {case.threads}")
    series = [case.series(engine) for engine in ENGINES]
    try:
        _measure(bench, case, series)
    except (PeerError, PlaywrightError, OSError) as error:
        series = [case.series(ENGINES[0])]
        series[0].more["reason"] = reason(error)
        say(f"{case.name}: {series[0].more['reason']}")
    return series


def _measure(bench: Bench, case: Case, series: Sequence[Series]) -> None:
    path = zoo_files.file(case.name, case.precision)
    session = InferenceSession(str(path), providers=["CPUExecutionProvider"])
    feeds = zoo_files.feeds(case.name, {x.name: x.type for x in session.get_inputs()})
    del session
    page = address(bench.address, path)
    with bench.browser() as browser:
        window = browser.new_context()
        tabs = [Tab(window.new_page(), engine, case.threads, page) for engine in ENGINES]
        series[0].more["difference"] = difference(*(tab.outputs(feeds) for tab in tabs))
        turns: list[Turn] = []
        for tab, one in zip(tabs, series, strict=True):
            one.more["load_seconds"] = tab.load_seconds
            turns.append((one, partial(turn, tab, feeds, runs_of_a_turn(tab, feeds))))
            turns[-1][1]()  # the browser still compiles
        in_turns(turns, case.rounds)


def _files(cases: Sequence[Case]) -> list[Path]:
    """Those that can be made; why others cannot is said in their turn."""
    files = set()
    for case in cases:
        with suppress(OSError):
            files.add(zoo_files.file(case.name, case.precision))
    return sorted(files)


def table(series: Sequence[Series]) -> str:
    """A row for each model and precision, the slowest beside onnxruntime-web first."""
    peers = {(s.model, s.test, s.threads): s for s in series if s.engine == ORT_WEB}
    ratios, rows, reasons = [], [], []
    for ours in series:
        if ours.engine == ORT_WEB:
            continue
        if "reason" in ours.more:
            reasons.append([ours.model, ours.test, ours.more["reason"][:LIMIT]])
            continue
        pair = ours, peers[ours.model, ours.test, ours.threads]
        ratios.append(ours.times_as_fast_as(pair[1]))
        cells = [
            ours.model, ours.test, *(digits(1000 * s.median) for s in pair), f"{ratios[-1]:.2f}",
            f"{ours.more['difference']:.0e}", *(f"{s.more['load_seconds']:.1f}" for s in pair),
        ]  # fmt: skip
        rows.append((ratios[-1], cells))
    return summary(markdown(HEADER, [cells for _, cells in sorted(rows)], left=2), ratios, reasons)


def main() -> None:
    """Measure, print, write."""
    names, types = list(zoo_files.entries()), zoo_files.PRECISIONS
    parser = argparse.ArgumentParser(
        prog="python -m benches.onnx.zoo_tabs", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    add = parser.add_argument
    few = zoo_files.of_tabs()
    add("-m", "--models", type=Some(names), default=few, help=f"(default: {len(few)} of the zoo)")
    add("-p", "--precisions", type=Some(types), default=["fp32"], help="from fp32, int8")
    add("-t", "--threads", type=counts, default=[1], help="(default 1)")
    add("-r", "--rounds", type=int, default=5, help="(default 5)")
    add_pin_option(parser)
    add_json_option(parser)
    options = parser.parse_args()
    cases = [
        Case(name, precision, threads, options.rounds)
        for threads in options.threads
        for name in options.models
        for precision in options.precisions
    ]
    series: list[Series] = []
    with pinned(options.pin) as places, Bench(make_onnx_site(_files(cases)), ROOT) as bench:
        for case in cases:
            series += measured(bench, case)
    for threads in options.threads:
        print(f"\nThreads: {threads}\n\n{table([s for s in series if s.threads == threads])}")
    versions = {ORT_WEB: VERSIONS[ORT_WEB]}
    content = pytest_json(series, "benches/onnx/zoo_tabs", versions=versions, pinned=len(places))
    write_json(options.json, content)


if __name__ == "__main__":
    main()
