"""Results as Markdown tables."""

from __future__ import annotations

from collections.abc import Sequence

from benches.figures import Series, digits, markdown
from benches.prepare import ORT_WEB, VERSIONS

ENGINES = {
    "relaxed": "halfbyte, relaxed SIMD",
    "simd128": "halfbyte, SIMD128",
    **{engine: VERSIONS[engine] for engine in (ORT_WEB, "transformers.js")},
}
RUNS = [
    "model", "test", "threads", "halfbyte ms", "ORT ms", "ratio", "cosine", "ORT's cosine",
]  # fmt: skip
TABS = ["engine", "test", "threads", "ms", "ratio", "cosine", "load s", "file MB"]
LOADS = ["model", "file", "engine", "threads", "load to first output s", "file MB"]


def runs(series: Sequence[Series]) -> str:
    """One row per test and number of threads, with both engines; ORT is ONNX Runtime."""
    peers = {(s.model, s.test, s.threads): s for s in series if s.engine == "onnxruntime"}
    rows = []
    for ours in series:
        if ours.engine != "halfbyte":
            continue
        pair = ours, peers[ours.model, ours.test, ours.threads]
        times = [digits(1000 * s.median) for s in pair]
        cosines = [f"{s.more['cosine']:.5f}" for s in pair]
        ratio = f"{ours.times_as_fast_as(pair[1]):.2f}"
        rows.append([ours.model, ours.test, str(ours.threads), *times, ratio, *cosines])
    return markdown(RUNS, rows, left=2)


def tabs(series: Sequence[Series]) -> str:
    """One row per engine, test and number of threads in a tab."""
    ours = {(s.test, s.threads): s for s in series if s.engine == "relaxed"}
    rows = []
    for s in series:
        row = [ENGINES[s.engine], s.test, str(s.threads)]
        if not s.seconds:
            rows.append([*row, s.more["reason"], "-", "-", "-", "-"])
            continue
        peer = ours.get((s.test, s.threads))
        ratio = f"{peer.times_as_fast_as(s):.2f}" if peer else "-"
        cosine, load = f"{s.more['cosine']:.5f}", f"{s.more['load_seconds']:.2f}"
        size = digits(s.more["file_bytes"] / 1e6)
        rows.append([*row, digits(1000 * s.median), ratio, cosine, load, size])
    return markdown(TABS, rows, left=2)


def loads(series: Sequence[Series]) -> str:
    """One row per file, engine and number of threads."""
    rows = []
    for s in series:
        size, seconds = digits(s.more["file_bytes"] / 1e6), f"{s.median:.2f}"
        name = s.test.removeprefix("load ")
        rows.append([s.model, name, s.engine, str(s.threads), seconds, size])
    return markdown(LOADS, rows, left=3)
