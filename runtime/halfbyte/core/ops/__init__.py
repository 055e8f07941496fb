"""The operators: functions with a signature and a definition in NumPy; see `operator`."""

from halfbyte.core.instruction import Operand
from halfbyte.core.ops.activation import add, gelu, mul, silu, softmax
from halfbyte.core.ops.attention import (
    KEY_BLOCK,
    MAX_Q8_0_HEAD,
    cache_write,
    cache_write_keys,
    group_query_attention,
    rotary_embedding,
)
from halfbyte.core.ops.conv import (
    MAX_TAPS,
    conv2d,
    conv2d_depthwise,
    conv2d_depthwise_quantized,
    conv2d_quantized,
    matmul_quantized,
    pack_kernels,
    pack_quantized,
)
from halfbyte.core.ops.elementwise import binary, cast, unary
from halfbyte.core.ops.experts import (
    expert_rows,
    matmul_experts,
    matmul_experts_int8,
    route_experts,
    sum_experts,
)
from halfbyte.core.ops.full_attention import (
    attention,
    attention_int8,
    attention_texts,
    attention_texts_int8,
    text_blocks,
)
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
    last_rows,
    matmul,
    matmul_int8,
    range_from,
)
from halfbyte.core.ops.low_rank import add_low_rank
from halfbyte.core.ops.move import concat_part, move
from halfbyte.core.ops.norm import layer_norm, rms_norm
from halfbyte.core.ops.operator import FUSED, OPERATORS, Operator, operator
from halfbyte.core.ops.panels import matmul_batched, matmul_panels, pack_batched
from halfbyte.core.ops.pool import (
    average_pool,
    grid_sample,
    max_pool,
    resize_linear,
    resize_nearest,
    transpose,
)
from halfbyte.core.ops.quantized import (
    RANGE,
    add_quantized,
    dequantize_linear,
    quantize_linear,
    quantize_tensor,
    tensor_range,
)
from halfbyte.core.ops.recurrent import causal_conv, generalized_delta_rule, selective_scan
from halfbyte.core.ops.recurrent_layer import MAX_QUANTIZED, recurrent_layer
from halfbyte.core.ops.reduce import reduce
from halfbyte.core.ops.rotated import (
    gelu_hadamard_quantize,
    hadamard,
    hadamard_quantize,
    layer_norm_hadamard_quantize,
    matmul_rotated,
    matmul_widened,
)
from halfbyte.core.ops.winograd import conv2d_winograd, pack_winograd

__all__ = [
    "FUSED",
    "KEY_BLOCK",
    "MAX_Q8_0_HEAD",
    "MAX_QUANTIZED",
    "MAX_TAPS",
    "OPERATORS",
    "RANGE",
    "Operand",
    "Operator",
    "add",
    "add_low_rank",
    "add_quantized",
    "attention",
    "attention_int8",
    "attention_texts",
    "attention_texts_int8",
    "average_pool",
    "binary",
    "cache_write",
    "cache_write_keys",
    "cast",
    "causal_conv",
    "concat_part",
    "conv2d",
    "conv2d_depthwise",
    "conv2d_depthwise_quantized",
    "conv2d_quantized",
    "conv2d_winograd",
    "dequantize_linear",
    "dynamic_quantize",
    "expert_rows",
    "gather",
    "gelu",
    "gelu_hadamard_quantize",
    "gelu_quantize",
    "generalized_delta_rule",
    "grid_sample",
    "group_query_attention",
    "hadamard",
    "hadamard_quantize",
    "last_rows",
    "layer_norm",
    "layer_norm_hadamard_quantize",
    "layer_norm_quantize",
    "matmul",
    "matmul_batched",
    "matmul_experts",
    "matmul_experts_int8",
    "matmul_int8",
    "matmul_panels",
    "matmul_quantized",
    "matmul_rotated",
    "matmul_widened",
    "max_pool",
    "move",
    "mul",
    "operator",
    "pack_batched",
    "pack_kernels",
    "pack_quantized",
    "pack_winograd",
    "quantize_linear",
    "quantize_tensor",
    "range_from",
    "recurrent_layer",
    "reduce",
    "resize_linear",
    "resize_nearest",
    "rms_norm",
    "rms_norm_quantize",
    "rotary_cache_write_keys",
    "rotary_embedding",
    "route_experts",
    "selective_scan",
    "silu",
    "softmax",
    "sum_experts",
    "swiglu",
    "swiglu_quantize",
    "tensor_range",
    "text_blocks",
    "transpose",
    "unary",
]
