"""The Markdown tables of the benches that are one module; `benches.report` shows them too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benches.figures import Series, digits, markdown

IMPORTANCE = "llama.cpp, importance"

ENCODERS = {
    "plain": "halfbyte", "search": "halfbyte, search", "llama.cpp": "llama.cpp", "gguf": "gguf",
}  # fmt: skip


def quality(rows: Sequence[dict[str, Any]]) -> str:
    """One row per type of the shipped model."""
    header = ["type", "bits per weight", "MB", "perplexity", "KL to llama.cpp"]
    cells = [
        [
            row["type"], f"{row['bits_per_weight']:.2f}", f"{row['bytes'] / 1e6:.2f}",
            f"{row['perplexity']:.4f}", f"{row['kl']:.1e}",
        ]
        for row in rows
    ]  # fmt: skip
    return markdown(header, cells)


def popular(rows: Sequence[dict[str, Any]]) -> str:
    """One row per model: millions of weights, MB of its file, seconds and peak memory, and when."""
    header = ["model", "type", "M", "MB", "quantized", "answered", "in a tab", "on"]
    cells = [
        [
            row["model"], row["type"], f"{row['weights'] / 1e6:.0f}", f"{row['file'] / 1e6:.0f}",
            _spent(*row["quantize"]), _spent(*row["answer"]),
            row["tab"].get("reason") or _spent(row["tab"]["seconds"], row["tab"]["bytes"]),
            row["date"][5:],
        ]
        for row in rows
    ]  # fmt: skip
    return markdown(header, cells, left=2)


def rounding(rows: Sequence[dict[str, Any]]) -> str:
    """One row per file: KL as a share of that of llama.cpp with importance in the same type."""
    peers = {(r["model"], r["type"]): r["kl"] for r in rows if r["by"] == IMPORTANCE}
    header = ["model", "type", "by", "MB", "1000 KL", "of peer's", "perplexity", "same", "on"]
    cells = [
        [
            row["model"], row["type"], row["by"], digits(row["bytes"] / 1e6),
            digits(1000 * row["kl"]),
            f"{row['kl'] / peer:.0%}" if (peer := peers.get((row["model"], row["type"]))) else "",
            f"{row['perplexity']:.4g}", f"{row['agreement']:.1%}", row["date"][5:],
        ]
        for row in rows
    ]  # fmt: skip
    return markdown(header, cells, left=3)


def _spent(seconds: float, nbytes: int) -> str:
    return f"{digits(seconds)} s, {nbytes / 1e6:.0f} MB"


def encode(series: Sequence[Series]) -> str:
    """One row per weight format: MB/s of input, counted as F16."""
    rows = []
    for name in dict.fromkeys(s.model for s in series):
        engines = {s.engine: s for s in series if s.model == name}
        speeds = [
            digits(engines[e].more["bytes"] / 1e6 / engines[e].median) if e in engines else "-"
            for e in ENCODERS
        ]
        theirs = engines["llama.cpp"]
        ours = engines["search" if theirs.more.get("searches") else "plain"]
        ratio = ours.times_as_fast_as(theirs)
        rows.append([name, *speeds, f"{ratio:.2f}"])
    return markdown(["type", *ENCODERS.values(), "halfbyte / llama.cpp"], rows)


def embed(series: Sequence[Series]) -> str:
    """One row per encoder: milliseconds by numbers of texts and tokens, and ratios."""
    tests = list(dict.fromkeys(s.test for s in series))
    by_case = {(s.model, s.test, s.engine): s for s in series}
    rows = []
    for name in dict.fromkeys(s.model for s in series):
        row = [name]
        for test in tests:
            ours, theirs = (by_case.get((name, test, e)) for e in ("halfbyte", "llama.cpp"))
            if ours is None or theirs is None:
                row += ["-" if ours is None else digits(1e3 * ours.median), "-", "-"]
                continue
            ratio = f"{ours.times_as_fast_as(theirs):.2f}"
            row += [digits(1e3 * ours.median), digits(1e3 * theirs.median), ratio]
        rows.append(row)
    header = [h for t in tests for h in (f"{t} halfbyte", "llama.cpp", "times as fast")]
    return markdown(["encoder", *header], rows)


def fusions(series: Sequence[Series]) -> str:
    """One row per fusion and number of tokens, in microseconds."""
    header = ["fusion", "test", "apart us", "fused us", "apart : fused"]
    fused = {(s.model, s.test): s for s in series if s.engine == "fused"}
    rows = []
    for apart in series:
        if apart.engine == "apart":
            one = fused[apart.model, apart.test]
            times = f"{apart.median * 1e6:.1f}", f"{one.median * 1e6:.1f}"
            rows.append([apart.model, apart.test, *times, f"{one.times_as_fast_as(apart):.2f}"])
    return markdown(header, rows, left=2)


def products(series: Sequence[Series]) -> str:
    """One row per type and shape."""
    header = ["type", "matrix", "1 row ms", "GB/s", "128 rows ms", "GOP/s"]
    by_case = {(s.model, s.test): s for s in series}
    rows = []
    for model in dict.fromkeys(s.model for s in series):
        one, many = by_case[model, "1 row"], by_case[model, "128 rows"]
        times = [f"{digits(1e3 * s.median)}{'*' if s.noisy else ''}" for s in (one, many)]
        read = digits(one.more["bytes"] / one.median / 1e9)
        done = digits(many.more["operations"] / many.median / 1e9)
        rows.append([*model.split(), times[0], read, times[1], done])
    return markdown(header, rows, left=2)
