"""Fusions: patterns of several nodes become one node. One file per family; `fuse` has the order.

The results are operators of ONNX, ONNX Runtime and halfbyte's own domain (`reference/own.py`), so
that the definitions can run a fused graph too, as the tests do. A fused node accepts every input
that the nodes it replaces accept, and broadcasts as they do.
"""

from __future__ import annotations

import numpy as np

from halfbyte.errors import ProgramError
from halfbyte.onnx.calls import UNFIT
from halfbyte.onnx.files.model import Model
from halfbyte.onnx.fusion.attention import fuse_attention
from halfbyte.onnx.fusion.broadcast import fuse_expanded
from halfbyte.onnx.fusion.convolution import (
    fuse_activation,
    fuse_affine,
    fuse_batch_norm,
    fuse_sums,
)
from halfbyte.onnx.fusion.gelu import fuse_activations
from halfbyte.onnx.fusion.linear import fuse_linear, fuse_linear_activation
from halfbyte.onnx.fusion.normalization import fuse_normalizations, fuse_skips
from halfbyte.onnx.fusion.quantized import fuse_dynamic, fuse_quantized
from halfbyte.onnx.fusion.rewriter import Rewriter, drop_unused
from halfbyte.onnx.fusion.spelled_out import spell_out
from halfbyte.onnx.fusion.wide_integers import fuse_wide_integers

PASSES = (
    spell_out, fuse_quantized, fuse_wide_integers, fuse_dynamic, fuse_expanded,
    fuse_batch_norm, fuse_affine, fuse_activations, fuse_normalizations, fuse_attention,
    fuse_linear, fuse_linear_activation, fuse_skips, fuse_sums, fuse_activation,
)  # fmt: skip


def fuse(model: Model) -> None:
    """Rewrite the main graph in place, and drop the nodes that are no longer used."""
    rewriter = Rewriter(model)
    for fusion in PASSES:
        try:
            with np.errstate(all="ignore"):  # as definitions compute
                fusion(rewriter)
        except UNFIT as error:
            raise ProgramError(f"{model.path}: {fusion.__name__}: {error!r}") from error
        if rewriter.changed:
            drop_unused(model.graph)
            rewriter = Rewriter(model)
