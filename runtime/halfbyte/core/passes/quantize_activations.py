"""Gives products with block-quantized weights int8 activations (W4A8, W8A8).

MatMul(x, w) becomes DynamicQuantizeLinear(x) and MatMulNBits, and MoE becomes QMoE; matrices that
share an input share its quantization.
"""

from __future__ import annotations

from halfbyte.core import ops
from halfbyte.core.buffer import Buffer
from halfbyte.core.instruction import Instruction, Operation
from halfbyte.core.program import Program, resume
from halfbyte.weights import BY_DTYPE, BlockFormat

_INT8: dict[Operation, ops.Operator] = {
    ops.matmul: ops.matmul_int8,
    ops.matmul_experts: ops.matmul_experts_int8,
}


def quantize_activations(program: Program) -> Program:
    """Insert the quantization of activations if the weight is in a block format."""
    rewritten = program.rewritten([])
    quantized: dict[Buffer, tuple[Buffer, Buffer, Buffer]] = {}
    with resume(rewritten):
        for instruction in program.instructions:
            if instruction.operator not in _INT8 or not _applies(instruction):
                rewritten.append(instruction)
                continue
            x, *others = instruction.inputs
            if x not in quantized:
                quantized[x] = ops.dynamic_quantize(x)
            product = _INT8[instruction.operator]
            product(*quantized[x], *others, **instruction.attributes)
            rewritten.change_last(instruction.outputs)
    return rewritten


def _applies(instruction: Instruction) -> bool:
    return issubclass(BY_DTYPE[instruction.operands["w"].dtype], BlockFormat)
