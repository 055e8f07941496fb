"""Recurrent layers of ONNX: LSTM, GRU and RNN over whole sequences.

The weights of all gates of sixteen outputs are neighbours: panels (:mod:`halfbyte.core.ops.panels`)
are in the order [ceil(k / 16), gates], of LSTM i, o, f and c, of GRU z and r, whose h
follows them. Outputs after the k-th are padding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.core.ops.conv import FOURS, matmul_quantized
from halfbyte.core.ops.elementwise import UNARY
from halfbyte.core.ops.operator import operator
from halfbyte.core.ops.panels import PANEL, panels, unpack_panels
from halfbyte.core.ops.quantized import quantize_tensor

F32 = npt.NDArray[np.float32]
I8 = npt.NDArray[np.int8]
I32 = npt.NDArray[np.int32]
Array = npt.NDArray[Any]
State = tuple[F32, F32]  # h and c


class Cell(IntEnum):
    """What a step does with the gates; linear/recurrent.inc has the same numbers."""

    RNN = 0
    GRU = 1
    GRU_LINEAR = 2  # the reset gate multiplies the product with h, not h
    LSTM = 3


MAX_QUANTIZED = 2048  # outputs of a layer with weights in bytes

GATES = {Cell.RNN: 1, Cell.GRU: 3, Cell.GRU_LINEAR: 3, Cell.LSTM: 4}


class Function(IntEnum):
    """A layer's functions of x, with alpha and beta; linear/recurrent.inc has the same numbers."""

    SIGMOID = 0
    SCALED_TANH = 1  # alpha tanh(beta x)
    HARD_SIGMOID = 2  # min(max(alpha x + beta, 0), 1)
    AFFINE = 3  # alpha x + beta
    RELU = 4  # max(alpha x + beta, 0)


FUNCTIONS: dict[int, Callable[[Any, float, float], Any]] = {
    Function.SIGMOID: UNARY["sigmoid"],
    Function.SCALED_TANH: lambda x, a, b: a * np.tanh(b * x),
    Function.HARD_SIGMOID: UNARY["hard_sigmoid"],
    Function.AFFINE: lambda x, a, b: a * x + b,
    Function.RELU: lambda x, a, b: np.maximum(a * x + b, 0),
}


def by_outputs(w: Array, cell: int) -> Array:
    """Rows [gates * k, ...] of a layer's matrices and biases in the order of panels, padded."""
    if cell in (Cell.GRU, Cell.GRU_LINEAR):
        both = len(w) // 3 * 2
        return np.concatenate([_by_outputs(w[:both], 2), _by_outputs(w[both:], 1)])
    return _by_outputs(w, GATES[Cell(cell)])


def _by_outputs(w: Array, gates: int) -> Array:
    k = len(w) // gates
    padded = np.zeros((gates, panels(k) * PANEL, *w.shape[1:]), w.dtype)
    padded[:, :k] = w.reshape(gates, k, *w.shape[1:])
    parts = padded.reshape(gates, panels(k), PANEL, *w.shape[1:]).swapaxes(0, 1)
    return parts.reshape(-1, *w.shape[1:])


def _by_gates(y: F32, cell: int, k: int) -> F32:
    """The inverse for the last dimension: [..., gates, k]."""
    gates, first = GATES[Cell(cell)], y.shape[-1]
    if gates == 3:
        gates, first = 2, panels(k) * 2 * PANEL
    parts = y[..., :first].reshape(*y.shape[:-1], -1, gates, PANEL).swapaxes(-2, -3)
    every = parts.reshape(*y.shape[:-1], gates, -1)
    if first < y.shape[-1]:
        every = np.concatenate([every, y[..., None, first:]], axis=-2)
    return every[..., :k]


