"""Results as Markdown tables."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from benches.browser.names import ENGINES
from benches.figures import Series, digits, markdown
from benches.peers.limits import Limits, Work

NATIVE = ["model", "test", "threads", "halfbyte", "llama.cpp", "ratio", "of limit", "llama.cpp's"]
TABS = [
    "model", "engine", "test", "threads", "tokens/s", "first run", "ratio", "of limit",
    "of reading",
]  # fmt: skip
LOADS = ["model", "engine", "threads", "load to first token s", "peak memory MB"]


def native(series: Sequence[Series], work: dict[str, Work], limits: Limits) -> str:
    """Tokens/s: one row per test and number of threads, with both engines."""
    peers = {(s.model, s.test, s.threads): s for s in series if s.engine == "llama.cpp"}
    rows = []
    for ours in series:
        if ours.engine != "halfbyte":
            continue
        peer = peers[ours.model, ours.test, ours.threads]
        if not peer.seconds:
            row = [ours.model, ours.test, str(ours.threads), digits(ours.speed)]
            share = work[ours.model].share(ours, limits)
            rows.append([*row, peer.more["reason"], "-", share, "-"])
            continue
        shares = [work[ours.model].share(s, limits) for s in (ours, peer)]
        ratio = f"{ours.times_as_fast_as(peer):.2f}"
        speeds = [digits(ours.speed), digits(peer.speed)]
        rows.append([ours.model, ours.test, str(ours.threads), *speeds, ratio, *shares])
    return markdown(NATIVE, rows, left=2)


def tabs(
    series: Sequence[Series], natives: Sequence[Series], work: dict[str, Work], limits: Limits
) -> str:
    """One row per engine, number of threads and test; the native llama.cpp with as many, too."""
    ours = {(s.model, s.test, s.threads): s for s in series if s.engine == "relaxed"}
    models = list(dict.fromkeys(s.model for s in series))
    tests = {(s.model, s.test, s.threads) for s in series}
    beside = [
        s for s in natives
        if s.engine == "llama.cpp" and s.seconds and (s.model, s.test, s.threads) in tests
    ]  # fmt: skip
    rows = []
    order = [*series, *beside]

    def place(s: Series) -> tuple[int, bool, int]:
        return models.index(s.model), not s.test.startswith("pp"), s.threads

    for s in sorted(order, key=place):
        engine = ENGINES.get(s.engine, f"{s.engine}, natively")
        row = [s.model, engine, s.test, str(s.threads)]
        if not s.seconds:
            rows.append([*row, s.more["reason"], "-", "-", "-", "-"])
            continue
        ratio = "-"
        if (s.model, s.test, s.threads) in ours:
            ratio = f"{ours[s.model, s.test, s.threads].times_as_fast_as(s):.2f}"
        first = digits(1 / s.more["first_seconds"]) if "first_seconds" in s.more else "-"
        row += [digits(s.speed), first, ratio]
        rows.append([*row, work[s.model].share(s, limits), _of_reading(s, work[s.model])])
    return markdown(TABS, rows, left=3)


def _of_reading(series: Series, work: Work) -> str:
    """Percent of the speed at which the tab's kernels read memory, round by round."""
    if "reads" not in series.more:
        return "-"
    pairs = zip(series.seconds, series.more["reads"], strict=True)
    share = statistics.median(work.file_bytes / taken / read for taken, read in pairs) / 1e9
    return f"{share:.0%}".replace("%", " %")


def loads(series: Sequence[Series]) -> str:
    """One row per engine and number of threads."""
    rows = []
    for s in series:
        if not s.seconds:
            rows.append([s.model, s.engine, str(s.threads), s.more["reason"], "-"])
            continue
        size = s.more.get("memory_bytes")  # of a peer that failed later it is not known
        memory = digits(size / 1e6) if size else "-"
        rows.append([s.model, s.engine, str(s.threads), f"{s.median:.3f}", memory])
    return markdown(LOADS, rows, left=2)


def types(series: Sequence[Series], rows: Sequence[dict[str, Any]]) -> str:
    """One row per type: tokens/s and, where it was measured, loading, of engines that ran."""
    known = {(s.model, s.engine, s.test): s for s in series}
    first, *peers = dict.fromkeys(s.engine for s in series if s.seconds)
    tests = dict.fromkeys(s.test for s in series)
    header = ["type", "bits", "in memory"]
    for test in tests:
        header.append("load s" if test == "load" else "tokens/s")
        header += [part for peer in peers for part in (ENGINES.get(peer, peer), "ratio")]
    cells = []
    for row in rows:
        name = row["model"]
        cells.append([name.split()[-1], f"{row['file']:.2f}", f"{row['memory']:.2f}"])
        for test in tests:
            ours = known[name, first, test]
            cells[-1].append(_figure(ours))
            for theirs in (known[name, peer, test] for peer in peers):
                ratio = f"{ours.times_as_fast_as(theirs):.2f}" if theirs.seconds else "-"
                cells[-1] += [_figure(theirs), ratio]
    return markdown(header, cells)


def _figure(series: Series) -> str:
    if not series.seconds:
        return "-"
    return digits(series.median if series.test == "load" else series.speed)
