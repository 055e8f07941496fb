"""Measured figures: medians and ratios, and files of them in pytest-benchmark's format."""

from __future__ import annotations

import datetime
import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pytest_benchmark.stats import Stats


@dataclass
class Series:
    """One engine's seconds for one thing (a token, a start), a value a round."""

    model: str
    engine: str
    test: str  # "pp128", "tg64", "load", ...
    threads: int = 1
    seconds: list[float] = field(default_factory=list)
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def speed(self) -> float:
        """Median of tokens/s."""
        return 1 / statistics.median(self.seconds)

    def times_as_fast_as(self, other: Series) -> float:
        """Median of the rounds' ratios: a noisy machine moves it least."""
        pairs = zip(self.seconds, other.seconds, strict=False)
        return statistics.median(theirs / ours for ours, theirs in pairs)


def digits(value: float) -> str:
    """Three significant digits, no exponent."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """A Markdown table whose first `left` columns are words, the others numbers; aligned."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = []
    for row in (header, *rows):
        cells = [
            cell.ljust(width) if index < left else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append(f"| {' | '.join(cells)} |")
    rule = ["-" * (w + 2) if i < left else "-" * (w + 1) + ":" for i, w in enumerate(widths)]
    lines.insert(1, f"|{'|'.join(rule)}|")
    return "\n".join(lines)


def pytest_json(series: Sequence[Series], source: str, machine: dict[str, Any]) -> dict[str, Any]:
    """pytest-benchmark's format; `source` is the bench, `machine` what it found out of it."""
    return {
        "machine_info": {
            "node": "", "processor": platform.processor(), "machine": platform.machine(),
            "system": platform.system(), "release": platform.release(),
            "python_version": platform.python_version(), "cpu": {"count": os.cpu_count()},
            **machine,
        },
        "commit_info": {},
        "benchmarks": [_entry(s, source) for s in series],
        "datetime": datetime.datetime.now(datetime.UTC).isoformat(),
        "version": "5.3.1",
    }  # fmt: skip


def _entry(series: Series, source: str) -> dict[str, Any]:
    s, data = series, series.seconds
    case = f"{s.model}-{s.engine}-{s.threads}"
    name = f"{s.test}[{case}]"
    stats: Any = Stats()  # type: ignore[no-untyped-call]
    for value in data:
        stats.update(value)
    return {
        "group": f"{s.model} {s.test}",
        "name": name,
        "fullname": f"{source}::{name}",
        "params": {"model": s.model, "engine": s.engine, "threads": s.threads},
        "param": case,
        "extra_info": s.more,
        "stats": {**stats.as_dict(), "iterations": 1, "data": data},
    }
