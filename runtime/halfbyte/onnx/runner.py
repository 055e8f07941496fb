"""Running a graph as programs: one for each set of input shapes, and, behind a node whose results'
shapes depend on values, one more for the shapes that it gave.

Programs are made when shapes are first met and kept in a bounded cache; weights belong to the model
and are shared by all of them.
"""

from __future__ import annotations

import time
from collections import ChainMap, OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from halfbyte.core import ops
from halfbyte.core.backends import Executable
from halfbyte.core.dtypes import dtype_key
from halfbyte.core.interrupt import step
from halfbyte.core.ops import Operator
from halfbyte.core.program import Buffer, Program, capture
from halfbyte.errors import UnsupportedError
from halfbyte.onnx.capture import (
    Capture,
    EndOfProgramError,
    Lives,
    Weights,
    dead_code_removed,
    finish,
)
from halfbyte.onnx.evaluate import Evaluator, Values, used_names
from halfbyte.onnx.files.model import Model, Node
from halfbyte.onnx.lowering import LOWERING
from halfbyte.onnx.passes import optimize_graph
from halfbyte.onnx.values import Unknown, Value
from halfbyte.onnx.work import WORK, exact_work
from halfbyte.room import memory_for

INT8_ATTENTION = "halfbyte.int8_attention"  # "1" in a model's metadata: may be in int8
KEPT = 8  # programs of other input shapes that are kept

Signature = tuple[tuple[str, np.dtype[Any] | str, tuple[int, ...]], ...]
Opener = Callable[[Program], Executable]


class Observer(Protocol):
    """Is told what ran when: `start` is of `time.perf_counter`."""

    def program(self, program: Program, start: float, seconds: np.ndarray[Any, Any]) -> None:
        """A program, with the time that each instruction took."""

    def node(
        self, node: Node, start: float, seconds: float, inputs: list[Any], outputs: list[Any]
    ) -> None:
        """A node between programs, with the values of its inputs and outputs."""


@dataclass(eq=False)
class Stage:
    """Nodes [first, last) as a program, for one set of shapes; memory is taken at its first run.

    `feeds` are copied into the program, `results` read from it, `known` was computed at capture.
    `dead` are values that nothing needs after node `last`, which follows.
    """

    first: int
    last: int
    program: Program | None
    opener: Opener
    feeds: dict[str, Buffer]
    results: dict[str, Buffer]
    known: dict[str, Any]
    dead: list[str]

    @cached_property
    def _executable(self) -> Executable | None:
        return None if self.program is None else self.opener(self.program)

    def run(self, values: dict[str, Any], observer: Observer | None) -> None:
        """Run it; its results are put into `values`, as views of its memory."""
        executable = self._executable
        if executable is None:
            return
        for name, buffer in self.feeds.items():
            executable.array(buffer)[...] = values[name]
        if observer is None:
            executable.run({})
        else:
            start = time.perf_counter()
            observer.program(executable.program, start, executable.profile({}))
        for name, buffer in self.results.items():
            dtype, shape = buffer.held_as({})
            values[name] = executable.array(buffer.root).reshape(-1).view(dtype).reshape(shape)

    def close(self) -> None:
        """Stop its threads and let go of its memory."""
        if (executable := self.__dict__.pop("_executable", None)) is not None:
            executable.close()


Key = tuple[Stage | None, Signature]  # what ran before, and what came of the node between


class _Scope(dict[str, Any]):
    """Values under capture: those that are there before become inputs when they are asked for."""

    def __init__(self, program: Program, values: Mapping[str, Any], known: Mapping[str, Any]):
        super().__init__({"": None})
        self._program, self._values, self._known = program, values, known

    def __missing__(self, name: str) -> Any:
        if name not in self._values:
            value = self._known[name]
        elif (key := _key_of(given := self._values[name])) is None:
            value = Unknown()
        else:
            buffer = self._program.input(name, key, given.shape)
            value = Value(key, given.shape, plain=buffer)
        self[name] = value
        return value


