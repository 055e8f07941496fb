"""A language model's program in pieces, a layer each, which run one after the other over a text.

So memory is that of one layer's weights and of what passes between layers, for all tokens. The text
is in windows that fit the context; each is read in one run, from position 0.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.core import ops
from halfbyte.core.backends import Executable, open_program
from halfbyte.core.backends.memory import at_sizes
from halfbyte.core.buffer import Buffer, Kind
from halfbyte.core.instruction import Instruction
from halfbyte.core.passes import fuse, plan_memory
from halfbyte.core.program import Program
from halfbyte.errors import UnsupportedError
from halfbyte.formats import ModelFile
from halfbyte.text.planning import Settings, capture_model
from halfbyte.weights import Tensor

Tokens = npt.NDArray[np.int32]
Array = npt.NDArray[Any]
State = dict[str, Array]
"""What passes from one segment to the next in a window, by the names of buffers."""

Observe = Callable[[Sequence[Tensor], Mapping[str, Array]], None]
_LAYER = re.compile(r"blk\.(\d{1,9})\.")


@dataclass(frozen=True)
class Segment:
    """Consecutive instructions as a program of its own.

    Attributes
    ----------
    program : Program
    carried : mapping of str to Buffer
        Buffers of the program that are read as earlier segments left them.
    passed : mapping of str to Buffer or None
        Buffers that later segments read, None for those that pass by.
    is_head : bool
        Whether it computes logits, of `rows` tokens.
    """

    program: Program
    carried: Mapping[str, Buffer]
    passed: Mapping[str, Buffer | None]
    is_head: bool

    @cached_property
    def matrices(self) -> dict[str, Tensor]:
        """The tensors that products read, by name; parts of a tensor count as the whole."""
        tensors = [_matrix(instruction) for instruction in self.program.instructions]
        return {tensor.name: tensor for tensor in tensors if tensor is not None}

    def uses(self, names: Container[str]) -> bool:
        """Whether it uses a tensor of one of these names, or a part of it."""
        values = (buffer.value for buffer in self.program.buffers)
        tensors = (value for value in values if isinstance(value, Tensor))
        return any((tensor.whole or tensor).name in names for tensor in tensors)


class Segments:
    """A model's layers, to run over windows of tokens.

    Parameters
    ----------
    file : ModelFile
    windows : sequence of int32 [tokens]
        At least one; each fits the context.
    threads : int
    """

    def __init__(self, file: ModelFile, windows: Sequence[Tokens], threads: int = 1) -> None:
        self.file, self.windows, self.threads = file, windows, threads
        self._segments = self._cut({})

    def __reduce__(self) -> tuple[type[Segments], tuple[ModelFile, Sequence[Tokens]]]:
        """Another process gets the tensors' bytes, since it may lack the file, and one thread."""
        tensors = {
            t.name: Tensor(t.name, t.format, t.shape, np.asarray(t.data))
            for t in self.file.tensors.values()
        }
        return Segments, (replace(self.file, tensors=tensors, parts={}), self.windows)

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __getitem__(self, number: int) -> Segment:
        return self._segments[number]

    def changed(self, tensors: Mapping[str, Tensor]) -> dict[int, Segment]:
        """By number, the segments that use some tensors, with others of the same names."""
        cut = self._cut(tensors)
        return {n: segment for n, segment in enumerate(cut) if segment.uses(tensors)}

    def start(self) -> list[State]:
        """What the first segment reads, of each window."""
        return [{"ids": window} for window in self.windows]

    def run(
        self, segment: Segment, states: Sequence[State], observe: Observe | None = None,
        *, logits: bool = True,
    ) -> Iterator[State]:  # fmt: skip
        """Run a segment over all windows: what it leaves of each, or ``{"logits": ...}``.

        `observe` is called with the rows that enter products: with the tensors that are multiplied
        with them, and by name `x`, the rows, and of experts `ends`, where each one's end. Without
        `logits` the head is only observed, and leaves nothing.
        """
        executable = open_program(segment.program, threads=self.threads)
        try:
            for window, state in zip(self.windows, states, strict=True):
                if segment.is_head:
                    yield self._head(executable, segment, len(window), state, observe, logits)
                else:
                    yield self._layer(executable, segment, len(window), state, observe)
        finally:
            executable.close()

    def _layer(
        self, executable: Executable, segment: Segment, n: int, state: State,
        observe: Observe | None,
    ) -> State:  # fmt: skip
        registers = {"n": n, "position": 0, "rows": 1}
        for name, buffer in segment.carried.items():
            _view(executable, buffer, registers)[...] = state[name]
        _execute(executable, registers, observe)
        return {
            name: state[name] if buffer is None else _view(executable, buffer, registers).copy()
            for name, buffer in segment.passed.items()
        }

    def _head(
        self, executable: Executable, segment: Segment, n: int, state: State,
        observe: Observe | None, wanted: bool,
    ) -> State:  # fmt: skip
        """All rows of logits, a few at a time: memory is planned for so many."""
        step = executable.program.sizes["rows"].maximum
        logits = []
        for first in range(0, n, step):
            rows = min(step, n - first)
            registers = {"n": rows, "position": first, "rows": rows}
            for name, buffer in segment.carried.items():
                _view(executable, buffer, registers)[...] = state[name][first : first + rows]
            _execute(executable, registers, observe, to_end=wanted)
            if wanted:
                output = segment.program.outputs["logits"]
                logits.append(_view(executable, output, registers).copy())
        return {"logits": np.concatenate(logits)} if wanted else {}

    def _cut(self, tensors: Mapping[str, Tensor]) -> list[Segment]:
        """Capture the model with some other tensors, and cut it where a layer begins."""
        longest = max(map(len, self.windows))
        file = replace(self.file, tensors={**self.file.tensors, **tensors})
        settings = Settings(context=longest, batch=longest, cache="f32", activations="float")
        program = fuse(capture_model(file, settings))
        starts = [0, *_boundaries(program.instructions)]
        ends = [*starts[1:], len(program.instructions)]
        return [_segment(program, *span) for span in zip(starts, ends, strict=True)]


