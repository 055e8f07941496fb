"""The programs of one graph: of a model's main graph, or of a body inside one of its nodes.

A node whose results' shapes depend on values (NonZero, a loop) ends a program. It runs by its
definition, and the next program is captured for the shapes of its results. Bodies of such a node
(If, Loop, Scan) run as programs of their own: values around a body are inputs of its programs, and
constants around it, also those that follow from shapes, are constants there.

An If whose condition follows from a few numbers of the inputs (`Conditions`) ends no program: the
numbers are looked at before the run, and each branch has programs with the nodes around it.
"""

from __future__ import annotations

import time
from collections import ChainMap, OrderedDict
from collections.abc import Collection, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from halfbyte.core.interrupt import step
from halfbyte.core.ops import Operator
from halfbyte.core.program import Program, capture
from halfbyte.errors import UnsupportedError
from halfbyte.onnx.capture import Capture, EndOfProgramError, Lowering
from halfbyte.onnx.conditions import Conditions
from halfbyte.onnx.evaluate import Evaluator, Values, outer_names, used_names
from halfbyte.onnx.files.initializers import release
from halfbyte.onnx.files.model import Graph, Model, Node
from halfbyte.onnx.passes import optimize_graph
from halfbyte.onnx.passes.name_sizes import name_buffer
from halfbyte.onnx.program_cache import ProgramCache, nbytes
from halfbyte.onnx.shared_weights import SharedWeights
from halfbyte.onnx.sizes import FixedSizeError, Sizes
from halfbyte.onnx.stages import Inside, Lifetimes, Observer, Opener, Scope, Stage
from halfbyte.onnx.values import aligned
from halfbyte.onnx.varying import Varying, named_shapes, take
from halfbyte.onnx.work import WORK, exact_work
from halfbyte.room import available_bytes

Known = ChainMap[str, Any]  # constants: computed by captures, and those of graphs
Signature = tuple[tuple[str, np.dtype[Any] | str, tuple[int, ...]], ...]
Key = tuple[Any, ...]  # the stage before, and the values since


@dataclass(frozen=True)
class Whole:
    """A stage with all nodes of a graph, for one set of shapes, and the values of its last run."""

    stage: Stage
    before: Stage | None
    kinds: list[Any]

    def fits(self, before: Stage | None, values: Mapping[str, Any]) -> bool:
        """Whether it is also the stage of these values; in another order, another one is sought."""
        return before is self.before and _kinds(values) == self.kinds


@dataclass(frozen=True)
class Settings:
    """How programs are captured and run; see `Runner` for the parameters."""

    open_program: Opener
    lowering: Lowering | None
    int8_attention: Collection[Operator]
    cores: int
    wide_products: bool
    max_stages: int
    cache: ProgramCache
    name_sizes: bool


