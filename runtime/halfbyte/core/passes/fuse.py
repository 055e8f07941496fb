"""Two instructions become one where the first one's result goes nowhere else.

What is between them is then never written to memory: norm and quantization, gate and up with their
quantization, rotation and the cache, a product and the residual it is added to.
"""

from __future__ import annotations

from collections import Counter

from halfbyte.core import ops
from halfbyte.core.program import Buffer, Instruction, Kind, Program, resume


def fuse(program: Program) -> Program:
    """Replace pairs by the operators of `ops.fused`, and additions by products with a residual."""
    rewritten = program.rewritten([])
    makers: dict[Buffer, Instruction] = {}
    replaced: set[Instruction] = set()
    uses = Counter(buffer for i in program.instructions for buffer in i.inputs)
    with resume(rewritten):
        for instruction in program.instructions:
            inputs = [b for b in instruction.inputs if b in makers and uses[b] == 1]
            used = _fused(instruction, {b: makers[b] for b in inputs if b.kind is Kind.SCRATCH})
            if used is None:
                rewritten.append(instruction)
            else:
                replaced.add(used)
                rewritten.instructions[-1].outputs = instruction.outputs
            makers.update(dict.fromkeys(instruction.outputs, rewritten.instructions[-1]))
    rewritten.instructions = [i for i in rewritten.instructions if i not in replaced]
    return rewritten


def _fused(last: Instruction, before: dict[Buffer, Instruction]) -> Instruction | None:
    """Record the fused instruction, if there is one; returns the maker that it replaces."""
    if last.operator is ops.add:
        return _residual(last, before)
    maker = before.get(last.inputs[0]) if last.inputs else None
    if maker is None:
        return None
    fused = ops.FUSED.get((maker.operator, last.operator))
    if fused is None or not _joins(maker, last):
        return None
    attributes = {k: v for k, v in maker.attributes.items() if k in fused.attributes}
    fused(*maker.inputs, *last.inputs[1:], **attributes)
    return maker


def _joins(maker: Instruction, last: Instruction) -> bool:
    """Whether the fused operator does what these two do, and all that they give is used."""
    if maker.operator is ops.rms_norm:
        return bool(maker.attributes["heads"] == 1)
    if maker.operator is ops.silu:
        return maker.inputs[0].shape == last.inputs[1].shape
    if maker.operator is ops.rotary_embedding:
        return last.inputs[1].dtype != "q8_0"
    return maker.operator is ops.swiglu


def _residual(last: Instruction, before: dict[Buffer, Instruction]) -> Instruction | None:
    """x + product: the product's kernel adds x where it stores."""
    for product, residual in (last.inputs[::-1], last.inputs):
        maker = before.get(product)
        if maker and maker.operator in (ops.matmul, ops.matmul_int8):
            required = [o for o in maker.operator.inputs if not o.optional]
            if len(maker.inputs) == len(required) and residual.shape == product.shape:
                maker.operator(*maker.inputs, residual)
                return maker
    return None
