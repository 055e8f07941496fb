"""Rows of the tables that workloads print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from halfbyte.columns import table
from halfbyte.evaluation.comparison import Comparison


def verdict(passed: bool | None) -> str:
    """The word for a result; None: nothing was compared."""
    return {True: "pass", False: "FAIL", None: "-"}[passed]


def figures(c: Comparison) -> list[str]:
    """Errors and tolerance, or the note instead."""
    if c.note:
        return [c.note, "", "", "", ""]
    return [
        f"{c.max_abs:.2e}", f"{c.max_rel:.2e}", f"{c.cosine:.6f}", f"{c.snr_db:.1f}",
        c.tolerance.text(c.type),
    ]  # fmt: skip


_HEADS = ["max abs", "max rel", "cosine", "SNR dB", "tolerance"]


def comparison_rows(rows: Sequence[tuple[str, int, Comparison]]) -> list[str]:
    """A table with a line for each output: errors, tolerance, verdict."""
    cells = [[name, str(t), *figures(c), verdict(c.passed)] for name, t, c in rows]
    return table(["output", "threads", *_HEADS, ""], cells)


def value_rows(summaries: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A table with a line for each value: type, shape, range, mean, deviation."""
    cells = []
    for name, summary in summaries.items():
        numbers = [summary.get(key) for key in ("min", "max", "mean", "deviation")]
        cells.append(
            [
                name, f"{summary['type']}{summary.get('shape', '')}",
                *(f"{n:.4g}" if isinstance(n, float) else "" for n in numbers),
                str(summary.get("not_finite", "")),
            ]
        )  # fmt: skip
    return table(["output", "type", "min", "max", "mean", "deviation", "not finite"], cells, 2)


def difference_rows(rows: Sequence[tuple[str, str, Comparison]]) -> list[str]:
    """A table with a line for each value that differs: value, operator, errors, verdict."""
    cells = [[name, kind, *figures(c), verdict(c.passed)] for name, kind, c in rows]
    return table(["value", "made by", *_HEADS, ""], cells, 2)
