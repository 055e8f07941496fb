"""Running a graph: a program for each set of input shapes, kept in a bounded cache.

A node whose results' shapes depend on values (NonZero, a loop) ends a program. It runs by its
definition, and the next program is captured for the shapes of its results. Programs are captured
when their shapes first occur; their packed weights belong to the model and are shared.

`Runner.plan` returns the programs of a call without memory for the last one: `halfbyte fit` counts
their bytes and estimates the time of their instructions.
"""

from __future__ import annotations

import time
from collections import ChainMap, OrderedDict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from halfbyte.core import ops
from halfbyte.core.backends.memory import Memory
from halfbyte.core.interrupt import step
from halfbyte.core.ops import Operator
from halfbyte.core.program import Program, capture
from halfbyte.errors import UnsupportedError
from halfbyte.onnx.capture import Capture, EndOfProgramError
from halfbyte.onnx.evaluate import Evaluator, Values, used_names
from halfbyte.onnx.files.initializers import release
from halfbyte.onnx.files.model import Model, Node
from halfbyte.onnx.lowering import LOWERING
from halfbyte.onnx.passes import optimize_graph
from halfbyte.onnx.shared_weights import SharedWeights
from halfbyte.onnx.stages import Lifetimes, Observer, Opener, Scope, Stage
from halfbyte.onnx.work import WORK, exact_work
from halfbyte.room import memory_for

INT8_ATTENTION = "halfbyte.int8_attention"  # "1" in a model's metadata: attention may be in int8
MAX_STAGES = 8  # from one node on, of different shapes

Known = ChainMap[str, Any]  # constants: computed by captures, and the model's
Signature = tuple[tuple[str, np.dtype[Any] | str, tuple[int, ...]], ...]
Key = tuple[Stage | None, Signature]  # the stage before, and the values since then


