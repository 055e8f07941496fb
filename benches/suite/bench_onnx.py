"""ONNX models beside ONNX Runtime, in one process, taking turns; see `benches.onnx`."""

from __future__ import annotations

from importlib.metadata import version

import pytest
from benches import prepare
from benches.case import Bench
from benches.onnx.files import MODELS, PRECISIONS, Contest, contests
from benches.onnx.measure import OPTIONAL, Plan, measure

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
    results = measure(contest, Plan(bench.rounds, [1], [1], lengths))
    bench.keep(*results.runs, *results.loads)
    if prepare.installed(OPTIONAL):
        bench.figures.versions[OPTIONAL] = prepare.VERSIONS[OPTIONAL]
    bench.figures.versions["onnxruntime"] = f"ONNX Runtime {version('onnxruntime')}"
