"""A captured model in pieces: what comes before the layers, each layer, and the head.

A piece is recorded again with its own operands: `x`, which the piece before it computes, and slots
for the tensors of a layer. Layers that do the same share the programs and the slots of the first
one, so the memory is that of one layer in floats.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from halfbyte.core import ops
from halfbyte.core.backends import Executable, open_program
from halfbyte.core.buffer import Buffer, Kind, Size, maximum
from halfbyte.core.instruction import Instruction
from halfbyte.core.passes import plan_memory
from halfbyte.core.program import Program, capture
from halfbyte.errors import UnsupportedError
from halfbyte.quantize.tuning.gradients import divergence
from halfbyte.quantize.tuning.reverse import Reverse, reverse
from halfbyte.weights import F32, F32Array, Tensor

HEAD_ROWS = 128  # rows whose logits are computed at once
_LAYER = re.compile(r"blk\.\d{1,9}\.")

Record = Callable[[Program, Buffer], Buffer]


@dataclass(eq=False)
class Shape:
    """The programs of pieces that do the same, and the memory of their operands.

    Attributes
    ----------
    record : callable
        Records the piece into a program, from its input to its output.
    x : Buffer or None
        What it reads; None for token ids.
    slots : mapping of str to Buffer
        Operands that may change, by a tensor's name without the layer.
    """

    name: str
    record: Record
    x: Buffer
    slots: Mapping[str, Buffer]
    _executables: dict[tuple[str, int], Executable] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def array(self, slot: str) -> F32Array:
        """The memory of a slot, in the operand's shape."""
        value = self.slots[slot].value
        if isinstance(value, Tensor):
            return value.data.view(np.float32).reshape(value.shape)
        return np.asarray(value)

    def check(self) -> None:
        """Raise `UnsupportedError` if an operator has no gradient."""
        _ = self._reverse

    def load(self, values: Mapping[str, F32Array]) -> None:
        """Copy values into slots."""
        for slot, each in values.items():
            self.array(slot)[...] = each

    def run(self, x: Any, worker: int = 0) -> F32Array:
        """The piece's result, [n, ...]: a view that the worker's next run overwrites."""
        executable = self._executable("forward", worker)
        self._run(executable, {self._forward.inputs["x"]: x})
        return executable.array(executable.program.outputs["y"])[: len(x)]

    def gradients(
        self, x: F32Array, seed: F32Array, target: F32Array | None = None, worker: int = 0
    ) -> dict[str, F32Array]:
        """Gradients by slot and of "x", and of a head its loss, "y": views as `run`'s.

        `seed` is the gradient of the result; of a head with a `target`, of each row's divergence.
        """
        executable, made = self._executable("reverse", worker), self._reverse
        fed = {made.program.inputs["x"]: x, made.seeds["y"]: seed}
        if target is not None:
            fed[made.program.inputs["target"]] = target
        self._run(executable, fed)
        result = {name: executable.array(b) for name, b in made.gradients.items()}
        result["x"] = result["x"][: len(x)]
        if target is not None:
            result["y"] = executable.array(made.program.outputs["y"])[: len(x)]
        return result

    def _executable(self, kind: str, worker: int) -> Executable:
        """A worker's own: runs of several take place at once, on the same slots."""
        with self._lock:
            if (kind, worker) not in self._executables:
                program = self._forward if kind == "forward" else self._reverse.program
                self._executables[kind, worker] = open_program(plan_memory(program), "numpy")
            return self._executables[kind, worker]

    @staticmethod
    def _run(executable: Executable, inputs: Mapping[Buffer, Any]) -> None:
        n = len(next(iter(inputs.values())))
        for buffer, values in inputs.items():
            executable.array(buffer)[:n] = values
        sizes = {"n": n, "rows": n, "position": 0}
        executable.run({name: sizes[name] for name in executable.program.sizes})

    @cached_property
    def _forward(self) -> Program:
        return self._recorded(lambda program, x: self.record(program, x))

    @cached_property
    def _reverse(self) -> Reverse:
        program = self._recorded(self._with_loss if self.is_head else self.record)
        wanted = {"x": program.inputs["x"], **self.slots}
        return reverse(program, wanted, keep=("y",) if self.is_head else ())

    @property
    def is_head(self) -> bool:
        """Whether its result are logits, of which gradients are those of the divergence."""
        return self.name == "head"

    def _with_loss(self, program: Program, x: Buffer) -> Buffer:
        logits = self.record(program, x)
        loss: Buffer = divergence(logits, program.input("target", "f32", logits.shape))
        return loss

    def _recorded(self, record: Record) -> Program:
        with capture(self.name) as program:
            for dim in self.x.shape:
                if isinstance(dim, Size):
                    program.size(dim.name, dim.maximum)
            program.inputs["x"] = self.x
            program.output("y", record(program, self.x))
        _name_sizes(program)
        return program

    def close(self) -> None:
        """Free the memory of its programs."""
        for executable in self._executables.values():
            executable.close()
        self._executables.clear()


@dataclass(frozen=True)
class Piece:
    """A shape with one layer's tensors.

    Attributes
    ----------
    prefix : str
        Of the layer's names, such as ``blk.0.``; empty outside of layers.
    tensors : mapping of str to Tensor or array
        The model's own tensors by slot.
    """

    shape: Shape
    prefix: str
    tensors: Mapping[str, Any]


