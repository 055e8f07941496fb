"""Removal of instructions whose results nothing reads."""

from __future__ import annotations

from halfbyte.core.buffer import Kind
from halfbyte.core.program import Program


def remove_dead_code(program: Program) -> Program:
    """Keep only instructions that outputs depend on, and those that write state."""
    needed = {b.root for b in program.outputs.values()}
    kept = []
    for instruction in reversed(program.instructions):
        if any(b.root in needed or b.root.kind is Kind.STATE for b in instruction.outputs):
            kept.append(instruction)
            needed.update(b.root for b in instruction.inputs)
    return program.rewritten(kept[::-1])
