"""Models in tabs of one Chromium beside wllama, onnxruntime-web and transformers.js.

Engines take turns; see `benches.browser` and `benches.onnx.browser`.
"""

from __future__ import annotations

import pytest
from benches import prepare
from benches.browser.measure import Bench as Browser
from benches.browser.site import make_bench_site
from benches.case import Bench
from benches.figures import PEERS
from benches.onnx import browser as graphs
from benches.onnx import table
from benches.onnx.files import Contest
from benches.peers.session import Plan, measure

ENGINES = ("relaxed", "simd128", *prepare.WLLAMA)
ROUNDS = 3


@pytest.mark.once
@pytest.mark.parametrize("name", ["135M Q4_0", "135M Q8_0"])
def bench_tab(bench: Bench, name: str) -> None:
    site, addresses = make_bench_site([name])
    plan = Plan(ROUNDS, [], [128], [32], [(engine, 1) for engine in ENGINES])
    with Browser(site, prepare.ROOT) as browser:
        results = measure(name, prepare.model(name), plan, browser, addresses[name])
    bench.keep(*results.tabs)
    bench.figures.versions |= {e: prepare.VERSIONS[e] for e in prepare.WLLAMA}


@pytest.mark.once
@pytest.mark.parametrize("precision", ["fp32", "int8"])
def bench_graph_tab(bench: Bench, precision: str) -> None:
    contest = Contest("minilm", precision, "own" if precision == "int8" else "")
    files = sorted({contest.file(graphs.side(engine)) for engine in table.ENGINES})
    engines = [(engine, 1) for engine in table.ENGINES]
    with Browser(graphs.make_onnx_site(files), prepare.ROOT) as browser:
        bench.keep(*graphs.measure(browser, contest, engines, [(1, 16), (1, 128)], ROUNDS))
    peers = [engine for engine in table.ENGINES if engine in PEERS]
    bench.figures.versions |= {engine: prepare.VERSIONS[engine] for engine in peers}
