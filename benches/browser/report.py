"""Figures as a Markdown table, and as JSON in pytest-benchmark's format."""

from __future__ import annotations

import datetime
import os
import platform
import statistics
from typing import Any

from benches.browser.measure import ENGINES, Speed, Start


def markdown(speeds: list[Speed], starts: list[Start]) -> str:
    """Two tables: speeds (medians, and the ratio to wllama 2), and starts."""
    lines = ["| model | engine | prompt | decode | decode / wllama 2 |", "|---|---|--:|--:|--:|"]
    peers = {s.model: s for s in speeds if s.engine == "wllama-2"}
    for s in speeds:
        ratio = "-"
        if s.model in peers:
            pairs = zip(s.decode, peers[s.model].decode, strict=False)
            ratio = f"{statistics.median(a / b for a, b in pairs):.2f}"
        row = [s.model, ENGINES[s.engine], _speed(s.prompt), _speed(s.decode), ratio]
        lines.append(f"| {' | '.join(row)} |")
    lines += ["", "| model | engine | cold s | from cache s | code MB | memory MB |"]
    lines.append("|---|---|--:|--:|--:|--:|")
    for t in starts:
        engine = ENGINES.get(t.engine, "an empty Pyodide")
        warm = statistics.median(t.warm)
        sizes = f"{t.code / 1e6:.1f} | {t.memory / 1e6:.0f}"
        lines.append(f"| {t.model} | {engine} | {t.cold:.2f} | {warm:.2f} | {sizes} |")
    return "\n".join(lines)


def _speed(values: list[float]) -> str:
    value = statistics.median(values)
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def pytest_json(speeds: list[Speed], starts: list[Start]) -> dict[str, Any]:
    """pytest-benchmark's format; times in seconds, of a token or of a start."""
    found = []
    for s in speeds:
        for kind, values in (("prompt", s.prompt), ("decode", s.decode)):
            found.append(_entry(s.model, s.engine, kind, [1 / v for v in values], {}))
    for t in starts:
        sizes = {"code_bytes": t.code, "memory_bytes": t.memory}
        found.append(_entry(t.model, t.engine, "start-cold", [t.cold], sizes))
        found.append(_entry(t.model, t.engine, "start-warm", t.warm, sizes))
    return {
        "machine_info": {
            "node": "", "processor": platform.processor(), "machine": platform.machine(),
            "system": platform.system(), "release": platform.release(),
            "python_version": platform.python_version(), "cpu": {"count": os.cpu_count()},
        },
        "commit_info": {},
        "benchmarks": found,
        "datetime": datetime.datetime.now(datetime.UTC).isoformat(),
        "version": "5.3.1",
    }  # fmt: skip


def _entry(
    model: str, engine: str, kind: str, data: list[float], more: dict[str, int]
) -> dict[str, Any]:
    name = f"{kind}[{model}-{engine}]"
    quartiles = statistics.quantiles(data, n=4) if len(data) > 1 else [data[0]] * 3
    return {
        "group": f"{model} {kind}",
        "name": name,
        "fullname": f"benches/browser::{name}",
        "params": {"model": model, "engine": engine},
        "param": f"{model}-{engine}",
        "extra_info": more,
        "stats": {
            "min": min(data), "max": max(data), "mean": statistics.mean(data),
            "stddev": statistics.stdev(data) if len(data) > 1 else 0.0,
            "rounds": len(data), "median": statistics.median(data),
            "q1": quartiles[0], "q3": quartiles[2], "iqr": quartiles[2] - quartiles[0],
            "iterations": 1, "data": data,
        },
    }  # fmt: skip
