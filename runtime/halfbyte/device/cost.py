"""The time that a program takes, from its operations and bytes and a processor's rates.

A roofline for each kind of kernel: an instruction takes the time of its operations at a fraction of
the arithmetic peak or of its bytes at a fraction of the memory bandwidth, whichever is longer, plus
a launch. Source: Williams, Waterman and Patterson 2009, Roofline.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from halfbyte.core.buffer import Buffer, Kind, maximum
from halfbyte.core.dtypes import DTYPES
from halfbyte.core.instruction import Instruction
from halfbyte.core.program import Program
from halfbyte.device.kernels import HOST, ROWS, Kernel, kernel_of
from halfbyte.device.quantity import Draws, Quantity
from halfbyte.weights.registry import is_packed

F64 = npt.NDArray[np.float64]

# Data that exists before a run
_HELD = frozenset({Kind.WEIGHT, Kind.CACHE, Kind.STATE, Kind.WINDOW})
_MULTIPLIED = _HELD | {Kind.CONSTANT}  # a graph's packed weights are constants
_SHARED = 1 << 16  # bytes or operations of an instruction: runtime/kernels/run.c shares no fewer


@dataclass
class Work:
    """The work of all instructions of one kind in a run.

    Attributes
    ----------
    calls : int
        Number of instructions.
    operations : int
        A multiplication and an addition are two.
    held : int
        Bytes of weights, of the KV cache, of states, and of constants that products read.
    passing : int
        Bytes of activations, which stay in caches.
    product : bool
        Whether operations determine the time; otherwise bytes of activations do.
    """

    calls: int = 0
    operations: int = 0
    held: int = 0
    passing: int = 0
    product: bool = False

    @property
    def amount(self) -> int:
        """The operations or bytes of activations that determine the time."""
        return self.operations if self.product else self.passing


def kind_of(instruction: Instruction, to_pack: Collection[Buffer] = ()) -> str:
    """The kind of kernel: the operator, and for products and attention the type of the weights.

    Integer products with weights in the order of the file (not packed) are a kind of their own, as
    are quantized convolutions with windows of one pixel. All work that NumPy does is one kind.
    """
    operator, operands = instruction.operator, instruction.operands
    if operator.host:
        return HOST
    if operator.kind is None:
        return operator.name
    types = {name: _in_files(buffer.dtype) for name, buffer in operands.items()}
    return operator.kind({**instruction.dims, **types}) + (
        ROWS if _in_rows(instruction, to_pack) else ""
    )


def _in_files(dtype: str) -> str:
    """The dtype that packed weights have in a file; other dtypes unchanged."""
    return dtype.removesuffix("_r16") if is_packed(dtype) else dtype


def _in_rows(instruction: Instruction, to_pack: Collection[Buffer]) -> bool:
    """Whether this is an integer product with weights that could be packed, but are not."""
    w = instruction.operands.get("w")
    if w is None or w.dtype in DTYPES or instruction.operator.inputs[0].dtype != "i8":
        return False
    return w not in to_pack and not is_packed(w.dtype)


def work_of(
    program: Program, registers: Mapping[str, int], to_pack: Collection[Buffer] = ()
) -> dict[str, Work]:
    """The work of one run with these sizes, by kind."""
    return _work(program.instructions, registers, to_pack)


def _work(
    instructions: Iterable[Instruction], registers: Mapping[str, int], to_pack: Collection[Buffer]
) -> dict[str, Work]:
    by_kind: dict[str, Work] = {}
    for instruction in instructions:
        if instruction.operator.fills:  # reads from storage, concurrently with the work
            continue
        kind = kind_of(instruction, to_pack)
        product = counts_operations(instruction)
        work = by_kind.setdefault(kind, Work(product=product))
        work.calls += 1
        work.operations += instruction.operations(registers)
        kinds = _MULTIPLIED if product else _HELD
        held = instruction.bytes_moved(registers, kinds)
        work.held += held
        work.passing += instruction.bytes_moved(registers) - held
        work.passing += sum(held_by_host(instruction))
    return by_kind


def multiplied_bytes(program: Program) -> int:
    """Bytes of all weights and states that products and attention read, each counted once."""
    sizes = {
        buffer.root: buffer.root.nbytes
        for instruction in program.instructions
        if counts_operations(instruction)
        for buffer in instruction.inputs
        if buffer.root.kind in _MULTIPLIED
    }
    return sum(sizes.values())


def held_by_host(instruction: Instruction) -> list[int]:
    """Bytes that NumPy reads of each of a host operator's constants."""
    operator = instruction.operator
    written = sum(buffer.nbytes for buffer in instruction.outputs)
    limit = written if operator.onnx.startswith("Gather") else math.inf  # only rows of a table
    return [int(min(array.nbytes, limit)) for array in operator.holds]


def _is_single(instruction: Instruction, registers: Mapping[str, int]) -> bool:
    """Whether a product has few rows, such as a single token.

    Graphs have no named sizes: rows are the instruction's, pixels for convolutions.
    """
    if "n" in registers:
        return registers["n"] < _MANY
    rows = (maximum(instruction.dims[name]) for name in "npqs" if name in instruction.dims)
    return counts_operations(instruction) and math.prod(rows) < _MANY


