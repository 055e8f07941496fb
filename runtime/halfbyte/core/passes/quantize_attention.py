"""Attention within texts in int8, where int8 products compute queries, keys and values.

This rounds as precisely as those products round their operands, and the errors average out over a
head's numbers and over the keys; docs/performance.md has the figures.
"""

from __future__ import annotations

from halfbyte.core import ops
from halfbyte.core.buffer import Buffer
from halfbyte.core.instruction import Instruction
from halfbyte.core.ops.full_attention import MAX_INT8_HEAD
from halfbyte.core.program import Program, resume


def quantize_attention(program: Program) -> Program:
    """Replace `attention_texts` of int8 products' results, where the kernel in integers allows it.

    Runs after :func:`halfbyte.core.passes.fuse`, which puts biases into products.
    """
    rewritten = program.rewritten([])
    makers: dict[Buffer, Instruction] = {}
    with resume(rewritten):
        for instruction in program.instructions:
            makers.update(dict.fromkeys(instruction.outputs, instruction))
            if _applies(instruction) and _computed_by_int8(instruction, makers):
                known = ops.attention_texts_int8.attributes
                attributes = {k: v for k, v in instruction.attributes.items() if k in known}
                ops.attention_texts_int8(*instruction.inputs, **attributes)
                rewritten.change_last(instruction.outputs)
            else:
                rewritten.append(instruction)
    return rewritten


def _applies(instruction: Instruction) -> bool:
    if instruction.operator is not ops.attention_texts or "bias" in instruction.operands:
        return False
    head = int(instruction.attributes["d"])
    return head <= MAX_INT8_HEAD and head % 16 == 0


def _computed_by_int8(instruction: Instruction, makers: dict[Buffer, Instruction]) -> bool:
    sources = []
    for buffer in instruction.inputs[:3]:
        source = makers.get(buffer)
        while source is not None and source.operator is ops.rotary_embedding:
            source = makers.get(source.inputs[0])
        sources.append(source)
    return all(source is not None and source.operator is ops.matmul_int8 for source in sources)
