"""Passes: functions Program -> Program that rewrite programs; `optimize` applies them in order.

Passes for graphs only are in :mod:`halfbyte.onnx.passes`.
"""

from __future__ import annotations

from collections.abc import Mapping

from halfbyte.core.buffer import Buffer
from halfbyte.core.passes.fuse import fuse
from halfbyte.core.passes.plan_memory import plan_memory
from halfbyte.core.passes.quantize_activations import quantize_activations
from halfbyte.core.passes.quantize_attention import quantize_attention
from halfbyte.core.passes.stream_weights import stream_weights
from halfbyte.core.program import ADAPTERS, Program
from halfbyte.formats.reading import Reader

__all__ = [
    "fuse",
    "optimize",
    "plan_memory",
    "quantize_activations",
    "quantize_attention",
    "stream_weights",
]


def optimize(
    program: Program,
    *,
    int8_activations: bool = True,
    reader: Reader | None = None,
    held: Mapping[Buffer, int] | None = None,
) -> Program:
    """Apply all passes, in order.

    Without `int8_activations` products with block formats, and attention, take float activations;
    with a `reader` weights are read from the file in each run, except for as many rows of matrices
    as are `held`.
    """
    if int8_activations:
        program = quantize_activations(program)
    if reader is not None:
        program = stream_weights(program, reader, held or {})
    program = fuse(program)
    if int8_activations:
        program = quantize_attention(program)
    if ADAPTERS in program.inputs:
        from halfbyte.core.passes.adapt import skip_unused  # which a page of text goes without

        program = skip_unused(program)
    return plan_memory(program)
