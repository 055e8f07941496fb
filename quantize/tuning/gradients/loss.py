"""The loss: how far one distribution is from another, from the logits of both."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import numpy.typing as npt

from halfbyte.core.buffer import Buffer
from halfbyte.core.instruction import Instruction
from halfbyte.core.ops.activation import log_softmax_of, softmax_of
from halfbyte.quantize.tuning.gradients.rules import definition, rule

F32 = npt.NDArray[np.float32]


@definition("x:f32[n,d] target:f32[n,d] -> y:f32[n,1]")
def divergence(x: F32, target: F32) -> F32:
    """KL divergence in nats, per row: sum of p (log p - log q), p = softmax(target) and q of x."""
    wanted, present = log_softmax_of(target), log_softmax_of(x)
    y: F32 = (np.exp(wanted) * (wanted - present)).sum(axis=-1, keepdims=True)
    return y


@definition("dy:f32[n,1] x:f32[n,d] target:f32[n,d] -> dx:f32[n,d]")
def divergence_dx(dy: F32, x: F32, target: F32) -> F32:
    """dx = dy (softmax(x) - softmax(target)); the target has no gradient."""
    dx = softmax_of(x)
    dx -= softmax_of(target)
    dx *= dy
    return dx


@rule(divergence)
def _divergence(i: Instruction, dy: Buffer, wanted: Collection[str]) -> dict[str, Buffer]:
    return {"x": divergence_dx(dy, *i.inputs)}
