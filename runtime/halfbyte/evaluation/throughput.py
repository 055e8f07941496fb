"""The workload `bench`: speed beside a reference, in turns, in one process."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from halfbyte.columns import table
from halfbyte.evaluation.evaluation import Evaluation, Result
from halfbyte.evaluation.series import Pair, Series
from halfbyte.evaluation.subject import Subject

REST = 0.02  # seconds between turns: threads of the other engine may still be spinning


def bench(subject: Subject, reference: str) -> Result:
    """Speeds in the subject's unit, and the ratios to those of the reference."""
    e = subject.evaluation
    with subject.pairs(reference) as pairs:
        _measure(e, pairs)
    head = "; ".join(filter(None, (e.model.name, subject.inputs)))
    return _result(e, pairs, subject.unit, head)


def _measure(e: Evaluation, pairs: Sequence[Pair]) -> None:
    """One turn of each to warm up, then repetitions in which all take turns."""
    series = [one for pair in pairs for one in pair if one is not None]
    for number in range(-1, e.repetitions):
        e.progress("warming up" if number < 0 else f"turn {number + 1} of {e.repetitions}")
        for one in series:
            time.sleep(REST)
            speed = one.turn()
            if number >= 0:
                one.speeds.append(speed)


def _result(e: Evaluation, pairs: Sequence[Pair], unit: str, head: str) -> Result:
    rows, data = [], []
    for ours, other in pairs:
        cells = [ours.test, str(ours.threads), f"{ours.median:.2f}", f"{ours.spread:.2f}"]
        test: dict[str, Any] = {"test": ours.test, **_figures(ours), "unit": unit}
        if other is not None:
            test["ratio"] = ours.ratio(other)
            test["reference"] = _figures(other)
            cells += [f"{other.median:.2f}", f"{other.spread:.2f}", f"{test['ratio']:.2f}"]
        rows.append(cells)
        data.append(test)
    heads = ["test", "threads", f"{e.backend} {unit}", "IQR"]
    reference = pairs[0][1]
    if reference is not None:
        heads += [f"{reference.engine} {unit}", "IQR", "ratio"]
    best = max(pair[0].median for pair in pairs)
    ratios = f", {max(d['ratio'] for d in data):.2f} x reference" if reference else ""
    lines = [f"{head}; medians of {e.repetitions} turns", *table(heads, rows)]
    return Result(e, None, f"{best:.1f} {unit}{ratios}", lines, {"tests": data})


def _figures(series: Series) -> dict[str, Any]:
    return {
        "engine": series.engine, "threads": series.threads, "median": series.median,
        "iqr": series.spread, "speeds": series.speeds,
    }  # fmt: skip
