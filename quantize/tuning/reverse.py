"""Reverse mode: a pass from a captured program to one that also computes gradients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from halfbyte.core import ops
from halfbyte.core.buffer import Buffer, Kind, maximum
from halfbyte.core.instruction import Instruction
from halfbyte.core.program import Program, resume
from halfbyte.errors import ProgramError, UnsupportedError
from halfbyte.quantize.tuning.gradients import RULES


@dataclass(frozen=True)
class Reverse:
    """A program that runs forward, then backward.

    Attributes
    ----------
    program : Program
        Outputs of the original that are asked for, and gradients, without what neither needs.
    seeds : mapping of str to Buffer
        Inputs: the gradient of each output by its name.
    gradients : mapping of str to Buffer
        The gradient of each operand that was asked for, by its name there, in its shape.
    """

    program: Program
    seeds: Mapping[str, Buffer]
    gradients: Mapping[str, Buffer]


def reverse(program: Program, wanted: Mapping[str, Buffer], keep: tuple[str, ...] = ()) -> Reverse:
    """Append the gradients of `wanted` buffers to a captured program, which no pass has changed.

    Intermediate results that gradients need are computed before, in the same run: rows of a cache
    from earlier runs are constants. Of the program's outputs, those in `keep` remain.

    Raises
    ------
    UnsupportedError
        An operator between a wanted buffer and an output has no rule, or reads a view of a result.
    ProgramError
        No output depends on a wanted buffer.
    """
    reached = _reached(program, set(wanted.values()))
    result = program.rewritten(list(program.instructions))
    gradients: dict[Buffer, Buffer] = {}
    with resume(result):
        seeds = {
            name: result.input(f"d {name}", "f32", buffer.shape)
            for name, buffer in program.outputs.items()
            if buffer in reached
        }
        gradients.update({program.outputs[name]: seed for name, seed in seeds.items()})
        for instruction in reversed(program.instructions):
            if any(b in gradients for b in instruction.outputs):
                _append(instruction, reached, gradients)
    for name, buffer in wanted.items():
        if buffer not in gradients:
            raise ProgramError(f"{program.name}: no output depends on '{name}' ({buffer})")
    own = {f"d {name}": gradients[buffer] for name, buffer in wanted.items()}
    result.outputs = {name: result.outputs[name] for name in keep}
    named = result.set_outputs(own)
    kept = {b.root for b in (*named.values(), *result.outputs.values())}
    result.instructions = _needed(result.instructions, kept)
    return Reverse(result, seeds, {name: named[f"d {name}"] for name in wanted})


def _reached(program: Program, wanted: set[Buffer]) -> set[Buffer]:
    """The buffers that depend on wanted ones; raises where some are read as others' memory."""
    reached, roots = set(wanted), {b.root for b in wanted}
    for instruction in program.instructions:
        for b in instruction.inputs:
            if b not in reached and b.root in roots and b.kind is Kind.SCRATCH:
                raise UnsupportedError(
                    f"operator {instruction.operator.name} reads a view, {b}, of {b.root}: "
                    "it has no gradient"
                )
        if any(b in reached for b in instruction.inputs):
            reached.update(instruction.outputs)
            roots.update(b.root for b in instruction.outputs)
    return reached


def _append(
    instruction: Instruction, reached: set[Buffer], gradients: dict[Buffer, Buffer]
) -> None:
    """Record the gradients of an instruction's operands, and add them to those known."""
    rule = RULES.get(instruction.operator)
    if rule is None or len(instruction.outputs) != 1:
        raise UnsupportedError(
            f"operator {instruction.operator.name} ({instruction.operator.onnx}) has no gradient: "
            f"expected one of {sorted(operator.name for operator in RULES)}"
        )
    (y,) = instruction.outputs
    dy = gradients.pop(y) if y in instruction.inputs else gradients[y]  # a cache was there before
    names = instruction.given or tuple(o.name for o in instruction.operator.inputs)
    pairs = dict(zip(names, instruction.inputs, strict=False))
    own = {n: b for n, b in pairs.items() if b in reached and b not in instruction.outputs}
    for name, gradient in rule(instruction, dy, own.keys()).items():
        if name in own:
            buffer = own[name]
            known = gradients.get(buffer)
            gradients[buffer] = gradient if known is None else _sum(known, gradient)


def _sum(x: Buffer, y: Buffer) -> Buffer:
    """The sum of two gradients in one shape."""
    shape = x.shape if len(x.shape) == 2 else (1, maximum(x.shape[0]))
    total: Buffer = ops.add(x.view(shape), y.view(shape))
    return total.view(x.shape)


def _needed(instructions: list[Instruction], kept: set[Buffer]) -> list[Instruction]:
    """The instructions on which these buffers depend."""
    needed, chosen = set(kept), list[Instruction]()
    for instruction in reversed(instructions):
        roots = {b.root for b in instruction.outputs}
        if roots & needed:
            chosen.append(instruction)
            needed.update(b.root for b in instruction.inputs)
    return chosen[::-1]