class Runner:
    """The programs of a model.

    Parameters
    ----------
    model : Model
        A prepared model, which has no functions.
    open_program : callable
        Binds a program to a backend.
    use_kernels : bool
        False runs every node by its definition.
    int8_attention : collection of Operator
        Attention whose operands these products compute is in int8; see :func:`attention_products`.
    cores : int
        Large batches run in slices that fit the caches of this many cores.
    wide_products : bool
        Whether products of 16-bit integers may replace those of bytes; see
        `backends.prefers_widened`.
    max_stages : int
        How many stages that begin at the same node are kept; the least recently used is dropped.
    memory : Memory, optional
        Where the programs run, if all run there: their weights are put into it.
    keep : collection of str
        Further values of the main graph that `run` may return; each has memory of its own.
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
        max_stages: int = MAX_STAGES,
        memory: Memory | None = None,
        keep: Collection[str] = (),
    ) -> None:
        self.model = model
        self._open, self._max_stages = open_program, max_stages
        self._lowering = LOWERING if use_kernels else None
        self._int8_attention, self._cores, self._wide = int8_attention, cores, wide_products
        self._evaluator = Evaluator(model)
        self._weights = SharedWeights(model.graph, memory)
        self._stages: dict[int, OrderedDict[Key, Stage]] = {}  # by first node
        outputs = [v.name for v in model.graph.outputs]
        self._lifetimes = Lifetimes(model.graph.nodes, [*outputs, *keep])

    def run(
        self,
        feeds: Mapping[str, Any],
        names: Sequence[str],
        observer: Observer | None = None,
    ) -> dict[str, Any]:
        """The values of these outputs; arrays are copies."""
        values: dict[str, Any] = dict(feeds)
        known: Known = ChainMap({}, self.model.graph.initializers)
        with memory_for(f"{self.model.path}: a run"):
            for stage in self._through(values, known, observer):
                stage.run(values, observer)
            return {name: _own(values.get(name, known.get(name))) for name in names}

    def plan(self, feeds: Mapping[str, Any], observer: Observer | None = None) -> list[Program]:
        """The programs that such a call runs, in order.

        All but the last are run, because the shapes after them may depend on their results; the
        last one allocates no memory. `observer` is notified of the nodes between programs.

        Raises
        ------
        UnsupportedError
            One of those nodes takes too many operations for a plan.
        """
        values: dict[str, Any] = dict(feeds)
        programs = []
        known: Known = ChainMap({}, self.model.graph.initializers)
        for stage in self._through(values, known, observer, True):
            programs += [stage.program] if stage.program is not None else []
            if stage.last < len(self.model.graph.nodes):
                stage.run(values, None)
        return programs

    def _through(
        self,
        values: dict[str, Any],
        known: Known,
        observer: Observer | None,
        planning: bool = False,
    ) -> Iterator[Stage]:
        """The stages of a call; the caller runs each one before it takes the next.

        The nodes between them run here.
        """
        nodes = self.model.graph.nodes
        stage: Stage | None = None
        at, new = 0, values.keys() - {""}
        while True:
            step()
            key = stage, _signature(values, new)
            stage = self._stage(at, key, values, known, planning)
            yield stage
            known.update(stage.known)
            if stage.last == len(nodes):
                return
            node = nodes[stage.last]
            scope: Values = ChainMap(values, *known.maps, {"": None})
            work = exact_work(node, [scope.get(name) for name in node.inputs]) or 0
            if planning and work > WORK:
                raise UnsupportedError(
                    f"{self.model.path}: {node}: a plan computes nodes of at most {WORK:.1e} "
                    f"operations, found {work:.1e}"
                )
            self._between(node, scope, observer)
            for name in stage.dead:
                values.pop(name, None)
            at, new = stage.last + 1, set(node.outputs) - {""}

    def _between(self, node: Node, scope: Values, observer: Observer | None) -> None:
        """Run a node that is not part of a program."""
        start = time.perf_counter()
        self._evaluator.node(node, scope)
        if observer is not None:
            seconds = time.perf_counter() - start
            inputs = [scope[name] for name in node.inputs]
            outputs = [scope[name] for name in node.outputs if name]
            observer.node(node, start, seconds, inputs, outputs)

    def programs(self) -> list[Program]:
        """Every program in the cache, in order of execution for each set of shapes."""
        cached = [item for stages in self._stages.values() for item in stages.items()]
        present = {stage for _, stage in cached}
        followers: dict[Stage | None, list[Stage]] = {}
        for (before, _), stage in reversed(cached):
            followers.setdefault(before if before in present else None, []).append(stage)
        ordered, waiting = [], followers.get(None, [])
        while waiting:
            stage = waiting.pop()
            ordered.append(stage.program)
            waiting += followers.get(stage, [])
        return [program for program in ordered if program is not None]

    def close(self) -> None:
        """Stop all threads."""
        for stages in self._stages.values():
            for stage in stages.values():
                stage.close()

    def _stage(
        self, at: int, key: Key, values: dict[str, Any], known: Known, planning: bool
    ) -> Stage:
        """The stage that begins at node `at`, from the cache or captured."""
        stages = self._stages.setdefault(at, OrderedDict())
        stage = stages.get(key)
        if stage is None:
            stage = stages[key] = self._capture(at, values, known, planning)
            while len(stages) > self._max_stages:
                stages.popitem(last=False)[1].close()
        stages.move_to_end(key)
        return stage

    def _capture(self, at: int, values: dict[str, Any], known: Known, planning: bool) -> Stage:
        nodes = self.model.graph.nodes
        with capture(f"{self.model.path.name}[{at}:]") as program:
            scope = Scope(program, values, known)
            captured = Capture(self.model, program, scope, self._weights, self._lowering, planning)
            last = self._record(captured, nodes, at)
            names = [name for node in nodes[at:last] for name in node.outputs if name]
            needed = [name for name in names if self._lifetimes.needed(name, last)]
            results, constants = captured.outputs(needed)
        release(self.model.graph.initializers)
        program = optimize_graph(
            program, int8_attention=self._int8_attention, cores=self._cores,
            wide_products=self._wide,
        )  # fmt: skip
        used = {b.root for instruction in program.instructions for b in instruction.inputs}
        used |= {b.root for b in results.values()}
        feeds = {name: buffer for name, buffer in program.inputs.items() if buffer in used}
        program.inputs = dict(feeds)
        runs = program if program.instructions or results else None
        touched = {name for node in nodes[at : last + 1] for name in _names(node)}
        dead = [name for name in touched if not self._lifetimes.needed(name, last + 1)]
        return Stage(at, last, runs, self._open, feeds, results, constants, dead)

    def _record(self, captured: Capture, nodes: Sequence[Node], at: int) -> int:
        """Record nodes until one ends the program; returns its index."""
        for index in range(at, len(nodes)):
            mark = captured.mark()
            try:
                captured.record(nodes[index])
            except EndOfProgramError:
                captured.undo(mark)
                return index
            for name in nodes[index].inputs:  # free constants as soon as nothing needs them
                constant = isinstance(captured.values.get(name), np.ndarray)
                if constant and not self._lifetimes.needed(name, index + 1):
                    del captured.values[name]
        return len(nodes)


def attention_products(model: Model, wanted: bool | None = None) -> Collection[Operator]:
    """The products whose results attention takes in int8; by default, as the metadata says."""
    if wanted is None:
        wanted = model.metadata.get(INT8_ATTENTION) == "1"
    return (ops.matmul_int8, ops.matmul_rotated) if wanted else ()


def _names(node: Node) -> set[str]:
    return used_names(node) | set(filter(None, node.outputs))


def _signature(values: Mapping[str, Any], names: Collection[str]) -> Signature:
    return tuple((name, *_kind(values[name])) for name in sorted(names) if name in values)


def _kind(value: Any) -> tuple[np.dtype[Any] | str, tuple[int, ...]]:
    if isinstance(value, np.ndarray):
        return value.dtype, value.shape
    return type(value).__name__, ()


def _own(value: Any) -> Any:
    """A copy that is not a view of a program's memory."""
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, list):
        return [_own(item) for item in value]
    return value
