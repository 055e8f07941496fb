"""Operators: a signature, a meaning in NumPy, and costs.

A signature such as ``"x:f32[n,k] w:*[m,k] -> y:f32[n,m]"`` names operands, dtypes and dimensions:
``*`` is a weight in any format, ``k/32`` a dimension derived from another, and operands with a
``?`` may be omitted or None. It is the shape rule, and the C kernel of the same name takes its
arguments under these names: the binding is derived from it.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from halfbyte.core.buffer import Buffer, Dim, Size, maximum
from halfbyte.core.instruction import Instruction, Operand, Operation
from halfbyte.core.interrupt import step
from halfbyte.core.program import current
from halfbyte.errors import ProgramError

OPERATORS: dict[str, Operator] = {}
FUSED: dict[tuple[Operation, ...], Operator] = {}  # by parts

_DIMS = (int, Size)  # a tuple is quicker than a union
Count: TypeAlias = Callable[[Mapping[str, int]], int]  # by an instruction's dimensions
Demand: TypeAlias = Callable[[Mapping[str, Any]], bool]  # on the known values of an instruction

_OPERAND = re.compile(r"(\w+)(\??):(\*|\w+)\[([\w,/*]+)\]")


def _parse(text: str) -> tuple[Operand, ...]:
    return tuple(
        Operand(name, dtype, tuple(dims.split(",")), bool(optional))
        for name, optional, dtype, dims in _OPERAND.findall(text)
    )


@dataclass(frozen=True, eq=False)
class Operator:
    """A function of arrays that can also be recorded.

    Called with arrays, it computes its NumPy meaning; called with a program's buffers, it checks
    them against the signature and the demands, and records one instruction. That is checked again
    before it runs, since passes give it other buffers.

    Attributes
    ----------
    name : str
        Python's name and the C kernel's, without its suffixes for variant and weight format.
    onnx : str
        The operator's name in ONNX or in ONNX Runtime's contrib domain.
    defaults : mapping of attribute name to value
        Attributes that may be omitted.
    reads : mapping of operand name to callable
        Operands of which only some rows (of the last dimension) are touched: dimensions -> number
        of rows.
    operations : callable or None
        Dimensions -> arithmetic operations; None counts one per output element.
    variant : callable or None
        Attributes -> suffix of the kernel's name.
    demands : mapping of description to callable
        Preconditions of kernels beyond the signature: dimensions, attributes and constant operands
        by name -> whether it holds. A demand on a size known only at run time (a KeyError) is left
        to the code that sets the size.
    rows : str
        A dimension whose rows are independent of each other.
    steps : mapping of operand name to attribute
        For operands without that dimension: the stride between rows, 0 if rows share the operand.
    product : bool
        Its cost is computing, rather than moving memory.
    kind : callable or None
        Dimensions and operands' dtypes -> the name under which its speed is measured, if not
        `name`.
    like : str
        A measured operator with the same speed.
    parts : tuple of Operator
        The operators that it fuses.
    calls : Operator or None
        The operator whose kernel, for the format of `w`, its own kernel calls with each of the
        matrices stacked in `w`; it takes that kernel's number and a matrix's bytes, `size`.
    host : bool
        There is no kernel: every backend runs the meaning, in NumPy.
    fills : bool
        The meaning of a host operator also takes its output arrays and fills them, maybe later.
    holds : tuple of array
        Constants that the meaning of a host operator reads besides its inputs.
    """

    name: str
    onnx: str
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    attributes: tuple[str, ...]
    meaning: Callable[..., Any]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    reads: Mapping[str, Count] = field(default_factory=dict)
    operations: Count | None = None
    variant: Callable[[Mapping[str, Any]], str] | None = None
    demands: Mapping[str, Demand] = field(default_factory=dict)
    rows: str = ""
    steps: Mapping[str, str] = field(default_factory=dict)
    product: bool = False
    kind: Callable[[Mapping[str, Any]], str] | None = None
    like: str = ""
    parts: tuple[Operator, ...] = ()
    calls: Operator | None = None
    host: bool = False
    fills: bool = False
    holds: tuple[npt.NDArray[Any], ...] = ()

    def __call__(self, *operands: Any, **attributes: Any) -> Any:
        if any(isinstance(operand, Buffer) for operand in operands):
            return self.record(operands, attributes)
        return self.meaning(*operands, **attributes)

    def record(self, operands: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
        """Append this operator to the program under capture; returns its output buffer(s)."""
        attributes = {**self.defaults, **attributes}
        fits = len(self._required) <= len(operands) <= len(self.inputs)
        if not fits or attributes.keys() != set(self.attributes):
            raise ProgramError(
                f"{self.name}: expected operands {[o.name for o in self.inputs]} and attributes "
                f"{list(self.attributes)}, found {len(operands)} and {sorted(attributes)}"
            )
        program = current()
        dims: dict[str, Dim] = {k: v for k, v in attributes.items() if isinstance(v, _DIMS)}
        present = [(o, b) for o, b in zip(self.inputs, operands, strict=False) if b is not None]
        by_name = {o.name: b for o, b in present}
        if not self._required <= by_name.keys():
            raise ProgramError(f"{self.name}: only optional operands may be None")
        for operand, buffer in present:
            self._bind(operand, buffer, dims)
        results = tuple(
            by_name.get(o.name)
            or program.scratch(_dtype(o, present), tuple(self._resolved(d, dims) for d in o.dims))
            for o in self.outputs
        )
        buffers, names = tuple(by_name.values()), tuple(by_name)
        instruction = Instruction(self, buffers, results, attributes, dims, names, program.origin)
        self.check(instruction)
        program.append(instruction)
        return results if len(results) > 1 else results[0]

    @cached_property
    def _required(self) -> frozenset[str]:
        """Names of the operands that are not optional."""
        return frozenset(o.name for o in self.inputs if not o.optional)

    def _bind(self, operand: Operand, buffer: Any, dims: dict[str, Dim]) -> None:
        """Check one buffer's dtype and rank against the signature, and collect its dimensions."""
        problem = ""
        if not isinstance(buffer, Buffer):
            problem = f": expected a buffer, found {type(buffer).__name__}"
        elif operand.dtype not in ("*", buffer.dtype):
            problem = f" ({buffer}): expected {operand.dtype}"
        elif len(buffer.shape) != len(operand.dims):
            problem = f" ({buffer}): expected {len(operand.dims)} dimensions"
        if problem:
            raise ProgramError(f"{self.name}: operand '{operand.name}'{problem}")
        for dim, size in zip(operand.dims, buffer.shape, strict=True):
            if dim.isidentifier():
                dims.setdefault(dim, size)

    def _resolved(self, dim: str, dims: Mapping[str, Dim]) -> Dim:
        try:
            return resolve(dim, dims)
        except ProgramError as error:
            raise ProgramError(f"{self.name}: {error}") from None

    def check(self, instruction: Instruction) -> None:
        """Check operands and results against the signature and the demands.

        Raises
        ------
        ProgramError
            A dimension is empty or violates the signature, or a demand is not met.
        """
        step()  # of capture, of passes, and of making a program ready to run
        if instruction.checked:
            return
        operands = instruction.operands
        for operand in (*self.inputs, *self.outputs):
            buffer = operands.get(operand.name)  # an optional operand may be missing
            if buffer is not None and (problem := self._problem(operand, buffer, instruction.dims)):
                raise ProgramError(f"{self.name}: operand '{operand.name}' ({buffer}): {problem}")
        known = _known(instruction) if self.demands else {}
        for description, holds in self.demands.items():
            try:
                met = holds(known)
            except KeyError:
                continue
            if not met:
                names = [n for n in dict.fromkeys(re.findall(r"\w+", description)) if n in known]
                values = ", ".join(f"{n} = {known[n]}" for n in names)
                raise ProgramError(f"{self.name}: expected {description}, found {values or 'none'}")
        instruction.mark_checked()

    def _problem(self, operand: Operand, buffer: Buffer, dims: Mapping[str, Dim]) -> str | None:
        """A description of what is wrong with an operand's shape, or None."""
        if len(buffer.shape) != len(operand.dims):
            return f"expected {len(operand.dims)} dimensions"
        for dim, size in zip(operand.dims, buffer.shape, strict=True):
            wanted = dims.get(dim) or self._resolved(dim, dims)
            if wanted is not size and wanted != size:
                return f"expected {dim} = {wanted}, found {size}"
            if maximum(size) < 1:
                return "has no elements"
        return None

    def kernel(self, instruction: Instruction) -> str:
        """The C kernel's name for an instruction: variant and open type (``*``) are suffixes."""
        name = self.name
        if self.host:
            return f"numpy:{name}"
        if self.variant is not None:
            name += "_" + self.variant(instruction.attributes)
        operands = instruction.operands
        pairs = ((o, operands[o.name]) for o in self.inputs if o.name in operands)
        open_types = dict.fromkeys(b.dtype for operand, b in pairs if operand.dtype == "*")
        return "_".join((name, *(open_types if self.calls is None else ())))

    def called(self, instruction: Instruction) -> tuple[str, int] | None:
        """The kernel that an instruction's own kernel calls, and the bytes of a matrix for it."""
        if self.calls is None:
            return None
        w = instruction.operands["w"]
        return f"{self.calls.name}_{w.dtype}", w.nbytes // maximum(w.shape[0])


