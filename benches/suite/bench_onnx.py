"""ONNX models beside ONNX Runtime, OpenVINO, PyTorch and LiteRT; see `benches.onnx`."""

from __future__ import annotations

from importlib.metadata import version

import pytest
from benches import prepare
from benches.case import Bench
from benches.onnx.apart import PEERS
from benches.onnx.files import MODELS, PRECISIONS, Contest, contests
from benches.onnx.measure import Plan, measure
from benches.yardstick import yardstick

CONTESTS = contests([*MODELS], [*PRECISIONS], ["own"])
SHORT = {("minilm", "int8"), ("resnet-34", "fp32")}


@pytest.mark.once
@pytest.mark.parametrize(
    "contest",
    [
        pytest.param(
            contest, id=f"{contest.model}-{contest.name}",
            marks=[pytest.mark.short] if (contest.model, contest.precision) in SHORT else [],
        )
        for contest in CONTESTS
    ],
)  # fmt: skip
def bench_graph(bench: Bench, contest: Contest) -> None:
    lengths = [128] if bench.short else [16, 128]
    slow = {"pytorch-compiled"} if bench.short else set()  # it compiles for minutes
    peers = [engine for engine in PEERS if engine not in slow]
    plan = Plan(bench.rounds, [1], [1], lengths, peers, yardstick("dot"))
    results = measure(contest, plan)
    bench.keep(*results.runs, *results.loads)
    present = {PEERS[series.engine] for series in results.runs if series.engine in PEERS}
    bench.figures.versions |= {engine: prepare.VERSIONS[engine] for engine in sorted(present)}
    bench.figures.versions["onnxruntime"] = f"ONNX Runtime {version('onnxruntime')}"
