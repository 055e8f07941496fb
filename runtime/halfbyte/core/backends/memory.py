"""Memory for the buffers of a program, according to its plan."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.core.aligned import U8, aligned
from halfbyte.core.buffer import SHARED, Buffer, ComputedSize, Kind
from halfbyte.core.interrupt import step
from halfbyte.core.program import Program
from halfbyte.errors import MemoryBudgetError, OutOfMemoryError
from halfbyte.formats.mapped import is_apart
from halfbyte.room import available_bytes
from halfbyte.weights import BY_DTYPE, Tensor


class Memory:
    """The memory that kernels access: that of this process."""

    apart = False  # from NumPy's, whose arrays have to be copied into it

    def aligned(self, nbytes: int) -> U8:
        """Zeroed bytes, aligned to a cache line."""
        return aligned(nbytes)

    def reach(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The array, or a copy, in memory that kernels access; C-contiguous and aligned."""
        return np.require(array, requirements=["C", "A"])

    def address(self, array: npt.NDArray[Any]) -> int:
        """The array's address, as kernels take it."""
        return int(array.ctypes.data)


def allocate(program: Program, memory: Memory) -> dict[Buffer, npt.NDArray[Any]]:
    """An array for every buffer, with maximal sizes; weights are views of their file.

    A weight in a block format is a one-dimensional array of its bytes.

    Raises
    ------
    MemoryBudgetError
        The plan exceeds the memory of this machine, or the part that this process may use.
    """
    planned = {kind: n for kind, n in program.bytes_by_kind().items() if kind is not Kind.WEIGHT}
    taken = [b for b in program.buffers if b.source is None and not isinstance(b.value, _THERE)]
    own = [b for b in taken if b not in program.places]
    error: type[MemoryBudgetError] = MemoryBudgetError
    try:
        if program.arena_bytes + sum(b.nbytes for b in own) <= available_bytes():
            return _allocate(program, memory)
    except MemoryError:
        error = OutOfMemoryError
    numbers = ", ".join(f"{kind} {n / 1e6:.0f} MB" for kind, n in planned.items() if n >= 5e5)
    raise error(
        f"{program.name}: it needs more memory than there is: beside the weights {numbers}; "
        f"{_advice(program, taken)}"
    )


_THERE = (Tensor, np.ndarray)  # values that have memory already


def _advice(program: Program, taken: list[Buffer]) -> str:
    """What would need less memory, or which part needs most."""
    if program.sizes or not taken:
        return "a smaller context needs less"
    largest = max(taken, key=lambda buffer: buffer.nbytes)
    makers = (i.origin for i in program.instructions for b in i.outputs if b.root is largest)
    name = next(makers, "") or largest.name
    return f"the largest part is {largest.nbytes / 1e6:.0f} MB of {name!r}"


def at_sizes(
    array: npt.NDArray[Any], buffer: Buffer, registers: Mapping[str, int]
) -> npt.NDArray[Any]:
    """The part of a buffer's array that a run with these sizes uses."""
    _, shape = buffer.held_as(registers)
    if any(isinstance(d, ComputedSize) for d in buffer.shape):
        return array.reshape(-1)[: math.prod(shape)].reshape(shape)
    return array[tuple(map(slice, shape))] if shape else array


def operand(
    arrays: Mapping[Buffer, npt.NDArray[Any]], buffer: Buffer, registers: Mapping[str, int]
) -> Any:
    """A buffer as the NumPy definition takes it: an array, or a matrix of weights in its format."""
    if isinstance(buffer.value, Tensor):
        # Only matrices are weights in a format; vectors are ordinary operands.
        return buffer.value if len(buffer.shape) > 1 else buffer.value.decode()
    if buffer.kind is Kind.WINDOW:
        data = arrays[buffer].reshape(-1).view(np.uint8)
        sizes = buffer.sizes_at(registers)
        return Tensor(buffer.name, BY_DTYPE[buffer.dtype], sizes, data)
    return at_sizes(arrays[buffer], buffer, registers)


def in_numpy(value: Any) -> Any:
    """An operand in the memory of NumPy: itself, or a copy of an array in another memory."""
    if isinstance(value, Tensor) and is_apart(value.data):
        return replace(value, data=np.asarray(value.data))
    return value if value is None or isinstance(value, Tensor) else np.asarray(value)


def _allocate(program: Program, memory: Memory) -> dict[Buffer, npt.NDArray[Any]]:
    arena = memory.aligned(program.arena_bytes)
    arrays: dict[Buffer, npt.NDArray[Any]] = {}
    for buffer in program.buffers:
        step()  # a chance to interrupt: some are packed now
        if buffer.source is not None:
            dtype, shape = buffer.held_as({})
            whole = arrays[buffer.root].reshape(-1).view(np.uint8)
            part = whole[buffer.offset : buffer.offset + buffer.nbytes]
            arrays[buffer] = part.view(dtype).reshape(shape)
        elif isinstance(buffer.value, Tensor):
            arrays[buffer] = memory.reach(buffer.value.data)
        elif callable(buffer.value):
            arrays[buffer] = memory.reach(buffer.value())
        elif buffer.value is not None:
            arrays[buffer] = memory.reach(buffer.value)
        else:
            place = program.places.get(buffer) if buffer.kind in SHARED else None
            size = buffer.nbytes
            raw = memory.aligned(size) if place is None else arena[place : place + size]
            dtype, shape = buffer.held_as({})
            arrays[buffer] = raw.view(dtype).reshape(shape)
    return arrays
