"""Recurrent layers as instructions of a program, against ONNX Runtime and their definitions."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from tests.onnx.graphs import (
    Net,
    assert_close,
    by_definition,
    by_onnxruntime,
    outputs_of,
    runner,
)  # fmt: skip
from tests.onnx.test_spelled_out import FLOAT
from tests.onnx.test_spelled_out import proto as contributed

GATES = {"LSTM": (4, 2), "GRU": (3, 1), "RNN": (1, 1)}  # gates, states
FUNCTIONS = {"LSTM": 3, "GRU": 2, "RNN": 1}
DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}
# time, batch, input, hidden
SIZES = ((1, 1, 8, 16), (1, 3, 7, 5), (4, 1, 9, 20), (3, 4, 16, 17), (40, 2, 3, 33), (5, 30, 4, 8))
OPTIONS: tuple[dict[str, Any], ...] = (
    {"bias": True, "states": True}, {"bias": False, "states": False},
    {"bias": True, "states": True, "clip": 0.4, "linear": 1, "lengths": True, "peephole": True},
    {"bias": True, "states": False, "odd": True, "lengths": True},
)  # fmt: skip


def layer(
    operator: str, sizes: tuple[int, int, int, int], direction: str, *, bias: bool, states: bool,
    linear: int = 0, lengths: bool = False, peephole: bool = False, odd: bool = False,
    layout: int = 0, **attributes: Any,
) -> tuple[Net, list[str]]:  # fmt: skip
    (time, batch, size, hidden), count = sizes, DIRECTIONS[direction]
    gates, kept = GATES[operator]
    net = Net()
    inputs = [net.x(batch, time, size) if layout else net.x(time, batch, size)]
    inputs += [net.w(count, gates * hidden, n, scale=n**-0.5) for n in (size, hidden)]
    inputs += [net.w(count, 2 * gates * hidden) if bias else ""]
    ends = np.arange(1, batch + 1, dtype=np.int32) % (time + 1)  # 0 among them
    inputs += [net.array(ends) if lengths else ""]
    state = (batch, count, hidden) if layout else (count, batch, hidden)
    inputs += [net.x(*state) if states else "" for _ in range(kept)]
    if peephole and operator == "LSTM":
        inputs += [net.w(count, 3 * hidden)]
    if operator == "GRU":
        attributes["linear_before_reset"] = linear
    if layout:
        attributes["layout"] = 1
    if operator == "RNN" and linear:
        attributes["activations"] = ["Relu"] * count
    if odd:
        names = ["HardSigmoid", "ScaledTanh", "Relu"][-FUNCTIONS[operator] :]
        attributes["activations"] = names * count
        with_alpha = {"HardSigmoid": (0.3, 0.4), "ScaledTanh": (0.9, 0.7)}
        every = [with_alpha[name] for name in names if name in with_alpha] * count
        if every:
            attributes["activation_alpha"], attributes["activation_beta"] = zip(*every, strict=True)
    names = [f"out{i}" for i in range(1 + kept)]
    net.nodes(operator, inputs, names, direction=direction, hidden_size=hidden, **attributes)
    return net, names


@pytest.mark.parametrize("operator", GATES)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_layers(operator: str, direction: str) -> None:
    for sizes, options in itertools.product(SIZES, OPTIONS):
        net, names = layer(operator, sizes, direction, **options)
        proto = net.proto(*names)
        run = runner(proto)
        assert_close(outputs_of(run, net.feeds), by_onnxruntime(proto, net.feeds))
        (program,) = run.programs()
        assert [i.operator.name for i in program.instructions] == [
            "matmul_panels", "recurrent_layer",
        ]  # fmt: skip


@pytest.mark.parametrize("operator", GATES)
def test_batches_that_come_first(operator: str) -> None:
    """ONNX Runtime does not run these: against the definition."""
    for sizes, options in itertools.product(SIZES[-3:], OPTIONS):
        net, names = layer(operator, sizes, "bidirectional", layout=1, **options)
        proto = net.proto(*names)
        run = runner(proto)
        assert_close(outputs_of(run, net.feeds), by_definition(proto, net.feeds))
        (program,) = run.programs()
        assert "recurrent_layer" in {i.operator.name for i in program.instructions}


def test_what_no_kernel_has_runs_its_definition() -> None:
    """A function that the kernel lacks."""
    net, names = layer("RNN", SIZES[3], "forward", bias=True, states=True, activations=["Softsign"])
    proto = net.proto(*names)
    run = runner(proto)
    assert_close(outputs_of(run, net.feeds), by_onnxruntime(proto, net.feeds))
    (program,) = run.programs()
    assert {i.operator.name for i in program.instructions} == {"RNN"}


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_weights_in_bytes(direction: str, dtype: Any) -> None:
    """Against ONNX Runtime where it has such zero points.

    Weights have seven bits, since its sums of pairs saturate on some processors. Few steps, as
    states near to a half are rounded either way.
    """
    random = np.random.default_rng(0)
    for sizes, more, by_column in itertools.product(SIZES[:4], (0, 1), (False, True)):
        (time, batch, size, hidden), count = sizes, DIRECTIONS[direction]
        net = Net()
        x, shape = net.x(time, batch, size), (count, 4 * hidden) if by_column else (count,)
        low, symmetric = -64 * (dtype == np.int8), dtype == np.int8 and not more
        weights, numbers = [], []
        for rows in (size, hidden):
            weights.append(net.array(random.integers(
                low, low + 128, (count, rows, 4 * hidden)), dtype))  # fmt: skip
            scale = random.uniform(0.005, 0.01, shape)
            zeros = random.integers(1, 9, shape) * more
            numbers += [net.array(scale, np.float32), net.array(zeros, dtype)]
        others = [""] * 5
        if more:
            others = [net.w(count, 8 * hidden), net.array(np.full(batch, time, np.int32))]
            others += [net.x(count, batch, hidden), net.x(count, batch, hidden)]
            others += [net.w(count, 3 * hidden)]
        inputs, names = [x, *weights, *others, *numbers], ["y", "y_h", "y_c"]
        net.nodes("DynamicQuantizeLSTM", inputs, names, domain="com.microsoft",
                  direction=direction, hidden_size=hidden)  # fmt: skip
        proto = contributed(net, dict.fromkeys(names, FLOAT))
        run = runner(proto)
        ours = outputs_of(run, net.feeds)
        assert_close(ours, by_definition(proto, net.feeds))
        if symmetric:
            assert_close(ours, by_onnxruntime(proto, net.feeds))
        (program,) = run.programs()
        kernels = "tensor_range", "quantize_tensor", "matmul_quantized", "recurrent_layer"
        expected = list(kernels) if symmetric else ["DynamicQuantizeLSTM"]
        assert [i.operator.name.removeprefix("numpy:") for i in program.instructions] == expected