def _known(instruction: Instruction) -> dict[str, Any]:
    """Dimensions, attributes and constant operands, without sizes known only at run time."""
    known = {
        name: buffer.value
        for name, buffer in instruction.operands.items()
        if isinstance(buffer.value, np.ndarray)
    }
    every = {**instruction.attributes, **instruction.dims, **known}
    return {name: value for name, value in every.items() if not isinstance(value, Size)}


def _dtype(result: Operand, present: Sequence[tuple[Operand, Buffer]]) -> str:
    """A result's dtype; ``*`` is that of the first operand with ``*``."""
    if result.dtype != "*":
        return result.dtype
    return next(buffer.dtype for operand, buffer in present if operand.dtype == "*")


def record_host(
    name: str,
    meaning: Callable[..., tuple[Any, ...]],
    inputs: Sequence[Buffer],
    results: Sequence[tuple[str, tuple[int, ...]]],
    holds: Sequence[npt.NDArray[Any]] = (),
) -> tuple[Buffer, ...]:
    """Record an operator without a kernel: `meaning` takes arrays and returns a tuple of them.

    `results` are (dtype, shape) of each, `holds` constants that it reads besides its inputs.
    Backends with kernels return to Python for it.
    """
    program = current()
    outputs = tuple(program.scratch(dtype, shape) for dtype, shape in results)
    program.append(
        host_instruction(name, meaning, inputs, outputs, holds=tuple(holds), origin=program.origin)
    )
    return outputs


