"""Streams weights: they are read in every run, one lot ahead of their use, instead of being held.

Products take their matrices from windows, memory that is planned like scratch buffers, so that only
two lots of weights, a few megabytes each, are resident, and the rows that are held on purpose. A
large matrix is multiplied in slices of its rows. Results are the same to the bit, since no output
depends on two rows.

Which matrices of experts a run reads is known only within it, so these stay mapped: the system
reads the pages of those that are chosen, and may drop them.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import numpy as np

from halfbyte.core import ops
from halfbyte.core.buffer import Buffer, Kind
from halfbyte.core.instruction import Instruction
from halfbyte.core.ops.operator import host_instruction
from halfbyte.core.program import Program, current, resume
from halfbyte.formats.derived import DerivedTensor
from halfbyte.formats.reading import Reader, Rows
from halfbyte.weights import Layout, Tensor

LOT_BYTES = 4 << 20  # read at once: long enough to hide a device's latency, small beside a model
_GROUP = 16  # rows that kernels process together


def stream_weights(
    program: Program, reader: Reader, held: Mapping[Buffer, int] = MappingProxyType({})
) -> Program:
    """Read the matrices of products from the file in each run, in lots of about `LOT_BYTES`.

    Runs before `fuse`. The first rows of the matrices in `held`, as many as it says, stay in
    memory. Embeddings are read row by row, for the tokens of each run.
    """
    rewritten = program.rewritten([])
    windows: dict[Buffer, Rows] = {}
    with resume(rewritten):
        for instruction in program.instructions:
            weight = _matrix(instruction)
            if weight is None:
                rewritten.append(instruction)
            elif instruction.operator is ops.gather:
                rewritten.append(_gather(instruction, weight, reader))
            elif (rows := held.get(instruction.operands["w"], 0)) == weight.row_count:
                rewritten.append(instruction)
            else:
                windows |= _multiply(instruction, weight, rows)
    lots = _lots(windows)
    rewritten.instructions = _with_reads(rewritten.instructions, lots, windows, reader)
    return rewritten


def rows_within(program: Program, room: int) -> dict[Buffer, int]:
    """How many rows of matrices to hold, at most `room` bytes in all, before `stream_weights`.

    Held matrices are spread over a run, since others are read while they are multiplied. The rest
    of the room is for the largest others, the last of them in part.
    """
    products = [i for i in program.instructions if i.operator is not ops.gather]
    matrices = {i.operands["w"]: tensor for i in products if (tensor := _matrix(i)) is not None}
    share, due = room / max(sum(b.nbytes for b in matrices), 1), 0.0
    held: dict[Buffer, int] = {}
    for buffer, tensor in matrices.items():
        due += share * buffer.nbytes
        if buffer.nbytes <= min(due, room):
            held[buffer] = tensor.row_count
            due, room = due - buffer.nbytes, room - buffer.nbytes
    for buffer, tensor in sorted(matrices.items(), key=lambda item: -item[0].nbytes):
        if buffer in held:
            continue
        size, rows = tensor.format.row_bytes(tensor.columns), tensor.row_count
        if rows * size > room:  # computed ones are computed as a whole
            rows = 0 if isinstance(tensor, DerivedTensor) else room // size // _GROUP * _GROUP
        if rows:
            held[buffer] = rows
            room -= rows * size
    return held


def streamed_bytes(program: Program) -> int:
    """Bytes of matrices that are read from storage in each run."""
    return sum(b.nbytes for b in program.buffers if b.kind is Kind.WINDOW)


def window_bytes(program: Program) -> int:
    """The maximum of bytes in windows at the same time: those of two lots."""
    reads = [i for i in program.instructions if i.operator.name == _READ]
    return max((sum(b.nbytes for b in (*i.inputs, *i.outputs)) for i in reads), default=0)


_READ = "read_weights"


def _matrix(instruction: Instruction) -> Tensor | None:
    """The matrix that a product or an embedding takes from the file."""
    buffer = instruction.operands.get("w")
    if buffer is None or not isinstance(buffer.value, Tensor) or len(buffer.shape) > 2:
        return None
    return buffer.value


def _gather(instruction: Instruction, weight: Tensor, reader: Reader) -> Instruction:
    def embed(ids: Any) -> tuple[Any]:
        inside = (ids >= 0) & (ids < weight.shape[0])
        y = weight.format.decode(reader.pick(weight, np.where(inside, ids, 0)))
        y[~inside] = 0
        return (y,)

    ids = instruction.operands["ids"]
    return host_instruction("read_rows", embed, (ids,), instruction.outputs)


def _multiply(instruction: Instruction, weight: Tensor, held: int) -> dict[Buffer, Rows]:
    """Record a product slice by slice, with windows instead of its matrix; returns the windows.

    The first `held` rows are a matrix in memory.
    """
    *activations, w = instruction.inputs
    (y,) = instruction.outputs
    step = max(LOT_BYTES // weight.format.row_bytes(weight.columns) // _GROUP, 1) * _GROUP
    firsts = list(range(held, weight.row_count, step))
    windows = {}
    for first, end in pairwise([*([0] if held else []), *firsts, weight.row_count]):
        shape = (end - first, weight.columns)
        if first < held:
            matrix = Buffer(f"{w.name}[:{end}]", w.kind, w.dtype, shape, weight.part(first, end))
        else:
            name = f"{weight.name}[{first}:{end}]"
            layout = _layout(instruction, weight, end - first)
            dtype = w.dtype if layout is None else layout.dtype
            matrix = Buffer(name, Kind.WINDOW, dtype, shape)
            windows[matrix] = Rows(weight, first, end - first, layout)
        part = instruction.operator(*activations, matrix)
        if end - first == weight.row_count:
            current().change_last((y,))
        else:
            ops.concat_part(y.view(y.shape, "i32"), part.view(part.shape, "i32"), offset=first)
    return windows


def _layout(instruction: Instruction, weight: Tensor, rows: int) -> type[Layout] | None:
    """The order in which an integer product multiplies these rows fastest; None for the file's."""
    layout = weight.format.packed
    packs = layout is not None and instruction.operator is ops.matmul_int8 and rows >= layout.GROUP
    return layout if packs else None


