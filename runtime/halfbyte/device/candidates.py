"""Models in types that are compared: those of their files, and those that `quantize` would write.

A candidate is planned once for all devices, as far as plans do not depend on them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from halfbyte.device.cost import F64
from halfbyte.device.graphs import GraphPlan, GraphPlanner, Runs
from halfbyte.device.room import Room, Verdict
from halfbyte.device.smaller import BITS, file_bytes, graph_in_bits, in_type
from halfbyte.device.speed import PROMPT, Flags, Speed, Task, Tokens
from halfbyte.errors import HalfbyteError, nearest, printable
from halfbyte.evaluation.inputs import open_sizes
from halfbyte.formats.model_file import ModelFile
from halfbyte.onnx.files import is_onnx_file
from halfbyte.onnx.files.model import Model
from halfbyte.text.outline import open_plannable
from halfbyte.text.planning import LEVELS, Given, Plan, plan, settings_of

AS_IS = "as-is"  # the type that a file has
ANSWER = 200  # tokens of an answer for which energy is given


@dataclass(frozen=True)
class Choices:
    """How models are run: a level and settings in its place, tokens of a prompt, open sizes of
    graphs, and a tokenizer of llama2.c's."""

    level: str = "baseline"
    given: Given = field(default_factory=Given)
    prompt: int = PROMPT
    sizes: tuple[tuple[str, int], ...] = ()
    tokenizer: Path | None = None


class Candidate(Protocol):
    """A model in a type.

    Attributes
    ----------
    model, type : str
        Names, for people.
    size : int
        Bytes of all weights in the file.
    answer : int
        Tokens, or runs, for which energy is given.
    """

    model: str
    type: str
    size: int
    answer: int

    def memory(self, room: Room) -> Verdict:
        """What it needs there."""

    def task(self, room: Room, from_storage: Flags) -> Task:
        """Its work."""

    def first_s(self, room: Room, from_storage: bool) -> F64:
        """Seconds [draws] to the first token after a prompt, or of a run, on a cool device."""

    def would(self, room: Room) -> str:
        """A setting that fits where the chosen one does not; empty if there is none."""


class TextCandidate:
    """A language model."""

    answer = ANSWER

    def __init__(self, file: ModelFile, model: str, type_: str, choices: Choices) -> None:
        self.file, self.model, self.type, self._choices = file, model, type_, choices
        self.size = sum(tensor.nbytes for tensor in file.tensors.values())
        self._plans: dict[str, Plan] = {}
        context = self._plan(choices.level).settings.context or 0
        if not 1 <= choices.prompt < context:
            raise HalfbyteError(
                f"{file.path}: prompt of {choices.prompt} tokens: expected 1 to {context - 1}, "
                f"with a context of {context}"
            )

    def memory(self, room: Room) -> Verdict:
        """What it needs there."""
        return self._verdict(room, self._choices.level)

    def task(self, room: Room, from_storage: Flags) -> Task:
        """Tokens of answers."""
        return Tokens(self._plan(self._choices.level), from_storage)

    def first_s(self, room: Room, from_storage: bool) -> F64:
        """Seconds [draws] of the prompt."""
        draws, rates = room.draws()
        prompt = self._choices.prompt
        planned = self._plan(self._choices.level)
        speed = Speed(planned, room.profile, draws, prompt=prompt, from_storage=from_storage)
        return prompt * speed.prompt.seconds(rates)

    def would(self, room: Room) -> str:
        """The first level that fits."""
        fitting = (level for level in LEVELS if self._verdict(room, level).fits)
        return next((f"--level {level}" for level in fitting), "")

    def _verdict(self, room: Room, level: str) -> Verdict:
        planned = self._plan(level)
        return room.verdict(f"--level {level}", planned.memory, streamed=planned.reader is not None)

    def _plan(self, level: str) -> Plan:
        if level not in self._plans:
            given: Given = {**self._choices.given}
            if level != self._choices.level:
                given.pop("weights", None)
            self._plans[level] = plan(self.file, settings_of(level, given))
        return self._plans[level]