def _boundaries(instructions: Sequence[Instruction]) -> Iterator[int]:
    """Where layers other than the first begin, and what follows the last."""
    layer = -1
    for number, instruction in enumerate(instructions):
        if instruction.operator is ops.last_rows:
            yield number
            return
        names = (buffer.root.name for buffer in (*instruction.inputs, *instruction.outputs))
        found = max((int(m[1]) for m in map(_LAYER.match, names) if m), default=layer)
        if found > layer:
            if layer >= 0:
                yield number
            layer = found


def _segment(program: Program, first: int, end: int) -> Segment:
    before, instructions, after = (
        program.instructions[part] for part in (slice(first), slice(first, end), slice(end, None))
    )
    there = {*program.inputs.values(), *_written(before)}
    used = {b.root for i in instructions for b in (*i.inputs, *i.outputs)}
    left = there | _written(instructions)
    passed = [root for root in dict.fromkeys(_read(after)) if root in left]
    carried = {root: replace(root, kind=Kind.INPUT) if root.kind is Kind.SCRATCH else root
               for root in there & used}  # fmt: skip
    is_head = not after
    if is_head:  # rows take the place of what `last_rows` takes them from
        takers = [i for i in instructions if i.operator is ops.last_rows]
        lasts = {i.inputs[0]: i.outputs[0] for i in takers}
        if len(takers) != 1 or takers[0].inputs[0] not in there:
            raise UnsupportedError(
                f"{program.name}: the last rows of a text are taken in another place than before "
                "the head, so the model cannot run a layer at a time: --method search quantizes it"
            )
        carried |= {root: replace(last, kind=Kind.INPUT) for root, last in lasts.items()}
        known = {lasts.get(root, root): buffer for root, buffer in carried.items()}
        instructions = [i for i in instructions if i.operator is not ops.last_rows]
    else:
        known = dict(carried)
        for root in passed:
            if root.kind is Kind.SCRATCH and root not in there:
                known[root] = replace(root, kind=Kind.OUTPUT)
    part = program.rewritten(instructions)
    part.inputs.clear()
    return Segment(
        plan_memory(part.replaced(known)),
        {root.name: buffer for root, buffer in carried.items()},
        {root.name: known.get(root, root) if root in used else None for root in passed},
        is_head,
    )


def _written(instructions: Sequence[Instruction]) -> set[Buffer]:
    return {b.root for i in instructions for b in i.outputs}


def _read(instructions: Sequence[Instruction]) -> Iterator[Buffer]:
    return (b.root for i in instructions for b in i.inputs)


def _matrix(instruction: Instruction) -> Tensor | None:
    """The file's tensor that a product with weights reads."""
    if instruction.operator not in (ops.matmul, ops.matmul_experts):
        return None
    tensor = instruction.operands["w"].value
    return (tensor.whole or tensor) if isinstance(tensor, Tensor) else None


def _execute(
    executable: Executable, registers: dict[str, int], observe: Observe | None, to_end: bool = True
) -> None:
    """Run, to the end or only up to what the last observed product reads."""
    if observe is None:
        executable.run(registers)
        return
    readers, instructions = _readers(executable.program), executable.program.instructions
    last = max((n for n, i in enumerate(instructions) if i in readers), default=-1)
    for number, instruction in enumerate(instructions):
        if instruction in readers:
            operands = {n: b for n, b in instruction.operands.items() if n in ("x", "ends")}
            views = {name: _view(executable, b, registers) for name, b in operands.items()}
            observe(readers[instruction], views)
        if number >= last and not to_end:
            return
        executable.step(number, registers)


def _readers(program: Program) -> dict[Instruction, list[Tensor]]:
    """The first product that reads some rows, and the matrices of all that do."""
    first: dict[Buffer, Instruction] = {}
    readers: dict[Instruction, list[Tensor]] = {}
    for instruction in program.instructions:
        if (tensor := _matrix(instruction)) is not None:
            reader = first.setdefault(instruction.operands["x"], instruction)
            tensors = readers.setdefault(reader, [])
            if all(other is not tensor for other in tensors):
                tensors.append(tensor)
    return readers


def _view(executable: Executable, buffer: Buffer, registers: Mapping[str, int]) -> Array:
    return np.asarray(at_sizes(executable.array(buffer), buffer, registers))
