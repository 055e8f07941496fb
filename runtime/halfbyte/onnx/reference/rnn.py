"""Recurrent layers: RNN, GRU, LSTM.

Each direction is a loop over time. A sequence of a batch that has ended keeps its state, and its
outputs are zero; where it has no elements, so is the state, as in ONNX Runtime. The weights of the
gates are stored one after another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from halfbyte.core.ops.elementwise import UNARY
from halfbyte.errors import ProgramError, UnsupportedError
from halfbyte.onnx.reference import _shapes
from halfbyte.onnx.reference._numbers import Array, fitting, rounded, widened
from halfbyte.onnx.reference.activation import elu_of, sigmoid_of, softplus_of, softsign_of
from halfbyte.onnx.reference.registry import define

Activation = Callable[[Array], Array]
State = tuple[Array, ...]  # [batch, hidden] each; the first is the output of a step

# name: (function of x, alpha, beta; alpha's and beta's defaults)
FUNCTIONS: dict[str, tuple[Callable[[Array, float, float], Array], float, float]] = {
    "relu": (UNARY["relu"], 0, 0),
    "tanh": (UNARY["tanh"], 1, 0),
    "sigmoid": (lambda x, a, b: sigmoid_of(x), 0, 0),
    "affine": (lambda x, a, b: a * x + b, 1, 0),
    "leakyrelu": (UNARY["leaky_relu"], 0.01, 0),
    "thresholdedrelu": (lambda x, a, b: np.where(x >= a, x, 0), 1, 0),
    "scaledtanh": (lambda x, a, b: a * np.tanh(b * x), 1, 1),
    "hardsigmoid": (UNARY["hard_sigmoid"], 0.2, 0.5),
    "elu": (lambda x, a, b: elu_of(x, a), 1, 0),
    "softsign": (lambda x, a, b: softsign_of(x), 0, 0),
    "softplus": (lambda x, a, b: softplus_of(x), 0, 0),
}
DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}
WITH_ALPHA = frozenset(
    {"affine", "leakyrelu", "thresholdedrelu", "scaledtanh", "hardsigmoid", "elu"}
)
WITH_BETA = frozenset({"affine", "scaledtanh", "hardsigmoid"})


def chosen(
    names: Sequence[str], alphas: Sequence[float] | None, betas: Sequence[float] | None
) -> list[tuple[str, float, float]]:
    """Keys of FUNCTIONS with alpha and beta; functions that have these consume them in order."""
    alpha_left, beta_left = list(alphas or []), list(betas or [])
    result = []
    for name in names:
        key = name.lower()
        if key not in FUNCTIONS:
            raise UnsupportedError(f"activation {name!r}: expected one of {sorted(FUNCTIONS)}")
        _, alpha, beta = FUNCTIONS[key]
        alpha = alpha_left.pop(0) if key in WITH_ALPHA and alpha_left else alpha
        beta = beta_left.pop(0) if key in WITH_BETA and beta_left else beta
        result.append((key, alpha, beta))
    return result


def _activations(
    names: Sequence[str],
    alphas: Sequence[float] | None,
    betas: Sequence[float] | None,
    clip: float,
) -> list[Activation]:
    """Functions by name. The input of each is clipped to -clip ... clip, unless clip is 0."""

    def activation(key: str, alpha: float, beta: float) -> Activation:
        function = FUNCTIONS[key][0]
        if clip > 0:
            return lambda x: function(np.clip(x, -clip, clip), alpha, beta)
        return lambda x: function(x, alpha, beta)

    return [activation(*each) for each in chosen(names, alphas, betas)]


@dataclass(frozen=True)
class _Weights:
    """One direction: w [gates * hidden, input], r [gates * hidden, hidden], b of w and of r."""

    w: Array
    r: Array
    wb: Array
    rb: Array
    peephole: Array  # [3 * hidden]; empty but for LSTM


Step = Callable[[Array, State, _Weights, list[Activation]], State]  # of x W^T, the state, ...


def _scan(
    ahead: Array,
    lengths: Array,
    state: State,
    step: Callable[[Array, State], State],
    reverse: bool,
) -> tuple[Array, State]:
    """One direction: outputs [time, batch, hidden], the last state.

    `ahead` [time, batch, gates * hidden] are the products with the inputs. The reverse direction
    begins at the end of each sequence.
    """
    outputs = np.zeros((*ahead.shape[:2], state[0].shape[1]), ahead.dtype)
    shortest = lengths.min(initial=len(ahead))
    state = tuple(np.where((lengths > 0)[:, None], s, 0) for s in state)
    for time in reversed(range(len(ahead))) if reverse else range(len(ahead)):
        new = step(ahead[time], state)
        if time < shortest:
            state, outputs[time] = new, new[0]
            continue
        going = (time < lengths)[:, None]
        state = tuple(np.where(going, n, s) for n, s in zip(new, state, strict=True))
        outputs[time] = np.where(going, new[0], 0)
    return outputs, state


def _layer(
    inputs: tuple[Array, Array, Array, Array | None, Array | None],
    initial: Sequence[Array | None],
    peephole: Array | None,
    functions: list[Activation],
    gates: int,
    direction: str,
    layout: int,
    step: Step,
) -> tuple[Array, ...]:
    """All directions: Y, and the last value of each state. With layout 1 the batch comes first."""
    x, w, r, b, lengths = inputs
    directions = DIRECTIONS.get(direction)
    if directions is None:
        raise ProgramError(f"direction {direction!r}: expected forward, reverse, bidirectional")
    if {x.ndim, w.ndim, r.ndim} != {3}:
        raise ProgramError(
            f"X {list(x.shape)}, W {list(w.shape)}, R {list(r.shape)}: expected three axes each"
        )
    wide = widened(x).swapaxes(0, 1) if layout else widened(x)
    hidden = r.shape[-1]
    expected = (directions, gates * hidden, wide.shape[2]), (directions, gates * hidden, hidden)
    if (w.shape, r.shape) != expected:
        raise ProgramError(
            f"W {list(w.shape)} and R {list(r.shape)}: expected {list(expected[0])} and"
            f" {list(expected[1])}"
        )
    batch = wide.shape[1]
    fitting((len(wide), directions, batch, hidden), wide.dtype.itemsize)
    limits = np.full(batch, len(wide)) if lengths is None else lengths.reshape(batch)
    biases = np.zeros((directions, 2 * gates * hidden), wide.dtype) if b is None else widened(b)
    peeps = np.zeros((directions, 0), wide.dtype) if peephole is None else widened(peephole)
    begin = [_initial(h, directions, batch, hidden, layout, wide.dtype) for h in initial]
    per_direction = len(functions) // directions
    outputs, states = [], []
    for d in range(directions):
        half = gates * hidden
        own_w, own_r = (np.require(widened(m)[d], requirements="A") for m in (w, r))
        weights = _Weights(own_w, own_r, biases[d, :half], biases[d, half:], peeps[d])
        own = functions[d * per_direction : (d + 1) * per_direction]
        result, last = _scan(
            wide @ weights.w.T, limits, tuple(h[d] for h in begin),
            lambda row, state, weights=weights, own=own: step(row, state, weights, own),  # type: ignore[misc]
            reverse=direction == "reverse" or d == 1,
        )  # fmt: skip
        outputs.append(result)
        states.append(last)
    y = np.stack(outputs, axis=2 if layout else 1)  # [time, batch, d, h], or [time, d, batch, h]
    y = y.swapaxes(0, 1) if layout else y
    lasts = [np.stack(kind, axis=1 if layout else 0) for kind in zip(*states, strict=True)]
    return tuple(rounded(np.ascontiguousarray(value), x.dtype) for value in (y, *lasts))


def _initial(
    h: Array | None,
    directions: int,
    batch: int,
    hidden: int,
    layout: int,
    dtype: np.dtype[np.float32],
) -> Array:
    """An initial state as [directions, batch, hidden]; zero where there is none."""
    if h is None:
        return np.zeros((directions, batch, hidden), dtype)
    state = widened(h).swapaxes(0, 1) if layout else widened(h)
    return state.reshape(directions, batch, hidden)


def names_of(
    activations: Sequence[str] | None, default: Sequence[str], direction: str
) -> Sequence[str]:
    """Names of a layer's activations, one direction after another."""
    directions = 2 if direction == "bidirectional" else 1
    wanted = len(default) * directions
    names = list(activations) if activations else list(default) * directions
    if len(names) < wanted:
        raise ProgramError(f"activations {names}: expected {wanted}")
    return names[:wanted]


