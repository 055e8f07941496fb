"""The workloads `validate` and `run`."""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.evaluation.comparison import compare, json_number
from halfbyte.evaluation.evaluation import Result
from halfbyte.evaluation.rows import comparison_rows, value_rows
from halfbyte.evaluation.subject import Subject
from halfbyte.outputs import write_text


def validate(subject: Subject, reference: str) -> Result:
    """Outputs beside those of a reference, within tolerances."""
    e = subject.evaluation
    outputs = []
    for threads in e.thread_counts:
        e.progress(f"running {e.backend}, {threads} threads")
        outputs.append(subject.outputs(threads))
    e.progress(f"running {reference}")
    expected = subject.reference_outputs(reference)
    subject.dump.values("values", outputs[-1])
    subject.dump.values("reference", expected)
    rows = []
    for threads, actual in zip(e.thread_counts, outputs, strict=True):
        for name, value in actual.items():
            tolerance = e.tolerance(subject.output_kind, subject.backend, expected[name])
            rows.append((name, threads, compare(value, expected[name], tolerance)))
    remarks, data = subject.remarks(outputs[-1], expected)
    lines = [
        f"{e.model.name}: {subject.backend} beside {reference}; {subject.inputs}",
        *comparison_rows(rows), *remarks,
    ]  # fmt: skip
    data = {
        "reference": reference, "backend": subject.backend, **data,
        "outputs": [{"name": n, "threads": t, **c.as_json()} for n, t, c in rows],
    }  # fmt: skip
    worst = max((c.max_rel for _, _, c in rows), default=0.0)
    return Result(e, all(c.passed for _, _, c in rows), f"max rel error {worst:.1e}", lines, data)


def run(subject: Subject, reference: str) -> Result:
    """Summaries of the outputs and a profile; the first run is not in it."""
    del reference  # "none"
    e = subject.evaluation
    threads = e.one_thread_count
    with subject.profiled(threads) as runs:
        for number in range(e.repetitions):
            e.progress(f"run {number + 1} of {e.repetitions}")
            start = time.perf_counter()
            outputs = runs.run()
            runs.profile.add_span(runs.span, start)
    subject.dump.values("values", outputs)
    if e.trace is not None:
        write_text(e.trace, json.dumps(runs.events()))
    summaries = {name: summary(value) for name, value in outputs.items()}
    seconds = sum(row.seconds for row in runs.profile.rows.values())
    lines = [
        f"{e.model.name}: {subject.backend}, {threads} threads, {e.repetitions} runs; "
        f"{subject.inputs}",
        *value_rows(summaries), "", *runs.profile.table().splitlines(),
    ]  # fmt: skip
    kernels = {
        name: {
            "calls": row.calls, "seconds": row.seconds, "bytes": row.bytes,
            "operations": row.operations,
        }
        for name, row in runs.profile.rows.items()
    }  # fmt: skip
    data = {
        "backend": subject.backend, "threads": threads, "outputs": summaries, "kernels": kernels,
    }  # fmt: skip
    return Result(e, None, f"{seconds / e.repetitions * 1e3:.2f} ms a run", lines, data)


def summary(value: Any) -> dict[str, Any]:
    """A value's type and shape; of numbers their range, mean, deviation and how many are finite."""
    if not isinstance(value, np.ndarray):
        return {"type": type(value).__name__}
    kind = value.dtype.names[0] if value.dtype.names else str(value.dtype)
    described: dict[str, Any] = {"type": kind, "shape": list(value.shape)}
    if value.dtype.kind not in "fiub" or not value.size:
        return described
    numbers: npt.NDArray[np.float64] = value.astype(np.float64)
    finite = numbers[np.isfinite(numbers)]
    described["not_finite"] = int(numbers.size - finite.size)
    if finite.size:
        figures = (finite.min(), finite.max(), finite.mean(), finite.std())
        names = ("min", "max", "mean", "deviation")
        described.update(zip(names, (json_number(float(f)) for f in figures), strict=True))
    return described
