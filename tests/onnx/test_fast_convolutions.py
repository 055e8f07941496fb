"""Convolutions by Winograd's algorithm, without subnormal weights, and the order of nodes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from tests.onnx.graphs import (
    Array,
    Net,
    assert_close,
    by_definition,
    by_programs,
    outputs_of,
    runner,
)  # fmt: skip
from tests.onnx.test_capture import operators, ran

SMALLEST = np.finfo(np.float32).tiny


@pytest.mark.parametrize(("shape", "weights", "attributes", "fast"), [
    ((1, 32, 14, 13), (32, 32, 3, 3), {"pads": [1, 1, 1, 1]}, True),
    ((2, 16, 10, 10), (40, 16, 3, 3), {}, True),
    ((1, 32, 14, 14), (32, 32, 3, 3), {"pads": [1] * 4, "strides": [2, 2]}, False),
    ((1, 32, 14, 14), (32, 32, 3, 3), {"pads": [2] * 4, "dilations": [2, 2]}, False),
    ((1, 32, 14, 14), (32, 16, 3, 3), {"group": 2}, False),
    ((1, 32, 14, 14), (32, 32, 3, 2), {}, False),
    ((1, 24, 14, 14), (32, 24, 3, 3), {}, False),  # channels that do not fill vectors
    ((1, 16, 14, 14), (16, 16, 3, 3), {}, False),  # too few of them
    ((1, 32, 8, 8), (32, 32, 3, 3), {}, False),  # too few patches
    ((1, 32, 4, 52), (32, 32, 3, 3), {"pads": [0, 1, 1, 1]}, False),  # half of them outside
])  # fmt: skip
def test_neighbouring_windows_are_by_winograd(
    shape: tuple[int, ...], weights: tuple[int, ...], attributes: dict[str, Any], fast: bool
) -> None:
    net = Net()
    x = net.x(*shape)
    y = net.node("Conv", x, net.w(*weights), net.w(weights[0]), **attributes)
    (names,) = operators(ran(net, net.node("Relu", net.node("Add", y, y)), net.node("Relu", y)))
    assert ("conv2d_winograd" in names, "conv2d" in names) == (fast, not fast)


def by_winograd(x: Array, w: Array) -> tuple[Net, onnx.ModelProto]:
    net = Net()
    names = net.feed(x), net.array(w), net.w(len(w))
    return net, net.proto(net.node("Conv", *names, pads=[1] * 4))


def test_infinite_pixels_do_not_reach_other_windows(native_backends: list[str]) -> None:
    """Where they are in the way of Winograd's differences, results are computed without these."""
    net = Net()
    x, w = net.numbers(1, 32, 14, 13), net.numbers(40, 32, 3, 3)
    x[0, 3, 5, 6], x[0, 20, 9, 0], x[0, 7, 13, 12] = np.inf, -np.inf, np.nan
    net, proto = by_winograd(x, w)
    expected = by_definition(proto, net.feeds)
    assert np.isfinite(expected[0]).sum() == 40 * (14 * 13 - 9 - 6 - 4)
    for backend in ("numpy", *native_backends):
        assert_close(by_programs(proto, net.feeds, backend), expected, where=backend)


def test_sums_of_large_pixels(native_backends: list[str]) -> None:
    """The difference of two pixels is infinite, that of their products is not."""
    net = Net()
    x, w = net.numbers(1, 32, 14, 13), net.numbers(40, 32, 3, 3)
    x[0, 3, 5, 6], x[0, 3, 5, 8] = 3e38, -3e38
    net, proto = by_winograd(x, w * np.float32(1e-3))
    for backend in native_backends:
        assert_close(by_programs(proto, net.feeds, backend), by_definition(proto, net.feeds))


def test_large_weights_are_not_transformed() -> None:
    """A sum of nine of them would be infinite."""
    net = Net()
    x, w = net.numbers(1, 32, 14, 13), np.sign(net.numbers(40, 32, 3, 3)) * np.float32(3e38)
    net, proto = by_winograd(x * np.float32(1e-3), w)
    (y,) = outputs_of(run := runner(proto), net.feeds)
    names = {i.operator.name for program in run.programs() for i in program.instructions}
    assert "conv2d_winograd" not in names
    assert np.isfinite(y).all()


@pytest.mark.parametrize("kind", ["Conv", "MatMul"])
def test_subnormal_weights_are_zeros(kind: str) -> None:
    """Where others are much larger; results are the same to the last bit but one."""
    net = Net()
    w = net.numbers(8, 4, 1, 1) if kind == "Conv" else net.numbers(4, 8)
    w[1] *= SMALLEST / 64
    proto = net.proto(net.node(kind, net.x(1, 4, 3, 4), net.array(w)))
    run = runner(proto)
    assert_close(outputs_of(run, net.feeds), by_definition(proto, net.feeds))
    values = [b.value for b in run.programs()[0].buffers if isinstance(b.value, np.ndarray)]
    packed = max(values, key=np.size)
    assert not ((packed != 0) & (np.abs(packed) < SMALLEST)).any()
    assert np.count_nonzero(packed) == 32 - np.count_nonzero(np.abs(w) < SMALLEST)


def test_subnormal_weights_among_themselves_are_kept() -> None:
    net = Net()
    w = net.numbers(8, 4, 1, 1) * np.float32(SMALLEST / 64)
    x = net.node("Mul", net.x(1, 4, 3, 4), net.array(np.float32(1e30)))
    proto = net.proto(net.node("Conv", x, net.array(w)))
    (y,) = outputs_of(runner(proto), net.feeds)
    np.testing.assert_allclose(y, by_definition(proto, net.feeds)[0], rtol=1e-5, atol=1e-14)
    assert np.abs(y).max() > 1e-10


def test_nodes_come_before_ends_of_programs_that_they_do_not_need() -> None:
    """One program follows ends that need none of each other."""
    net = Net()
    x = net.x(4, 30)
    first = net.node("NonZero", net.node("Relu", x))
    parts = [net.node("Gather", x, net.array(np.int64(i)), axis=0) for i in range(4)]
    second = net.node("NonZero", parts[3])
    ends = [net.node("Add", part, net.node("Cast", second, to=1)) for part in parts]
    proto = net.proto(first, net.node("Neg", net.node("Cast", first, to=1)), *ends)
    run = runner(proto)
    kinds = [node.op_type for node in run.model.graph.nodes]
    assert kinds[:6] == ["Relu", *["Gather"] * 4, "NonZero"]
    assert kinds[5:7] == ["NonZero"] * 2
    assert kinds.count("NonZero") == 2
    assert_close(outputs_of(run, net.feeds), by_definition(proto, net.feeds))
