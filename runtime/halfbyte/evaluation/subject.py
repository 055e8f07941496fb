"""The interface between the workloads and a model: implemented for graphs and language models."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar

from halfbyte.core.backends import Executable
from halfbyte.core.profiling import Profile
from halfbyte.core.program import Program
from halfbyte.evaluation.dump import Dump
from halfbyte.evaluation.evaluation import Evaluation
from halfbyte.evaluation.series import Pair

Values = dict[str, Any]


@dataclass(frozen=True)
class ProfiledRuns:
    """A model that is ready to be profiled.

    Attributes
    ----------
    run : callable
        Runs the model once and returns its outputs.
    profile : Profile
        What these runs are added to.
    span : str
        The name of one run in the trace.
    events : callable
        Returns the Chrome trace's events.
    """

    run: Callable[[], Values]
    profile: Profile
    span: str
    events: Callable[[], list[dict[str, Any]]]


class Subject(ABC):
    """A model with its inputs.

    Attributes
    ----------
    evaluation : Evaluation
    dump : Dump
    backend : str
        The backend; its full name once a program runs on it.
    unit : str
        Unit of the speeds that `pairs` measures.
    """

    unit: ClassVar[str]

    def __init__(self, evaluation: Evaluation) -> None:
        self.evaluation = evaluation
        self.dump = Dump(evaluation.dump)
        self.backend = evaluation.backend

    @classmethod
    @abstractmethod
    def references(cls, workload: str) -> tuple[str, ...]:
        """The references that a workload can have, the default first."""

    @property
    @abstractmethod
    def inputs(self) -> str:
        """A short description of the inputs; empty while they are not known."""

    @property
    @abstractmethod
    def output_kind(self) -> str:
        """The name of its outputs in rules of tolerances, such as `tolerances.OUTPUT`."""

    @abstractmethod
    def outputs(self, threads: int) -> Values:
        """The outputs on the backend, by name."""

    @abstractmethod
    def reference_outputs(self, reference: str) -> Values:
        """The outputs of a reference; called after `outputs`."""

    def remarks(self, actual: Values, expected: Values) -> tuple[list[str], Mapping[str, Any]]:
        """What else to report about outputs and their reference: lines, and data for JSON."""
        del actual, expected
        return [], {}

    @abstractmethod
    def profiled(self, threads: int) -> AbstractContextManager[ProfiledRuns]:
        """The model after one run, which planned, packed, and touched the weights."""

    @abstractmethod
    def step_through(self, opener: Callable[[Program], Executable]) -> None:
        """Run the model once, on executables of this opener."""

    @abstractmethod
    def pairs(self, reference: str) -> AbstractContextManager[list[Pair]]:
        """The speeds to measure: the backend's, each with the reference's unless that is "none"."""
