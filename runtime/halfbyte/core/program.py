"""A model as data: a flat list of instructions over a table of buffers.

A program is captured once (:func:`capture`), rewritten by passes and run by a backend. Sizes that
change from call to call are named (:class:`Size`), such as the number of tokens or the position in
the context: memory is planned at their maxima, and each run gets their values in a register block.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from halfbyte.core.dtypes import DTYPES, dtype_key
from halfbyte.errors import ProgramError, printable
from halfbyte.weights import BY_DTYPE, F32, Tensor

_MAX_LINE = 1 << 16  # characters of an instruction in a dump


@dataclass(frozen=True)
class Size:
    """A dimension or position that is known only at run time."""

    name: str
    maximum: int

    def __str__(self) -> str:
        return f"{self.name}≤{self.maximum}"


Dim = int | Size


def maximum(dim: Dim) -> int:
    """The largest value a dimension takes."""
    return dim.maximum if isinstance(dim, Size) else dim


def at(dim: Dim, registers: Mapping[str, int]) -> int:
    """A dimension's value in one run."""
    return registers[dim.name] if isinstance(dim, Size) else dim


class Kind(StrEnum):
    """The purpose of a buffer. Only the memory of scratch and windows is reused.

    A window holds a part of the weights while it is needed, read from the file in every run.
    """

    WEIGHT = "weight"
    CONSTANT = "constant"
    STATE = "state"
    INPUT = "input"
    OUTPUT = "output"
    SCRATCH = "scratch"
    WINDOW = "window"


SHARED = frozenset({Kind.SCRATCH, Kind.WINDOW})  # kinds that share one arena


@dataclass(eq=False)
class Buffer:
    """Memory for numbers; only weights and constants have a `value`, or a function that returns it.

    A buffer with a `source` is a view of that buffer's memory, from the byte `offset` on.
    """

    name: str
    kind: Kind
    dtype: str  # a key of DTYPES, or a weight format's name in lower case
    shape: tuple[Dim, ...]
    value: Tensor | npt.NDArray[Any] | Callable[[], npt.NDArray[Any]] | None = None
    source: Buffer | None = None
    offset: int = 0

    @property
    def root(self) -> Buffer:
        """The buffer that owns the memory: itself, except for views."""
        return self if self.source is None else self.source.root

    def view(self, shape: tuple[Dim, ...], dtype: str | None = None) -> Buffer:
        """The same bytes with another shape, and optionally another of DTYPES."""
        dtype = dtype or self.dtype
        if (shape, dtype) == (self.shape, self.dtype):
            return self
        view = self.part(0, shape, dtype)
        if view.nbytes != self.nbytes:
            raise ProgramError(f"{self}: cannot be viewed as {view}")
        whole = self.root
        return whole if (shape, dtype, view.offset) == (whole.shape, whole.dtype, 0) else view

    def part(self, offset: int, shape: tuple[Dim, ...], dtype: str | None = None) -> Buffer:
        """A view of the bytes from `offset` on, with this shape."""
        root, first = self.root, self.offset + offset
        where = f"+{first}" if first else ""
        name = f"{root.name}{where}:{'x'.join(map(str, shape))}"
        part = Buffer(name, self.kind, dtype or self.dtype, shape, source=root, offset=first)
        if offset + part.nbytes > self.nbytes:
            raise ProgramError(f"{self}: has no part {part}")
        return part

    @property
    def nbytes(self) -> int:
        """Bytes at the maxima of all sizes."""
        return self.bytes_at({})

    def bytes_at(self, registers: Mapping[str, int], rows: int | None = None) -> int:
        """Bytes at given sizes (by default maxima), or of `rows` rows (the last dimension)."""
        *outer, columns = self.sizes_at(registers) or (1,)
        count = columns * (math.prod(outer) if rows is None else rows)
        if self.dtype in DTYPES:
            return count * DTYPES[self.dtype].itemsize
        return BY_DTYPE[self.dtype].row_bytes(count)

    def held_as(self, registers: Mapping[str, int]) -> tuple[np.dtype[Any], tuple[int, ...]]:
        """Dtype and shape of the array that holds it, at given sizes (by default maxima).

        Block formats are held as bytes: per row, or per element of the first two dimensions.
        """
        shape = self.sizes_at(registers)
        if self.dtype in DTYPES:
            return DTYPES[self.dtype], shape
        outer = min(len(shape) - 1, 2)
        row_bytes = BY_DTYPE[self.dtype].row_bytes(math.prod(shape[outer:]))
        return np.dtype(np.uint8), (*shape[:outer], row_bytes)

    def sizes_at(self, registers: Mapping[str, int]) -> tuple[int, ...]:
        """The shape at given sizes (by default maxima)."""
        return tuple(
            registers.get(d.name, d.maximum) if isinstance(d, Size) else d for d in self.shape
        )

    def __str__(self) -> str:
        return f"{self.name} {self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class Operand:
    """One entry of an operator's signature."""

    name: str
    dtype: str  # "f32", "i8" ... or "*": a weight in any format, a cache or an image of any type
    dims: tuple[str, ...]
    optional: bool = False


