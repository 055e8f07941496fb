"""Passes of graphs' programs, whose sizes are all known; `optimize_graph` is their order."""

from __future__ import annotations

from collections.abc import Collection

from halfbyte.core.ops import Operator
from halfbyte.core.passes.plan_memory import plan_memory
from halfbyte.core.program import Program
from halfbyte.onnx.passes.fuse_views import fuse_views
from halfbyte.onnx.passes.quantize_attention import quantize_attention
from halfbyte.onnx.passes.slice_rows import slice_rows
from halfbyte.onnx.passes.widen_products import widen_products

__all__ = ["fuse_views", "optimize_graph", "quantize_attention", "slice_rows", "widen_products"]


def optimize_graph(
    program: Program,
    *,
    int8_attention: Collection[Operator] = (),
    cores: int = 1,
    wide_products: bool = False,
) -> Program:
    """All passes, in order.

    Attention of what the products `int8_attention` make goes on in int8; large batches go through
    in slices for the caches of so many cores. With `wide_products`, those of 16-bit numbers replace
    products of bytes.
    """
    if int8_attention:
        program = quantize_attention(program, int8_attention)
    program = fuse_views(program)
    if wide_products:
        program = widen_products(program)
    return plan_memory(slice_rows(program, cores))
