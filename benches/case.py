"""What the cases of the suite measure with, and the figures of one pass over them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from benches.figures import Series, pytest_json, write_json
from benches.turns import Contender, take_turns
from benches.yardstick import yardstick


@dataclass
class Figures:
    """All that a pass has measured."""

    series: list[Series] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)
    taken: dict[str, float] = field(default_factory=dict)  # seconds of the cases by file

    def write(self, path: Path | None) -> None:
        """As a file; None writes nothing."""
        rows, versions = self.rows, self.versions
        content = pytest_json(self.series, "benches", rows=rows, versions=versions, **self.machine)
        write_json(path, {**content, "taken": self.taken})


class Bench:
    """The fixture `bench` of a case; the case's file names the source of its figures."""

    def __init__(self, item: pytest.Item, figures: Figures) -> None:
        self._case = item.nodeid
        self._source = f"benches/{item.path.stem.removeprefix('bench_')}"
        self.figures = figures
        self.short: bool = item.config.getoption("short")
        self.rounds: int = item.config.getoption("rounds")

    def measure(
        self, contenders: Sequence[Contender], name: str, threads: int = 1, most: int | None = None
    ) -> None:
        """Let them take turns with a yardstick, at `most` so many, and keep the figures."""
        rounds = min(self.rounds, most or self.rounds)
        take_turns(contenders, yardstick(name, threads), rounds)
        self.keep(*(contender.series for contender in contenders))

    def keep(self, *series: Series) -> None:
        """Figures that were measured otherwise."""
        for one in series:
            one.source = one.source or self._source
            one.more["case"] = self._case
        self.figures.series += series
