"""The operators. Each is a function with a signature and a NumPy meaning; see `operator`."""

from halfbyte.core.ops.activation import add, gelu, mul, silu, softmax
from halfbyte.core.ops.attention import (
    KEY_BLOCK,
    MAX_Q8_0_HEAD,
    cache_write,
    cache_write_keys,
    group_query_attention,
    rotary_embedding,
)
from halfbyte.core.ops.codes import (
    RANGE,
    add_codes,
    dequantize_linear,
    quantize_linear,
    quantize_tensor,
    tensor_range,
)
from halfbyte.core.ops.conv import (
    MAX_TAPS,
    conv2d,
    conv2d_codes,
    conv2d_depthwise,
    conv2d_depthwise_codes,
    matmul_codes,
    pack_codes,
    pack_kernels,
)
from halfbyte.core.ops.elementwise import binary, cast, unary
from halfbyte.core.ops.full_attention import attention, attention_int8
from halfbyte.core.ops.fused import (
    gelu_quantize,
    layer_norm_quantize,
    rms_norm_quantize,
    rotary_cache_write_keys,
    swiglu,
    swiglu_quantize,
)
from halfbyte.core.ops.linear import (
    dynamic_quantize,
    gather,
    matmul,
    matmul_int8,
    range_from,
    take_last,
)
from halfbyte.core.ops.move import move, place
from halfbyte.core.ops.norm import layer_norm, rms_norm
from halfbyte.core.ops.operator import FUSED, OPERATORS, Operator, operator
from halfbyte.core.ops.panels import matmul_batched, matmul_panels, pack_batched
from halfbyte.core.ops.pool import average_pool, max_pool, resize_linear, resize_nearest, turn
from halfbyte.core.ops.reduce import reduce
from halfbyte.core.ops.rotated import (
    gelu_hadamard_quantize,
    hadamard,
    hadamard_quantize,
    layer_norm_hadamard_quantize,
    matmul_rotated,
    matmul_widened,
)
from halfbyte.core.program import Operand

__all__ = [
    "FUSED",
    "KEY_BLOCK",
    "MAX_Q8_0_HEAD",
    "MAX_TAPS",
    "OPERATORS",
    "RANGE",
    "Operand",
    "Operator",
    "add",
    "add_codes",
    "attention",
    "attention_int8",
    "average_pool",
    "binary",
    "cache_write",
    "cache_write_keys",
    "cast",
    "conv2d",
    "conv2d_codes",
    "conv2d_depthwise",
    "conv2d_depthwise_codes",
    "dequantize_linear",
    "dynamic_quantize",
    "gather",
    "gelu",
    "gelu_hadamard_quantize",
    "gelu_quantize",
    "group_query_attention",
    "hadamard",
    "hadamard_quantize",
    "layer_norm",
    "layer_norm_hadamard_quantize",
    "layer_norm_quantize",
    "matmul",
    "matmul_batched",
    "matmul_codes",
    "matmul_int8",
    "matmul_panels",
    "matmul_rotated",
    "matmul_widened",
    "max_pool",
    "move",
    "mul",
    "operator",
    "pack_batched",
    "pack_codes",
    "pack_kernels",
    "place",
    "quantize_linear",
    "quantize_tensor",
    "range_from",
    "reduce",
    "resize_linear",
    "resize_nearest",
    "rms_norm",
    "rms_norm_quantize",
    "rotary_cache_write_keys",
    "rotary_embedding",
    "silu",
    "softmax",
    "swiglu",
    "swiglu_quantize",
    "take_last",
    "tensor_range",
    "turn",
    "unary",
]
