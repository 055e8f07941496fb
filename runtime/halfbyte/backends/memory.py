"""Memory for a program's buffers, as its plan says."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.program import DTYPES, Buffer, Kind, Program, maximum
from halfbyte.weights import Tensor

ALIGNMENT = 64  # bytes: a cache line, and the widest vector


def aligned(nbytes: int) -> npt.NDArray[np.uint8]:
    """Zeroed bytes whose address is a multiple of ALIGNMENT; pages come when first touched."""
    raw = np.zeros(nbytes + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + nbytes]


def allocate(program: Program) -> dict[Buffer, npt.NDArray[Any]]:
    """An array for every buffer, at the maxima of its sizes; weights are views of their file.

    A weight in a block format is its bytes, one-dimensional uint8.
    """
    arena = aligned(program.arena_bytes)
    arrays: dict[Buffer, npt.NDArray[Any]] = {}
    for buffer in program.buffers:
        if isinstance(buffer.value, Tensor):
            arrays[buffer] = buffer.value.data
        elif buffer.value is not None:
            arrays[buffer] = buffer.value
        else:
            place = program.places.get(buffer) if buffer.kind is Kind.SCRATCH else None
            size = buffer.nbytes
            memory = aligned(size) if place is None else arena[place : place + size]
            arrays[buffer] = memory.view(DTYPES[buffer.dtype]).reshape(
                [maximum(d) for d in buffer.shape]
            )
    return arrays
