"""Passes over programs of graphs, whose sizes are all known; `optimize_graph` is their order."""

from __future__ import annotations

from collections.abc import Collection

from halfbyte.core.ops import Operator
from halfbyte.core.passes.plan_memory import plan_memory
from halfbyte.core.program import Program
from halfbyte.onnx.passes.fuse_views import fuse_views
from halfbyte.onnx.passes.quantize_attention import quantize_attention
from halfbyte.onnx.passes.remove_dead_code import remove_dead_code
from halfbyte.onnx.passes.slice_rows import slice_rows
from halfbyte.onnx.passes.widen_products import widen_products

__all__ = [
    "fuse_views", "optimize_graph", "quantize_attention", "remove_dead_code", "slice_rows",
    "widen_products",
]  # fmt: skip


def optimize_graph(
    program: Program,
    *,
    int8_attention: Collection[Operator] = (),
    cores: int = 1,
    wide_products: bool = False,
) -> Program:
    """All passes, in order.

    Attention whose operands the products `int8_attention` compute is in int8; large batches run in
    slices for the caches of `cores`. With `wide_products`, products of 16-bit integers replace
    those of bytes.
    """
    program = remove_dead_code(program)
    if int8_attention:
        program = quantize_attention(program, int8_attention)
    program = fuse_views(program)
    if wide_products:
        program = widen_products(program)
    return plan_memory(slice_rows(program, cores))
