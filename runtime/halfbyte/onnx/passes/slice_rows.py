"""Large batches run in slices of rows whose values stay in the cores' caches.

Consecutive instructions that treat the rows of their operands independently (products, norms,
quantization, attention of whole sentences) run for some of the rows, then for the next ones. A
value that only such a run reads has the memory of one slice, as a part of a buffer. Results are the
same to the bit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from halfbyte.core import ops
from halfbyte.core.buffer import Buffer, Kind
from halfbyte.core.instruction import Instruction
from halfbyte.core.ops.elementwise import PLAN_DIMS
from halfbyte.core.passes.plan_memory import lifetimes, placed
from halfbyte.core.program import Program, current, resume

CACHE = 2 << 20  # bytes that a slice may take per core: its own cache, and some of the next level
MIN_ROWS = 64  # of a product in a slice: fewer would read the weights too often
MAX_INSTRUCTIONS = 1 << 14  # of a program with slices


@dataclass(frozen=True)
class _Rows:
    """How an instruction can be cut: into `count` pieces, each with its part of the operands `cut`.

    `outer` is the dimension that is cut in the plan of an instruction that has one.
    """

    count: int
    cut: frozenset[Buffer]
    outer: int | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of the operands that are cut."""
        return sum(buffer.nbytes for buffer in self.cut)


