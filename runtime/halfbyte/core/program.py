"""A model as data: a flat list of instructions over a table of buffers.

A program is captured once (:func:`capture`), rewritten by passes and run by a backend. Sizes that
change from call to call are named (:class:`Size`), such as the number of tokens or the position in
the context: memory is planned at their maxima, and each run gets their values in a register block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.core.buffer import SHARED, Buffer, ComputedSize, Dim, Kind, Size, SumSize
from halfbyte.core.dtypes import dtype_key
from halfbyte.core.instruction import Instruction
from halfbyte.errors import ProgramError, printable
from halfbyte.formats.derived import converted
from halfbyte.weights import F32, Tensor

ADAPTERS = "adapters"  # an input: how much of each adapter is used; see `passes.adapt`
SKIPPED = "@"  # in names of sizes: "n@0" is n in runs that use adapter 0, otherwise 0
_MAX_LINE = 1 << 16  # characters of an instruction in a dump


@dataclass(eq=False)
class Program:
    """Instructions in order of execution, and every buffer they use.

    `places` is the memory plan: scratch buffer or window -> byte offset in one arena of
    `arena_bytes`. It is empty before planning, when every buffer has its own memory.
    """

    name: str
    instructions: list[Instruction] = field(default_factory=list)
    inputs: dict[str, Buffer] = field(default_factory=dict)
    outputs: dict[str, Buffer] = field(default_factory=dict)
    sizes: dict[str, Size] = field(default_factory=dict)
    places: dict[Buffer, int] = field(default_factory=dict)
    arena_bytes: int = 0
    origin: str = ""  # of the instructions recorded next; see `Instruction`
    notes: list[str] = field(default_factory=list)  # what capture skipped or chose
    _weights: dict[str, Buffer] = field(default_factory=dict)
    _count: int = 0

    def size(self, name: str, maximum: int) -> Size:
        """A named size, whose value is given at each run."""
        if maximum < 1:
            raise ProgramError(f"{self.name}: size '{name}' has maximum {maximum}, expected >= 1")
        return self.sizes.setdefault(name, Size(name, maximum))

    def sum_size(
        self, name: str, maximum: int, plus: tuple[Size, ...], minus: tuple[Size, ...]
    ) -> Size:
        """A size that follows from others; see :class:`SumSize`."""
        return self.sizes.setdefault(name, SumSize(name, maximum, plus, minus))

    def computed_size(
        self, name: str, maximum: int, compute: Callable[[Mapping[str, int]], int]
    ) -> Size:
        """A size that is computed from others; see :class:`ComputedSize`."""
        return self.sizes.setdefault(name, ComputedSize(name, maximum, compute))

    def input(self, name: str, dtype: str, shape: tuple[Dim, ...]) -> Buffer:
        """A buffer that the caller fills before a run."""
        return self.inputs.setdefault(name, Buffer(name, Kind.INPUT, dtype, shape))

    def output(self, name: str, buffer: Buffer) -> Buffer:
        """The output, which the caller reads after a run, in place of a computed buffer."""
        return self.set_outputs({name: buffer})[name]

    def set_outputs(self, buffers: Mapping[str, Buffer]) -> dict[str, Buffer]:
        """Outputs in place of computed buffers, which instructions no longer refer to.

        A buffer with several names gets the first one; others than scratch stay as they are.
        """
        known: dict[Buffer, Buffer] = {}
        for name, root in ((name, buffer.root) for name, buffer in buffers.items()):
            if root.kind is Kind.SCRATCH and root not in known:
                known[root] = self.outputs[name] = replace(root, name=name, kind=Kind.OUTPUT)
        self.instructions = _with_buffers(self.instructions, known)
        return {name: _other(buffer, known) for name, buffer in buffers.items()}

    def cache(self, name: str, dtype: str, shape: tuple[Dim, ...]) -> Buffer:
        """A buffer that keeps rows of every position between runs: keys or values."""
        return Buffer(name, Kind.CACHE, dtype, shape)

    def state(self, name: str, dtype: str, shape: tuple[Dim, ...]) -> Buffer:
        """A buffer that keeps what is known of all tokens so far between runs."""
        return Buffer(name, Kind.STATE, dtype, shape)

    def weight(self, tensor: Tensor) -> Buffer:
        """The buffer of a tensor of the model's file, always the same one.

        Vectors are float32 operands: those in another format are decoded here. A matrix whose
        format has a layout of its own in memory is converted when its bytes are needed.
        """
        if len(tensor.shape) == 1 and tensor.format is not F32:
            return self.constant(tensor.name, tensor.decode())
        known = self._weights.get(tensor.name)
        if known is None:
            tensor = converted(tensor)
            dtype = tensor.format.dtype
            known = Buffer(tensor.name, Kind.WEIGHT, dtype, tensor.shape, tensor)
            self._weights[tensor.name] = known
        return known

    def constant(self, name: str, value: npt.NDArray[Any]) -> Buffer:
        """An array known at capture."""
        dtype = dtype_key(value.dtype)
        if dtype is None:
            raise ProgramError(f"{self.name}: constant '{name}': no buffers of {value.dtype}")
        return Buffer(name, Kind.CONSTANT, dtype, value.shape, np.ascontiguousarray(value))

    def table(
        self, name: str, shape: tuple[int, ...], make: Callable[[], npt.NDArray[np.float32]]
    ) -> Buffer:
        """A float32 constant that is computed when memory is allocated, after planning."""
        return Buffer(name, Kind.CONSTANT, "f32", shape, make)

    def scratch(self, dtype: str, shape: tuple[Dim, ...]) -> Buffer:
        """A new intermediate result."""
        self._count += 1
        return Buffer(f"%{self._count}", Kind.SCRATCH, dtype, shape)

    def append(self, instruction: Instruction) -> None:
        """Add an instruction at the end."""
        self.instructions.append(instruction)

    def change_last(self, outputs: tuple[Buffer, ...], origin: str | None = None) -> None:
        """Let the last instruction write other buffers, for a node of the graph."""
        last = self.instructions[-1]
        origin = last.origin if origin is None else origin
        self.instructions[-1] = replace(last, outputs=outputs, origin=origin)

    def rewritten(self, instructions: list[Instruction]) -> Program:
        """A program with other instructions, and no memory plan."""
        return Program(
            self.name, instructions, dict(self.inputs), dict(self.outputs), dict(self.sizes),
            notes=[*self.notes], _weights=dict(self._weights), _count=self._count,
        )  # fmt: skip

    def replaced(self, buffers: Mapping[Buffer, Buffer]) -> Program:
        """A program with the same memory plan in which some buffers, and their parts, are replaced.

        This program is not changed; the two share all other buffers.
        """
        known = dict(buffers)
        program = self.rewritten(_with_buffers(self.instructions, known))
        program._weights = {name: _other(b, known) for name, b in self._weights.items()}
        program.places, program.arena_bytes = dict(self.places), self.arena_bytes
        return program

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The tensors that buffers hold, by name."""
        return {b.value.name: b.value for b in self.buffers if isinstance(b.value, Tensor)}

    @property
    def buffers(self) -> list[Buffer]:
        """Every buffer in order of first use; a view comes after its root."""
        used = dict.fromkeys(self.inputs.values())
        for instruction in self.instructions:
            for buffer in (*instruction.inputs, *instruction.outputs):
                used[buffer.root] = used[buffer] = None
        return list(used)

    def bytes_by_kind(self) -> dict[Kind, int]:
        """Planned memory by kind of buffer, at the maxima of all sizes."""
        totals = dict.fromkeys(Kind, 0)
        for buffer in self.buffers:
            if buffer.source is None and not (self.places and buffer.kind in SHARED):
                totals[buffer.kind] += buffer.nbytes
        totals[Kind.SCRATCH] += self.arena_bytes
        return totals

    def dump(self) -> str:
        """The program for people: instruction, shapes, dtypes, buffers and bytes."""
        sizes = ", ".join(map(str, self.sizes.values()))
        lines = [f"program {self.name}({sizes}): {len(self.instructions)} instructions"]
        for number, instruction in enumerate(self.instructions):
            lines.append(f"{number:4d}  {self._line(instruction)}")
        totals = [f"{kind} {total:,}" for kind, total in self.bytes_by_kind().items() if total]
        lines.append("bytes: " + ", ".join(totals))
        return "\n".join(printable(line, _MAX_LINE) for line in lines)

    def _line(self, instruction: Instruction) -> str:
        outputs = ", ".join(self._place(b) for b in instruction.outputs)
        inputs = ", ".join(b.name for b in instruction.inputs)
        values = "".join(
            f", {k}={v.name if isinstance(v, Size) else f'{v:g}' if isinstance(v, float) else v}"
            for k, v in instruction.attributes.items()
        )
        origin = f"  # {instruction.origin}" if instruction.origin else ""
        return f"{outputs} = {instruction.operator.onnx}({inputs}{values}){origin}"

    def _place(self, buffer: Buffer) -> str:
        offset = self.places.get(buffer.root)
        where = f"@{offset}" if offset is not None else ""
        return f"{buffer}{where} {buffer.nbytes:,} B"