class GraphCandidate:
    """An ONNX graph; an answer is one run."""

    answer = 1

    def __init__(self, graph: Model, model: str, type_: str, choices: Choices) -> None:
        self.graph, self.model, self.type = graph, model, type_
        self.size = file_bytes(graph)
        self._sizes = open_sizes(graph, dict(choices.sizes))
        self._plans: dict[int, GraphPlan] = {}

    def memory(self, room: Room) -> Verdict:
        """What a run needs there."""
        return room.verdict("", self._plan(room).memory)

    def task(self, room: Room, from_storage: Flags) -> Task:
        """Runs."""
        return Runs(self._plan(room), bool(from_storage))

    def first_s(self, room: Room, from_storage: bool) -> F64:
        """Seconds [draws] of a run."""
        draws, rates = room.draws()
        run, _ = Runs(self._plan(room), from_storage).passes(room.profile, draws)
        return run.seconds(rates)

    def would(self, room: Room) -> str:
        """Nothing: `halfbyte fit` tries sizes of inputs."""
        return ""

    def _plan(self, room: Room) -> GraphPlan:
        """Of as many cores; a batch is processed in slices for their caches."""
        if room.threads not in self._plans:
            planner = GraphPlanner(self.graph, room.threads)
            try:
                self._plans[room.threads] = planner.plan(self._sizes)
            finally:
                planner.close()
        return self._plans[room.threads]


def candidates(
    paths: Sequence[Path], types: Sequence[str], choices: Choices
) -> Iterator[Candidate]:
    """All models in all types; one `as-is` if there are no types.

    Raises
    ------
    HalfbyteError
        A model or a type is given twice, is not known, or cannot be planned.
    """
    seen: set[str] = set()
    for path in paths:
        if (place := os.path.realpath(path)) in seen:
            raise HalfbyteError(f"{path}: is given twice: expected different models")
        seen.add(place)
    lower = [type_.lower() for type_ in types]
    if twice := [type_ for type_ in types if lower.count(type_.lower()) > 1]:
        raise HalfbyteError(f"type {twice[0]!r}: is given twice: expected different types")
    if choices.sizes and not any(is_onnx_file(path) for path in paths):
        raise HalfbyteError(
            f"--size {choices.sizes[0][0]}: expected an ONNX graph among the models"
        )
    for path, name in zip(paths, _labels(paths), strict=True):
        if is_onnx_file(path):
            yield from _graphs(path, name, types, choices)
        else:
            yield from _texts(path, name, types, choices)


def _labels(paths: Sequence[Path]) -> list[str]:
    """The names of the models, with their folders if names are the same.

    They are printable: terminals and pages show them, and a file's name may be any bytes.
    """
    names = [path.name or str(path) for path in paths]
    return [
        printable(name if names.count(name) == 1 else str(path))
        for path, name in zip(paths, names, strict=True)
    ]


def _texts(path: Path, name: str, types: Sequence[str], choices: Choices) -> Iterator[Candidate]:
    file = open_plannable(path, choices.tokenizer)
    for type_ in types or (AS_IS,):
        typed = file if type_ == AS_IS else in_type(file, type_)
        yield TextCandidate(typed, name, type_, choices)


def _graphs(path: Path, name: str, types: Sequence[str], choices: Choices) -> Iterator[Candidate]:
    from halfbyte.onnx.session.opening import open_model as open_graph
    from halfbyte.onnx.session.options import SessionOptions

    graph = open_graph(path, SessionOptions())
    known = [AS_IS, *BITS]
    for type_ in types or (AS_IS,):
        if type_ not in known:
            raise HalfbyteError(f"{path}: type {type_!r}: expected one of {nearest(type_, known)}")
        typed = graph if type_ == AS_IS else graph_in_bits(graph, BITS[type_])
        yield GraphCandidate(typed, name, type_, choices)
