"""The operators. Each is a function with a signature and a NumPy meaning; see `operator`."""

from halfbyte.ops.activation import add, gelu, mul, silu, softmax
from halfbyte.ops.attention import (
    KEY_BLOCK,
    MOST_Q8_0_HEAD,
    cache_write,
    cache_write_keys,
    group_query_attention,
    rotary_embedding,
)
from halfbyte.ops.fused import (
    rms_norm_quantize,
    rotary_cache_write_keys,
    swiglu,
    swiglu_quantize,
)
from halfbyte.ops.linear import (
    dynamic_quantize,
    gather,
    matmul,
    matmul_int8,
    range_from,
    take_last,
)
from halfbyte.ops.norm import layer_norm, rms_norm
from halfbyte.ops.operator import OPERATORS, Operand, Operator, operator

__all__ = [
    "KEY_BLOCK",
    "MOST_Q8_0_HEAD",
    "OPERATORS",
    "Operand",
    "Operator",
    "add",
    "cache_write",
    "cache_write_keys",
    "dynamic_quantize",
    "gather",
    "gelu",
    "group_query_attention",
    "layer_norm",
    "matmul",
    "matmul_int8",
    "mul",
    "operator",
    "range_from",
    "rms_norm",
    "rms_norm_quantize",
    "rotary_cache_write_keys",
    "rotary_embedding",
    "silu",
    "softmax",
    "swiglu",
    "swiglu_quantize",
    "take_last",
]
