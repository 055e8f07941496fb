"""A program on two backends at once, instruction by instruction, to compare each result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.core.backends import Executable, open_program
from halfbyte.core.backends.memory import at_sizes
from halfbyte.core.buffer import Buffer
from halfbyte.core.instruction import Instruction
from halfbyte.core.program import Program

Array = npt.NDArray[Any]
_FLOATS = ("f32", "f16", "f64")
Visit = Callable[[int, Instruction, Buffer, Array, Array], None]


class Lockstep:
    """An executable of one backend, together with NumPy's.

    Both use the same memory plan, so NumPy's inputs can be copied over.

    Parameters
    ----------
    program : Program
    backend : str
        The backend to check.
    threads : int
        Threads of the backend.
    visit : callable
        Called after each instruction, for each buffer that it writes, with the instruction's
        number, the instruction, the buffer, and views of the backend's and of NumPy's result.
    forced : bool
        Whether each instruction of the backend gets NumPy's inputs, so that errors do not add up.
        Otherwise both run freely, and only floats are compared: quantized values with different
        scales cannot be.
    """

    def __init__(
        self, program: Program, backend: str, threads: int, visit: Visit, *, forced: bool
    ) -> None:
        self.program = program
        self._tested = open_program(program, backend, threads)
        self._reference = open_program(program, "numpy")
        self.backend, self.threads = self._tested.backend, self._tested.threads
        self._visit, self._forced = visit, forced

    def array(self, buffer: Buffer) -> Array:
        """The backend's memory of an input, output or state."""
        return self._tested.array(buffer)

    def run(self, registers: dict[str, int]) -> None:
        """Execute all instructions on both sides."""
        for buffer in self.program.inputs.values():
            self._copy(buffer, self._tested, self._reference)
        for number, instruction in enumerate(self.program.instructions):
            if self._forced:
                for buffer in instruction.inputs:
                    if buffer.root.value is None:
                        self._copy(buffer, self._reference, self._tested)
            self._tested.step(number, registers)
            self._reference.step(number, registers)
            for buffer in instruction.outputs:
                if self._forced or buffer.dtype in _FLOATS:
                    views = (self._view(e, buffer, registers) for e in self._both)
                    self._visit(number, instruction, buffer, *views)

    @property
    def _both(self) -> tuple[Executable, Executable]:
        return self._tested, self._reference

    def _copy(self, buffer: Buffer, source: Executable, target: Executable) -> None:
        target.array(buffer)[...] = np.asarray(source.array(buffer))

    def _view(self, executable: Executable, buffer: Buffer, registers: Mapping[str, int]) -> Array:
        """The values of a buffer at given sizes."""
        return np.asarray(at_sizes(executable.array(buffer), buffer, registers))

    def step(self, number: int, registers: dict[str, int]) -> None:
        """Run one instruction on the backend only."""
        self._tested.step(number, registers)

    def profile(self, registers: dict[str, int]) -> npt.NDArray[np.float64]:
        """Run, and return the backend's seconds in each instruction."""
        return self._tested.profile(registers)

    def close(self) -> None:
        """Stop threads."""
        for executable in self._both:
            executable.close()
