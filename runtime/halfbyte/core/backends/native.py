"""The native backend: a program becomes an array of instructions that C runs in one call.

Calls are bound by name: a kernel's fields are the operands, dimensions and attributes of its
operator, so this module knows no individual operator.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.core.backends.direct import DirectOperands
from halfbyte.core.backends.libraries import instruction_sets, library_for
from halfbyte.core.backends.libraries import library as package_library
from halfbyte.core.backends.library import INSTRUCTION, PATCH, SLOTS, Kernel, Library
from halfbyte.core.backends.memory import allocate, at_sizes, in_numpy, operand
from halfbyte.core.backends.single import WORD, SingleKernels, float_slot
from halfbyte.core.backends.threads import new_pool, run_with
from halfbyte.core.backends.together import Accesses, followers
from halfbyte.core.backends.tuning import AtMost, Tuner
from halfbyte.core.buffer import Buffer, Size, maximum
from halfbyte.core.instruction import Instruction
from halfbyte.core.program import Program
from halfbyte.errors import ProgramError

__all__ = ["Kernels", "NativeExecutable", "instruction_sets"]


class Kernels(SingleKernels):
    """Single kernels of the package's library, or of another; see :class:`SingleKernels`.

    Parameters
    ----------
    isa : str or None
        Instruction set, as in `instruction_sets()`; None for the best.
    threads : int
        Threads that share the work of each call.
    library : Library, optional
    """

    def __init__(
        self, isa: str | None = None, threads: int = 1, library: Library | None = None
    ) -> None:
        super().__init__(library or package_library(), isa, threads)


@cache
def prefers_widened(isa: str | None) -> bool:
    """Whether an instruction set prefers it; the best one if none is named."""
    library = package_library()
    return bool(library.capabilities(isa or library.instruction_sets[0])["UNPACKED_FASTER"])


def _segments(program: Program) -> list[tuple[int, int]]:
    """Instructions [first, last) per call of C; an instruction that NumPy runs is [n, n)."""
    segments: list[tuple[int, int]] = []
    first = 0
    for number, instruction in enumerate(program.instructions):
        if instruction.operator.host:
            segments += [(first, number)] if first < number else []
            segments.append((number, number))
            first = number + 1
    count = len(program.instructions)
    return segments + ([(first, count)] if first < count else [])


class NativeExecutable:
    """A program lowered to instructions for one instruction set.

    `library` is the package's by default; `family` is the first part of the backend's name.
    """

    def __init__(
        self,
        program: Program,
        isa: str | None = None,
        threads: int = 1,
        library: Library | None = None,
        family: str = "native",
    ) -> None:
        self._library = library or library_for(threads, program)
        memory = self._memory = self._library.memory
        isa = isa or self._library.instruction_sets[0]
        table = self._library.table(isa)
        self.program = program
        self.backend = f"{family}-{isa}"
        self._arrays = allocate(program, memory)
        count = len(program.instructions)
        code = np.zeros(count, INSTRUCTION)
        patches: list[tuple[int, int, int]] = []
        registers = {name: index for index, name in enumerate(program.sizes)}
        for number, instruction in enumerate(program.instructions):
            if not instruction.operator.host:
                self._lower(code[number], number, instruction, registers, patches)
        if threads > 1:
            code["together"] = followers(map(self._accesses, program.instructions))
        self._code = memory.aligned(code.nbytes).view(INSTRUCTION)
        self._code[...] = code
        self._patches = memory.reach(np.array(patches, PATCH))
        self._values = np.zeros(len(registers), np.int32)
        self._registers = memory.aligned(self._values.nbytes).view(np.int32)
        self._sizes = list(program.sizes.values())
        self._pool = new_pool(self._library, threads)
        tuned = isinstance(threads, AtMost) and self.threads > 1
        self.tuner = Tuner(self.threads) if tuned else None
        self._program = self._library.converted("run", 0, (table, memory.address(self._code)))
        rest = (
            memory.address(self._patches), len(patches), memory.address(self._registers),
            self._pool.address,
        )  # fmt: skip
        converted = self._library.converted  # once, not in each run
        # without a profile, and with one
        self._arguments = tuple(converted("run", 4, (*rest, profile)) for profile in (False, True))
        self._segments = _segments(program)
        # NumPy's instructions keep their arrays
        self.direct: DirectOperands | None = None
        if not memory.apart and all(first < last for first, last in self._segments):
            known = list(self._library.kernels.values())
            kernels = [known[number] for number in code["kernel"].tolist()]
            self.direct = DirectOperands(self._code, kernels, self._arrays)
        self._fixed: dict[int, tuple[list[Any], list[npt.NDArray[Any]]]] = {}
        self._present: dict[str, int] = {}  # the sizes of the last run
        self._run = self._library.run
        self._lock = threading.RLock()  # one run at a time uses memory and pool
        self._closed = False

    @property
    def threads(self) -> int:
        """Threads that there are for the work."""
        return int(self._pool.threads)

    def array(self, buffer: Buffer) -> npt.NDArray[Any]:
        """The memory of an input, output or state buffer, at the maxima of its sizes."""
        return self._arrays[buffer]

    def run(self, registers: Mapping[str, int], profile: bool = False) -> None:
        """Execute all instructions with these values of the program's named sizes."""
        with self._lock:
            if registers != self._present or self._closed:
                self._set(registers)
            if self.tuner is None or profile:
                self._run_all(registers, profile)
            else:
                self._run_tuned(self.tuner, registers)

    def _run_tuned(self, tuner: Tuner, registers: Mapping[str, int]) -> None:
        """Run with the number of threads that is fastest, or one that has to be measured."""
        several = max(registers.values(), default=0) > 1 and registers.get("n", 1) > 1
        threads = tuner.threads(several)
        self._pool.limit(threads)
        start = time.perf_counter()
        self._run_all(registers, profile=False)
        if not several or registers["n"] == self.program.sizes["n"].maximum:
            tuner.add(several, threads, time.perf_counter() - start)

    def _run_all(self, registers: Mapping[str, int], profile: bool) -> None:
        for first, last in self._segments:
            if first == last:
                self._run_host(first, registers, profile)
            else:
                self._call(first, last, profile)

    def _call(self, first: int, last: int, profile: bool) -> None:
        """Run the instructions [first, last) in C."""
        arguments = self._arguments[profile]
        run_with(self._pool, self._run, self._program, first, last, arguments)

    def _run_host(self, number: int, registers: Mapping[str, int], profile: bool) -> None:
        """Run an instruction without a kernel, in NumPy."""
        instruction = self.program.instructions[number]
        start = self._library.ticks() if profile else 0
        inputs, outputs = self._host_arrays(number, registers)
        if self._memory.apart:
            inputs = [in_numpy(value) for value in inputs]
        with np.errstate(all="ignore"):
            if instruction.operator.fills:
                filled = [in_numpy(array) for array in outputs]
                instruction.operator.meaning(*inputs, *filled)
                for array, values in zip(outputs, filled, strict=True):
                    if array is not values:
                        array[...] = values
            else:
                results = instruction.results(inputs, registers)
                for array, result in zip(outputs, results, strict=True):
                    array[...] = result
        if profile:
            self._code[number]["ticks"] += self._library.ticks() - start

    def _host_arrays(
        self, number: int, registers: Mapping[str, int]
    ) -> tuple[list[Any], list[npt.NDArray[Any]]]:
        """Arguments and outputs of an instruction; computed once for the same sizes."""
        if (known := self._fixed.get(number)) is not None:
            return known
        instruction = self.program.instructions[number]
        arrays = self._arrays
        inputs = [b and operand(arrays, b, registers) for b in instruction.arguments]
        outputs = [at_sizes(arrays[b], b, registers) for b in instruction.outputs]
        self._fixed[number] = inputs, outputs
        return inputs, outputs

    def _set(self, registers: Mapping[str, int]) -> None:
        if self._closed:
            raise ProgramError(f"{self.program.name}: is closed")
        self._present = {}
        self._fixed.clear()
        for index, size in enumerate(self._sizes):
            value = size.at(registers)
            if not 0 <= value <= size.maximum:
                raise ProgramError(
                    f"{self.program.name}: {size.name} = {value}, expected 0 to {size.maximum}"
                )
            self._values[index] = value
        if len(self._values):
            self._registers[...] = self._values
        self._present = dict(registers)

    def profile(self, registers: Mapping[str, int]) -> npt.NDArray[np.float64]:
        """Run once; seconds spent in each instruction.

        Measured in C or, if it has no clock (WebAssembly), around calls of single instructions,
        which adds some microseconds to each.
        """
        ticks = self._library.ticks
        if not self.has_clock:
            return self._profile_singly(registers)
        with self._lock:
            self._code["ticks"] = 0
            start, first = time.perf_counter(), ticks()
            self.run(registers, profile=True)
            last, end = ticks(), time.perf_counter()
            per_second = (last - first) / (end - start) if last > first else np.inf
            seconds: npt.NDArray[np.float64] = self._code["ticks"] / per_second
        return seconds

    @property
    def has_clock(self) -> bool:
        """Whether C has a clock."""
        return bool(self._library.ticks())

    def profile_calls(self, registers: Mapping[str, int]) -> npt.NDArray[np.float64]:
        """The seconds that `profile` adds to each instruction if C has no clock."""
        return self._profile_singly(registers, 0)

    def _profile_singly(
        self, registers: Mapping[str, int], count: int = 1
    ) -> npt.NDArray[np.float64]:
        with self._lock:
            self._set(registers)
            times = [time.perf_counter()]
            for number in range(len(self.program.instructions)):
                self._step(number, registers, count)
                times.append(time.perf_counter())
        return np.diff(times)

    def step(self, number: int, registers: Mapping[str, int]) -> None:
        """Execute a single instruction on the present contents of memory."""
        with self._lock:
            self._set(registers)
            self._step(number, registers)

    def _step(self, number: int, registers: Mapping[str, int], count: int = 1) -> None:
        """Execute a single instruction or, with a count of 0, only the call for it."""
        if not self.program.instructions[number].operator.host:
            self._call(number, number + count, profile=False)
        elif count:
            self._run_host(number, registers, profile=False)

    def close(self) -> None:
        """Stop threads and release memory after the run in progress; none may follow."""
        with self._lock:
            self._closed = True
            self._pool.close()
            self._arrays.clear()
            self._fixed.clear()

    def _accesses(self, instruction: Instruction) -> Accesses | None:
        """The memory that an instruction's kernel uses; None if NumPy runs it."""
        if instruction.operator.host:
            return None
        ranges: dict[str, list[tuple[int, int]]] = {"in": [], "out": []}
        operands = instruction.operands
        for field in self._library.kernels[instruction.operator.kernel(instruction)].fields:
            if field.kind in ranges and (buffer := operands.get(field.name)) is not None:
                array = self._arrays[buffer]
                address = self._memory.address(array)
                ranges[field.kind].append((address, address + array.nbytes))
        return Accesses(ranges["in"], ranges["out"])

    def _lower(
        self,
        code: np.void,
        number: int,
        instruction: Instruction,
        registers: Mapping[str, int],
        patches: list[tuple[int, int, int]],
    ) -> None:
        """Fill in the code of an instruction; named sizes become patches."""
        instruction.operator.check(instruction)  # passes may have changed its buffers
        kernel = self._kernel(instruction.operator.kernel(instruction))
        code["kernel"] = kernel.index
        operands = instruction.operands
        values = {**instruction.attributes, **instruction.dims}
        if (called := instruction.operator.called(instruction)) is not None:
            name, size = called
            values |= {"kernel": self._kernel(name).index, "size": size}
        for slot, field in enumerate(kernel.fields):
            if field.kind in ("in", "out"):
                buffer = operands.get(field.name)  # optional operands may be missing
                address = 0 if buffer is None else self._memory.address(self._arrays[buffer])
                code["slot"][slot] = address
            elif field.kind == "float":
                code["slot"][slot] = float_slot(values[field.name])
            else:
                value = values[field.name]
                code["slot"][slot] = maximum(value) & WORD
                if isinstance(value, Size):
                    patches.append((number, slot, registers[value.name]))

    def _kernel(self, name: str) -> Kernel:
        """The library's kernel of this name."""
        kernel = self._library.kernels.get(name)
        if kernel is None or len(kernel.fields) > SLOTS:
            raise ProgramError(f"{self.program.name}: no kernel '{name}' in the library")
        return kernel
