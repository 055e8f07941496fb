"""Kernels called one by one with arrays: the quantizer's way in, and the tests'."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from halfbyte.core.backends.library import INSTRUCTION, Field, Library
from halfbyte.core.backends.threads import new_pool, run_with
from halfbyte.core.ops.operator import operator_of
from halfbyte.errors import ProgramError

WORD = (1 << 64) - 1  # negative integers are stored in two's complement


def float_slot(value: float) -> int:
    """The bits of a float, as stored in the slot of an instruction."""
    return int(np.float32(value).view(np.uint32))


class SingleKernels:
    """The kernels of a library as functions that are called with arrays.

    Parameters
    ----------
    library : Library
    isa : str or None
        Instruction set, as in `instruction_sets()`; None for the best.
    threads : int
        Threads that share the work of each call.
    """

    def __init__(self, library: Library, isa: str | None = None, threads: int = 1) -> None:
        self._library = library
        self.isa = isa or self._library.instruction_sets[0]
        self.memory = self._library.memory
        self._table = self._library.table(self.isa)
        self._pool = new_pool(self._library, threads)
        self._instruction = self.memory.aligned(INSTRUCTION.itemsize).view(INSTRUCTION)
        self._code = np.zeros(1, INSTRUCTION)
        self._lock = threading.Lock()  # one call at a time

    def call(self, name: str, **arguments: Any) -> None:
        """Run a kernel; keywords are its fields: C-contiguous arrays, ints, floats.

        Inputs at unaligned addresses, as tensors in files may be, are copied.
        """
        kernel = self._library.kernels[name]
        fields = {f.name for f in kernel.fields}
        missing = fields - set(arguments)
        operator = operator_of(name) if missing else None
        optional = {o.name for o in operator.inputs if o.optional} if operator else set()
        if missing - optional or not set(arguments) <= fields:
            raise ProgramError(
                f"kernel {name}: expected arguments {[f.name for f in kernel.fields]}, "
                f"found {sorted(arguments)}"
            )
        aligned = [_aligned(arguments.get(f.name), f) for f in kernel.fields]
        values = [self._slot(name, *pair) for pair in zip(kernel.fields, aligned, strict=True)]
        with self._lock:
            slots = self._code["slot"][0]
            for slot, value in enumerate(values):
                slots[slot] = value
            self._code["kernel"] = kernel.index
            self._instruction[...] = self._code
            address = self.memory.address(self._instruction)
            rest = (0, 0, 0, self._pool.address, 0)
            run_with(self._pool, self._library.run, (self._table, address), 0, 1, rest)

    def has(self, name: str) -> bool:
        """Whether there is a kernel of this name."""
        return name in self._library.kernels

    def close(self) -> None:
        """Stop the threads."""
        with self._lock:
            self._pool.close()

    def _slot(self, name: str, field: Field, value: Any) -> int:
        if value is None:
            return 0
        if field.kind == "float":
            return float_slot(value)
        if field.kind == "int":
            return int(value) & WORD
        if not value.flags.c_contiguous:
            raise ProgramError(f"kernel {name}: argument '{field.name}' is not C-contiguous")
        if not value.flags.aligned:
            raise ProgramError(f"kernel {name}: argument '{field.name}' is not aligned")
        return self.memory.address(value)


def _aligned(value: Any, field: Field) -> Any:
    if field.kind == "in" and isinstance(value, np.ndarray) and not value.flags.aligned:
        return np.require(value, requirements="A")
    return value
