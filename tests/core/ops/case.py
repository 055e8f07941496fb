"""Cases of operators, and the numbers in them."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.core.ops import Operator

EPS = float(np.finfo(np.float32).eps)
TINY = 1e-37  # results below this may be flushed or denormal


@dataclass
class Case:
    """One call of an operator."""

    label: str
    operator: Operator
    operands: dict[str, Any]
    attributes: dict[str, Any] = field(default_factory=dict)
    bound: npt.NDArray[np.float64] | tuple[npt.NDArray[np.float64], ...] | None = None
    fused: bool = False  # the kernel may use FMA: tables agree within the bound, not to the bit

    def expected(self) -> tuple[npt.NDArray[Any], ...]:
        """Results of the NumPy meaning, on copies."""
        copies = [v.copy() if isinstance(v, np.ndarray) else v for v in self.operands.values()]
        result = self.operator.meaning(*copies, **self.attributes)
        return result if isinstance(result, tuple) else (result,)


def _random(*key: Any) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(repr(key).encode()))


def activations(*shape: int, spread: float = 1.0) -> npt.NDArray[np.float32]:
    """Normal numbers with a few outliers, one row of zeros and one zero block."""
    random = _random("activations", shape)
    x = random.standard_normal(shape, np.float32) * np.float32(spread)
    x[random.random(shape) < 0.02] *= 20
    if shape[0] > 2:
        x[1] = 0
    if shape[1] > 32:
        x[0, :32] = 0
    return x
