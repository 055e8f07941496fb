"""Rules of recurrent layers: a product for the inputs of all steps, then one instruction for them.

Layers whose weights are computed in the graph, or with functions that the kernel does not have, run
their definition.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from halfbyte.core import ops
from halfbyte.core.aligned import contiguous
from halfbyte.core.buffer import Buffer
from halfbyte.core.ops.panels import PANEL, pack_panels, panels
from halfbyte.core.ops.recurrent_layer import GATES, Cell, Function, by_outputs
from halfbyte.onnx.capture import Capture
from halfbyte.onnx.lowering.registry import lower
from halfbyte.onnx.reference.rnn import DIRECTIONS, chosen, names_of
from halfbyte.onnx.values import Array, Operand, Value, key_of

_KINDS = {
    "sigmoid": Function.SIGMOID,
    "tanh": Function.SCALED_TANH,
    "scaledtanh": Function.SCALED_TANH,
    "hardsigmoid": Function.HARD_SIGMOID,
    "affine": Function.AFFINE,
    "relu": Function.RELU,
}


@dataclass(frozen=True)
class _Layer:
    """The operands of a layer, checked, and the sizes that follow from them."""

    c: Capture
    cell: Cell
    x: Value  # [time, batch, input]
    w: Array  # [directions, gates * hidden, input]
    r: Array  # [directions, gates * hidden, hidden]
    b: Array  # [directions, 2 * gates * hidden]

    @property
    def rows(self) -> int:
        """The rows of the matrix of one direction."""
        return int(self.r.shape[1])

    @property
    def own(self) -> slice:
        """The gate whose product with h has a bias of its own: h of a GRU that is linear there."""
        first = self.rows // 3 * 2 if self.cell == Cell.GRU_LINEAR else self.rows
        return slice(first, self.rows)

    def kept(self, array: Array, layout: str, arranged: Callable[[Array], Array]) -> Buffer:
        """A constant array in another layout, which programs share."""

        def make() -> Buffer:
            name = f"{self.c.weights.name(array) or 'constant'} {layout}"
            return self.c.program.constant(name, arranged(array))

        return self.c.weights.get(array, f"{layout} of {self.cell.name}", make)

    def ahead(self) -> Buffer:
        """x W^T of all steps and directions, with all biases but `bias`."""

        def biases(b: Array) -> Array:
            sums = b[:, : self.rows] + b[:, self.rows :]
            sums[:, self.own] = b[:, self.own]
            return np.concatenate([by_outputs(each, self.cell) for each in sums])

        def weights(w: Array) -> Array:
            return pack_panels(np.concatenate([by_outputs(each, self.cell) for each in w]))

        time, batch, size = map(int, self.x.shape)  # a program for these
        panels = self.kept(self.w, "panels of inputs", weights)
        y: Buffer = ops.matmul_panels(
            self.c.matrix(self.x, time * batch, size),
            panels,
            self.kept(self.b, "with inputs", biases),
            None,
        )
        self.c.value(y)  # whose size is checked
        return y

    def back(self) -> Buffer:
        """The matrices of h of all directions."""

        def weights(r: Array) -> Array:
            return contiguous(np.stack([pack_panels(by_outputs(each, self.cell)) for each in r]))

        return self.kept(self.r, "panels of h", weights)

    def bias(self) -> Buffer:
        """What is added to the product that a reset gate multiplies."""
        directions, _, hidden = self.r.shape

        def biases(b: Array) -> Array:
            own = b[:, self.rows :][:, self.own]
            padded = np.zeros((directions, panels(hidden) * PANEL), np.float32)
            padded[:, : own.shape[1]] = own
            return padded

        return self.kept(self.b, "with h", biases)


def _layer(
    c: Capture, cell: Cell, x: Operand, w: Operand, r: Operand, b: Operand, directions: int
) -> _Layer | None:
    """The layer; None if it is not one of float32 with constant weights."""
    if not isinstance(x, Value) or not isinstance(w, np.ndarray) or not isinstance(r, np.ndarray):
        return None
    if isinstance(b, Value) or any(v is not None and key_of(v) != "f32" for v in (x, w, r, b)):
        return None
    rows, hidden = GATES[cell] * r.shape[-1], r.shape[-1]
    expected = (directions, rows, x.shape[2]), (directions, rows, hidden)
    if (w.shape, r.shape) != expected or not x.size or not w.size or not r.size:
        return None
    bias = np.zeros((directions, 2 * rows), np.float32) if b is None else b
    return _Layer(c, cell, x, w, r, bias) if bias.shape == (directions, 2 * rows) else None


def functions_of(
    default: Sequence[str], direction: str, activations: Sequence[str] | None,
    alphas: Sequence[float] | None, betas: Sequence[float] | None,
) -> Array | None:  # fmt: skip
    """Numbers of each direction's functions for the kernel; None if it does not have one."""
    names = names_of(activations, default, direction)
    if any(name.lower() not in _KINDS for name in names):
        return None
    each = chosen(names, alphas, betas)
    fixed = {"tanh": (1, 1), "relu": (1, 0)}
    rows = [(_KINDS[key], *fixed.get(key, (alpha, beta))) for key, alpha, beta in each]
    numbers = np.zeros((len(each) // len(default), 3, 3), np.float32)
    numbers[:, : len(default)] = np.reshape(rows, (len(numbers), len(default), 3))
    return numbers.reshape(-1, 9)


def _lengths(lengths: Operand, time: int, c: Capture) -> Buffer | None:
    """Lengths of sequences, None if all are complete."""
    if lengths is None or (isinstance(lengths, np.ndarray) and (lengths >= time).all()):
        return None
    return c.plain(lengths)


def _recorded(
    c: Capture, cell: Cell, default: Sequence[str], operands: Sequence[Operand],
    initial: Sequence[Operand], peephole: Operand = None, *, direction: str = "forward",
    activations: Sequence[str] | None = None, activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None, clip: float = 0.0, layout: int = 0,
    input_forget: int = 0, hidden_size: int = 0,
) -> tuple[Value, ...] | None:  # fmt: skip
    """All outputs, and the last h and c."""
    del hidden_size  # as R says
    x, w, r, b, lengths = operands
    if layout:  # the batch comes first
        x, *initial = (_swapped(c, v) for v in (x, *initial))
    functions = functions_of(default, direction, activations, activation_alpha, activation_beta)
    layer = _layer(c, cell, x, w, r, b, DIRECTIONS.get(direction, 0))
    if functions is None or layer is None or input_forget or not math.isfinite(clip):
        return None
    (time, batch), (directions, _, hidden) = map(int, layer.x.shape[:2]), layer.r.shape
    state = directions, batch, hidden
    others = others_of(c, state, time, initial, peephole, lengths)
    if others is None:
        return None
    y, *lasts, _ = ops.recurrent_layer(
        layer.ahead(), layer.bias(), c.constant(functions), layer.back(), None, None, None, *others,
        n=batch, t=time, k=hidden, cell=int(cell), clip=clip if clip > 0 else math.inf,
        reverse=direction == "reverse",
    )  # fmt: skip
    results = [c.value(y.view((time, *state))), *(c.value(v.view(state)) for v in lasts)]
    if layout:
        orders = (2, 0, 1, 3), (1, 0, 2), (1, 0, 2)
        results = [c.transposed(v, order) for v, order in zip(results, orders, strict=True)]
    return tuple(results)


def others_of(
    c: Capture, state: tuple[int, int, int], time: int, initial: Sequence[Operand],
    peephole: Operand, lengths: Operand,
) -> tuple[Buffer | None, ...] | None:  # fmt: skip
    """First h and c, peephole and lengths for the kernel; None if one has not the layer's sizes.

    `state` is [directions, batch, hidden].
    """
    directions, batch, hidden = state
    if not all(map(_fits, initial, [state] * len(initial))):
        return None
    if not _fits(lengths, (batch,), "i32") or not _fits(peephole, (directions, 3 * hidden)):
        return None
    states = [None if v is None else c.matrix(v, directions * batch, hidden) for v in initial]
    own = None if peephole is None else c.plain(peephole)
    return (*states, *[None] * (2 - len(states)), own, _lengths(lengths, time, c))


def _swapped(c: Capture, value: Operand) -> Operand:
    """A tensor [batch, n, ...] as [n, batch, ...], and the other way round."""
    if isinstance(value, Value):
        return c.transposed(value, (1, 0, *range(2, len(value.shape))))
    return None if value is None else np.ascontiguousarray(value.swapaxes(0, 1))


def _fits(value: Operand, shape: tuple[int, ...], key: str = "f32") -> bool:
    """Whether an optional operand is absent or has this type and shape."""
    return value is None or (key_of(value) == key and value.shape == shape)


@lower("LSTM")
def lstm(
    c: Capture, x: Operand, w: Operand, r: Operand, b: Operand = None, lengths: Operand = None,
    h: Operand = None, cell: Operand = None, p: Operand = None, **attributes: Any,
) -> tuple[Value, ...] | None:  # fmt: skip
    """Gates i, o, f and c: C = f C + i c, H = o tanh(C)."""
    default = "Sigmoid", "Tanh", "Tanh"
    return _recorded(c, Cell.LSTM, default, (x, w, r, b, lengths), (h, cell), p, **attributes)


@lower("GRU")
def gru(
    c: Capture, x: Operand, w: Operand, r: Operand, b: Operand = None, lengths: Operand = None,
    h: Operand = None, *, linear_before_reset: int = 0, **attributes: Any,
) -> tuple[Value, ...] | None:  # fmt: skip
    """Gates z, r and h: H = h + z (H - h)."""
    cell = Cell.GRU_LINEAR if linear_before_reset else Cell.GRU
    results = _recorded(c, cell, ("Sigmoid", "Tanh"), (x, w, r, b, lengths), (h,), **attributes)
    return results and results[:2]


@lower("RNN")
def rnn(
    c: Capture, x: Operand, w: Operand, r: Operand, b: Operand = None, lengths: Operand = None,
    h: Operand = None, **attributes: Any,
) -> tuple[Value, ...] | None:  # fmt: skip
    """H = f(X W^T + H R^T + biases)."""
    results = _recorded(c, Cell.RNN, ("Tanh",), (x, w, r, b, lengths), (h,), **attributes)
    return results and results[:2]
