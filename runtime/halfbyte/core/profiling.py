"""Profiles of programs: totals per kernel, and every instruction in the order of time."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from halfbyte.core.program import Program

MAX_EVENTS = 200_000  # kept in a profile: a trace is for people

Kinds = list[dict[str, list[int]]]  # type and shape of each operand


class Run(NamedTuple):
    """A run of a program, with the seconds of each instruction; `start` is a perf_counter."""

    program: Program
    registers: Mapping[str, int]
    start: float
    seconds: npt.NDArray[np.float64]


class Call(NamedTuple):
    """An operator that ran outside of programs."""

    name: str
    operator: str
    start: float
    seconds: float
    bytes: int
    inputs: Kinds
    outputs: Kinds


class Span(NamedTuple):
    """An interval that contains others: loading, a run."""

    name: str
    start: float
    seconds: float


@dataclass
class Row:
    """One kernel's totals over all runs."""

    calls: int = 0
    seconds: float = 0.0
    bytes: int = 0
    operations: int = 0


@dataclass
class Profile:
    """Totals over runs of programs.

    Bytes count every operand once per instruction, and only rows that are touched. A multiply and
    an add count as two operations.

    Attributes
    ----------
    rows : dict of str to Row
        By kernel.
    keep_events : bool
        Also keep every run, for `chrome_trace`.
    events : list of Run, Call or Span
        In order of time, up to MAX_EVENTS calls of kernels and spans.
    left_out : int
        Number of events beyond these.
    """

    rows: dict[str, Row] = field(default_factory=dict)
    keep_events: bool = False
    events: list[Run | Call | Span] = field(default_factory=list)
    left_out: int = 0
    _kept: int = 0

    def add(
        self,
        program: Program,
        registers: Mapping[str, int],
        seconds: npt.NDArray[np.float64],
        start: float | None = None,
    ) -> None:
        """Add one run, with the seconds spent in each instruction.

        `start` is when it began; by default the run has just ended.
        """
        if self.keep_events:
            began = time.perf_counter() - float(seconds.sum()) if start is None else start
            kept = seconds[: self._room(len(seconds))].copy()
            if len(kept):
                self.events.append(Run(program, dict(registers), began, kept))
        for instruction, spent in zip(program.instructions, seconds, strict=True):
            self._sum(
                instruction.operator.kernel(instruction), float(spent),
                instruction.bytes_moved(registers), instruction.operations(registers),
            )  # fmt: skip

    def add_call(self, call: Call) -> None:
        """Add an operator that ran outside of programs, by NumPy."""
        self._sum(f"numpy:{call.operator}", call.seconds, call.bytes, 0)
        if self.keep_events and self._room(1):
            self.events.append(call)

    def add_span(self, name: str, start: float) -> None:
        """Add a span that began at `start` and ends now."""
        if self.keep_events and self._room(1):
            self.events.append(Span(name, start, time.perf_counter() - start))

    def _sum(self, kernel: str, seconds: float, moved: int, operations: int) -> None:
        row = self.rows.setdefault(kernel, Row())
        row.calls += 1
        row.seconds += seconds
        row.bytes += moved
        row.operations += operations

    def _room(self, wanted: int) -> int:
        """How many of the `wanted` events can still be kept."""
        room = min(wanted, MAX_EVENTS - self._kept)
        self._kept += room
        self.left_out += wanted - room
        return room

    def table(self) -> str:
        """The rows for people, the slowest kernel first."""
        total = sum(row.seconds for row in self.rows.values()) or 1e-12
        lines = [f"{'kernel':<30}{'calls':>9}{'ms':>10}{'share':>8}{'GB/s':>8}{'GOP/s':>8}"]
        for name, row in sorted(self.rows.items(), key=lambda item: -item[1].seconds):
            time = max(row.seconds, 1e-12)
            lines.append(
                f"{name:<30}{row.calls:>9}{row.seconds * 1e3:>10.2f}{row.seconds / total:>8.1%}"
                f"{row.bytes / time / 1e9:>8.2f}{row.operations / time / 1e9:>8.2f}"
            )
        moved = sum(row.bytes for row in self.rows.values())
        done = sum(row.operations for row in self.rows.values())
        lines.append(
            f"{'all':<30}{sum(r.calls for r in self.rows.values()):>9}{total * 1e3:>10.2f}"
            f"{1:>8.1%}{moved / total / 1e9:>8.2f}{done / total / 1e9:>8.2f}"
        )
        return "\n".join(lines)