@dataclass(frozen=True)
class Rates:
    """What a processor does per second with the threads in use, for each draw.

    Attributes
    ----------
    int8, float32 : float64 [draws]
        Operations/s of all computing cores.
    memory : float64 [draws]
        Bytes/s of memory.
    cores : float64 [draws]
        Number of computing cores; NumPy uses one.
    launch, call : float64 [draws]
        Seconds that an instruction, and a run, take besides the work.
    waiting : float64 [draws]
        Time that cores wait for the last one, relative to the time of their operations.
    meeting : float64 [draws]
        Seconds that an instruction of a run which cores share takes besides.
    """

    int8: F64
    float32: F64
    memory: F64
    cores: F64
    launch: F64
    call: F64
    waiting: F64 | float = 0.0
    meeting: F64 | float = 0.0


@dataclass(frozen=True)
class _Kind:
    """All instructions of a kind: operations at a peak, and bytes at a bandwidth, [draws].

    `peak` is the arithmetic, and whether one core computes: what NumPy does, and work that is too
    small to divide, such as norms of a token.
    """

    name: str
    peak: tuple[str, bool]
    calls: int
    amount: F64
    holds: F64


def _per_operation(rates: Rates) -> dict[tuple[str, bool], F64]:
    """Seconds [draws] of an operation, of all cores or of one, which waits for no other."""
    per = {}
    for arithmetic, peak in (("int8", rates.int8), ("float32", rates.float32)):
        per[arithmetic, False] = (1 + rates.waiting) / peak
        per[arithmetic, True] = rates.cores / peak
    return per


class Cost:
    """The time of one run of a program, as a function of a processor's rates.

    Parameters
    ----------
    program : Program
        After all passes.
    registers : mapping of str to int
        Values of its named sizes: tokens at once and the position.
    kernels : mapping of kind to Kernel
        Measured on the device; see :func:`halfbyte.device.kernels.kernel_of`.
    to_pack : collection of Buffer
        Weights that will be packed.
    cached : bool
        Whether weights and keys are in a cache.
    python : int
        Python's work besides the program, in units of one NumPy operator.
    draws : Draws, optional
        Draws fractions from their ranges; by default they have their nominal values.
    """

    def __init__(
        self,
        program: Program,
        registers: Mapping[str, int],
        kernels: Mapping[str, Kernel],
        *,
        to_pack: Collection[Buffer] = (),
        cached: bool = False,
        python: int = 0,
        draws: Draws | None = None,
    ) -> None:
        draws = draws or Draws()
        self.work = work_of(program, registers, set(to_pack))
        self._cached = cached
        host = self.work[HOST].calls if HOST in self.work else 0
        self._calls = 1 + (host + python) * draws(_PYTHON_CALLS)
        kinds: list[_Kind] = []
        for single in (False, True):
            alike = [i for i in program.instructions if _is_single(i, registers) is single]
            for kind, work in _work(alike, registers, set(to_pack)).items():
                kernel = kernel_of(kind, kernels)
                amount = work.amount / draws(kernel.token if single else kernel.prompt)
                memory = 1.0 if cached else draws(kernel.memory)
                holds = np.broadcast_to((0 if cached else work.held) / memory, draws.count)
                peak = kernel.arithmetic, kind == HOST or (single and not work.product)
                kinds.append(_Kind(kind, peak, work.calls, amount, holds))
        self._kinds = kinds
        self._launches = sum(kind.calls for kind in kinds)
        kernels_work = [work for kind, work in self.work.items() if kind != HOST]
        shared = any(work.amount >= _SHARED * work.calls for work in kernels_work)
        self._meetings = sum(work.calls for work in kernels_work) if shared else 0
        # Operations of kinds that read nothing from memory add up, which is fast.
        self._reading = [kind for kind in kinds if kind.holds.any()]
        self._computing: dict[tuple[str, bool], F64] = {}
        for one in kinds:
            if not one.holds.any():
                before = self._computing.get(one.peak, np.zeros(draws.count))
                self._computing[one.peak] = before + one.amount

    def seconds(self, rates: Rates) -> F64:
        """Seconds [draws] of one run, with a call for each operator that NumPy runs."""
        per = _per_operation(rates)
        total: F64 = self._calls * rates.call + self._launches * rates.launch
        total = total + self._meetings * rates.meeting
        for peak, amount in self._computing.items():
            total = total + amount * per[peak]
        slowness = 1 / rates.memory
        computing, reading = np.empty((2, *total.shape))
        for kind in self._reading:  # in place: a fleet's arrays are larger than the cache
            np.multiply(kind.amount, per[kind.peak], out=computing)
            np.multiply(kind.holds, slowness, out=reading)
            total += np.maximum(computing, reading, out=computing)
        return total

    def by_kind(self, rates: Rates) -> list[tuple[str, F64]]:
        """Seconds [draws] of all instructions of each kind."""
        per = _per_operation(rates)
        return [
            (
                kind.name,
                kind.calls * rates.launch
                + (kind.calls * rates.meeting if self._meetings and kind.name != HOST else 0)
                + np.maximum(kind.amount * per[kind.peak], kind.holds / rates.memory),
            )
            for kind in self._kinds
        ]

    @property
    def bytes_read(self) -> int:
        """Bytes of weights and keys that a run reads from memory."""
        return 0 if self._cached else sum(work.held for work in self.work.values())

    @property
    def weight_bytes(self) -> int:
        """Bytes of matrices that products read in a run."""
        return sum(work.held for kind, work in self.work.items() if kind.startswith("matmul_"))


# The overhead of running one operator in Python and NumPy, in calls of a program
_PYTHON_CALLS = Quantity(2.0, 1.0, 5.0, "measured on x86_64: 9 to 45 us, a call being 6")
_MANY = 4  # tokens at once from which products count as those of prompts


def counts_operations(instruction: Instruction) -> bool:
    """Whether operations determine the time: products and attention, unless NumPy runs them."""
    return instruction.operator.product and not instruction.operator.host
