"""Passes of graphs' programs, whose sizes are all known; `optimize_graph` is their order."""

from __future__ import annotations

from collections.abc import Collection

from halfbyte.ops import Operator
from halfbyte.passes.graphs.fuse_views import fuse_views
from halfbyte.passes.graphs.quantize_attention import quantize_attention
from halfbyte.passes.graphs.slice_rows import slice_rows
from halfbyte.passes.plan_memory import plan_memory
from halfbyte.program import Program

__all__ = ["fuse_views", "optimize_graph", "quantize_attention", "slice_rows"]


def optimize_graph(
    program: Program, *, int8_attention: Collection[Operator] = (), cores: int = 1
) -> Program:
    """All passes, in order.

    Attention of what the products `int8_attention` make goes on in int8; large batches go through
    in slices for the caches of so many cores.
    """
    if int8_attention:
        program = quantize_attention(program, int8_attention)
    return plan_memory(slice_rows(fuse_views(program), cores))
