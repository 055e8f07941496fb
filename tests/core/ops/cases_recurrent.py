"""Cases of layers with a state."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from tests.core.ops.case import EPS, TINY, Case, activations

from halfbyte.core import ops
from halfbyte.core.ops.panels import pack_panels, panels
from halfbyte.core.ops.recurrent_layer import GATES, Cell, Function, by_outputs

SIGMOID = (Function.SIGMOID, 1, 0)
TANH = (Function.SCALED_TANH, 1, 1)
HARD = (Function.HARD_SIGMOID, 0.3, 0.4)
AFFINE = (Function.AFFINE, 0.7, -0.1)
RELU = (Function.RELU, 1, 0)


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


def _generalized_delta_rule() -> Iterator[Case]:
    """At position 0 the state holds the rest of another text."""
    for n, c, s, position in (
        (1, 16, 16, 0), (1, 96, 32, 4), (5, 64, 64, 3), (33, 32, 16, 0), (3, 144, 48, 9),
    ):  # fmt: skip
        random = np.random.default_rng(n * c * s)
        operands = {"x": activations(n, c)}
        operands["decay"] = random.uniform(0.5, 1, (n, c)).astype(np.float32)
        for name in ("key", "query", "removal", "correction", "bonus"):
            operands[name] = (random.standard_normal((n, c)) * s**-0.5).astype(np.float32)
        operands["correction"] = operands["removal"] * operands["decay"]
        operands["state"] = random.standard_normal((c // 16, s, 16)).astype(np.float32)
        where = {"position": position}
        case = Case(f"{n}x{c}-{s}-{position}", ops.generalized_delta_rule, operands, where)
        case.bound = _bounds(case)
        yield case


def _bounds(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """Sums of s numbers in n steps; states are at most the largest input and the first state."""
    n, s = len(case.operands["x"]), case.operands["state"].shape[1]
    largest = np.abs(case.operands["x"]).max() + np.abs(case.operands["state"]).max()
    results = case.expected()
    return tuple(np.full(r.shape, (n + s + 16) * 4 * EPS * largest + TINY) for r in results)


LAYERS = (  # cell, functions, what else
    ("lstm", Cell.LSTM, (SIGMOID, TANH, TANH), {}),
    ("lstm-odd", Cell.LSTM, (HARD, AFFINE, TANH), {"clip": 0.7, "peephole": True}),
    ("lstm-relu", Cell.LSTM, (SIGMOID, RELU, TANH), {}),
    ("gru", Cell.GRU, (SIGMOID, TANH, TANH), {}),
    ("gru-clip", Cell.GRU, (HARD, TANH, TANH), {"clip": 0.5}),
    ("gru-linear", Cell.GRU_LINEAR, (SIGMOID, TANH, TANH), {}),
    ("rnn", Cell.RNN, (TANH, TANH, TANH), {}),
    ("rnn-relu", Cell.RNN, (RELU, TANH, TANH), {}),
    ("rnn-affine", Cell.RNN, (AFFINE, TANH, TANH), {"clip": 1.5}),
)
# sequences, steps, outputs, directions, reverse, states and lengths
LAYER_SIZES = ((1, 1, 16, 1, 0, 1), (1, 5, 37, 2, 0, 0), (3, 4, 20, 1, 1, 1), (9, 3, 65, 2, 0, 1))


def _recurrent_layer() -> Iterator[Case]:
    """Outputs of more than one group of panels, and fewer than a panel; more rows than a tile."""
    for (name, cell, functions, other), sizes in itertools.product(LAYERS, LAYER_SIZES):
        n, t, k, d, reverse, states = sizes
        where = {key: v for key, v in other.items() if key != "peephole"}
        where |= {"n": n, "t": t, "k": k, "cell": int(cell)}
        where["reverse"] = bool(reverse)
        operands = _layer_operands(cell, n, t, k, d)
        operands["functions"] = np.array([functions] * d, np.float32).reshape(d, 9)
        absent = ["peephole"] if not other.get("peephole") else []
        absent += ["h", "c", "lengths"] if not states else []
        operands |= dict.fromkeys(absent)
        case = Case(f"{name}-{n}x{t}x{k}-{d}", ops.recurrent_layer, operands, where, fused=True)
        # An error of a step grows at most by what a step multiplies a state with: here, up to 2.
        error = (k + 16) * 4 * EPS * 2.0**t
        case.bound = tuple(np.full(v.shape, error) * (1 + np.abs(v).max()) for v in case.expected())
        yield case


def _recurrent_layer_in_bytes() -> Iterator[Case]:
    """Rows of zeros, whose range is empty, among them."""
    for (name, cell, functions, other), sizes in itertools.product(LAYERS[:3], LAYER_SIZES):
        n, t, k, d, reverse, states = sizes
        random, m = np.random.default_rng(n * k), 4 * panels(k) * 16
        rows = random.integers(-128, 128, (d, 4 * k, k)).astype(np.int8)
        ordered = [by_outputs(each, cell) for each in rows]
        floats = _layer_operands(cell, n, t, k, d)
        operands: dict[str, Any] = {
            "ahead": floats["ahead"],
            "bias": floats["bias"],
            "functions": np.array([functions] * d, np.float32).reshape(d, 9),
            "r": None,
            "q": np.stack([ops.pack_quantized(each[:, :, None, None]) for each in ordered]),
            "sums": np.stack([each.sum(axis=1, dtype=np.int32) for each in ordered]),
            "scale": random.uniform(0.5, 1, (d, m)).astype(np.float32) / np.float32(128 * k**0.5),
        }
        given = {"h": states, "c": states, "peephole": "peephole" in other, "lengths": states}
        operands |= {key: floats[key] if value else None for key, value in given.items()}
        where = {key: v for key, v in other.items() if key != "peephole"}
        where |= {"n": n, "t": t, "k": k, "cell": int(cell), "reverse": bool(reverse)}
        label = f"{name}-bytes-{n}x{t}x{k}-{d}"
        case = Case(label, ops.recurrent_layer, operands, where, fused=True)
        error = (k + 16) * 4 * EPS * 2.0**t  # as above; none of the states is near to a half
        case.bound = tuple(np.full(v.shape, error) * (1 + np.abs(v).max()) for v in case.expected())
        yield case


def _layer_operands(cell: Cell, n: int, t: int, k: int, d: int) -> dict[str, Any]:
    """All of them, in the kernel's order; sequences of length 0 and more."""
    gates, random = GATES[cell], np.random.default_rng(n * k)

    def numbers(*shape: int) -> np.ndarray:
        return random.standard_normal(shape, np.float32)

    ahead = numbers(d, gates * k, t * n)
    r = numbers(d, gates * k, k) / np.float32(k**0.5)
    return {
        "ahead": np.concatenate([by_outputs(v, cell) for v in ahead]).T.copy(),
        "bias": numbers(d, panels(k) * 16),
        "functions": None,
        "r": np.stack([pack_panels(by_outputs(v, cell)) for v in r]),
        "q": None,
        "sums": None,
        "scale": None,
        "h": numbers(d * n, k),
        "c": numbers(d * n, k),
        "peephole": numbers(d, 3 * k),
        "lengths": np.arange(n, dtype=np.int32) * 2 % (t + 2) + (n == 1) * t,
    }


FAMILIES = (
    _causal_conv, _selective_scan, _generalized_delta_rule, _recurrent_layer,
    _recurrent_layer_in_bytes,
)  # fmt: skip