class Runner:
    """A model's programs.

    Parameters
    ----------
    model : Model
        Prepared: without functions.
    open_program : callable
        Binds a program to a backend.
    use_kernels : bool
        False runs every node by its definition.
    int8_attention : collection of Operator
        Products whose results attention takes in int8; see :func:`attention_products`.
    cores : int
        Batches go through programs in slices that fit the caches of so many.
    wide_products : bool
        Products of 16-bit numbers may replace those of bytes; see `backends.prefers_widened`.
    kept : int
        Programs from one node on, of different shapes, that are kept; the one used longest ago
        makes room.
    keep : collection of str
        Further values of the main graph that `run` can be asked for; they have memory of their own.
    """

    def __init__(
        self,
        model: Model,
        open_program: Opener,
        *,
        use_kernels: bool = True,
        int8_attention: Collection[Operator] = (),
        cores: int = 1,
        wide_products: bool = False,
        kept: int = KEPT,
        keep: Collection[str] = (),
    ) -> None:
        self.model = model
        self._open, self._kept = open_program, kept
        self._lowering = LOWERING if use_kernels else None
        self._int8_attention, self._cores, self._wide = int8_attention, cores, wide_products
        self._evaluator = Evaluator(model)
        self._weights = Weights(model.graph)
        self._stages: dict[int, OrderedDict[Key, Stage]] = {}  # by their first node
        outputs = [v.name for v in model.graph.outputs]
        self._lives = Lives(model.graph.nodes, [*outputs, *keep])

    def run(
        self,
        feeds: Mapping[str, Any],
        names: Sequence[str],
        observer: Observer | None = None,
    ) -> dict[str, Any]:
        """Values of these outputs; arrays are the caller's own."""
        values: dict[str, Any] = dict(feeds)
        known: dict[str, Any] = dict(self.model.graph.initializers)
        with memory_for(f"{self.model.path}: a run"):
            for stage in self._through(values, known, observer):
                stage.run(values, observer)
            return {name: _own(values.get(name, known.get(name))) for name in names}

    def plan(self, feeds: Mapping[str, Any], observer: Observer | None = None) -> list[Program]:
        """The programs that such a call runs, in their order.

        Those that others follow are run, since what they compute may decide about shapes; the last
        one takes no memory. `observer` is told of the nodes between programs.

        Raises
        ------
        UnsupportedError
            One of those nodes takes more operations than are worth a plan.
        """
        values: dict[str, Any] = dict(feeds)
        found = []
        for stage in self._through(values, dict(self.model.graph.initializers), observer, True):
            found += [stage.program] if stage.program is not None else []
            if stage.last < len(self.model.graph.nodes):
                stage.run(values, None)
        return found

    def _through(
        self,
        values: dict[str, Any],
        known: dict[str, Any],
        observer: Observer | None,
        planning: bool = False,
    ) -> Iterator[Stage]:
        """The stages of a call, each to be run before the next one is asked for.

        The nodes between them are run here.
        """
        nodes = self.model.graph.nodes
        stage: Stage | None = None
        at, given = 0, values.keys() - {""}
        while True:
            step()
            key = stage, _signature(values, given)
            stage = self._stage(at, key, values, known, planning)
            yield stage
            known |= stage.known
            if stage.last == len(nodes):
                return
            node = nodes[stage.last]
            scope: Values = ChainMap(values, known, {"": None})
            work = exact_work(node, [scope.get(name) for name in node.inputs]) or 0
            if planning and work > WORK:
                raise UnsupportedError(
                    f"{self.model.path}: {node}: expected at most {WORK:.1e} operations of what a "
                    f"plan has to compute, found {work:.1e}"
                )
            self._between(node, scope, observer)
            for name in stage.dead:
                values.pop(name, None)
            at, given = stage.last + 1, set(node.outputs) - {""}

    def _between(self, node: Node, scope: Values, observer: Observer | None) -> None:
        """Run a node that is in no program."""
        start = time.perf_counter()
        self._evaluator.node(node, scope)
        if observer is not None:
            seconds = time.perf_counter() - start
            inputs = [scope[name] for name in node.inputs]
            outputs = [scope[name] for name in node.outputs if name]
            observer.node(node, start, seconds, inputs, outputs)

    def programs(self) -> list[Program]:
        """Every program that is kept, in order of execution for each set of shapes."""
        kept = [(key, stage) for found in self._stages.values() for key, stage in found.items()]
        there = {stage for _, stage in kept}
        followers: dict[Stage | None, list[Stage]] = {}
        for (before, _), stage in reversed(kept):
            followers.setdefault(before if before in there else None, []).append(stage)
        found, waiting = [], followers.get(None, [])
        while waiting:
            stage = waiting.pop()
            found.append(stage.program)
            waiting += followers.get(stage, [])
        return [program for program in found if program is not None]

    def close(self) -> None:
        """Stop all threads."""
        for found in self._stages.values():
            for stage in found.values():
                stage.close()

    def _stage(
        self, at: int, key: Key, values: dict[str, Any], known: dict[str, Any], planning: bool
    ) -> Stage:
        """The stage from node `at` on, for the shapes that led there."""
        stages = self._stages.setdefault(at, OrderedDict())
        stage = stages.get(key)
        if stage is None:
            stage = stages[key] = self._capture(at, values, known, planning)
            while len(stages) > self._kept:
                stages.popitem(last=False)[1].close()
        stages.move_to_end(key)
        return stage

    def _capture(
        self, at: int, values: dict[str, Any], known: dict[str, Any], planning: bool
    ) -> Stage:
        nodes = self.model.graph.nodes
        with capture(f"{self.model.path.name}[{at}:]") as program:
            scope = _Scope(program, values, known)
            captured = Capture(self.model, program, scope, self._weights, self._lowering, planning)
            last = self._record(captured, nodes, at)
            made = [name for node in nodes[at:last] for name in node.outputs if name]
            wanted = [name for name in made if self._lives.needed(name, last)]
            results, constants = finish(captured, wanted)
        constants = {k: v for k, v in constants.items() if v is not None}
        program = optimize_graph(
            dead_code_removed(program), int8_attention=self._int8_attention, cores=self._cores,
            wide_products=self._wide,
        )  # fmt: skip
        used = {b.root for instruction in program.instructions for b in instruction.inputs}
        used |= {b.root for b in results.values()}
        feeds = {name: buffer for name, buffer in program.inputs.items() if buffer in used}
        program.inputs = dict(feeds)
        kept = program if program.instructions or results else None
        touched = {name for node in nodes[at : last + 1] for name in _names(node)}
        dead = [name for name in touched if not self._lives.needed(name, last + 1)]
        return Stage(at, last, kept, self._open, feeds, results, constants, dead)

    def _record(self, captured: Capture, nodes: Sequence[Node], at: int) -> int:
        """Record nodes until one ends the program; its index."""
        for index in range(at, len(nodes)):
            mark = captured.mark()
            try:
                captured.record(nodes[index])
            except EndOfProgramError:
                captured.undo(mark)
                return index
            for name in nodes[index].inputs:  # what was folded goes as soon as nobody needs it
                constant = isinstance(captured.values.get(name), np.ndarray)
                if constant and not self._lives.needed(name, index + 1):
                    del captured.values[name]
        return len(nodes)


def attention_products(model: Model, wanted: bool | None = None) -> Collection[Operator]:
    """Products between which attention is in int8: where wanted, or else as the model says."""
    says = model.metadata.get(INT8_ATTENTION) == "1"
    return (ops.matmul_int8, ops.matmul_rotated) if (says if wanted is None else wanted) else ()


def _key_of(value: Any) -> str | None:
    return dtype_key(value.dtype) if isinstance(value, np.ndarray) else None


def _names(node: Node) -> set[str]:
    return used_names(node) | set(filter(None, node.outputs))


def _signature(values: Mapping[str, Any], names: Collection[str]) -> Signature:
    return tuple((name, *_kind(values[name])) for name in sorted(names) if name in values)


def _kind(value: Any) -> tuple[np.dtype[Any] | str, tuple[int, ...]]:
    if isinstance(value, np.ndarray):
        return value.dtype, value.shape
    return type(value).__name__, ()


def _own(value: Any) -> Any:
    """Not a view of a program's memory."""
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, list):
        return [_own(item) for item in value]
    return value
