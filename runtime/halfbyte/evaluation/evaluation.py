"""What is asked of an evaluation, and what it finds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from halfbyte.core.backends.cores import default_threads
from halfbyte.errors import HalfbyteError
from halfbyte.evaluation.tolerances import Rule, Tolerance, Tolerances, built_in

WORKLOADS = ("validate", "trace", "bench", "run")
REFERENCES = ("numpy", "onnxruntime", "torch", "none")

Progress = Callable[[str], None]


def type_name(value: Any) -> str:
    """The type of an array's elements, as NumPy or ONNX calls it; else that of the object."""
    if not isinstance(value, np.ndarray):
        return type(value).__name__
    return value.dtype.names[0] if value.dtype.names else str(value.dtype)


def _silent(text: str) -> None:
    """Progress that nobody looks at."""


@dataclass(frozen=True)
class Evaluation:
    """One workload on one model.

    Attributes
    ----------
    model : Path
        An ONNX file, or what `halfbyte.load` takes.
    workload : {"validate", "trace", "bench", "run"}
    reference : {"numpy", "onnxruntime", "torch", "none"} or None
        None is each workload's own; "none" is for `bench` and `run` alone.
    backend : str
        See `halfbyte.core.backends`.
    threads : tuple of int
        Empty for one per fast core; several for `validate` and `bench`.
    passes : bool
        False runs graphs unfused, and language models as captured.
    input : Path or None
        An .npz: a graph's inputs by name, or `ids` of tokens.
    sizes : mapping of str to int
        A graph's open dimensions.
    seed : int
        Of random inputs.
    prompt : str
        What a language model reads.
    tokenizer, context, cache
        As for `halfbyte.load`.
    prompts, decodes : tuple of int
        A language model's benchmarks: lengths of prompts, tokens to generate.
    repetitions : int
        Of `bench` and `run`.
    forced : bool or None
        In `trace`, compare instruction by instruction with NumPy, each on NumPy's inputs. None is
        True for language models; graphs are compared value by value with their reference.
    stop : bool
        In `trace`, stop at the first value that differs.
    dump : Path or None
        A folder for programs and tensors.
    trace : Path or None
        A file for the Chrome trace of `run`.
    tolerances : Tolerances
    overrides : tuple of tuples of Rule
        Layers before all of these.
    progress : callable
        Told what is done next.
    """

    model: Path
    workload: str
    reference: str | None = None
    backend: str = "native"
    threads: tuple[int, ...] = ()
    passes: bool = True
    input: Path | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    seed: int = 0
    prompt: str = "Once upon a time"
    tokenizer: Path | None = None
    context: int | None = None
    cache: str = "auto"
    prompts: tuple[int, ...] = (128,)
    decodes: tuple[int, ...] = (32,)
    repetitions: int = 5
    forced: bool | None = None
    stop: bool = False
    dump: Path | None = None
    trace: Path | None = None
    tolerances: Tolerances = field(default_factory=built_in)
    overrides: tuple[tuple[Rule, ...], ...] = ()
    progress: Progress = _silent

    def tolerance(self, operator: str, backend: str, value: Any) -> Tolerance:
        """What holds for a value that this operator makes."""
        tolerances = self.tolerances
        for rules in self.overrides:
            tolerances = tolerances.with_layer(rules)
        return tolerances.find(self.model.name, operator, backend, type_name(value))

    @property
    def thread_counts(self) -> tuple[int, ...]:
        """At least one number of threads."""
        return self.threads or (default_threads(),)

    @property
    def one_thread_count(self) -> int:
        """The number of threads of a workload that takes one."""
        if len(self.threads) > 1:
            raise HalfbyteError(
                f"{self.workload}: expected one number of threads, found {list(self.threads)}"
            )
        return self.thread_counts[0]

    def reference_of(self, *choices: str) -> str:
        """The reference, out of those that work here; the first one where none is asked for.

        Raises
        ------
        HalfbyteError
            It is none of them.
        """
        if self.reference is None:
            return choices[0]
        if self.reference not in choices:
            raise HalfbyteError(
                f"{self.model}: reference '{self.reference}' of {self.workload}: expected "
                f"{' or '.join(choices)}"
            )
        return self.reference


@dataclass
class Result:
    """What an evaluation found.

    Attributes
    ----------
    evaluation : Evaluation
    passed : bool or None
        None where nothing was compared.
    summary : str
        In a few words.
    lines : list of str
        All of it, for people.
    data : dict
        All of it, as JSON takes it.
    """

    evaluation: Evaluation
    passed: bool | None
    summary: str
    lines: list[str] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        e = self.evaluation
        return {
            "model": str(e.model), "workload": e.workload, "backend": e.backend,
            "passed": self.passed, "summary": self.summary, **self.data,
        }  # fmt: skip