def slice_rows(program: Program, cores: int = 1) -> Program:
    """Cut runs of instructions by rows, where their operands are larger than `cores` caches."""
    cuts = [_rows(instruction) for instruction in program.instructions]
    if all(rows is None or rows.nbytes <= CACHE * cores for rows in cuts):
        return program
    largest = max((rows.nbytes for rows in cuts if rows), default=0)
    products = [i.dims[i.operator.rows] for i in program.instructions if _is_product(i)]
    maximum = max((n for n in products if isinstance(n, int)), default=0)
    pieces = min(-(-largest // (CACHE * cores)), maximum // MIN_ROWS)
    pieces = min(pieces, MAX_INSTRUCTIONS // max(len(program.instructions), 1))
    if pieces < 2:
        return program
    cuts = [rows if rows and rows.count >= pieces else None for rows in cuts]
    rewritten = program.rewritten([])
    with resume(rewritten):
        for first, last in _runs(program.instructions, cuts, pieces):
            run = program.instructions[first:last]
            rows = [r for r in cuts[first:last] if r]
            if rows and any(map(_is_product, run)):
                _Slices(program, run, rows, pieces).record()
            else:
                rewritten.instructions += run
    return rewritten


def _runs(
    instructions: Sequence[Instruction], cuts: Sequence[_Rows | None], pieces: int
) -> Iterator[tuple[int, int]]:
    """[first, last) of instructions that can be cut together, and of single ones that cannot."""
    first, unit, written = 0, 0, set[Buffer]()
    for number, (instruction, rows) in enumerate(zip(instructions, cuts, strict=True)):
        own = rows.count if rows else 0
        joined = math.gcd(unit, own) if unit and own else 0
        crossed = rows and any(b.root in written for b in instruction.inputs if b not in rows.cut)
        if number > first and (joined < pieces or crossed):
            yield first, number
            first, unit, written = number, own, set()
        else:
            unit = joined or own
        written.update(b.root for b in instruction.outputs)
    if first < len(instructions):
        yield first, len(instructions)


class _Slices:
    """A run of instructions, cut into pieces of nearly the same size."""

    def __init__(
        self, program: Program, run: Sequence[Instruction], rows: Sequence[_Rows], pieces: int
    ) -> None:
        self._run, self._rows = run, rows
        self._unit = math.gcd(*(r.count for r in rows))
        self._cuts = [self._unit * piece // pieces for piece in range(pieces + 1)]
        self._inner = self._used_only_here(program)

    def _used_only_here(self, program: Program) -> set[Buffer]:
        inner = {b.root for i in self._run for b in i.outputs if b.root.kind is Kind.SCRATCH}
        here = {id(instruction) for instruction in self._run}
        for instruction in program.instructions:
            if id(instruction) not in here:
                inner -= {b.root for b in (*instruction.inputs, *instruction.outputs)}
        return inner

    def record(self) -> None:
        """Append all pieces to the program under capture."""
        largest = max(last - first for first, last in pairwise(self._cuts))
        sizes = {b: b.nbytes // self._unit * largest for b in self._inner}
        places, nbytes = placed(sizes, lifetimes(self._run))
        memory = current().scratch("u8", (nbytes,))
        for first, last in pairwise(self._cuts):
            parts = {
                b: memory.part(place, (b.nbytes // self._unit * (last - first),))
                for b, place in places.items()
            }
            for instruction, rows in zip(self._run, self._rows, strict=True):
                scale = rows.count // self._unit
                _record(instruction, rows, first * scale, last * scale, parts)


def _record(
    instruction: Instruction, rows: _Rows, first: int, last: int, parts: dict[Buffer, Buffer]
) -> None:
    """Record pieces [first, last) of an instruction; `parts` has the memory of inner values."""
    count = last - first
    pieces = {}
    for buffer in rows.cut:
        size, *others = buffer.sizes_at({})
        shape = (size // rows.count * count, *others)
        if buffer.root in parts:
            pieces[buffer] = parts[buffer.root].view(shape, buffer.dtype)
        else:
            pieces[buffer] = buffer.part(buffer.nbytes // rows.count * first, shape)
    attributes = dict(instruction.attributes)
    if instruction.operator.rows in attributes:
        attributes[instruction.operator.rows] = count
    elif instruction.operator is ops.binary:
        attributes["n"] = attributes["n"] // rows.count * count
        attributes["d"] = min(attributes["d"], attributes["n"])
        pieces |= _narrower(instruction.operands["plan"], rows.outer, count)
    operands = [None if b is None else pieces.get(b, b) for b in instruction.arguments]
    instruction.operator(*operands, **attributes)
    outputs = tuple(pieces[b] for b in instruction.outputs)
    current().change_last(outputs, instruction.origin)


def _narrower(plan: Buffer, outer: int | None, count: int) -> dict[Buffer, Buffer]:
    """A plan -> the same plan with the size `count` in the dimension `outer`."""
    if outer is None or not isinstance(plan.value, np.ndarray):
        return {}
    value = plan.value.copy()
    value[outer] = count
    return {plan: current().constant(plan.name, value)}


def _rows(instruction: Instruction) -> _Rows | None:
    """How an instruction can be cut; None if it cannot."""
    operator, operands, a = instruction.operator, instruction.operands, instruction.attributes
    if operator.rows:
        signature = (*operator.inputs, *operator.outputs)
        here = [o.name for o in signature if o.dims[0] == operator.rows and o.name in operands]
        cut = [operands[name] for name in here]
        steps = {name: a[step] for name, step in operator.steps.items()}
        count = instruction.dims[operator.rows]
        return _strided(operands, count, steps, cut) if isinstance(count, int) else None
    if operator is not ops.binary or not isinstance(operands["plan"].value, np.ndarray):
        return None
    plan = operands["plan"].value.tolist()
    outer = next((i for i, size in enumerate(plan[:PLAN_DIMS]) if size > 1), None)
    if outer is None:  # the whole result is one row
        steps = {"x": a["x_step"], "y": a["y_step"]}
        return _strided(operands, a["n"], steps, [operands["z"]])
    steps = {"x": plan[PLAN_DIMS + outer], "y": plan[2 * PLAN_DIMS + outer]}
    return _strided(operands, plan[outer], steps, [operands["z"]], outer)


def _is_product(instruction: Instruction) -> bool:
    """Whether an instruction multiplies rows by a matrix, which every piece reads again."""
    operator = instruction.operator
    return operator.product and bool(operator.rows) and not operator.steps


def _strided(
    operands: Mapping[str, Buffer],
    count: int,
    steps: dict[str, int],
    cut: list[Buffer],
    outer: int | None = None,
) -> _Rows | None:
    """The operands `cut`, and those with a step between contiguous pieces, if all can be cut.

    A step of 0 means that each piece reads the whole operand.
    """
    for name, step in steps.items():
        if name in operands and step:
            if operands[name].shape != (count * step,):
                return None
            cut.append(operands[name])
    return _Rows(count, frozenset(cut), outer) if count > 1 else None
