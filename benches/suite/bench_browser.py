"""Language models in tabs of one Chromium beside wllama, taking turns; see `benches.browser`."""

from __future__ import annotations

import pytest
from benches import prepare
from benches.browser.measure import Bench as Browser
from benches.browser.site import make_bench_site
from benches.case import Bench
from benches.peers.session import Plan, measure

ENGINES = ("relaxed", "simd128", *prepare.WLLAMA)


@pytest.mark.once
@pytest.mark.parametrize("name", ["135M Q4_0", "135M Q8_0"])
def bench_tab(bench: Bench, name: str) -> None:
    site, addresses = make_bench_site([name])
    plan = Plan(3, [], [128], [32], [(engine, 1) for engine in ENGINES])
    with Browser(site, prepare.ROOT) as browser:
        results = measure(name, prepare.model(name), plan, browser, addresses[name])
    bench.keep(*results.tabs)
    bench.figures.versions |= {e: prepare.VERSIONS[e] for e in prepare.WLLAMA}
