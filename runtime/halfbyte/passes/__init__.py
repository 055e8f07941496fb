"""Rewriting programs: each pass is a function Program -> Program; `optimize` is their order."""

from __future__ import annotations

from halfbyte.passes.fuse import fuse
from halfbyte.passes.fuse_views import fuse_views
from halfbyte.passes.plan_memory import plan_memory
from halfbyte.passes.quantize_activations import quantize_activations
from halfbyte.passes.quantize_attention import quantize_attention
from halfbyte.program import Program

__all__ = [
    "fuse",
    "fuse_views",
    "optimize",
    "plan_memory",
    "quantize_activations",
    "quantize_attention",
]


def optimize(program: Program, *, int8_activations: bool = True) -> Program:
    """All passes, in order; without `int8_activations` block formats meet float activations."""
    if int8_activations:
        program = quantize_activations(program)
    return plan_memory(fuse(program))
