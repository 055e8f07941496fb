"""Where the time of a program goes: seconds, bytes and operations per kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from halfbyte.program import Program


@dataclass
class Row:
    """One kernel's totals over all runs."""

    calls: int = 0
    seconds: float = 0.0
    bytes: int = 0
    operations: int = 0


@dataclass
class Profile:
    """Sums of the runs of one program.

    Bytes follow one rule: every operand once per instruction, touched rows only; operations count
    a multiply and an add as two.
    """

    rows: dict[str, Row] = field(default_factory=dict)

    def add(
        self,
        program: Program,
        registers: Mapping[str, int],
        seconds: npt.NDArray[np.float64],
    ) -> None:
        """Add one run, with the seconds spent in each instruction."""
        for instruction, spent in zip(program.instructions, seconds, strict=True):
            row = self.rows.setdefault(instruction.operator.kernel(instruction), Row())
            row.calls += 1
            row.seconds += float(spent)
            row.bytes += instruction.bytes_moved(registers)
            row.operations += instruction.operations(registers)

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
