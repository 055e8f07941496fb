"""Lists of evaluations in a TOML file, run one after the other.

    tolerances = "tolerances.toml"     # rules for all of them
    [defaults]                         # of every entry; any of its keys except model
    backend = "native"

    [[model]]
    model = "bert.onnx"                # paths are relative to this file
    workloads = ["validate", "trace"]
    reference = "numpy"
    sizes = { batch = 2, sequence = 16 }
    rtol = 1e-3                        # for this entry only

Keys of an entry: model, workloads, reference, backend, threads, passes, input, sizes, seed, prompt,
tokenizer, context, cache, prompts, decodes, repetitions, forced, stop, tolerances, rtol, atol,
min_cosine, steps. An entry's tolerances precede the file's, and its numbers precede both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from halfbyte.columns import table
from halfbyte.errors import HalfbyteError
from halfbyte.evaluation import evaluate
from halfbyte.evaluation.dump import file_name
from halfbyte.evaluation.evaluation import REFERENCES, WORKLOADS, Evaluation, Result
from halfbyte.evaluation.rows import verdict
from halfbyte.evaluation.tolerances import Rule, read_rules, take_numbers
from halfbyte.evaluation.toml_file import Section, read_toml
from halfbyte.text.planning import CACHES

FAILED, BAD_INPUT = 1, 2

_SIMPLE: dict[str, type] = {
    "backend": str, "prompt": str, "seed": int, "context": int, "repetitions": int,
    "passes": bool, "forced": bool, "stop": bool,
}  # fmt: skip
_FILES = ("input", "tokenizer")
_COUNTS = ("threads", "prompts", "decodes")


@dataclass
class Entry:
    """One evaluation of a suite with its result, or the error instead."""

    evaluation: Evaluation
    result: Result | None = None
    error: str = ""

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        e = self.evaluation
        if self.result is not None:
            return self.result.as_json()
        return {
            "model": str(e.model), "workload": e.workload, "backend": e.backend, "passed": None,
            "error": self.error,
        }  # fmt: skip


def read_suite(path: Path, base: Evaluation) -> list[Entry]:
    """The evaluations of a suite; `base` provides the settings that it leaves out.

    Raises
    ------
    FormatError
        The file is not a suite; the message names the key.
    """
    section = read_toml(path)
    common = section.take("tolerances", str)
    if common is not None:
        base = _with_file(base, path.parent / common)
    defaults: Mapping[str, Any] = section.take("defaults", dict, {})
    tables = section.items("model", dict)
    section.finish()
    entries: list[Entry] = []
    for number, values in enumerate(tables):
        part = Section(path, f"model[{number}]", {**defaults, **values})
        if "model" not in values:
            raise part.error("model", "a path", None)
        entries += _entries(part, base, path.parent)
    if not entries:
        raise section.error("model", "one or more tables [[model]]", None)
    return _with_folders(entries)


def _with_file(base: Evaluation, path: Path) -> Evaluation:
    return replace(base, tolerances=base.tolerances.with_layer(read_rules(path)))


def _entries(part: Section, base: Evaluation, folder: Path) -> list[Entry]:
    """An entry for each of a model's workloads."""
    changes: dict[str, Any] = {"model": folder / part.take("model", str)}
    for key, kind in _SIMPLE.items():
        changes[key] = part.take(key, kind)
    for key in _FILES:
        name = part.take(key, str)
        changes[key] = None if name is None else folder / name
    for key in _COUNTS:
        changes[key] = _counts(part, key)
    changes["reference"] = part.choice("reference", REFERENCES)
    changes["cache"] = part.choice("cache", CACHES)
    changes["sizes"] = _sizes(part)
    tolerances = part.take("tolerances", str)
    workloads = part.items("workloads", str) or [base.workload]
    for number, workload in enumerate(workloads):
        if workload not in WORKLOADS:
            raise part.error(f"workloads[{number}]", f"one of {', '.join(WORKLOADS)}", workload)
    numbers = take_numbers(part)
    part.finish()
    entry = replace(base, **{key: value for key, value in changes.items() if value is not None})
    if tolerances is not None:
        entry = _with_file(entry, folder / tolerances)
    if numbers:
        entry = replace(entry, tolerances=entry.tolerances.with_layer([Rule(numbers=numbers)]))
    return [Entry(replace(entry, workload=workload)) for workload in workloads]


def _with_folders(entries: list[Entry]) -> list[Entry]:
    """The entries, each with a folder of its own for dumped values."""
    changed = []
    for number, entry in enumerate(entries):
        e = entry.evaluation
        if e.dump is not None:
            folder = e.dump / f"{number:02d}-{file_name(e.model.name)}-{e.workload}"
            entry = Entry(replace(e, dump=folder))
        changed.append(entry)
    return changed


def _counts(part: Section, key: str) -> tuple[int, ...] | None:
    counts = part.items(key, int)
    for number, count in enumerate(counts):
        if count < 1:
            raise part.error(f"{key}[{number}]", "1 or more", count)
    return tuple(counts) or None


def _sizes(part: Section) -> dict[str, int] | None:
    sizes: dict[str, Any] | None = part.take("sizes", dict)
    for name, size in (sizes or {}).items():
        if not isinstance(size, int) or isinstance(size, bool):
            raise part.error(f"sizes.{name}", "a whole number", size)
    return sizes


def run_suite(entries: list[Entry], done: Callable[[Entry], None]) -> int:
    """Run all entries, including those after one that cannot be run.

    Parameters
    ----------
    entries : list of Entry
    done : callable
        Called with each entry once it has its result or error.

    Returns
    -------
    int
        Exit code: 2 if one could not be run, else 1 if one failed, else 0.
    """
    for entry in entries:
        try:
            entry.result = evaluate(entry.evaluation)
        except (HalfbyteError, OSError) as error:
            entry.error = str(error)
        done(entry)
    if any(entry.error for entry in entries):
        return BAD_INPUT
    failed = any(e.result is not None and e.result.passed is False for e in entries)
    return FAILED if failed else 0


def summary_rows(entries: list[Entry]) -> list[str]:
    """A line for each evaluation."""
    cells = []
    for entry in entries:
        e, result = entry.evaluation, entry.result
        word = "error" if result is None else verdict(result.passed)
        text = entry.error if result is None else result.summary
        cells.append([e.model.name, e.workload, word, text])
    return table(["model", "workload", "result", ""], cells, 4)
