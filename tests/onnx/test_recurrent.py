"""Recurrent layers of few steps as instructions of a program, against ONNX Runtime."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from tests.onnx.graphs import Net, assert_close, by_onnxruntime, outputs_of, runner

GATES = {"LSTM": (4, 2), "GRU": (3, 1), "RNN": (1, 1)}  # gates, states
DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}
SIZES = ((1, 1, 8, 16), (1, 3, 7, 5), (4, 1, 9, 20), (3, 4, 16, 17))  # time, batch, input, hidden
OPTIONS = (
    {"bias": True, "states": True}, {"bias": False, "states": False},
    {"bias": True, "states": True, "clip": 0.4, "linear": 1},
)  # fmt: skip


def layer(
    operator: str, sizes: tuple[int, int, int, int], direction: str, *, bias: bool, states: bool,
    linear: int = 0, **attributes: Any,
) -> tuple[Net, list[str]]:  # fmt: skip
    (time, batch, size, hidden), count = sizes, DIRECTIONS[direction]
    gates, kept = GATES[operator]
    net = Net()
    inputs = [net.x(time, batch, size)]
    inputs += [net.w(count, gates * hidden, n, scale=n**-0.5) for n in (size, hidden)]
    inputs += [net.w(count, 2 * gates * hidden) if bias else ""]
    if states:
        inputs += ["", *(net.x(count, batch, hidden) for _ in range(kept))]
    if operator == "GRU":
        attributes["linear_before_reset"] = linear
    if operator == "RNN" and linear:
        attributes["activations"] = ["Relu"] * count
    names = [f"out{i}" for i in range(1 + kept)]
    net.nodes(operator, inputs, names, direction=direction, hidden_size=hidden, **attributes)
    return net, names


@pytest.mark.parametrize("operator", GATES)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_layers_of_few_steps(operator: str, direction: str) -> None:
    for sizes, options in itertools.product(SIZES, OPTIONS):
        net, names = layer(operator, sizes, direction, **options)  # type: ignore[arg-type]
        proto = net.proto(*names)
        run = runner(proto)
        assert_close(outputs_of(run, net.feeds), by_onnxruntime(proto, net.feeds))
        (program,) = run.programs()
        used = {i.operator.name for i in program.instructions}
        assert "matmul_panels" in used
        assert operator not in used
