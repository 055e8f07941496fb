"""A captured model in pieces: what comes before the layers, each layer, and the head.

A piece is recorded again with its own operands: `x`, which the piece before it computes, and slots
for the tensors of a layer. Layers that do the same share the programs and the slots of the first
one, so the memory is that of one layer in floats.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from halfbyte.core import ops
from halfbyte.core.buffer import Buffer, Kind, Size, maximum
from halfbyte.core.instruction import Instruction
from halfbyte.core.program import Program
from halfbyte.errors import UnsupportedError
from halfbyte.quantize.tuning.gradients.linear import product
from halfbyte.quantize.tuning.shape import HEAD_NUMBERS, Shape
from halfbyte.weights import F32, Tensor

_LAYER = re.compile(r"blk\.\d{1,9}\.")


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
        rows = max(1, min(maximum(x.shape[0]), HEAD_NUMBERS // maximum(y.shape[1])))
        inner = Buffer("x", Kind.INPUT, "f32", (Size("n", rows), x.shape[1]))
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
    """Record instructions again, with other buffers in place of known ones, and BLAS's products."""
    present = dict(known)

    def place(buffer: Buffer | None) -> Buffer | None:
        if buffer is None or buffer in present:
            return buffer and present[buffer]
        if buffer.source is not None and buffer.source in present:
            return present[buffer.source].part(buffer.offset, buffer.shape, buffer.dtype)
        return buffer

    for i in instructions:
        operator = product if i.operator is ops.matmul else i.operator
        results = operator(*map(place, i.arguments), **i.attributes)
        several = results if isinstance(results, tuple) else (results,)
        present.update(zip(i.outputs, several, strict=True))
    return present
