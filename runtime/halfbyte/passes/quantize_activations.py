"""Products with block-quantized weights take int8 activations (W4A8, W8A8).

MatMul(x, w) becomes DynamicQuantizeLinear(x) and MatMulNBits; matrices that share an input share
its quantization.
"""

from __future__ import annotations

from halfbyte import ops
from halfbyte.program import Buffer, Instruction, Program, resume

BLOCK_FORMATS = ("q8_0", "q4_0", "q8_0_r16", "q4_0_r16")


def quantize_activations(program: Program) -> Program:
    """Insert the quantization of activations where the weight's format has an integer kernel."""
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
            rewritten.instructions[-1].outputs = instruction.outputs
    return rewritten


def _applies(instruction: Instruction) -> bool:
    return instruction.inputs[1].dtype in BLOCK_FORMATS
