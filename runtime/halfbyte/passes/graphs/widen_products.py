"""Products of codes of eight bits by those of sixteen, where a processor is as fast with them."""

from __future__ import annotations

from halfbyte import ops
from halfbyte.program import Instruction, Program, maximum, resume

LEAST_ROWS = 16  # of activations: fewer do not repay widening the weights for them


def widen_products(program: Program) -> Program:
    """Replace `matmul_rotated` of codes of eight bits by `matmul_widened`."""
    rewritten = program.rewritten([])
    with resume(rewritten):
        for instruction in program.instructions:
            if not _applies(instruction):
                rewritten.append(instruction)
                continue
            ops.matmul_widened(*instruction.arguments)
            made = rewritten.instructions[-1]
            made.outputs, made.origin = instruction.outputs, instruction.origin
    return rewritten


def _applies(instruction: Instruction) -> bool:
    if instruction.operator is not ops.matmul_rotated:
        return False
    w, rows = instruction.operands["w"], maximum(instruction.dims["n"])
    return w.dtype == "q8_0_r16" and rows >= LEAST_ROWS
