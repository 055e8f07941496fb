"""Rules of recurrent layers of few steps: a product for the whole sequence, then for each step one
product with the state and the functions of the gates.

The gates of all steps are computed from the inputs at once. States never leave the program. Layers
of many steps, with peepholes, other functions or sequences of several lengths run their definition.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from halfbyte.core import ops
from halfbyte.core.buffer import Buffer
from halfbyte.core.ops.panels import pack_panels
from halfbyte.onnx.capture import Capture
from halfbyte.onnx.lowering.registry import lower
from halfbyte.onnx.lowering.strides import planned
from halfbyte.onnx.values import Array, Operand, Value, key_of

MAX_STEPS = 8  # of all directions: each step is some ten instructions, which take time to record

State = tuple[Buffer, ...]  # [batch * hidden] each; the first is the output of a step
_DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}


@dataclass(frozen=True)
class _Layer:
    """The operands of a layer, checked, and the sizes that follow from them."""

    c: Capture
    x: Value  # [time, batch, input]
    w: Array  # [directions, gates * hidden, input]
    r: Array  # [directions, gates * hidden, hidden]
    b: Array  # [directions, 2 * gates * hidden]
    time: int
    batch: int
    hidden: int
    clip: float
    plans: dict[int, Buffer]

    def panels(self, w: Array, direction: int, rows: slice) -> Buffer:
        """Rows of a matrix of one direction, packed for `matmul_panels`."""
        layout = f"panels {direction} {rows.start} {rows.stop}"

        def make() -> Buffer:
            name = f"{self.c.weights.name(w) or 'matrix'} {layout}"
            return self.c.program.constant(name, pack_panels(w[direction, rows]))

        return self.c.weights.get(w, layout, make)

    def ahead(self, direction: int, rows: slice, bias: Array) -> Buffer:
        """x W^T + bias of all steps: [time * batch, rows]."""
        x = self.c.matrix(self.x, self.time * self.batch, self.w.shape[2])
        y: Buffer = ops.matmul_panels(
            x, self.panels(self.w, direction, rows), self.c.constant(bias), None
        )
        return y

    def back(self, state: Buffer, direction: int, rows: slice, bias: Buffer, added: Any) -> Buffer:
        """state R^T + bias, plus `added` if there is any, as [gates, batch * hidden]."""
        count = rows.stop - rows.start
        y: Buffer = ops.matmul_panels(
            state.view((self.batch, self.hidden)), self.panels(self.r, direction, rows), bias, added
        )
        gates = count // self.hidden
        return self.by_gate(y, 1).view((gates, self.batch * self.hidden))

    def by_gate(self, y: Buffer, steps: int) -> Buffer:
        """[steps, batch, gates, hidden] as [steps, gates, batch, hidden]."""
        count = math.prod(map(int, y.shape)) // (steps * self.batch)  # type: ignore[arg-type]
        gates = count // self.hidden
        if self.batch == 1 or gates == 1:
            return y
        value = self.c.value(y.view((steps, self.batch, gates, self.hidden)))
        return self.c.plain(self.c.transposed(value, (0, 2, 1, 3)))

    def pair(self, function: str, x: Buffer, y: Buffer) -> Buffer:
        """x op y of two buffers of one size, as a vector."""
        n = math.prod(map(int, x.shape))  # type: ignore[arg-type]
        numbers = planned([(n, (1, 1))], 2)
        if numbers is None:
            raise ValueError(f"{n} elements in one row")
        plan, (d, (x_step, y_step)) = numbers
        if n not in self.plans:
            self.plans[n] = self.c.constant(np.array(plan, np.int32))
        z: Buffer = ops.binary(
            x.view((n,)), y.view((n,)), self.plans[n],
            function=function, n=n, d=d, x_step=x_step, y_step=y_step,
        )  # fmt: skip
        return z

    def function(self, name: str, x: Buffer, *, clipped: bool = True) -> Buffer:
        """f(x) as a vector; x is clipped first, if the layer says so."""
        n = math.prod(map(int, x.shape))  # type: ignore[arg-type]
        if clipped and self.clip:
            x = ops.unary(x.view((n, 1)), function="clip", alpha=-self.clip, beta=self.clip)
        y: Buffer = ops.unary(x.view((n, 1)), function=name)
        return y.view((n,))

    def zeros(self, count: int) -> Buffer:
        """A constant of zeros."""
        return self.c.constant(np.zeros(count, np.float32))


def _layer(
    c: Capture, x: Operand, w: Operand, r: Operand, b: Operand, lengths: Operand, gates: int,
    directions: int, attributes: dict[str, Any],
) -> _Layer | None:  # fmt: skip
    """The layer; None if it is not one of few steps of float32 with the usual attributes."""
    if not isinstance(x, Value) or not isinstance(w, np.ndarray) or not isinstance(r, np.ndarray):
        return None
    if isinstance(b, Value) or any(v is not None and key_of(v) != "f32" for v in (x, w, r, b)):
        return None
    time, batch, size = x.shape
    hidden = r.shape[-1]
    expected = (directions, gates * hidden, size), (directions, gates * hidden, hidden)
    if (w.shape, r.shape) != expected or not x.size or not w.size or not r.size:
        return None
    if time * directions > MAX_STEPS or attributes.get("layout"):
        return None
    if attributes.get("activation_alpha") or attributes.get("activation_beta"):
        return None
    whole = lengths is None or (
        isinstance(lengths, np.ndarray) and lengths.size == batch and (lengths == time).all()
    )
    clip = float(attributes.get("clip", 0.0))
    if not whole or not math.isfinite(clip):
        return None
    bias = np.zeros((directions, 2 * gates * hidden), np.float32) if b is None else b
    if bias.shape != (directions, 2 * gates * hidden):
        return None
    return _Layer(c, x, w, r, bias, time, batch, hidden, max(clip, 0.0), {})


Step = Callable[[int, State], State]


def _recorded(
    layer: _Layer, initial: Sequence[Operand], direction: str, steps: Callable[[int], Step]
) -> tuple[Value | None, ...] | None:
    """All steps of all directions: Y, and the last value of each state.

    `steps` returns the function of one step of a direction: from its number and state to the next
    state.
    """
    c, batch, hidden = layer.c, layer.batch, layer.hidden
    each, order = batch * hidden, _DIRECTIONS[direction]
    shape = len(order), batch, hidden
    if any(v is not None and (key_of(v) != "f32" or v.shape != shape) for v in initial):
        return None
    wanted = bool(c.node.outputs[0])
    y = c.program.scratch("f32", (layer.time, *shape)) if wanted else None
    finals: list[State] = []
    for d, reverse in enumerate(order):
        step = steps(d)
        state = tuple(
            layer.zeros(each) if v is None else c.plain(v).part(4 * d * each, (each,))
            for v in initial
        )
        for time in reversed(range(layer.time)) if reverse else range(layer.time):
            state = step(time, state)
            if y is not None:
                ops.concat_part(
                    y.view((1, layer.time * len(order) * each), "i32"),
                    state[0].view((1, each), "i32"),
                    offset=(time * len(order) + d) * each,
                )
        finals.append(state)
    lasts = [_together(layer, states, shape) for states in zip(*finals, strict=True)]
    return (None if y is None else c.value(y), *lasts)


def _together(layer: _Layer, states: Sequence[Buffer], shape: tuple[int, ...]) -> Value:
    """The last states of all directions as one value."""
    c = layer.c
    if len(states) == 1:
        return c.value(states[0].view(shape))
    each = math.prod(shape[1:])
    whole = c.program.scratch("f32", shape)
    for d, state in enumerate(states):
        ops.concat_part(
            whole.view((1, len(states) * each), "i32"), state.view((1, each), "i32"),
            offset=d * each,
        )  # fmt: skip
    return c.value(whole)


def _default(activations: Sequence[str] | None, names: Sequence[str], directions: int) -> bool:
    """Whether the functions are those of these names, in all directions."""
    return activations is None or [a.lower() for a in activations] == [*names] * directions


@lower("LSTM")
def lstm(
    c: Capture, x: Operand, w: Operand, r: Operand, b: Operand = None, lengths: Operand = None,
    h: Operand = None, cell: Operand = None, p: Operand = None, *, direction: str = "forward",
    activations: Sequence[str] | None = None, input_forget: int = 0, **attributes: Any,
) -> tuple[Value | None, ...] | None:  # fmt: skip
    """Gates i, o, f and c: C = f C + i c, H = o tanh(C)."""
    count = len(_DIRECTIONS.get(direction, ()))
    usual = _default(activations, ("sigmoid", "tanh", "tanh"), count)
    if not count or not usual or input_forget or p is not None:
        return None
    layer = _layer(c, x, w, r, b, lengths, 4, count, attributes)
    return None if layer is None else _recorded(
        layer, (h, cell), direction, lambda d: _lstm_steps(layer, d)
    )  # fmt: skip


def _lstm_steps(layer: _Layer, d: int) -> Step:
    n, each = layer.hidden, layer.batch * layer.hidden
    rows = slice(0, 4 * n)
    ahead = layer.ahead(d, rows, layer.b[d, : 4 * n] + layer.b[d, 4 * n :])
    none = layer.zeros(4 * n)

    def step(time: int, state: State) -> State:
        h, c = state
        added = ahead.part(16 * time * each, (layer.batch, 4 * n))
        gates = layer.back(h, d, rows, none, added)
        logistic = layer.function("sigmoid", gates.part(0, (3 * each,)))
        new = layer.function("tanh", gates.part(12 * each, (each,)))
        i, o, f = (logistic.part(4 * k * each, (each,)) for k in range(3))
        cell = layer.pair("add", layer.pair("mul", f, c), layer.pair("mul", i, new))
        return layer.pair("mul", o, layer.function("tanh", cell, clipped=False)), cell

    return step


@lower("GRU")
def gru(
    c: Capture, x: Operand, w: Operand, r: Operand, b: Operand = None, lengths: Operand = None,
    h: Operand = None, *, direction: str = "forward", activations: Sequence[str] | None = None,
    linear_before_reset: int = 0, **attributes: Any,
) -> tuple[Value | None, ...] | None:  # fmt: skip
    """Gates z, r and h: H = h + z (H - h)."""
    count = len(_DIRECTIONS.get(direction, ()))
    if not count or not _default(activations, ("sigmoid", "tanh"), count):
        return None
    layer = _layer(c, x, w, r, b, lengths, 3, count, attributes)
    return None if layer is None else _recorded(
        layer, (h,), direction, lambda d: _gru_steps(layer, d, linear_before_reset)
    )  # fmt: skip


def _gru_steps(layer: _Layer, d: int, linear: int) -> Step:
    n, each = layer.hidden, layer.batch * layer.hidden
    both, own = slice(0, 2 * n), slice(2 * n, 3 * n)
    wb, rb = layer.b[d, : 3 * n], layer.b[d, 3 * n :]
    ahead = layer.ahead(d, both, wb[both] + rb[both])
    ahead_own = layer.ahead(d, own, wb[own])
    none, bias = layer.zeros(2 * n), layer.c.constant(np.ascontiguousarray(rb[own]))

    def step(time: int, state: State) -> State:
        (h,) = state
        added = ahead.part(8 * time * each, (layer.batch, 2 * n))
        input_ = ahead_own.part(4 * time * each, (layer.batch, n))
        gates = layer.function("sigmoid", layer.back(h, d, both, none, added))
        z, reset = gates.part(0, (each,)), gates.part(4 * each, (each,))
        if linear:
            back = layer.pair("mul", reset, layer.back(h, d, own, bias, None))
            sums = layer.pair("add", input_, back)
        else:
            sums = layer.back(layer.pair("mul", reset, h), d, own, bias, input_)
        new = layer.function("tanh", sums)
        return (layer.pair("add", new, layer.pair("mul", z, layer.pair("sub", h, new))),)

    return step


@lower("RNN")
def rnn(
    c: Capture, x: Operand, w: Operand, r: Operand, b: Operand = None, lengths: Operand = None,
    h: Operand = None, *, direction: str = "forward", activations: Sequence[str] | None = None,
    **attributes: Any,
) -> tuple[Value | None, ...] | None:  # fmt: skip
    """H = f(X W^T + H R^T + biases), f being tanh or relu in all directions."""
    count = len(_DIRECTIONS.get(direction, ()))
    function = next((f for f in ("tanh", "relu") if _default(activations, (f,), count)), None)
    if not count or function is None:
        return None
    layer = _layer(c, x, w, r, b, lengths, 1, count, attributes)
    return None if layer is None else _recorded(
        layer, (h,), direction, lambda d: _rnn_steps(layer, d, function)
    )  # fmt: skip


def _rnn_steps(layer: _Layer, d: int, function: str) -> Step:
    n, each = layer.hidden, layer.batch * layer.hidden
    rows = slice(0, n)
    ahead, none = layer.ahead(d, rows, layer.b[d, :n] + layer.b[d, n:]), layer.zeros(n)

    def step(time: int, state: State) -> State:
        added = ahead.part(4 * time * each, (layer.batch, n))
        return (layer.function(function, layer.back(state[0], d, rows, none, added)),)

    return step
