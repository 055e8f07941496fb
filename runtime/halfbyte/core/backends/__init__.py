"""Backends run programs: `open_program` selects one by name.

``numpy`` is the definition. ``native`` is the compiled kernels with the best instruction set that
this CPU supports; ``native-avx2``, ``native-scalar`` and so on select one by name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from halfbyte.core.backends import native
from halfbyte.core.backends.native import NativeExecutable, instruction_sets
from halfbyte.core.backends.numpy import NumpyExecutable
from halfbyte.core.buffer import Buffer
from halfbyte.core.program import Program
from halfbyte.errors import UnsupportedError


class Executable(Protocol):
    """A program with its memory, ready to run."""

    program: Program
    backend: str

    @property
    def threads(self) -> int:
        """Threads that there are for the work."""

    def array(self, buffer: Buffer) -> npt.NDArray[Any]:
        """The memory of an input, output or state buffer, at the maxima of its sizes."""

    def run(self, registers: dict[str, int]) -> None:
        """Execute all instructions with these values of the program's named sizes."""

    def profile(self, registers: dict[str, int]) -> npt.NDArray[np.float64]:
        """Run, and return the seconds spent in each instruction."""

    def step(self, number: int, registers: dict[str, int]) -> None:
        """Execute a single instruction on the present contents of memory."""

    def close(self) -> None:
        """Stop the threads; the executable must not run afterwards."""


def available() -> list[str]:
    """Names of the backends that work on this machine, fastest first."""
    return [*(f"native-{isa}" for isa in instruction_sets()), "numpy"]


def prefers_widened(backend: str = "native") -> bool:
    """Whether :func:`halfbyte.core.ops.matmul_widened` is faster than products of bytes there."""
    if backend == "numpy" or (backend != "native" and backend not in available()):
        return False
    return native.prefers_widened(backend.removeprefix("native").removeprefix("-") or None)


Opener = Callable[[Program, str, int], Executable]  # of a program, a table's name and threads
_FAMILIES: dict[str, Opener] = {}


def register_family(family: str, opener: Opener) -> None:
    """Add backends named ``family-table``, opened by `opener`: tables for other processors.

    Raises
    ------
    ValueError
        The family is registered already.
    """
    if family in _FAMILIES:
        raise ValueError(f"backends '{family}-...': are registered already")
    _FAMILIES[family] = opener


def open_program(program: Program, backend: str = "native", threads: int = 1) -> Executable:
    """Allocate the memory of a program and bind it to a backend, named as described above."""
    if backend == "numpy":
        return NumpyExecutable(program)
    if backend == "native":
        return NativeExecutable(program, None, threads)
    if backend in available():
        return NativeExecutable(program, backend.removeprefix("native-"), threads)
    family, _, rest = backend.partition("-")
    if family in _FAMILIES:
        return _FAMILIES[family](program, rest, threads)
    raise UnsupportedError(f"backend '{backend}': expected native or one of {available()}")