def _complete(d: Mapping[str, Any]) -> bool:
    """Whether weights in bytes, if there are any, are all there, in a layer that has them."""
    if not {"fours", "s", "m"} & d.keys():
        return True
    layer = d["cell"] == Cell.LSTM and d["k"] <= MAX_QUANTIZED
    fours = d.get("fours") == -(-d["k"] // FOURS)
    return bool(layer and fours and d.get("s") == d.get("m") == d["p"] * PANEL)


@operator(
    "LSTM",
    "ahead:f32[t*n,d*p*16] bias:f32[d,width] functions:f32[d,9] r?:f32[d,p,k,16] "
    "q?:i8[d,p,fours,16,4] sums?:i32[d,s] scale?:f32[d,m] h?:f32[d*n,k] c?:f32[d*n,k] "
    "peephole?:f32[d,3*k] lengths?:i32[n] -> "
    "y:f32[t*d*n,k] last_h:f32[d*n,k] last_c:f32[d*n,k] work:f32[4*d*n,width]",
    operations=lambda d: 2 * d["t"] * d["n"] * d["d"] * d["p"] * PANEL * d["k"],
    demands={
        "p = gates ceil(k / 16) of a cell": lambda d: (
            d["cell"] in GATES and d["p"] == GATES[d["cell"]] * panels(d["k"])
        ),
        "width = 16 ceil(k / 16)": lambda d: d["width"] == panels(d["k"]) * PANEL,
        "q, sums and scale of an LSTM, fours = ceil(k / 4), s = m = 16 p, k <= 2048": lambda d: (
            _complete(d)
        ),
    },
    product=True,
    like="matmul_panels",
)
def recurrent_layer(
    ahead: F32, bias: F32, functions: F32, r: F32 | None = None, q: I8 | None = None,
    sums: I32 | None = None, scale: F32 | None = None, h: F32 | None = None, c: F32 | None = None,
    peephole: F32 | None = None, lengths: I32 | None = None,
    *, n: int, t: int, k: int, cell: int, clip: float = np.inf, reverse: bool = False,
) -> tuple[F32, F32, F32, F32]:  # fmt: skip
    """A layer of d directions, 1 or 2, over n sequences of t steps, from states h and c, or zeros.

    `ahead` [t, n, d] are the products with the input, and all biases but `bias`, which GRU_LINEAR
    adds to the product that its reset gate multiplies. An element of `functions` has number, alpha
    and beta of three functions: f, g and h in ONNX's definitions. All but that of an LSTM's c get
    numbers clipped to -clip ... clip. The first direction, if `reverse`, and the second one begin
    at the end of each sequence; a sequence of `lengths` that has ended keeps its state, and its
    outputs are 0; one without elements has states of 0. y is [t, d, n], the states are [d, n].
    `work` is for the kernel, which leaves zeros in it.

    Weights are `r`, or in an LSTM bytes `q` with `sums` and `scale` as :func:`matmul_quantized` has
    them; the last h of all sequences in a direction is then quantized by :func:`quantize_tensor`
    in each step.

    Source: ONNX LSTM, GRU and RNN (opset 14), ONNX Runtime's DynamicQuantizeLSTM.
    """
    d = len(functions)
    inputs = _by_gates(ahead.reshape(t, n, d, -1), cell, k)  # [t, n, d, gates, k]
    begin = [np.zeros((d * n, k), np.float32) if v is None else v for v in (h, c)]
    states = np.stack(begin).reshape(2, d, n, k)
    y = np.zeros((t, d, n, k), np.float32)
    limits = np.full(n, t) if lengths is None else lengths
    states[:, :, limits <= 0] = 0
    for i in range(d):
        own = [v[i] for v in (q, sums, scale) if v is not None]
        layer = _Layer(
            Cell(cell), _quantized(*own) if r is None else _products(r[i]),
            bias[i, :k], _functions(functions[i], clip),
            np.zeros((3, k), np.float32) if peephole is None else peephole[i].reshape(3, k),
        )  # fmt: skip
        for time in reversed(range(t)) if reverse or i == 1 else range(t):
            new = layer.step(inputs[time, :, i], (states[0, i], states[1, i]))
            going = (time < limits)[:, None]
            states[:, i] = np.where(going, new, states[:, i])
            y[time, i] = np.where(going, new[0], 0)
    last_h, last_c = states.reshape(2, d * n, k)
    return y.reshape(-1, k), last_h, last_c, np.zeros((4 * d * n, bias.shape[1]), np.float32)


def _products(r: F32) -> Callable[[F32], F32]:
    """Products of states with panels."""
    rows = unpack_panels(r, len(r) * PANEL)
    return lambda state: state @ rows.T


def _quantized(q: I8, sums: I32, scale: F32) -> Callable[[F32], F32]:
    """Products of states, in bytes."""
    zeros = np.zeros(len(sums), np.float32)

    def products(state: F32) -> F32:
        limits = np.array([[state.min(initial=0), state.max(initial=0)]], np.float32)
        x, _, x_scale, x_zero = quantize_tensor.meaning(state, limits)
        y: F32 = matmul_quantized.meaning(x, q, sums, scale, zeros, x_scale, x_zero)
        return y

    return products


def _functions(numbers: F32, clip: float) -> list[Callable[[F32], F32]]:
    """f, g and h of a direction."""

    def function(number: int, alpha: float, beta: float, limit: float) -> Callable[[F32], F32]:
        own = FUNCTIONS[number]
        return lambda x: own(np.clip(x.astype(np.float64), -limit, limit), alpha, beta)

    limits = clip, clip, np.inf
    rows = numbers.reshape(3, 3).tolist()
    return [
        function(int(kind), alpha, beta, limit)
        for (kind, alpha, beta), limit in zip(rows, limits, strict=True)
    ]


@dataclass(frozen=True)
class _Layer:
    """One direction."""

    cell: Cell
    products: Callable[[F32], F32]  # of all gates with a state [n, k], in the order of panels
    bias: F32  # [k]
    functions: list[Callable[[F32], F32]]
    peephole: F32  # [3, k]

    def back(self, state: F32) -> F32:
        """The products of all gates with a state [n, k]: [n, gates, k]."""
        return _by_gates(self.products(state), self.cell, state.shape[1])

    def step(self, x: F32, state: State) -> State:
        """The next h and c of n sequences, from x [n, gates, k]."""
        (h, c), (f, g, of_c) = state, self.functions
        sums = x + self.back(h)
        if self.cell == Cell.RNN:
            return f(sums[:, 0]), c
        if self.cell != Cell.LSTM:
            z, reset = f(sums[:, 0]), f(sums[:, 1])
            if self.cell == Cell.GRU_LINEAR:
                own = x[:, 2] + reset * (self.back(h)[:, 2] + self.bias)
            else:
                own = x[:, 2] + self.back((reset * h).astype(np.float32))[:, 2]
            return (1 - z) * g(own) + z * h, c
        i = f(sums[:, 0] + self.peephole[0] * c)
        c = f(sums[:, 2] + self.peephole[2] * c) * c + i * g(sums[:, 3])
        return f(sums[:, 1] + self.peephole[1] * c) * of_c(c), c
