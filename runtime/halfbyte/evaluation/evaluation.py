"""The description of an evaluation, and its result."""

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
    """The type of an array's elements by NumPy's or ONNX's name; otherwise the object's type."""
    if not isinstance(value, np.ndarray):
        return type(value).__name__
    return value.dtype.names[0] if value.dtype.names else str(value.dtype)


def _silent(text: str) -> None:
    """Progress that is not shown."""


@dataclass(frozen=True)
class Evaluation:
    """One workload on one model.

    Attributes
    ----------
    model : Path
        An ONNX file, or a model that `halfbyte.load` accepts.
    workload : {"validate", "trace", "bench", "run"}
    reference : {"numpy", "onnxruntime", "torch", "none"} or None
        None is the default of the workload; "none" is for `bench` and `run` only.
    backend : str
        See `halfbyte.core.backends`.
    threads : tuple of int
        Numbers of threads; empty for one per fast core. `validate` and `bench` take several.
    passes : bool
        False runs graphs without fusion, and language models as captured.
    input : Path or None
        An .npz file: a graph's inputs by name, or token `ids`.
    sizes : mapping of str to int
        Sizes of a graph's open dimensions.
    seed : int
        Seed of random inputs.
    prompt : str
        Text that a language model reads.
    tokenizer, context, cache
        See `halfbyte.load`.
    prompts, decodes : tuple of int
        For `bench` of a language model: lengths of prompts, numbers of tokens to generate.
    repetitions : int
        Number of repetitions in `bench` and `run`.
    forced : bool or None
        In `trace`, compare each instruction with NumPy on NumPy's inputs. None is True for language
        models; graphs are compared with their reference, value by value.
    stop : bool
        In `trace`, stop at the first value that differs.
    dump : Path or None
        A folder to write programs and tensors to.
    trace : Path or None
        A file to write the Chrome trace of `run` to.
    tolerances : Tolerances
    overrides : tuple of tuples of Rule
        Layers that precede all of these.
    progress : callable
        Called with a description of the next step.
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
        """The tolerance of a value that this operator computes."""
        tolerances = self.tolerances
        for rules in self.overrides:
            tolerances = tolerances.with_layer(rules)
        return tolerances.find(self.model.name, operator, backend, type_name(value))

    @property
    def thread_counts(self) -> tuple[int, ...]:
        """Numbers of threads, at least one."""
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
        """The reference, which must be one of the choices; by default the first.

        Raises
        ------
        HalfbyteError
            It is not one of them.
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
    """The result of an evaluation.

    Attributes
    ----------
    evaluation : Evaluation
    passed : bool or None
        None where nothing was compared.
    summary : str
        A short summary.
    lines : list of str
        The whole result as text.
    data : dict
        The whole result as JSON data.
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
