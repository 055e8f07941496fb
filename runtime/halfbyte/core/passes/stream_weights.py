"""Weights that are read in every run, a lot ahead of their use, instead of being held.

Products take their matrices from windows: memory that is planned like any scratch buffer, so that
two lots of weights, a few megabytes each, are all that is resident. A large matrix is multiplied in
slices of its rows. What is computed is the same to the bit: no output depends on two rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from halfbyte.core import ops
from halfbyte.core.ops.operator import host_instruction
from halfbyte.core.program import Buffer, Instruction, Kind, Program, current, resume
from halfbyte.formats.reading import Reader, Rows
from halfbyte.weights import Tensor

LOT_BYTES = 4 << 20  # read at once: much for a storage device's latency, little beside a model
_GROUP = 16  # rows that kernels take together


def stream_weights(program: Program, reader: Reader, lot_bytes: int = LOT_BYTES) -> Program:
    """Read the matrices of products from the file in each run, in lots of about `lot_bytes`.

    Comes before `fuse`. Embeddings are read row by row, as tokens ask for them.
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
            else:
                windows |= _multiply(instruction, weight, lot_bytes)
    lots = _lots(windows, lot_bytes)
    rewritten.instructions = _with_reads(rewritten.instructions, lots, windows, reader)
    return rewritten


def window_bytes(program: Program) -> int:
    """Bytes of windows that hold weights at the same time, at most: those of two lots."""
    reads = [i for i in program.instructions if i.operator.name == _READ]
    return max((sum(b.nbytes for b in (*i.inputs, *i.outputs)) for i in reads), default=0)


_READ = "read_weights"


def _matrix(instruction: Instruction) -> Tensor | None:
    """What a product or a table of embeddings takes from the file."""
    buffer = instruction.operands.get("w")
    return buffer.value if buffer is not None and isinstance(buffer.value, Tensor) else None


def _gather(instruction: Instruction, weight: Tensor, reader: Reader) -> Instruction:
    def embed(ids: Any) -> tuple[Any]:
        inside = (ids >= 0) & (ids < weight.shape[0])
        y = weight.format.decode(reader.pick(weight, np.where(inside, ids, 0)))
        y[~inside] = 0
        return (y,)

    ids = instruction.operands["ids"]
    return host_instruction("read_rows", embed, (ids,), instruction.outputs)


def _multiply(instruction: Instruction, weight: Tensor, lot_bytes: int) -> dict[Buffer, Rows]:
    """Record a product with windows in place of its matrix, slice by slice; returns these."""
    *activations, w = instruction.inputs
    (y,) = instruction.outputs
    step = max(lot_bytes // weight.format.row_bytes(weight.columns) // _GROUP, 1) * _GROUP
    windows = {}
    for first in range(0, weight.row_count, step):
        rows = Rows(weight, first, min(step, weight.row_count - first))
        name = f"{weight.name}[{first}:{first + rows.size}]"
        window = Buffer(name, Kind.WINDOW, w.dtype, (rows.size, weight.columns))
        windows[window] = rows
        part = instruction.operator(*activations, window)
        if rows.size == weight.row_count:
            current().instructions[-1].outputs = (y,)
        else:
            ops.concat_part(y.view(y.shape, "i32"), part.view(part.shape, "i32"), offset=first)
    return windows


def _lots(windows: dict[Buffer, Rows], lot_bytes: int) -> list[tuple[Buffer, ...]]:
    """Windows in the order of their use, as many together as fit into a lot."""
    lots: list[tuple[Buffer, ...]] = []
    size = lot_bytes + 1
    for window in windows:
        size += window.nbytes
        if size > lot_bytes:
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
    following = dict(zip([(), *lots], [*lots, ()], strict=True))
    lot_of = {window: lot for lot in lots for window in lot}

    def read(lot: tuple[Buffer, ...]) -> Instruction:
        wanted = [windows[window] for window in following[lot]]

        def turn(*arrays: Any) -> None:
            if lot:
                reader.wait()
            if wanted:
                reader.begin(wanted, arrays[len(lot) :])

        return host_instruction(_READ, turn, lot, following[lot], fills=True)

    last: tuple[Buffer, ...] = ()
    found = [read(last)]
    for instruction in instructions:
        lot = next((lot_of[b] for b in instruction.inputs if b in lot_of), last)
        if lot is not last:
            found.append(read(lot))
            last = lot
        found.append(instruction)
    return found