def host_instruction(
    name: str,
    meaning: Callable[..., Any],
    inputs: Sequence[Buffer],
    outputs: Sequence[Buffer],
    *,
    fills: bool = False,
    holds: tuple[npt.NDArray[Any], ...] = (),
    origin: str = "",
) -> Instruction:
    """An instruction without a kernel; see :class:`Operator` for `fills` and `holds`."""
    host_operator = Operator(
        name, name,
        tuple(Operand(f"x{i}", b.dtype, ()) for i, b in enumerate(inputs)),
        tuple(Operand(f"y{i}", b.dtype, ()) for i, b in enumerate(outputs)),
        (), meaning, host=True, fills=fills, holds=holds,
    )  # fmt: skip
    return Instruction(host_operator, tuple(inputs), tuple(outputs), {}, {}, (), origin)


def resolve(dim: str, dims: Mapping[str, Dim]) -> Dim:
    """The value of ``"n"``, ``"k/32"``, ``"g*h"`` or ``"32"`` under known dimensions."""
    if (known := dims.get(dim)) is not None:
        return known
    if "*" in dim:
        sizes = [resolve(part, dims) for part in dim.split("*")]
        if any(isinstance(size, Size) for size in sizes):
            raise ProgramError(f"dimension {dim}: {sizes} are not all known")
        return math.prod(maximum(size) for size in sizes)
    name, _, divisor = dim.partition("/")
    value = dims[name] if name.isidentifier() else int(name)
    if not divisor:
        return value
    if isinstance(value, Size) or value % int(divisor):
        raise ProgramError(f"dimension {dim}: {value} is not a multiple of {divisor}")
    return value // int(divisor)


def operator_of(kernel: str) -> Operator | None:
    """The operator of a kernel's name."""
    names = [name for name in OPERATORS if f"{kernel}_".startswith(f"{name}_")]
    return OPERATORS[max(names, key=len)] if names else None


def operator(onnx: str, signature: str, **traits: Any) -> Callable[[Callable[..., Any]], Operator]:
    """Declare an operator by its meaning; `traits` are other attributes of :class:`Operator`."""

    def declare(meaning: Callable[..., Any]) -> Operator:
        new = unlisted(onnx, signature, meaning, **traits)
        OPERATORS[new.name] = new
        if new.parts:
            FUSED[new.parts] = new
        return new

    return declare


def unlisted(onnx: str, signature: str, meaning: Callable[..., Any], **traits: Any) -> Operator:
    """An operator that `OPERATORS` does not list."""
    left, _, right = signature.partition("->")
    parameters = inspect.signature(meaning).parameters.values()
    named = [p for p in parameters if p.kind is p.KEYWORD_ONLY]
    attributes = tuple(p.name for p in named)
    defaults = {p.name: p.default for p in named if p.default is not p.empty}
    new = Operator(
        meaning.__name__, onnx, _parse(left), _parse(right), attributes, meaning, defaults, **traits
    )
    object.__setattr__(new, "__doc__", meaning.__doc__)
    return new
