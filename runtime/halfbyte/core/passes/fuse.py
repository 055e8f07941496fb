"""Fuses two instructions if nothing else reads the first one's result.

The intermediate result is then never written to memory: norm and quantization, gate and up with
their quantization, rotation and the cache, a product and the residual that is added to it.
"""

from __future__ import annotations

from collections import Counter

from halfbyte.core import ops
from halfbyte.core.buffer import Buffer, Kind
from halfbyte.core.instruction import Instruction
from halfbyte.core.program import Program, resume


def fuse(program: Program) -> Program:
    """Replace pairs by the operators of `ops.fused`, and additions by products with a residual."""
    rewritten = program.rewritten([])
    producers: dict[Buffer, Instruction] = {}
    replaced: set[Instruction] = set()
    uses = Counter(buffer for i in program.instructions for buffer in i.inputs)
    with resume(rewritten):
        for instruction in program.instructions:
            inputs = [b for b in instruction.inputs if b in producers and uses[b] == 1]
            first = _fused(instruction, {b: producers[b] for b in inputs if b.kind is Kind.SCRATCH})
            if first is None:
                rewritten.append(instruction)
            else:
                replaced.add(first)
                rewritten.change_last(instruction.outputs)
            producers.update(dict.fromkeys(instruction.outputs, rewritten.instructions[-1]))
    rewritten.instructions = [i for i in rewritten.instructions if i not in replaced]
    return rewritten


def _fused(last: Instruction, before: dict[Buffer, Instruction]) -> Instruction | None:
    """Record the fused instruction, if there is one; returns the producer that it replaces."""
    if last.operator is ops.add:
        return _residual(last, before)
    producer = before.get(last.inputs[0]) if last.inputs else None
    if producer is None:
        return None
    fused = ops.FUSED.get((producer.operator, last.operator))
    if fused is None or not _joins(producer, last):
        return None
    attributes = {k: v for k, v in producer.attributes.items() if k in fused.attributes}
    fused(*producer.inputs, *last.inputs[1:], **attributes)
    return producer


def _joins(producer: Instruction, last: Instruction) -> bool:
    """Whether the fused operator covers the attributes and shapes of these two."""
    if producer.operator is ops.rms_norm:
        return bool(producer.attributes["heads"] == 1)
    if producer.operator is ops.silu:
        return producer.inputs[0].shape == last.inputs[1].shape
    if producer.operator is ops.rotary_embedding:
        return last.inputs[1].dtype != "q8_0"
    return producer.operator is ops.swiglu


def _residual(last: Instruction, before: dict[Buffer, Instruction]) -> Instruction | None:
    """x + product: the product's kernel adds x when it stores."""
    for product, residual in (last.inputs[::-1], last.inputs):
        producer = before.get(product)
        if producer and producer.operator in (ops.matmul, ops.matmul_int8):
            required = [o for o in producer.operator.inputs if not o.optional]
            if len(producer.inputs) == len(required) and residual.shape == product.shape:
                producer.operator(*producer.inputs, residual)
                return producer
    return None
