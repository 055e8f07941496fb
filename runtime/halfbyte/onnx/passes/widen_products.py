"""Products of 8-bit integers become 16-bit products, where a processor is as fast with them."""

from __future__ import annotations

from dataclasses import replace

from halfbyte.core import ops
from halfbyte.core.buffer import maximum
from halfbyte.core.instruction import Instruction
from halfbyte.core.program import Program

MIN_ROWS = 16  # of activations: with fewer, widening the weights costs more than it saves


def widen_products(program: Program) -> Program:
    """Replace `matmul_rotated` of 8-bit weights by `matmul_widened` of the same operands."""
    return program.rewritten([
        replace(i, operator=ops.matmul_widened) if _applies(i) else i for i in program.instructions
    ])  # fmt: skip


def _applies(instruction: Instruction) -> bool:
    if instruction.operator is not ops.matmul_rotated:
        return False
    w, rows = instruction.operands["w"], maximum(instruction.dims["n"])
    return w.dtype == "q8_0_r16" and rows >= MIN_ROWS
