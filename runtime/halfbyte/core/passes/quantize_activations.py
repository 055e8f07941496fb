"""Gives products with block-quantized weights int8 activations (W4A8, W8A8).

MatMul(x, w) becomes DynamicQuantizeLinear(x) and MatMulNBits; matrices that share an input share
its quantization.
"""

from __future__ import annotations

from halfbyte.core import ops
from halfbyte.core.buffer import Buffer
from halfbyte.core.instruction import Instruction
from halfbyte.core.program import Program, resume
from halfbyte.weights import BY_DTYPE, BlockFormat


def quantize_activations(program: Program) -> Program:
    """Insert the quantization of activations if the weight is in a block format."""
    rewritten = program.rewritten([])
    quantized: dict[Buffer, tuple[Buffer, Buffer, Buffer]] = {}
    with resume(rewritten):
        for instruction in program.instructions:
            if instruction.operator is not ops.matmul or not _applies(instruction):
                rewritten.append(instruction)
                continue
            x, w = instruction.inputs
            if x not in quantized:
                quantized[x] = ops.dynamic_quantize(x)
            ops.matmul_int8(*quantized[x], w)
            rewritten.change_last(instruction.outputs)
    return rewritten


def _applies(instruction: Instruction) -> bool:
    return issubclass(BY_DTYPE[instruction.inputs[1].dtype], BlockFormat)
