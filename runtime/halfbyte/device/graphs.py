"""Whether a graph fits a device: the memory and the time of one call, and what would fit.

Memory and time of a graph are those of the programs for the shapes of a call. Its inputs are
generated as by ``halfbyte run``. See `halfbyte.device.fit` for the counterpart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from halfbyte.core.backends import available, open_program
from halfbyte.core.buffer import Buffer, Kind
from halfbyte.core.dtypes import dtype_key
from halfbyte.core.instruction import Instruction
from halfbyte.core.ops.operator import host_instruction
from halfbyte.core.program import Program
from halfbyte.device.cost import Cost, held_by_host, multiplied_bytes
from halfbyte.device.profile import Profile
from halfbyte.device.quantity import Draws
from halfbyte.device.room import Fit, Room, Spread, Verdict, largest
from halfbyte.device.smaller import file_bytes, fp16_memory, smaller_graphs
from halfbyte.device.speed import Pass
from halfbyte.errors import HalfbyteError
from halfbyte.evaluation.inputs import completed, open_sizes
from halfbyte.formats.mapped import is_mapped
from halfbyte.onnx.files.model import Model, Node
from halfbyte.onnx.prepare import prepare
from halfbyte.onnx.runner import Runner, attention_products
from halfbyte.text import footprint
from halfbyte.weights import Tensor


@dataclass(frozen=True)
class GraphPlan:
    """What one call of a graph runs, and the memory that it needs.

    Attributes
    ----------
    program : Program
        The instructions of all programs that run in sequence, and the nodes between them that
        take and return tensors.
    calls : int
        Number of programs.
    inputs : dict of str to tuple of int
        Shapes of the inputs.
    memory : mapping of str to int
        Bytes by kind; see :func:`halfbyte.text.footprint.planned_graph`.
    file : int
        Bytes of the model's file and its external data.
    """

    program: Program
    calls: int
    inputs: dict[str, tuple[int, ...]]
    memory: Mapping[str, int]
    file: int


class GraphPlanner:
    """Plans calls of one graph; weights are packed once for all of them.

    Parameters
    ----------
    model : Model
        The model as read; its nodes are checked first.
    cores : int
        Number of computing cores: a batch is processed in slices for their caches.
    """

    def __init__(self, model: Model, cores: int = 1) -> None:
        from halfbyte.onnx.session.checking import check_nodes

        check_nodes(model)
        self.model = model
        backend = "numpy" if available()[0] == "numpy" else "native"
        self._runner = Runner(
            prepare(model), partial(open_program, backend=backend),
            cores=cores, int8_attention=attention_products(model),
        )  # fmt: skip

    def plan(self, sizes: Mapping[str, int]) -> GraphPlan:
        """The plan of a call with these values of the model's open sizes.

        Raises
        ------
        HalfbyteError
            A size is not one of the model's, a node does not support its arguments, or the parts
            that have to run for the plan do not fit into this machine's memory.
        """
        feeds = completed(self.model, {}, sizes, 0, str(self.model.path))
        between = _Between()
        try:
            programs = self._runner.plan(feeds, between)
        except MemoryError:
            raise HalfbyteError(
                f"{self.model.path}: no memory to plan a run of this size"
            ) from None
        instructions = [i for program in programs for i in program.instructions]
        initializers = self._runner.model.graph.initializers.values()
        prepared = [a for a in initializers if isinstance(a, np.ndarray)]
        return GraphPlan(
            Program(self.model.path.name, [*instructions, *between.instructions]),
            len(programs),
            {name: np.shape(value) for name, value in feeds.items()},
            footprint.planned_graph(programs, prepared),
            file_bytes(self.model),
        )

    def close(self) -> None:
        """Stop the threads of programs that ran for a plan."""
        self._runner.close()


class _Between:
    """Records nodes between programs as instructions that NumPy runs."""

    def __init__(self) -> None:
        self.instructions: list[Instruction] = []

    def program(self, program: Program, start: float, seconds: np.ndarray[Any, Any]) -> None:
        """Ignored: the plan has the programs."""

    def node(
        self, node: Node, start: float, seconds: float, inputs: list[Any], outputs: list[Any]
    ) -> None:
        """A node that ran."""
        buffers = [[b for v in values for b in _buffers(v)] for values in (inputs, outputs)]
        self.instructions.append(host_instruction(node.op_type, _ran, *buffers))


def _ran(*arrays: Any) -> Any:
    raise HalfbyteError("a node between programs is planned, not run")


def _buffers(value: Any) -> Iterator[Buffer]:
    key = dtype_key(value.dtype) if isinstance(value, np.ndarray) else None
    if key is not None:
        yield Buffer("", Kind.SCRATCH, key, value.shape)


@dataclass(frozen=True)
class Runs:
    """Runs of a graph; mapped weights may be read from storage in each run."""

    plan: GraphPlan
    from_storage: bool = False
    unit: ClassVar[str] = "run"

    def passes(self, profile: Profile, draws: Draws) -> tuple[Pass, None]:
        """The pass of a run; there are no prompts."""
        program = self.plan.program
        held = multiplied_bytes(program)
        cost = Cost(
            program, {}, profile.fractions,
            cached=held <= profile.memory.cache_mb.value * 1e6,
            # besides calling programs, a session checks its inputs and copies its outputs
            python=self.plan.calls,
            draws=draws,
        )  # fmt: skip
        streamed = _mapped_reads(program) if self.from_storage else 0
        return Pass(cost, streamed / (draws(profile.memory.storage_gb_s) * 1e9)), None


def _mapped_reads(program: Program) -> int:
    """Bytes of mapped weights that a run reads."""
    total = 0
    for instruction in program.instructions:
        held = zip(instruction.operator.holds, held_by_host(instruction), strict=True)
        total += sum(size for array, size in held if is_mapped(array))
        values = (buffer.root.value for buffer in instruction.inputs)
        if any(isinstance(value, Tensor) and is_mapped(value.data) for value in values):
            total += instruction.bytes_moved({}, {Kind.WEIGHT})
    return total


@dataclass(frozen=True)
class GraphNeed(Verdict):
    """What one call of a graph needs, and how fast it is.

    Attributes
    ----------
    inputs : dict of str to tuple of int
        Shapes of the inputs.
    runs : Spread or None
        Runs/s of a cool device; None if the programs are not known.
    """

    inputs: dict[str, tuple[int, ...]]
    runs: Spread | None


class GraphFitter:
    """Tries input sizes of one graph on one device.

    For the parameters, see :class:`~halfbyte.device.room.Room`.
    """

    def __init__(
        self,
        model: Model,
        profile: Profile,
        threads: int | None = None,
        seed: int = 0,
        *,
        tab: bool = False,
    ) -> None:
        self.model, self.room = model, Room(profile, threads, seed, tab=tab, array=True)
        self._planner = GraphPlanner(model, self.room.threads)

    def fit(self, sizes: Mapping[str, int]) -> Fit[GraphNeed]:
        """The verdict for a call with these values of the model's open sizes."""
        room = self.room
        sizes = open_sizes(self.model, sizes)
        asked = self.need(_as_options(sizes), self._planner.plan(sizes))
        would = [] if asked.fits else list(self._would(sizes, asked))
        return Fit(
            str(self.model.path), room.profile.name, room.place, room.limit, room.threads,
            room.profile.origins(), asked, {}, would,
        )  # fmt: skip

    def need(self, settings: str, planned: GraphPlan) -> GraphNeed:
        """What a plan needs on this device."""
        verdict = self._verdict(settings, self._memory(planned.memory, planned.file))
        draws, rates = self.room.draws()
        run, _ = Runs(planned, verdict.from_storage).passes(self.room.profile, draws)
        runs = Spread.of(1 / run.seconds(rates))
        return GraphNeed(**vars(verdict), inputs=planned.inputs, runs=runs)

    def _verdict(self, settings: str, memory: Mapping[str, int]) -> Verdict:
        """The verdict on these bytes; a graph that does not fit does not run from storage."""
        verdict = self.room.verdict(settings, memory)
        return replace(verdict, from_storage=verdict.fits and verdict.from_storage)

    def _memory(self, memory: Mapping[str, int], file: int) -> Mapping[str, int]:
        """Bytes by kind; a tab holds the file as well as the packed weights."""
        return footprint.in_tab(memory, file) if self.room.tab else memory

    def close(self) -> None:
        """Stop the threads of programs that ran for a plan."""
        self._planner.close()

    # ---- what would fit --------------------------------------------------------------------------

    def _would(self, sizes: Mapping[str, int], asked: GraphNeed) -> Iterator[GraphNeed]:
        """Single changes that make the graph fit: of one size, or of the types of weights."""
        for name in sizes:
            if size := self._largest(sizes, name):
                changed = {**sizes, name: size}
                yield self.need(f"--size {name}={size}", self._planner.plan(changed))
        for command, model in smaller_graphs(self.model):
            planner = GraphPlanner(model, self.room.threads)
            planned = planner.plan(sizes)
            if self._fits(planned):
                yield self.need(command, planned)
            planner.close()
        now = self._planner.plan(sizes)
        needed = fp16_memory(self.model, now.memory)
        saved = needed["weights (mapped)"] - now.memory["weights (mapped)"]  # also in the file
        fp16 = self._memory(needed, now.file - saved)
        if fp16 != asked.memory and self.room.fits(fp16):
            command = f"quantize {self.model.path.name} --fp16"
            yield GraphNeed(**vars(self._verdict(command, fp16)), inputs=asked.inputs, runs=None)

    def _largest(self, sizes: Mapping[str, int], name: str) -> int:
        """The largest smaller size of this name that fits; 0 if none does."""

        def fits(size: int) -> bool:
            try:
                return self._fits(self._planner.plan({**sizes, name: size}))
            except HalfbyteError:  # not every size is valid for a graph
                return False

        return largest(fits, sizes[name] - 1)

    def _fits(self, planned: GraphPlan) -> bool:
        return self.room.fits(self._memory(planned.memory, planned.file))


def _as_options(sizes: Mapping[str, int]) -> str:
    return " ".join(f"--size {name}={size}" for name, size in sizes.items())
