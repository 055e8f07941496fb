"""Cases of layers with a state."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from tests.core.ops.case import EPS, TINY, Case, activations

from halfbyte.core import ops


def _causal_conv() -> Iterator[Case]:
    """At position 0 the state holds the rest of another text."""
    for n, c, k, position in (
        (1, 16, 2, 0), (1, 37, 4, 5), (3, 64, 3, 0), (2, 33, 4, 7), (9, 20, 3, 1), (70, 96, 4, 128),
    ):  # fmt: skip
        x, w, state = activations(n, c), activations(k, c), activations(k + 4, c)[5:].copy() + 1
        for name, bias in (("", None), ("-bias", activations(1, c)[0] + 1)):
            operands = {"x": x, "w": w, "bias": bias, "state": state}
            where = {"position": position}
            yield Case(f"{n}x{c}-{k}-{position}{name}", ops.causal_conv, operands, where)


def _selective_scan() -> Iterator[Case]:
    """Mamba (a head for each channel, a rate for each state), Mamba-2, and the delta rule."""
    for kind, n, c, heads, groups, s, position in (
        ("mamba", 1, 16, 16, 1, 16, 0), ("mamba", 5, 48, 48, 1, 16, 3),
        ("mamba2", 1, 64, 2, 1, 8, 7), ("mamba2", 33, 96, 3, 1, 32, 0),
        ("mamba2", 3, 128, 4, 2, 16, 1), ("delta", 1, 64, 2, 2, 16, 5),
        ("delta", 9, 96, 3, 3, 32, 0), ("delta-swapped", 3, 128, 4, 2, 16, 1),
        ("delta-swapped-tiled", 5, 96, 6, 2, 16, 2),
    ):  # fmt: skip
        random = np.random.default_rng(n * c * s)
        x, blocks = activations(n, c), c // 16
        dt = random.uniform(0.001, 1, (n, heads)).astype(np.float32)
        bc = (random.standard_normal((n, 2 * groups * s)) * s**-0.5).astype(np.float32)
        r = s if kind == "mamba" else 1
        rate = -random.uniform(0.1, 2, (blocks, r, 16)).astype(np.float32)
        state = random.standard_normal((blocks, s, 16)).astype(np.float32)
        delta = kind.startswith("delta")
        skip = None if delta else activations(1, c)[0] + 1
        beta = dt[:, ::-1].copy() if delta else None
        operands = {
            "x": x, "dt": dt, "rate": rate, "bc": bc, "skip": skip, "beta": beta, "state": state,
        }  # fmt: skip
        where = {
            "groups": groups, "position": position, "swapped": "swapped" in kind,
            "tiled": "tiled" in kind,
        }  # fmt: skip
        case = Case(f"{kind}-{n}x{c}-{s}-{position}", ops.selective_scan, operands, where)
        case.bound = _bounds(case)
        yield case


def _bounds(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """Sums of s numbers in n steps; states are at most the largest input and the first state."""
    n, s = len(case.operands["x"]), case.operands["state"].shape[1]
    largest = np.abs(case.operands["x"]).max() + np.abs(case.operands["state"]).max()
    results = case.expected()
    return tuple(np.full(r.shape, (n + s + 16) * 4 * EPS * largest + TINY) for r in results)


FAMILIES = (_causal_conv, _selective_scan)