def cut(program: Program) -> list[Piece]:
    """The pieces of a captured model, in order: embedding, layers, head.

    Raises
    ------
    UnsupportedError
        More than one result passes from a layer to the next one.
    """
    spans, shapes = list(_spans(program)), dict[tuple[Any, ...], Shape]()
    pieces = []
    for number, (prefix, instructions) in enumerate(spans):
        after = [i for _, part in spans[number + 1 :] for i in part]
        x = _only(program, instructions, [i for _, part in spans[:number] for i in part])
        y = instructions[-1].outputs[0] if not after else _only(program, after, instructions)
        name = "layer" if after and prefix else ("start" if after else "head")
        own = _own(instructions, prefix)
        key = _structure(instructions, x, own) if prefix else (number,)
        if key not in shapes:
            shapes[key] = _shape(name, instructions, x, y, own)
        slots = shapes[key].slots
        pieces.append(Piece(shapes[key], prefix, dict(zip(slots, own.values(), strict=True))))
    return pieces


def _spans(program: Program) -> Iterator[tuple[str, list[Instruction]]]:
    """Prefixes and instructions of pieces; rows that the head reads are chosen by its caller."""
    prefix, span = "", list[Instruction]()
    for instruction in program.instructions:
        if instruction.operator is ops.last_rows:
            yield prefix, span
            prefix, span = "", []
        buffers = (*instruction.inputs, *instruction.outputs)
        names = (m[0] for m in (_LAYER.match(b.root.name) for b in buffers) if m)
        named = next(names, prefix)
        if named != prefix:
            yield prefix, span
            span = []
        prefix = named
        span.append(instruction)
    yield prefix, span


def _only(
    program: Program, readers: Sequence[Instruction], writers: Sequence[Instruction]
) -> Buffer:
    """The only result of `writers` that `readers` use; token ids where there are no writers."""
    written = {b.root for i in writers for b in i.outputs} or set(program.inputs.values())
    read = dict.fromkeys(b for i in readers for b in i.inputs if b.root in written)
    passed = [b for b in read if b.kind is not Kind.CACHE]
    if len(passed) != 1:
        raise UnsupportedError(
            f"{program.name}: expected one result to pass from layer to layer, found "
            f"{[str(b) for b in passed]}: tuning does not support this architecture"
        )
    return passed[0]


def _own(instructions: Sequence[Instruction], prefix: str) -> dict[Buffer, Any]:
    """Operands that are tensors of the layer; of the head, only vectors."""
    own: dict[Buffer, Any] = {}
    for buffer in (b for i in instructions for b in i.inputs):
        known = isinstance(buffer.value, Tensor | np.ndarray)
        if known and buffer.dtype not in ("i32", "i64"):
            vector = isinstance(buffer.value, Tensor) and len(buffer.shape) == 1
            if buffer.name.startswith(prefix) if prefix else vector:
                own[buffer] = buffer.value
    return own


def _structure(
    instructions: Sequence[Instruction], x: Buffer, own: Mapping[Buffer, Any]
) -> tuple[Any, ...]:
    """Equal for layers that do the same."""
    numbers: dict[Buffer, int] = {x: 0}

    def place(buffer: Buffer) -> tuple[Any, ...]:
        number: object = numbers.setdefault(buffer, len(numbers))
        if buffer.kind is Kind.CONSTANT and buffer not in own:
            value = buffer.value
            number = value.tobytes() if isinstance(value, np.ndarray) else id(value)
        return number, buffer.shape, buffer.kind, buffer in own

    return tuple(
        (
            i.operator.name,
            tuple(sorted((k, str(v)) for k, v in i.attributes.items())),
            tuple(b and place(b) for b in i.arguments),
            tuple(map(place, i.outputs)),
        )
        for i in instructions
    )


def _shape(
    name: str, instructions: Sequence[Instruction], x: Buffer, y: Buffer, own: Mapping[Buffer, Any]
) -> Shape:
    slots: dict[Buffer, Buffer] = {}
    for number, buffer in enumerate(own):
        slot = _LAYER.sub("", buffer.name)
        if any(slot == other.name for other in slots.values()):  # parts of a bias
            slot = f"{slot}#{number}"
        data = np.zeros(tuple(map(maximum, buffer.shape)), np.float32)
        value: Any = data
        if buffer.kind is Kind.WEIGHT:
            value = Tensor(slot, F32, data.shape, data.reshape(-1).view(np.uint8))
        slots[buffer] = Buffer(slot, buffer.kind, "f32", buffer.shape, value)
    known = dict(slots)
    if name == "head":
        rows = Size("n", HEAD_ROWS)
        inner = Buffer("x", Kind.INPUT, "f32", (rows, x.shape[1]))
        instructions = [i for i in instructions if i.operator is not ops.last_rows]
        first = instructions[0].inputs[0]
        known[first] = inner
    else:
        inner = Buffer("x", Kind.INPUT, x.dtype, x.shape)
        known[x] = inner
    chosen = tuple(instructions)

    def record(program: Program, _: Buffer) -> Buffer:
        return _replayed(chosen, known)[y]

    return Shape(name, record, inner, {b.name: b for b in slots.values()})


def _replayed(
    instructions: Sequence[Instruction], known: Mapping[Buffer, Buffer]
) -> dict[Buffer, Buffer]:
    """Record instructions again, with other buffers in place of known ones."""
    present = dict(known)

    def place(buffer: Buffer | None) -> Buffer | None:
        if buffer is None or buffer in present:
            return buffer and present[buffer]
        if buffer.source is not None and buffer.source in present:
            return present[buffer.source].part(buffer.offset, buffer.shape, buffer.dtype)
        return buffer

    for i in instructions:
        results = i.operator(*map(place, i.arguments), **i.attributes)
        several = results if isinstance(results, tuple) else (results,)
        present.update(zip(i.outputs, several, strict=True))
    return present


def _name_sizes(program: Program) -> None:
    """Register the named sizes of buffers and attributes, which each run is given."""
    for i in program.instructions:
        for dim in (*i.dims.values(), *i.attributes.values()):
            if isinstance(dim, Size):
                program.sizes.setdefault(dim.name, dim)