def _lots(windows: dict[Buffer, Rows]) -> list[tuple[Buffer, ...]]:
    """Lots of windows in the order of their use, each as large as possible."""
    lots: list[tuple[Buffer, ...]] = []
    size = LOT_BYTES + 1
    for window in windows:
        size += window.nbytes
        if size > LOT_BYTES:
            lots.append(())
            size = window.nbytes
        lots[-1] += (window,)
    return lots


def _with_reads(
    instructions: list[Instruction],
    lots: list[tuple[Buffer, ...]],
    windows: dict[Buffer, Rows],
    reader: Reader,
) -> list[Instruction]:
    """Before the first use of each lot: wait for it, and begin the next one."""
    if not lots:
        return instructions
    following = dict(zip([(), *lots], [*lots, ()], strict=True))
    lot_of = {window: lot for lot in lots for window in lot}

    def read(lot: tuple[Buffer, ...]) -> Instruction:
        wanted = [windows[window] for window in following[lot]]

        def wait_and_begin(*arrays: Any) -> None:
            if lot:
                reader.wait()
            if wanted:
                reader.begin(wanted, arrays[len(lot) :])

        return host_instruction(_READ, wait_and_begin, lot, following[lot], fills=True)

    last: tuple[Buffer, ...] = ()
    result = [read(last)]
    for instruction in instructions:
        lot = next((lot_of[b] for b in instruction.inputs if b in lot_of), last)
        if lot is not last:
            result.append(read(lot))
            last = lot
        result.append(instruction)
    return result
