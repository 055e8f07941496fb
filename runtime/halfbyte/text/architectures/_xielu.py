"""xIELU, an activation with trained numbers. Source: Huang and Schlag 2025."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from halfbyte.core import ops
from halfbyte.core.buffer import Buffer, maximum
from halfbyte.text.architectures._decoder import Parts

_MOST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class XIELU:
    """p x^2 + beta x above 0; n (exp(min(x, eps)) - 1 - x) + beta x elsewhere."""

    p: float
    n: float
    beta: float
    eps: float

    def of(self, model: Parts, x: Buffer) -> Buffer:
        """The activation of x [n, d]. The lower part is added to all x, less what it is above 0."""
        above = ops.unary(x, function="relu")
        least = min(self.eps, 0.0)
        low = ops.unary(x, function="clip", alpha=-_MOST, beta=least)
        y = ops.mul(above, self._plus(model, model.scaled(above, self.p), self.n))
        y = ops.add(y, model.scaled(ops.unary(low, function="exp"), self.n))
        y = ops.add(y, model.scaled(x, self.beta - self.n))
        rest = self.n * float(np.expm1(least))
        if rest:
            step = ops.unary(x, function="hard_sigmoid", alpha=_MOST, beta=0.0)
            y = ops.add(y, model.scaled(step, -rest))
        return self._plus(model, y, -self.n)

    def _plus(self, model: Parts, x: Buffer, value: float) -> Buffer:
        row = model.row(f"{value:g}", np.full(maximum(x.shape[1]), value, np.float32))
        y: Buffer = ops.add(x, row)
        return y
