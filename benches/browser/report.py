"""Figures as Markdown tables, and as series for the file."""

from __future__ import annotations

import statistics

from benches.browser.measure import ENGINES, Speed, Start
from benches.figures import Series, digits


def markdown(speeds: list[Speed], starts: list[Start]) -> str:
    """Two tables: speeds (medians, and the ratio to wllama 2), and starts."""
    lines = ["| model | engine | prompt | decode | decode / wllama 2 |", "|---|---|--:|--:|--:|"]
    peers = {s.model: s for s in speeds if s.engine == "wllama-2"}
    for s in speeds:
        ratio = "-"
        if s.model in peers:
            pairs = zip(s.decode, peers[s.model].decode, strict=False)
            ratio = f"{statistics.median(a / b for a, b in pairs):.2f}"
        medians = [digits(statistics.median(values)) for values in (s.prompt, s.decode)]
        row = [s.model, ENGINES[s.engine], *medians, ratio]
        lines.append(f"| {' | '.join(row)} |")
    lines += ["", "| model | engine | cold s | from cache s | code MB | memory MB |"]
    lines.append("|---|---|--:|--:|--:|--:|")
    for t in starts:
        engine = ENGINES.get(t.engine, "an empty Pyodide")
        warm = statistics.median(t.warm)
        sizes = f"{t.code / 1e6:.1f} | {t.memory / 1e6:.0f}"
        lines.append(f"| {t.model} | {engine} | {t.cold:.2f} | {warm:.2f} | {sizes} |")
    return "\n".join(lines)


def as_series(speeds: list[Speed], starts: list[Start]) -> list[Series]:
    """All figures in seconds, of a token or of a start."""
    found = []
    for s in speeds:
        for kind, values in (("prompt", s.prompt), ("decode", s.decode)):
            found.append(Series(s.model, s.engine, kind, seconds=[1 / v for v in values]))
    for t in starts:
        sizes = {"code_bytes": t.code, "memory_bytes": t.memory}
        found.append(Series(t.model, t.engine, "start-cold", seconds=[t.cold], more=sizes))
        found.append(Series(t.model, t.engine, "start-warm", seconds=t.warm, more=sizes))
    return found