class Operation(Protocol):
    """An operator as instructions use it; see :class:`halfbyte.core.ops.Operator`."""

    @property
    def name(self) -> str: ...
    @property
    def onnx(self) -> str: ...
    @property
    def inputs(self) -> tuple[Operand, ...]: ...
    @property
    def outputs(self) -> tuple[Operand, ...]: ...
    @property
    def meaning(self) -> Callable[..., Any]: ...
    @property
    def reads(self) -> Mapping[str, Callable[[Mapping[str, int]], int]]: ...
    @property
    def operations(self) -> Callable[[Mapping[str, int]], int] | None: ...
    @property
    def rows(self) -> str: ...
    @property
    def steps(self) -> Mapping[str, str]: ...
    @property
    def product(self) -> bool: ...
    @property
    def kind(self) -> Callable[[Mapping[str, Any]], str] | None: ...
    @property
    def host(self) -> bool: ...
    @property
    def fills(self) -> bool: ...
    @property
    def holds(self) -> tuple[npt.NDArray[Any], ...]: ...
    def __call__(self, *operands: Any, **attributes: Any) -> Any: ...
    def check(self, instruction: Instruction) -> None: ...
    def kernel(self, instruction: Instruction) -> str: ...


@dataclass(eq=False)
class Instruction:
    """One operator applied to buffers. `dims` are the signature's dimensions and attributes.

    `given` names the inputs; by default they are the signature's first. `origin` is the name of the
    graph's node from which it was recorded, or of the node's first output.
    """

    operator: Operation
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    attributes: dict[str, Any]
    dims: dict[str, Dim]
    given: tuple[str, ...] = ()
    origin: str = ""

    @property
    def operands(self) -> dict[str, Buffer]:
        """All buffers by their name in the signature."""
        names = self.given or tuple(o.name for o in self.operator.inputs)
        outputs = (o.name for o in self.operator.outputs)
        return {
            **dict(zip(names, self.inputs, strict=False)),
            **dict(zip(outputs, self.outputs, strict=True)),
        }

    @property
    def arguments(self) -> tuple[Buffer | None, ...]:
        """The inputs in the order of the signature, None for those left out."""
        names = self.given or tuple(o.name for o in self.operator.inputs)
        given = dict(zip(names, self.inputs, strict=False))
        return tuple(given.get(o.name) for o in self.operator.inputs)

    def results(self, arguments: Collection[Any], registers: Mapping[str, int]) -> tuple[Any, ...]:
        """The operator's results for values of its `arguments`."""
        attributes = {
            k: at(v, registers) if isinstance(v, Size) else v for k, v in self.attributes.items()
        }
        values = self.operator.meaning(*arguments, **attributes)
        return values if isinstance(values, tuple) else (values,)

    def bytes_moved(
        self, registers: Mapping[str, int], kinds: Collection[Kind] = frozenset(Kind)
    ) -> int:
        """Bytes read and written at given sizes: every operand once, and only touched rows.

        Only buffers of these `kinds` count.
        """
        total, dims = 0, self._dims(registers)
        for name, buffer in self.operands.items():
            if buffer.root.kind not in kinds:
                continue
            touched = self.operator.reads.get(name)
            total += buffer.bytes_at(registers, None if touched is None else touched(dims))
        return total

    def _dims(self, registers: Mapping[str, int]) -> dict[str, int]:
        return {name: at(dim, registers) for name, dim in self.dims.items()}

    def operations(self, registers: Mapping[str, int]) -> int:
        """Arithmetic operations at given sizes (a multiply and an add are two)."""
        if self.operator.operations is not None:
            return self.operator.operations(self._dims(registers))
        if not self.outputs or self.outputs[0].kind is Kind.WINDOW:
            return 0
        shape = self.outputs[0].shape
        return int(np.prod([at(d, registers) for d in shape], dtype=np.int64))


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
    notes: list[str] = field(default_factory=list)  # what capture skipped or chose
    _weights: dict[str, Buffer] = field(default_factory=dict)
    _count: int = 0

    def size(self, name: str, maximum: int) -> Size:
        """A named size, whose value is given at each run."""
        if maximum < 1:
            raise ProgramError(f"{self.name}: size '{name}' has maximum {maximum}, expected >= 1")
        return self.sizes.setdefault(name, Size(name, maximum))

    def input(self, name: str, dtype: str, shape: tuple[Dim, ...]) -> Buffer:
        """A buffer that the caller fills before a run."""
        return self.inputs.setdefault(name, Buffer(name, Kind.INPUT, dtype, shape))

    def output(self, name: str, buffer: Buffer) -> None:
        """Turn a computed buffer into an output, which the caller reads after a run."""
        buffer.name, buffer.kind = name, Kind.OUTPUT
        self.outputs[name] = buffer

    def state(self, name: str, dtype: str, shape: tuple[Dim, ...]) -> Buffer:
        """A buffer that keeps its content between runs, such as the KV cache."""
        return Buffer(name, Kind.STATE, dtype, shape)

    def weight(self, tensor: Tensor) -> Buffer:
        """The buffer of a tensor of the model's file, always the same one.

        Vectors are float32 operands: those in another format are decoded here.
        """
        if len(tensor.shape) == 1 and tensor.format is not F32:
            return self.constant(tensor.name, tensor.decode())
        known = self._weights.get(tensor.name)
        if known is None:
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

        def others(given: tuple[Buffer, ...]) -> tuple[Buffer, ...]:
            return tuple(_other(buffer, known) for buffer in given)

        program = self.rewritten([
            replace(i, inputs=others(i.inputs), outputs=others(i.outputs))
            for i in self.instructions
        ])  # fmt: skip
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