def _with_buffers(
    instructions: Iterable[Instruction], known: dict[Buffer, Buffer]
) -> list[Instruction]:
    """Instructions in which buffers are replaced, and their parts; others stay the same."""

    def others(instruction: Instruction) -> Instruction:
        inputs = tuple(_other(buffer, known) for buffer in instruction.inputs)
        outputs = tuple(_other(buffer, known) for buffer in instruction.outputs)
        if (inputs, outputs) == (instruction.inputs, instruction.outputs):
            return instruction
        return replace(instruction, inputs=inputs, outputs=outputs)

    return list(map(others, instructions))


def _other(buffer: Buffer, known: dict[Buffer, Buffer]) -> Buffer:
    """A buffer's replacement; a part of a replaced buffer becomes a part of the new one."""
    if buffer.source is not None and buffer not in known:
        source = _other(buffer.source, known)
        known[buffer] = buffer if source is buffer.source else replace(buffer, source=source)
    return known.get(buffer, buffer)


_current: ContextVar[Program] = ContextVar("halfbyte_program")


def current() -> Program:
    """The program under capture."""
    try:
        return _current.get()
    except LookupError:
        raise ProgramError("operators take buffers only inside `with capture(...)`") from None


def capture(name: str) -> AbstractContextManager[Program]:
    """Record every operator called with buffers into a new program."""
    return resume(Program(name))


@contextmanager
def resume(program: Program) -> Iterator[Program]:
    """Record into an existing program: passes rewrite with operators this way."""
    token = _current.set(program)
    try:
        yield program
    finally:
        _current.reset(token)