def _rnn_step(x: Array, state: State, weights: _Weights, functions: list[Activation]) -> State:
    (h,), (f,) = state, functions
    return (f(x + h @ weights.r.T + (weights.wb + weights.rb)),)


@define("RNN", since=7, product=True, infer=_shapes.recurrent(1))
def rnn(
    x: Array,
    w: Array,
    r: Array,
    b: Array | None = None,
    sequence_lens: Array | None = None,
    initial_h: Array | None = None,
    *,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    activations: Sequence[str] | None = None,
    clip: float = 0.0,
    direction: str = "forward",
    hidden_size: int = 0,
    layout: int = 0,
) -> tuple[Array, ...]:
    """H(t) = f(X(t) W^T + H(t-1) R^T + Wb + Rb); outputs all H and the last. ONNX -7, -14, -22.

    x is [time, batch, input], w [directions, hidden, input], r [directions, hidden, hidden].
    """
    names = names_of(activations, ("Tanh",), direction)
    functions = _activations(names, activation_alpha, activation_beta, clip)
    return _layer(
        (x, w, r, b, sequence_lens), (initial_h,), None, functions, 1, direction, layout, _rnn_step
    )


def _gru_step(linear_before_reset: int) -> Step:
    def step(x: Array, state: State, weights: _Weights, functions: list[Activation]) -> State:
        (h,), (f, g) = state, functions
        n = h.shape[1]
        both, own = slice(0, 2 * n), slice(2 * n, None)
        ahead = x + weights.wb
        gates = f(ahead[:, both] + h @ weights.r[both].T + weights.rb[both])
        z, reset = gates[:, :n], gates[:, n:]
        if linear_before_reset:
            back = reset * (h @ weights.r[own].T + weights.rb[own])
        else:
            back = (reset * h) @ weights.r[own].T + weights.rb[own]
        return ((1 - z) * g(ahead[:, own] + back) + z * h,)

    return step


