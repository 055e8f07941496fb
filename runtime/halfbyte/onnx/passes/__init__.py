"""Passes over programs of graphs, whose sizes are all known; `optimize_graph` is their order."""

from __future__ import annotations

from collections.abc import Collection

from halfbyte.core.ops import Operator
from halfbyte.core.passes.plan_memory import plan_memory
from halfbyte.core.program import Program
from halfbyte.onnx.passes.fuse_views import fuse_views
from halfbyte.onnx.passes.name_sizes import name_sizes
from halfbyte.onnx.passes.quantize_attention import quantize_attention
from halfbyte.onnx.passes.remove_dead_code import remove_dead_code
from halfbyte.onnx.passes.slice_rows import slice_rows
from halfbyte.onnx.passes.widen_products import widen_products
from halfbyte.onnx.sizes import Sizes

__all__ = [
    "fuse_views", "name_sizes", "optimize_graph", "quantize_attention", "remove_dead_code",
    "slice_rows", "widen_products",
]  # fmt: skip


def optimize_graph(
    program: Program,
    *,
    int8_attention: Collection[Operator] = (),
    cores: int = 1,
    wide_products: bool = False,
    sizes: Sizes | None = None,
) -> Program:
    """All passes, in order.

    Attention whose operands the products `int8_attention` compute is in int8; large batches run in
    slices for the caches of `cores`. With `wide_products`, products of 16-bit integers replace
    those of bytes. `sizes` are those of the capture that may differ between runs.
    """
    program = remove_dead_code(program)
    if int8_attention:
        program = quantize_attention(program, int8_attention)
    program = fuse_views(program)
    if wide_products:
        program = widen_products(program)
    program = slice_rows(program, cores)
    if sizes is not None:
        program = name_sizes(program, sizes)
    return plan_memory(program)
