"""Results as Markdown tables."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from benches.figures import Series, digits, markdown

RUNS = [
    "model", "test", "threads", "halfbyte ms", "ONNX Runtime ms", "halfbyte : ONNX Runtime",
    "cosine, halfbyte", "cosine, ONNX Runtime",
]  # fmt: skip
LOADS = ["model", "file", "engine", "threads", "load to first output s", "file MB"]


def runs(series: Sequence[Series]) -> str:
    """A row a test and number of threads, both engines in it."""
    peers = {(s.model, s.test, s.threads): s for s in series if s.engine == "onnxruntime"}
    rows = []
    for ours in series:
        if ours.engine != "halfbyte":
            continue
        pair = ours, peers[ours.model, ours.test, ours.threads]
        times = [digits(1000 * statistics.median(s.seconds)) for s in pair]
        cosines = [f"{s.more['cosine']:.5f}" for s in pair]
        ratio = f"{ours.times_as_fast_as(pair[1]):.2f}"
        rows.append([ours.model, ours.test, str(ours.threads), *times, ratio, *cosines])
    return markdown(RUNS, rows, left=2)


def loads(series: Sequence[Series]) -> str:
    """A row a file, engine and number of threads."""
    rows = []
    for s in series:
        size, seconds = digits(s.more["file_bytes"] / 1e6), f"{statistics.median(s.seconds):.2f}"
        name = s.test.removeprefix("load ")
        rows.append([s.model, name, s.engine, str(s.threads), seconds, size])
    return markdown(LOADS, rows, left=3)
