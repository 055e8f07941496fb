"""Operators of ONNX Runtime's optimizers, which become nodes that have kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tests.onnx.graphs import Array, Net, check, kinds, runner

from halfbyte.errors import ProgramError

MICROSOFT = "com.microsoft"
FLOAT, INT32 = TensorProto.FLOAT, TensorProto.INT32


def proto(g: Net, outputs: Mapping[str, int]) -> onnx.ModelProto:
    """The model with outputs of these types, which ONNX cannot infer."""
    model = g.model()
    del model.graph.output[:]
    values = [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()]
    model.graph.output.extend(values)
    model.opset_import.append(helper.make_opsetid(MICROSOFT, 1))
    return model


def node(g: Net, kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> list[str]:
    return g.nodes(kind, inputs, outputs, domain=MICROSOFT, **attributes)


def dynamic(g: Net, *shape: int) -> list[str]:
    """An input in integers, with its scale and zero point."""
    return g.nodes("DynamicQuantizeLinear", [g.x(*shape)], 3)


def on_kernels(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> set[str]:
    """Operators of the program; no definition that multiplies runs."""
    run = runner(model)
    run.run(feeds, [v.name for v in run.model.graph.outputs])
    names = {i.operator.name for program in run.programs() for i in program.instructions}
    hosts = {"FusedMatMul", "FusedGemm", "QAttention", "ConvInteger", "EmbedLayerNormalization"}
    assert not hosts & {name.removeprefix("numpy:") for name in names}
    return names


@pytest.mark.parametrize("transposed", [(0, 0), (1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize("alpha", [1.0, 0.125])
def test_products(transposed: tuple[int, int], alpha: float) -> None:
    g = Net()
    a, b = ((4, 7) if transposed[0] else (7, 4)), ((6, 4) if transposed[1] else (4, 6))
    inputs = g.x(2, 3, *a), g.x(2, 3, *b)
    [y] = node(g, "FusedMatMul", *inputs, transA=transposed[0], transB=transposed[1], alpha=alpha)
    model = proto(g, {y: FLOAT})
    check(model, g.feeds)
    assert "FusedMatMul" not in kinds(model)
    assert kinds(model)["Mul"] == (alpha != 1)


def test_products_that_stay() -> None:
    """Of moved batches, and of doubles, which a float32 factor would not fit."""
    g = Net()
    [y] = node(g, "FusedMatMul", g.x(3, 2, 5), g.x(2, 5, 4), transBatchA=1)
    model = proto(g, {y: FLOAT})
    check(model, g.feeds)
    assert kinds(model) == {"FusedMatMul": 1}
    g = Net()
    [y] = node(
        g, "FusedMatMul", g.x(3, 4, dtype=np.float64), g.x(4, 5, dtype=np.float64), alpha=0.3
    )
    model = proto(g, {y: TensorProto.DOUBLE})
    check(model, g.feeds, 1e-12)
    assert kinds(model) == {"FusedMatMul": 1}


@pytest.mark.parametrize(
    ("activation", "more"),
    [("Relu", {}), ("Tanh", {}), ("LeakyRelu", {"activation_alpha": 0.2})],
)
def test_gemm(activation: str, more: dict[str, float]) -> None:
    g = Net()
    given = {"activation": activation, **more}
    inputs = g.x(5, 8), g.w(6, 8), g.w(6)
    [y] = node(g, "FusedGemm", *inputs, transB=1, alpha=0.5, beta=2.0, **given)
    model = proto(g, {y: FLOAT})
    check(model, g.feeds)
    assert "FusedGemm" not in kinds(model)


def test_gemm_with_an_activation_that_has_no_node() -> None:
    g = Net()
    inputs = g.x(5, 8), g.w(8, 6), g.w(6)
    given = {"activation_alpha": 0.3, "activation_beta": 0.4}
    [y] = node(g, "FusedGemm", *inputs, activation="HardSigmoid", **given)
    model = proto(g, {y: FLOAT})
    check(model, g.feeds)
    assert "FusedGemm" in kinds(model)


def ids(g: Net, high: int, *shape: int) -> str:
    return g.feed(g._random.integers(0, high, shape).astype(np.int32))


@pytest.mark.parametrize("segments", [False, True])
@pytest.mark.parametrize("places", [False, True])
def test_embeddings(segments: bool, places: bool) -> None:
    g = Net()
    kinds_of = [ids(g, 2, 2, 9)] if segments else [""]
    tables = [g.w(30, 16), g.w(12, 16), g.w(2, 16) if segments else ""]
    mask = g.feed((np.arange(9) < [[9], [5]]).astype(np.int32))
    inputs = [ids(g, 30, 2, 9), *kinds_of, *tables, g.w(16), g.w(16), mask]
    inputs += [ids(g, 12, 2, 9)] if places else []
    y, lengths, total = node(g, "EmbedLayerNormalization", *inputs, outputs=3, epsilon=1e-6)
    model = proto(g, {y: FLOAT, lengths: INT32, total: FLOAT})
    check(model, g.feeds)
    assert "EmbedLayerNormalization" not in kinds(model)
    assert "layer_norm" in on_kernels(model, g.feeds)


def test_embeddings_whose_lengths_are_read_without_a_mask() -> None:
    g = Net()
    tables = [g.w(30, 16), g.w(12, 16), g.w(2, 16), g.w(16), g.w(16)]
    inputs = [ids(g, 30, 2, 9), ids(g, 2, 2, 9), *tables]
    y, lengths = node(g, "EmbedLayerNormalization", *inputs, outputs=2)
    model = proto(g, {y: FLOAT, lengths: INT32})
    check(model, g.feeds)
    assert "EmbedLayerNormalization" in kinds(model)


def test_embeddings_with_one_position() -> None:
    """Longer texts are refused, as by the definition; one row would be added to all tokens."""
    g = Net()
    tables = [g.w(30, 16), g.w(1, 16), "", g.w(16), g.w(16)]
    y, _ = node(g, "EmbedLayerNormalization", ids(g, 30, 2, 5), "", *tables, outputs=2)
    model = proto(g, {y: FLOAT})
    with pytest.raises(ProgramError, match="index 1 is out of bounds"):
        runner(model).run(g.feeds, [y])


def quantized(g: Net, *shape: int, dtype: Any = np.uint8) -> tuple[str, str, str]:
    """Integers with a scale and a zero point."""
    integers = g._random.integers(0, 120, shape).astype(dtype)
    return g.array(integers), g.array(0.01, np.float32), g.array(60, dtype)


def test_quantized_embeddings() -> None:
    g = Net()
    parts = [quantized(g, *shape) for shape in ((30, 16), (12, 16), (2, 16), (16,), (16,))]
    names, scales, zeros = zip(*parts, strict=True)
    mask = g.feed((np.arange(9) < [[9], [5]]).astype(np.int32))
    inputs = [ids(g, 30, 2, 9), ids(g, 2, 2, 9), *names, mask, *scales, *zeros]
    y, lengths = node(g, "QEmbedLayerNormalization", *inputs, outputs=2)
    model = proto(g, {y: FLOAT, lengths: INT32})
    check(model, g.feeds)
    assert "QEmbedLayerNormalization" not in kinds(model)


@pytest.mark.parametrize("by_column", [False, True])
@pytest.mark.parametrize("causal", [0, 1])
def test_quantized_attention(by_column: bool, causal: int) -> None:
    g = Net()
    size, heads = 16, 4
    x, scale, zero = dynamic(g, 2, 7, size)
    columns = (3 * size,) if by_column else ()
    # ONNX Runtime's kernel for AVX2 adds two products in 16 bits: weights of 7 bits fit
    w = g.array(g._random.integers(-64, 64, (size, 3 * size)).astype(np.int8))
    scales = g.array(np.full(columns, 0.01, np.float32) * np.abs(1 + g.numbers(*columns)))
    zeros = g.array(np.zeros(columns, np.int8))
    lengths = g.feed(np.array([7, 4], np.int32))
    inputs = [x, w, g.w(3 * size), scale, scales, lengths, zero, zeros]
    [y] = node(g, "QAttention", *inputs, num_heads=heads, unidirectional=causal)
    model = proto(g, {y: FLOAT})
    check(model, g.feeds, 1e-4)
    assert {"matmul_quantized", "attention"} <= on_kernels(model, g.feeds)


@pytest.mark.parametrize("by_channel", [False, True])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_dynamic_convolutions(by_channel: bool, dtype: Any) -> None:
    """As quantize_dynamic and `quantize --dynamic` write them."""
    g = Net()
    x, scale, offset = dynamic(g, 2, 3, 9, 8)
    w = g.array(g._random.integers(0, 120, (6, 3, 3, 3)).astype(dtype))
    zero = g.array(60 if dtype == np.uint8 else 0, dtype)
    scales = np.abs(g.numbers(6, 1, 1)) * 0.01 if by_channel else np.array(0.02)
    sums = g.node("ConvInteger", x, w, offset, zero, pads=[1] * 4, strides=[2, 2])
    real = g.node("Cast", sums, to=FLOAT)
    y = g.node("Mul", real, g.node("Mul", scale, g.array(scales, np.float32)))
    model = g.proto(g.node("Add", y, g.w(6, 1, 1)))
    check(model, g.feeds, 1e-6)
    assert kinds(model)["Conv"] == 1
    assert "ConvInteger" not in kinds(model)
    on_kernels(model, g.feeds)


@pytest.mark.parametrize("computed", [False, True])
def test_dequantizing_with_a_zero_point_of_the_run(computed: bool) -> None:
    g = Net()
    x, scale, zero = dynamic(g, 3, 50)
    y = g.node("DequantizeLinear", x, scale if computed else g.array(0.3, np.float32), zero)
    model = g.proto(y)
    check(model, g.feeds, 1e-6)
    assert "dequantize_linear" in on_kernels(model, g.feeds)
    assert "DequantizeLinear" not in on_kernels(model, g.feeds)


def test_dequantizing_one_number() -> None:
    """Its shape stays (), whatever that of the zero point is."""
    g = Net()
    x, scale, zero = dynamic(g)
    y = g.node("DequantizeLinear", x, scale, g.node("Reshape", zero, g.array([1], np.int64)))
    check(g.proto(y), g.feeds, 1e-6)


def test_dynamic_convolutions_whose_sums_are_read() -> None:
    g = Net()
    x, scale, offset = dynamic(g, 2, 3, 9, 8)
    w = g.array(g._random.integers(-120, 120, (6, 3, 3, 3)).astype(np.int8))
    sums = g.node("ConvInteger", x, w, offset)
    y = g.node("Mul", g.node("Cast", sums, to=FLOAT), g.node("Mul", scale, g.constant(0.1)))
    model = g.proto(y, sums)
    check(model, g.feeds)
    assert "ConvInteger" in kinds(model)
