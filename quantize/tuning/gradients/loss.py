"""The loss: how far one distribution is from another, from the logits of both."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np
import numpy.typing as npt

from halfbyte.core.buffer import Buffer
from halfbyte.core.instruction import Instruction
from halfbyte.core.ops.activation import log_softmax_of, softmax_of
from halfbyte.quantize.tuning.gradients.rules import definition, rule

F32 = npt.NDArray[np.float32]

_NUMBERS = 1 << 18  # logits of some rows at a time, which stay in caches


def _parts(x: F32) -> Iterator[slice]:
    step = max(1, _NUMBERS // x.shape[1])
    return (slice(first, first + step) for first in range(0, len(x), step))


@definition("x:f32[n,d] target:f32[n,d] -> y:f32[n,1]")
def divergence(x: F32, target: F32) -> F32:
    """KL divergence in nats, per row: sum of p (log p - log q), p = softmax(target) and q of x."""
    y: F32 = np.empty((len(x), 1), np.float32)
    for rows in _parts(x):
        wanted, present = log_softmax_of(target[rows]), log_softmax_of(x[rows])
        y[rows] = (np.exp(wanted) * (wanted - present)).sum(axis=-1, keepdims=True)
    return y


@definition("dy:f32[n,1] x:f32[n,d] target:f32[n,d] -> dx:f32[n,d]")
def divergence_dx(dy: F32, x: F32, target: F32) -> F32:
    """dx = dy (softmax(x) - softmax(target)); the target has no gradient."""
    dx: F32 = np.empty_like(x)
    for rows in _parts(x):
        np.subtract(softmax_of(x[rows]), softmax_of(target[rows]), out=dx[rows])
        dx[rows] *= dy[rows]
    return dx


@rule(divergence)
def _divergence(i: Instruction, dy: Buffer, wanted: Collection[str]) -> dict[str, Buffer]:
    return {"x": divergence_dx(dy, *i.inputs)}
