"""How far a session of the suite is: one bar for all its passes, with the time that is left.

What is left is estimated from `SECONDS`, scaled by how long the cases so far took compared with it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest

# Seconds of a case by file, in quiet: two cores of an AMD EPYC (Zen 4), 2026-11-24
SECONDS = {
    "attention": 0.2, "backends": 0.7, "browser": 50.0, "embed": 30.0, "encode": 1.2,
    "fusions": 0.25,
    "load": 2.5, "memory": 12.0, "models": 7.2, "onnx": 30.0, "operators": 0.3, "peers": 45.0,
    "products": 0.22, "quantize": 5.0, "tokenizers": 0.8,
}  # fmt: skip
WIDTH = 24  # of the bar
EVERY = 20.0  # seconds between lines where no line can be overwritten


def file_of(item: pytest.Item) -> str:
    """ "products" for a case in bench_products.py."""
    return item.path.stem.removeprefix("bench_")


def expected(files: Sequence[str]) -> float:
    """Seconds of so many cases of these files."""
    return sum(SECONDS.get(file, 5.0) for file in files)


def clock(seconds: float) -> str:
    """ "3:07"."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


@dataclass
class Progress:
    """Where this pass stands in its session.

    Attributes
    ----------
    number, passes
        This pass, from 0, and how many there are.
    before, after
        Expected seconds of the passes before and after this one.
    started
        When the session began, in seconds of `time.time`.
    """

    number: int
    passes: int
    started: float
    before: float
    after: float
    left: list[str]  # files of the cases that have not ended
    done: float = 0.0
    taken: dict[str, float] = field(default_factory=dict)  # seconds by file

    def ended(self, file: str, seconds: float) -> None:
        """A case of a file has ended."""
        self.left.remove(file)
        self.done += expected([file])
        self.taken[file] = self.taken.get(file, 0.0) + seconds

    def line(self, case: str, now: float | None = None) -> str:
        """The bar, with the case that comes."""
        elapsed = (now or time.time()) - self.started
        done, rest = self.before + self.done, expected(self.left) + self.after
        share = done / (done + rest) if done + rest else 1.0
        pace = elapsed / done if done >= 5 else 1.0
        filled = round(WIDTH * share)
        bar = "#" * filled + "." * (WIDTH - filled)
        return (
            f"[{bar}] {100 * share:3.0f} %, pass {self.number + 1} of {self.passes}, "
            f"{clock(elapsed)} so far, about {clock(rest * pace)} left: {case}"
        )


def minutes(taken: Mapping[str, float]) -> list[list[str]]:
    """A row per file: minutes."""
    rows = [[file, f"{seconds / 60:.1f}"] for file, seconds in taken.items()]
    return [*rows, ["all", f"{sum(taken.values()) / 60:.1f}"]]