class GraphPrograms:
    """The programs of a graph.

    Parameters
    ----------
    model : Model
        A prepared model with this main graph.
    settings : Settings
    weights : SharedWeights
        Of the model, for all graphs in it.
    outputs : sequence of str
        The values that a run may return.
    """

    def __init__(
        self, model: Model, settings: Settings, weights: SharedWeights, outputs: Sequence[str]
    ) -> None:
        self.model = model
        self._settings, self._weights = settings, weights
        self._evaluator = Evaluator(model)
        self._stages: dict[int, OrderedDict[Key, Stage]] = {}  # by first node
        self._varying: dict[Key, Varying] = {}  # by types and ranks of inputs
        self._bodies: dict[int, GraphPrograms] = {}  # by the identity of their graphs
        self._outside = sorted(outer_names(model.graph))
        self._aligned: dict[str, Any] = {}  # copies of initializers at odd addresses
        initializers = model.graph.initializers
        self._mapped = initializers if isinstance(initializers, dict) else {}
        self._conditions = Conditions(model)
        self._lifetimes = Lifetimes(model.graph.nodes, outputs)
        self._whole: Whole | None = None  # of the last run

    def run(
        self,
        values: dict[str, Any],
        around: Sequence[MutableMapping[str, Any]] = (),
        observer: Observer | None = None,
        before: Stage | None = None,
        *,
        planning: bool = False,
    ) -> Known:
        """Compute the outputs into `values`, as views of programs' memory; returns the constants.

        Parameters
        ----------
        values : dict
            The inputs, and values around the graph.
        around : sequence of mappings
            Constants around the graph.
        observer : Observer, optional
        before : Stage, optional
            The stage before the node that the graph is a body of; it determines `around`.
        planning : bool
            See `Runner.plan`.
        """
        whole = self._whole
        if whole is not None and whole.fits(before, values):
            step()
            if self._settings.cache.used(whole.stage):
                whole.stage.run(values, observer)
                return ChainMap(whole.stage.known, self.model.graph.initializers, *around)
        kinds = _kinds(values)
        known: Known = ChainMap({}, self.model.graph.initializers, *around)
        for stage in self.through(values, known, observer, before, planning=planning):
            stage.run(values, observer)
        single = stage.first == 0 and stage.last == len(self.model.graph.nodes)
        fixed = stage.sizes is None and (before is None or before.sizes is None)
        named = self._settings.name_sizes and before is None  # other calls may be counted
        self._whole = None
        if single and fixed and not named and not self._conditions:
            self._whole = Whole(stage, before, kinds)
        return known

    def through(
        self,
        values: dict[str, Any],
        known: Known,
        observer: Observer | None,
        before: Stage | None = None,
        *,
        planning: bool = False,
    ) -> Iterator[Stage]:
        """The stages of a run; the caller runs each one before it takes the next.

        The nodes between them run here.
        """
        nodes = self.model.graph.nodes
        stage = before
        at, new = 0, values.keys() - {""}
        conditions = self._conditions.of(values)
        while True:
            step()
            key = _before(stage), _signature(values, new), tuple(conditions.values())
            stage = self._stage(at, key, values, known, conditions, planning, observer is None)
            yield stage
            known.update(stage.constants())
            if stage.last == len(nodes):
                return
            node = nodes[stage.last]
            scope: Values = ChainMap(values, *self._aligned_for(node), *known.maps, {"": None})
            work = exact_work(node, [scope.get(name) for name in node.inputs]) or 0
            if planning and work > WORK:
                raise UnsupportedError(
                    f"{self.model.path}: {node}: a plan computes nodes of at most {WORK:.1e} "
                    f"operations, found {work:.1e}"
                )
            self._between(node, scope, stage, observer, planning)
            for name in stage.dead:
                values.pop(name, None)
            at, new = stage.last + 1, set(node.outputs) - {""}

    def _aligned_for(self, node: Node) -> list[dict[str, Any]]:
        """The constants of a node between programs that its definition would copy in each run."""
        if node.graphs:  # whose programs know constants by their identity
            return []
        for name in node.inputs:
            value = None if name in self._aligned else self._mapped.get(name)
            if value is not None and (copy := aligned(value)) is not value:
                self._aligned[name] = copy
        return [self._aligned]

    def _between(
        self, node: Node, scope: Values, stage: Stage, observer: Observer | None, planning: bool
    ) -> None:
        """Run a node that is not part of a program; its own time is that without its bodies'."""
        start = time.perf_counter()
        inside = None if observer is None else Inside(observer)
        body = None
        if self._settings.lowering is not None:
            body = partial(self._body, stage, inside, planning)
        self._evaluator.node(node, scope, body)
        if observer is not None and inside is not None:
            seconds = max(time.perf_counter() - start - inside.seconds, 0.0)
            inputs = [scope[name] for name in node.inputs]
            outputs = [scope[name] for name in node.outputs if name]
            observer.node(node, start, seconds, inputs, outputs)

    # ---- bodies ----------------------------------------------------------------------------------

    def _body(
        self,
        stage: Stage,
        observer: Observer | None,
        planning: bool,
        graph: Graph,
        inputs: Sequence[Any],
        scope: Values,
    ) -> list[Any]:
        """The outputs of a body; the caller's own, as programs run again in each iteration."""
        programs = self._bodies.get(id(graph))
        if programs is None:
            programs = self._bodies[id(graph)] = GraphPrograms(
                Model(self.model.path, graph, self.model.opsets), self._settings, self._weights,
                [v.name for v in graph.outputs],
            )  # fmt: skip
        around = scope.maps[0]
        values = {name: around[name] for name in programs._outside if name in around}
        values.update(zip((v.name for v in graph.inputs), inputs, strict=True))
        known = programs.run(values, scope.maps[1:], observer, stage, planning=planning)
        return [own(values[v.name] if v.name in values else known[v.name]) for v in graph.outputs]

    # ---- programs --------------------------------------------------------------------------------

    def programs(self) -> list[Program]:
        """The programs in the cache, in order of execution for each set of shapes, then bodies'."""
        cached = [item for stages in self._stages.values() for item in stages.items()]
        present = {stage for _, stage in cached}
        followers: dict[Stage | None, list[Stage]] = {}
        for ((before, *_), *_), stage in reversed(cached):
            followers.setdefault(before if before in present else None, []).append(stage)
        ordered, waiting = [], followers.get(None, [])
        while waiting:
            stage = waiting.pop()
            ordered.append(stage.program)
            waiting += followers.get(stage, [])
        inner = [program for body in self._bodies.values() for program in body.programs()]
        return [program for program in ordered if program is not None] + inner

    def whole_stage(self) -> Stage | None:
        """The stage of the last run, if it was all of it and follows from types and shapes."""
        stages = self._stages.get(0)
        if not stages or self._conditions:
            return None
        stage = next(reversed(stages.values()))
        return stage if stage.last == len(self.model.graph.nodes) else None

    def close(self) -> None:
        """Stop all threads."""
        for stages in self._stages.values():
            for stage in stages.values():
                stage.close()
        for body in self._bodies.values():
            body.close()

    def _stage(
        self,
        at: int,
        key: Key,
        values: dict[str, Any],
        known: Known,
        conditions: Mapping[str, bool],
        planning: bool,
        may_name: bool,
    ) -> Stage:
        """The stage that begins at node `at`, from the cache or captured."""
        stages = self._stages.setdefault(at, OrderedDict())
        stage = stages.get(key)
        may_name = may_name and self._settings.name_sizes and not planning
        if stage is None and may_name and not at and key[0] == (None,):
            key, stage = self._sized_stage(stages, key, values, known, conditions)
        if stage is None:
            stage = self._capture(at, values, known, conditions, planning)
        stages[key] = stage
        stages.move_to_end(key)
        self._settings.cache.use(stage, stages, key)
        while len(stages) > self._settings.max_stages:
            self._settings.cache.drop(next(iter(stages.values())))
        return stage

    def _sized_stage(
        self,
        stages: OrderedDict[Key, Stage],
        key: Key,
        values: dict[str, Any],
        known: Known,
        conditions: Mapping[str, bool],
    ) -> tuple[Key, Stage | None]:
        """A stage for several sets of shapes, if this is not the first one; and its key."""
        varying = self._varying.setdefault(
            (tuple((name, dtype, len(shape)) for name, dtype, shape in key[1]), key[2]),
            Varying(self.model.graph),
        )
        free, shapes = varying.key(key[1]), {name: shape for name, _, shape in key[1]}
        for other, stage in reversed(stages.items()):
            alike = other[1:3] == (free, key[2])
            if stage.sizes is not None and alike and take(stage.sizes, shapes):
                return other, stage
        while (sizes := varying.sizes(key[1])) is not None:
            try:
                stage = self._capture(0, values, known, conditions, False, sizes)
            except FixedSizeError as error:
                varying.fix(error.variables)
                continue
            # Memory is planned for larger sizes; where that is much, each set has a program.
            if nbytes(stage.program) <= min(self._settings.cache.limit, available_bytes() // 2):
                return (key[0], varying.key(key[1]), key[2], stage), stage
            varying.fix(frozenset(sizes.places))
        return key, None

    def _capture(
        self,
        at: int,
        values: dict[str, Any],
        known: Known,
        conditions: Mapping[str, bool],
        planning: bool,
        sizes: Sizes | None = None,
    ) -> Stage:
        nodes, settings = self.model.graph.nodes, self._settings
        named = None if sizes is None else named_shapes(sizes, _shapes(values))
        with capture(f"{self.model.path.name}[{at}:]") as program:
            scope = Scope(program, values, known, named)
            captured = Capture(
                self.model, program, scope, self._weights, settings.lowering, planning, conditions
            )
            last = self._record(captured, nodes, at)
            names = [name for node in nodes[at:last] for name in node.outputs if name]
            needed = [name for name in names if self._lifetimes.needed(name, last)]
            results, constants = captured.outputs(needed)
        release(self.model.graph.initializers)
        program = optimize_graph(
            program, int8_attention=settings.int8_attention, cores=settings.cores,
            wide_products=settings.wide_products, sizes=sizes,
        )  # fmt: skip
        if sizes is not None:
            for buffer in results.values():
                name_buffer(buffer, sizes)
            sizes.recording = False
        used = {b.root for instruction in program.instructions for b in instruction.inputs}
        used |= {b.root for b in results.values()}
        feeds = {name: buffer for name, buffer in program.inputs.items() if buffer in used}
        program.inputs = dict(feeds)
        runs = program if program.instructions or results else None
        touched = {name for node in nodes[at : last + 1] for name in _names(node)}
        dead = [name for name in touched if not self._lifetimes.needed(name, last + 1)]
        return Stage(at, last, runs, settings.open_program, feeds, results, constants, dead, sizes)

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


def own(value: Any) -> Any:
    """A copy that is not a view of a program's memory."""
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, list):
        return [own(item) for item in value]
    return value


def _before(stage: Stage | None) -> tuple[Any, ...]:
    """A stage as part of a key: what follows it depends on its sizes."""
    sizes = None if stage is None else stage.sizes
    return (stage,) if sizes is None else (stage, *sizes.values.items())


def _shapes(values: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    return {name: value.shape for name, value in values.items() if isinstance(value, np.ndarray)}


def _names(node: Node) -> set[str]:
    return used_names(node) | set(filter(None, node.outputs))


def _signature(values: Mapping[str, Any], names: Collection[str]) -> Signature:
    return tuple((name, *_kind(values[name])) for name in sorted(names) if name in values)


def _kinds(values: Mapping[str, Any]) -> list[Any]:
    """Names, dtypes and shapes of arrays, and other values' types: quickly compared."""
    return [
        (name, value.dtype, value.shape) if type(value) is np.ndarray else (name, _kind(value))
        for name, value in values.items()
    ]


def _kind(value: Any) -> tuple[np.dtype[Any] | str, tuple[int, ...]]:
    if isinstance(value, np.ndarray):
        return value.dtype, value.shape
    return type(value).__name__, ()
