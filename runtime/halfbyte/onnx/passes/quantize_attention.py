"""Attention in int8, where int8 products compute the queries, keys and values.

This rounds as precisely as those products round their operands, and the errors average out over a
head's numbers and over the keys; docs/performance.md has the figures.
"""

from __future__ import annotations

from collections.abc import Collection

from halfbyte.core import ops
from halfbyte.core.buffer import Buffer
from halfbyte.core.instruction import Instruction
from halfbyte.core.ops import Operator
from halfbyte.core.ops.full_attention import MAX_INT8_HEAD
from halfbyte.core.program import Program, resume

_DROPPED = ("reach", "softcap", "bias_row")


def quantize_attention(program: Program, products: Collection[Operator]) -> Program:
    """Replace attention of these products' results, where the kernel in integers allows it."""
    rewritten = program.rewritten([])
    makers: dict[Buffer, Instruction] = {}
    with resume(rewritten):
        for instruction in program.instructions:
            makers.update({b.root: instruction for b in instruction.outputs})
            if instruction.operator is not ops.attention or not (
                _applies(instruction) and _computed_by(instruction, makers, products)
            ):
                rewritten.append(instruction)
                continue
            attributes = {k: v for k, v in instruction.attributes.items() if k not in _DROPPED}
            ops.attention_int8(*instruction.inputs, **attributes)
            rewritten.change_last(instruction.outputs, instruction.origin)
    return rewritten


def _applies(instruction: Instruction) -> bool:
    a = instruction.attributes
    sizes = a["d"], a["e"]
    if max(sizes) > MAX_INT8_HEAD or any(size % 16 for size in sizes):
        return False
    return a["reach"] >= a["t"] - 1 and not a["softcap"] and not a["bias_row"]


def _computed_by(
    instruction: Instruction, makers: dict[Buffer, Instruction], products: Collection[Operator]
) -> bool:
    sources = [makers.get(buffer.root) for buffer in instruction.inputs[:3]]
    return all(i is not None and i.operator in products for i in sources)
