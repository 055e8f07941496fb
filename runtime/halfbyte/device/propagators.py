"""Exact steps of any length for linear heat flow, C dT/dt = P - flow T.

With x = sqrt(C) T the matrix is symmetric: it has real modes, which decay independently.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def propagators(
    capacities: Floats, flow: Floats, dt: float
) -> tuple[Floats, Floats, Floats, Floats]:
    """The matrices [draws, n, n] of C dT/dt = P - flow T after `dt`, with temperatures T and
    constant watts P: T from T, T from P, the integral of T from T, and the integral from P."""
    root = np.sqrt(capacities)
    rates, modes = np.linalg.eigh(flow / root[:, :, None] / root[:, None, :])
    decays = np.maximum(rates, 0) * dt  # only rounding makes a rate negative
    once, twice = _mean_of_decay(decays), _mean_of_ramp(decays)

    def matrix(by_mode: Floats, left: Any, right: Any) -> Floats:
        inner = np.einsum("dik,dk,djk->dij", modes, by_mode, modes)
        return np.asarray(inner * left[:, :, None] * right[:, None, :])

    decay, gain = matrix(np.exp(-decays), 1 / root, root), matrix(dt * once, 1 / root, 1 / root)
    sums = matrix(dt * once, 1 / root, root), matrix(dt * dt * twice, 1 / root, 1 / root)
    return decay, gain, *sums


def _mean_of_decay(x: Floats) -> Floats:
    """(1 - exp(-x)) / x, and 1 at 0: the mean of a decay by x."""
    safe = np.where(x > 0, x, 1.0)
    return np.where(x > 0, -np.expm1(-safe) / safe, 1.0)


def _mean_of_ramp(x: Floats) -> Floats:
    """(x - 1 + exp(-x)) / x^2, and 1/2 at 0; by its series for small x, to keep digits."""
    small = np.minimum(x, 0.1)
    series, term = np.zeros_like(x), np.full_like(x, 0.5)
    for k in range(3, 13):
        series, term = series + term, term * (-small / k)
    safe = np.where(x > 0.1, x, 1.0)
    return np.where(x > 0.1, (1 - _mean_of_decay(safe)) / safe, series)


def times(matrices: Floats, vectors: Floats) -> Floats:
    """Each draw's matrix [draws, n, n] times its vector [draws, n]."""
    product: Floats = np.matmul(matrices, vectors[..., None])[..., 0]
    return product
