"""Language models beside llama.cpp, each engine in processes of its own; see `benches.peers`."""

from __future__ import annotations

import os
from dataclasses import asdict

import pytest
from benches import prepare
from benches.case import Bench
from benches.peers.limits import measure_limits, work_of
from benches.peers.session import Plan, measure

THREADS = sorted({1, os.cpu_count() or 1})


@pytest.mark.once
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=[pytest.mark.short] if n == "135M Q4_0" else [])
        for n in prepare.MODELS
    ],
)
def bench_language_model(bench: Bench, name: str) -> None:
    path = prepare.model(name)
    plan = Plan(2 if bench.short else bench.rounds, THREADS, [128], [64], [])
    results = measure(name, path, plan, None, "")
    bench.keep(*results.all)
    peers = {series.engine for series in results.native if series.seconds} - {"halfbyte"}
    bench.figures.versions |= {engine: prepare.VERSIONS[engine] for engine in sorted(peers)}
    machine = bench.figures.machine
    machine.setdefault("limits", asdict(measure_limits(THREADS)))
    machine.setdefault("work", {})[name] = asdict(work_of(path))
