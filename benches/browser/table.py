"""Results as Markdown tables."""

from __future__ import annotations

from collections.abc import Sequence

from benches.browser.names import ENGINES
from benches.figures import Series, digits, markdown

SPEEDS = ["model", "engine", "threads", "prompt", "decode", "decode / wllama 2"]
STARTS = ["model", "engine", "cold s", "from cache s", "code MB", "memory MB"]


def speeds(series: Sequence[Series]) -> str:
    """Tokens/s: one row per model, engine and number of threads."""
    pairs = {(s.model, s.engine, s.threads, s.test): s for s in series}
    rows = []
    for decode in series:
        if decode.test != "decode":
            continue
        prompt = pairs[decode.model, decode.engine, decode.threads, "prompt"]
        peer = pairs.get((decode.model, "wllama-2", decode.threads, "decode"))
        ratio = f"{decode.times_as_fast_as(peer):.2f}" if peer else "-"
        medians = digits(prompt.speed), digits(decode.speed)
        engine = ENGINES[decode.engine], str(decode.threads)
        rows.append([decode.model, *engine, *medians, ratio])
    return markdown(SPEEDS, rows, left=2)


def starts(series: Sequence[Series]) -> str:
    """One row per model and engine."""
    warm = {(s.model, s.engine): s for s in series if s.test == "start-warm"}
    rows = []
    for s in series:
        if s.test != "start-cold":
            continue
        times = f"{s.median:.2f}", f"{warm[s.model, s.engine].median:.2f}"
        memory = warm[s.model, s.engine].more["memory_bytes"]
        sizes = f"{s.more['code_bytes'] / 1e6:.1f}", f"{memory / 1e6:.0f}"
        rows.append([s.model, ENGINES.get(s.engine, "an empty Pyodide"), *times, *sizes])
    return markdown(STARTS, rows, left=2)