@define("GRU", since=7, product=True, infer=_shapes.recurrent(1))
def gru(
    x: Array,
    w: Array,
    r: Array,
    b: Array | None = None,
    sequence_lens: Array | None = None,
    initial_h: Array | None = None,
    *,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    activations: Sequence[str] | None = None,
    clip: float = 0.0,
    direction: str = "forward",
    hidden_size: int = 0,
    layout: int = 0,
    linear_before_reset: int = 0,
) -> tuple[Array, ...]:
    """H(t) = (1 - z) h + z H(t-1), with the gates z, r and h in this order. ONNX -7, -14, -22.

    z and r are f(X W^T + H R^T + Wb + Rb), h is g(X W^T + (r H) R^T + Rb + Wb), or with
    linear_before_reset g(X W^T + r (H R^T + Rb) + Wb).
    """
    names = names_of(activations, ("Sigmoid", "Tanh"), direction)
    functions = _activations(names, activation_alpha, activation_beta, clip)
    return _layer(
        (x, w, r, b, sequence_lens), (initial_h,), None, functions, 3, direction, layout,
        _gru_step(linear_before_reset),
    )  # fmt: skip


def lstm_step(input_forget: int, read: Activation = lambda h: h) -> Step:
    """A step, whose products are those of `read` of h."""

    def step(x: Array, state: State, weights: _Weights, functions: list[Activation]) -> State:
        (h, c), (f, g, unclipped) = state, functions
        n = h.shape[1]
        gates = x + read(h) @ weights.r.T + (weights.wb + weights.rb)
        i, o, forget, cell = (gates[:, k * n : (k + 1) * n] for k in range(4))
        pi, po, pf = (
            (weights.peephole[k * n : (k + 1) * n] for k in range(3))
            if weights.peephole.size
            else (0, 0, 0)
        )
        i = f(i + pi * c)
        forget = 1 - i if input_forget else f(forget + pf * c)
        c = forget * c + i * g(cell)
        return (f(o + po * c) * unclipped(c), c)

    return step


@define("LSTM", since=7, product=True, infer=_shapes.recurrent(2))
def lstm(
    x: Array,
    w: Array,
    r: Array,
    b: Array | None = None,
    sequence_lens: Array | None = None,
    initial_h: Array | None = None,
    initial_c: Array | None = None,
    p: Array | None = None,
    *,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    activations: Sequence[str] | None = None,
    clip: float = 0.0,
    direction: str = "forward",
    hidden_size: int = 0,
    input_forget: int = 0,
    layout: int = 0,
) -> tuple[Array, ...]:
    """C(t) = f C(t-1) + i c, H(t) = o h(C(t)), with the gates i, o, f and c in this order.

    i, f and o are f(X W^T + H R^T + P C + Wb + Rb), o with the new C, c is g of the same without
    peepholes P [directions, 3 * hidden]; input_forget makes f 1 - i. Outputs all H, the last H and
    the last C. ONNX LSTM-7, -14, -22.
    """
    return lstm_layer(
        (x, w, r, b, sequence_lens), (initial_h, initial_c), p,
        (activations, activation_alpha, activation_beta, clip), direction, layout,
        lstm_step(input_forget),
    )  # fmt: skip


def lstm_layer(
    inputs: tuple[Array, Array, Array, Array | None, Array | None],
    initial: Sequence[Array | None],
    peephole: Array | None,
    chosen: tuple[Sequence[str] | None, Sequence[float] | None, Sequence[float] | None, float],
    direction: str,
    layout: int,
    step: Step,
) -> tuple[Array, ...]:
    """An LSTM with these steps; `chosen` are names, alphas and betas of functions, and clip."""
    activations, alphas, betas, clip = chosen
    names = names_of(activations, ("Sigmoid", "Tanh", "Tanh"), direction)
    functions = _activations(names, alphas, betas, clip)
    # h gets the cell state unclipped, as in ONNX Runtime
    plain = _activations(names, alphas, betas, 0)
    functions = [plain[i] if i % 3 == 2 else f for i, f in enumerate(functions)]
    return _layer(inputs, initial, peephole, functions, 4, direction, layout, step)
