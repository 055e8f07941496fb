"""What ONNX Runtime accepts beyond the standard; both have the same results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tests.onnx.session.models import (
    BOOL,
    FLOAT,
    HALFBYTE,
    INT64,
    ONNX_RUNTIME,
    model,
    node,
    session,
    tensor,
    weight,
)

F32 = np.float32
X = np.linspace(-1, 2, 4, dtype=F32)


def both(data: bytes, feeds: Mapping[str, Any]) -> tuple[list[Any], list[Any]]:
    """The outputs here and in ONNX Runtime."""
    ours, theirs = (session(api, data).run(None, feeds) for api in (HALFBYTE, ONNX_RUNTIME))
    return ours, theirs


def assert_same(data: bytes, feeds: Mapping[str, Any]) -> None:
    for ours, theirs in zip(*both(data, feeds), strict=True):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        np.testing.assert_allclose(ours, theirs, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("one", "shape"),
    [
        (node("FastGelu", "x", domain="com.microsoft"), [4]),
        (node("Normalizer", "x", domain="ai.onnx.ml", norm="L1"), [1, 4]),
    ],
)
def test_domains_without_a_version(one: onnx.NodeProto, shape: list[int]) -> None:
    data = model([one], [tensor("x", FLOAT, shape)], [tensor("y", FLOAT, shape)])
    assert_same(data, {"x": X.reshape(shape)})


@pytest.mark.parametrize("opset", [7, 11, 16])
def test_layer_normalization_before_it_was_standard(opset: int) -> None:
    data = model(
        [node("LayerNormalization", "x w b", axis=-1, epsilon=1e-3)],
        [tensor("x", FLOAT, [1, 4])], [tensor("y", FLOAT, [1, 4])],
        [weight("w", [1, 2, 3, 4]), weight("b", [1, 0, 0, 1])], opset=opset,
    )  # fmt: skip
    assert_same(data, {"x": X[None]})


@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("ceil", [0, 1])
@pytest.mark.parametrize(
    ("size", "kernel", "stride", "pad"),
    [(7, 1280, 1280, 0), (7, 9, 3, 0), (3, 4, 2, 0), (5, 9, 3, 1), (7, 3, 2, 0)],
)
def test_pools_larger_than_their_input(
    kind: str, ceil: int, size: int, kernel: int, stride: int, pad: int
) -> None:
    """By less than the stride: EfficientNet's last pool."""
    data = model(
        [node(kind, "x", kernel_shape=[kernel], strides=[stride], pads=[pad, pad], ceil_mode=ceil)],
        [tensor("x", FLOAT, [1, 1, size])], [tensor("y", FLOAT, None)],
    )  # fmt: skip
    assert_same(data, {"x": np.arange(size, dtype=F32)[None, None] + 1})


def test_pools_larger_by_a_stride_are_refused() -> None:
    data = model(
        [node("MaxPool", "x", kernel_shape=[9], strides=[1])],
        [tensor("x", FLOAT, [1, 1, 7])], [tensor("y", FLOAT, None)],
    )  # fmt: skip
    with pytest.raises(HALFBYTE.capi._pybind_state.Fail, match="kernel of extent 9: larger"):
        session(HALFBYTE, data).run(None, {"x": np.zeros((1, 1, 7), F32)})


def test_loops_whose_counter_has_an_axis() -> None:
    body = helper.make_graph(
        [
            node("Not", "c", "d"), node("Not", "d", "co"), node("Cast", "i", "f", to=FLOAT),
            node("Add", "a f", "ao"), node("Identity", "i", "so"),
        ],
        "body",
        [tensor("i", INT64, [1]), tensor("c", BOOL, [1]), tensor("a", FLOAT, [4])],
        [tensor("co", BOOL, [1]), tensor("ao", FLOAT, [4]), tensor("so", INT64, [1])],
    )  # fmt: skip
    data = model(
        [helper.make_node("Loop", ["m", "", "x"], ["y", "z"], body=body)],
        [tensor("x", FLOAT, [4])], [tensor("y", FLOAT, [4]), tensor("z", INT64, None)],
        [weight("m", [3], np.int64)],
    )  # fmt: skip
    assert_same(data, {"x": X})


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_numbers_may_have_axes(shape: tuple[int, ...]) -> None:
    data = model(
        [node("Add", "x s")], [tensor("x", FLOAT, [4]), tensor("s", FLOAT, [])],
        [tensor("y", FLOAT, None)],
    )  # fmt: skip
    assert_same(data, {"x": X, "s": np.full(shape, 2, F32)})


@pytest.mark.parametrize("level", ["ORT_ENABLE_ALL", "ORT_DISABLE_ALL"])
def test_float16_between_nodes(level: str) -> None:
    """Inputs and outputs of float16 stay; squares beyond its range do not become infinite."""
    data = model(
        [node("Mul", "x x", "squares"), node("Sqrt", "squares")],
        [tensor("x", TensorProto.FLOAT16, [3])], [tensor("y", TensorProto.FLOAT16, [3])],
    )  # fmt: skip
    results = []
    for api in (HALFBYTE, ONNX_RUNTIME):
        options = api.SessionOptions()
        options.graph_optimization_level = getattr(api.GraphOptimizationLevel, level)
        feeds = {"x": np.float16([1000, 1e-4, 300])}
        results += session(api, data, options).run(None, feeds)
    assert results[0].dtype == np.float16
    np.testing.assert_array_equal(*results)
