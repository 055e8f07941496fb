"""The NumPy backend: runs the definition of every operator. Slow, complete, the reference."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.core.backends.memory import Memory, allocate, at_sizes, operand
from halfbyte.core.buffer import Buffer
from halfbyte.core.instruction import Instruction
from halfbyte.core.program import Program


class NumpyExecutable:
    """A program that is run operator by operator in NumPy, in its planned memory."""

    backend = "numpy"
    threads = 1

    def __init__(self, program: Program) -> None:
        self.program = program
        self._arrays = allocate(program, Memory())

    def array(self, buffer: Buffer) -> npt.NDArray[Any]:
        """The memory of an input, output or state buffer, at the maxima of its sizes."""
        return self._arrays[buffer]

    def run(self, registers: dict[str, int]) -> None:
        """Execute all instructions with these values of the program's named sizes."""
        with np.errstate(all="ignore"):  # as in C, infinities propagate to the result
            for instruction in self.program.instructions:
                self._execute(instruction, registers)

    def profile(self, registers: dict[str, int]) -> npt.NDArray[np.float64]:
        """Run, and return the seconds spent in each instruction."""
        seconds = []
        with np.errstate(all="ignore"):
            for instruction in self.program.instructions:
                start = time.perf_counter()
                self._execute(instruction, registers)
                seconds.append(time.perf_counter() - start)
        return np.array(seconds)

    def step(self, number: int, registers: Mapping[str, int]) -> None:
        """Execute a single instruction on the present contents of memory."""
        with np.errstate(all="ignore"):
            self._execute(self.program.instructions[number], registers)

    def _execute(self, instruction: Instruction, registers: Mapping[str, int]) -> None:
        operands = {b: operand(self._arrays, b, registers) for b in instruction.inputs}
        arguments = [b and operands[b] for b in instruction.arguments]
        if instruction.operator.fills:
            outputs = (self._view(b, registers) for b in instruction.outputs)
            instruction.operator.meaning(*arguments, *outputs)
            return
        results = instruction.results(arguments, registers)
        for buffer, result in zip(instruction.outputs, results, strict=True):
            if result is not operands.get(buffer):  # else it was written in place
                self._view(buffer, registers)[...] = result

    def close(self) -> None:
        """Nothing to stop."""

    def _view(self, buffer: Buffer, registers: Mapping[str, int]) -> npt.NDArray[Any]:
        return at_sizes(self._arrays[buffer], buffer, registers)
