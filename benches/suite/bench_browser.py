"""Models in tabs of one Chromium beside wllama, onnxruntime-web and transformers.js.

Engines take turns; see `benches.browser` and `benches.onnx.browser`.
"""

from __future__ import annotations

import os

import pytest
from benches import prepare
from benches.browser.load import run
from benches.browser.measure import Bench as Browser
from benches.browser.python import python_site
from benches.browser.site import make_bench_site
from benches.case import Bench
from benches.figures import PEERS, Series
from benches.onnx import browser as graphs
from benches.onnx import table
from benches.onnx.files import Contest
from benches.onnx.tab import make_onnx_site
from benches.peers.session import Plan, measure

OWN = ("relaxed", "simd128")
NAME = "135M Q4_0"
ENGINES = {NAME: (*OWN, *prepare.WLLAMA), "135M Q8_0": OWN}  # wllama takes minutes for each
ROUNDS = 3
LOADS = 10
MAX_WORKERS = 8
LOAD = """
import time
import halfbyte
load = halfbyte.load_url  # imports its modules
start = time.perf_counter()
with await load("/models/{name}", keep={keep}, threads=1) as model:
    model.feed([1])
    seconds = time.perf_counter() - start
seconds
"""


@pytest.mark.once
@pytest.mark.parametrize("name", ENGINES)
def bench_tab(bench: Bench, name: str) -> None:
    site, addresses = make_bench_site([name])
    plan = Plan(ROUNDS, [], [128], [32], [(engine, 1) for engine in ENGINES[name]])
    with Browser(site, prepare.ROOT) as browser:
        results = measure(name, prepare.model(name), plan, browser, addresses[name])
    bench.keep(*results.tabs)
    peers = [engine for engine in ENGINES[name] if engine in PEERS]
    bench.figures.versions |= {engine: prepare.VERSIONS[engine] for engine in peers}


@pytest.mark.once
def bench_workers(bench: Bench) -> None:
    """halfbyte on one thread to as many as there are cores."""
    site, addresses = make_bench_site([NAME])
    counts = range(1, min(os.cpu_count() or 1, MAX_WORKERS) + 1)
    plan = Plan(ROUNDS, [], [128], [32], [("relaxed", count) for count in counts])
    with Browser(site, prepare.ROOT) as browser:
        results = measure(NAME, prepare.model(NAME), plan, browser, addresses[NAME])
    for series in results.tabs:
        series.test = f"{series.test}, workers"
    bench.keep(*results.tabs)


@pytest.mark.once
def bench_load_in_tab(bench: Bench) -> None:
    """To the first token in a new tab: over the network, and from what the browser has kept."""
    path = prepare.model(NAME)
    ways = {"network": False, "kept": True}
    series = {way: Series(NAME, "relaxed", f"load, {way}") for way in ways}
    site = python_site({path.name: path})
    with Browser(site, prepare.ROOT) as browser, browser.profile() as context:

        def load(keep: bool) -> float:
            code = LOAD.format(name=path.name, keep=keep)
            return float(run(context, browser.address, code))

        load(keep=True)
        for _ in range(LOADS):  # two minutes, and so not measured again where they vary
            for way, keep in ways.items():
                series[way].seconds.append(load(keep))
    bench.keep(*series.values())


@pytest.mark.once
@pytest.mark.parametrize("precision", ["fp32", "int8"])
def bench_graph_tab(bench: Bench, precision: str) -> None:
    contest = Contest("minilm", precision, "own" if precision == "int8" else "")
    files = sorted({contest.file(graphs.side(engine)) for engine in table.ENGINES})
    engines = [(engine, 1) for engine in table.ENGINES]
    with Browser(make_onnx_site(files), prepare.ROOT) as browser:
        bench.keep(*graphs.measure(browser, contest, engines, [(1, 16), (1, 128)], ROUNDS))
    peers = [engine for engine in table.ENGINES if engine in PEERS]
    bench.figures.versions |= {engine: prepare.VERSIONS[engine] for engine in peers}
