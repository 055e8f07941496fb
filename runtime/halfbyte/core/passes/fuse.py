"""Fuses two instructions if nothing else reads the first one's result.

The intermediate result is then never written to memory: norm and quantization, gate and up with
their quantization, rotation and the cache, a product and the bias and residual that are added to
it. LayerNorm is also fused with the quantization after it if others read its result too.
"""

from __future__ import annotations

from collections import Counter

from halfbyte.core import ops
from halfbyte.core.buffer import Buffer, Kind
from halfbyte.core.instruction import Instruction
from halfbyte.core.program import Program, resume


def fuse(program: Program) -> Program:
    """Replace pairs by the operators of `ops.fused`, and put additions into products."""
    rewritten = program.rewritten([])
    producers: dict[Buffer, Instruction] = {}
    replaced: set[Instruction] = set()
    uses = Counter(buffer for i in program.instructions for buffer in i.inputs)
    with resume(rewritten):
        for instruction in program.instructions:
            inputs = [b for b in instruction.inputs if b in producers and uses[b] == 1]
            first = _fused(instruction, {b: producers[b] for b in inputs if b.kind is Kind.SCRATCH})
            norm = _norm_before(instruction, rewritten.instructions)
            if norm is not None:
                rewritten.instructions.pop()
                ops.layer_norm_quantize(*norm.inputs, **norm.attributes)
                rewritten.change_last((*norm.outputs, *instruction.outputs))
            elif first is None:
                rewritten.append(instruction)
            else:
                replaced.add(first)
                rewritten.change_last(instruction.outputs)
            producers.update(dict.fromkeys(instruction.outputs, rewritten.instructions[-1]))
    rewritten.instructions = [i for i in rewritten.instructions if i not in replaced]
    return rewritten


def _norm_before(last: Instruction, before: list[Instruction]) -> Instruction | None:
    """The LayerNorm just before, whose result an instruction quantizes."""
    norm = before[-1] if before and last.operator is ops.dynamic_quantize else None
    fits = norm is not None and norm.operator is ops.layer_norm
    return norm if fits and norm and norm.outputs[0] is last.inputs[0] else None


def _fused(last: Instruction, before: dict[Buffer, Instruction]) -> Instruction | None:
    """Record the fused instruction, if there is one; returns the producer that it replaces."""
    if last.operator is ops.add:
        return _sum(last, before)
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
    return producer.operator in (ops.swiglu, ops.gelu)


def _sum(last: Instruction, before: dict[Buffer, Instruction]) -> Instruction | None:
    """x + product, or product + row: the product's kernel adds the other when it stores."""
    for product, other in (last.inputs[::-1], last.inputs):
        producer = before.get(product)
        if not producer or producer.operator not in (ops.matmul, ops.matmul_int8):
            continue
        operands = zip(producer.operator.inputs, producer.arguments, strict=True)
        given = {o.name: b for o, b in operands}
        if other.shape == product.shape and given["r"] is None:
            producer.operator(*(given | {"r": other}).values())
            return producer
        row = other.kind is Kind.CONSTANT and other.shape == (1, product.shape[1])
        if row and "bias" in given and given["bias"] is None and given["r"] is None:
            bias = other.view(other.shape[1:])
            producer.operator(*(given | {"bias": bias}).values())
            return producer
    return None
