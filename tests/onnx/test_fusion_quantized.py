"""Graphs of QuantizeLinear and DequantizeLinear become integer operators, where possible.

Results of an integer operator may differ from those of the float graph by one step of the scale:
sums are rounded elsewhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from tests.onnx.graphs import (
    Array,
    Net,
    by_definition,
    by_onnxruntime,
    by_programs,
    kinds,
    outputs_of,
    runner,
)
from tests.onnx.test_fusion import clip_of

from halfbyte.errors import ProgramError

STEP = 0.05


def quantized(g: Net, x: str, scale: float = STEP, zero: Any = 100, dtype: Any = np.uint8) -> str:
    """x quantized and dequantized."""
    names = [g.constant(scale), g.constant(zero, dtype)]
    return g.node("DequantizeLinear", g.node("QuantizeLinear", x, *names), *names)


def weight(
    g: Net, *shape: int, axis: int | None = None, dtype: Any = np.int8, zero: bool = True,
    declared: int | None = None,
) -> str:  # fmt: skip
    """Integers with one scale, or one for each element of an axis, dequantized."""
    integers = g.array(np.round(g.numbers(*shape) * 40).clip(-127, 127).astype(dtype))
    size = () if axis is None else (shape[axis],)
    scales = (np.abs(g.numbers(*size)) * 0.01 + 0.005).astype(np.float32)
    names = [integers, g.array(scales)] + ([g.array(np.zeros(size, dtype))] if zero else [])
    attributes = {} if axis is None else {"axis": axis if declared is None else declared}
    return g.node("DequantizeLinear", *names, **attributes)


def fused(g: Net, *outputs: str, steps: float = 1.01, step: float = STEP) -> set[str]:
    """Operators of the prepared graph; results are near the definition's and ONNX Runtime's."""
    proto = g.proto(*outputs)
    wanted = by_definition(proto, g.feeds)
    for actual in (by_programs(proto, g.feeds), by_onnxruntime(proto, g.feeds)):
        for ours, theirs in zip(actual, wanted, strict=True):
            assert ours.shape == theirs.shape
            assert ours.dtype == theirs.dtype
            assert np.abs(ours.astype(np.float64) - theirs).max(initial=0) <= steps * step
    return set(kinds(proto)) - {"QuantizeLinear", "DequantizeLinear"}


def bias_of(g: Net, kind: str, size: int) -> list[str]:
    if kind == "":
        return []
    if kind == "float":
        return [g.w(size)]
    assert kind == "int32"
    return [kind]


@pytest.mark.parametrize("axis", [None, 0])
@pytest.mark.parametrize("bias", ["", "float"])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("activation", ["", "Relu", "Clip"])
def test_convolution(axis: int | None, bias: str, dtype: Any, activation: str) -> None:
    """The range of the integers applies an activation with the same limits."""
    g = Net(13)
    zero = np.iinfo(dtype).min if activation else np.iinfo(dtype).min + 100
    x = quantized(g, g.x(2, 4, 6, 5), zero=np.iinfo(dtype).min + 128, dtype=dtype)
    y = g.node("Conv", x, weight(g, 8, 4, 3, 3, axis=axis), *bias_of(g, bias, 8))
    if activation == "Clip":
        y = clip_of(g, y, 0.0, 255 * STEP)
    elif activation:
        y = g.node(activation, y)
    assert fused(g, quantized(g, y, zero=zero, dtype=dtype)) == {"QLinearConv"}


def test_convolution_with_a_bias_in_integers() -> None:
    """In units of the product, as ONNX Runtime's quantizer writes it; others are not fused."""
    for factor, wanted in ((1, {"QLinearConv"}), (2, {"Conv"})):
        g = Net(13)
        x = quantized(g, g.x(2, 4, 6, 5), zero=128)
        kernel = g.array(np.round(g.numbers(8, 4, 3, 3) * 40).clip(-127, 127).astype(np.int8))
        w = g.node("DequantizeLinear", kernel, g.array(0.01, np.float32), g.array(0, np.int8))
        integers = g.array(np.arange(8) * 100, np.int32)
        unit = g.array(STEP * 0.01 * factor, np.float32)
        b = g.node("DequantizeLinear", integers, unit, g.array(0, np.int32))
        assert fused(g, quantized(g, g.node("Conv", x, w, b))) == wanted


@pytest.mark.parametrize("what", ["axis", "zero point"])
def test_weights_that_do_not_fit(what: str) -> None:
    """DequantizeLinear refuses an axis out of range, and a zero point of another shape."""
    g = Net(13)
    integers, scales = g.array(np.ones((8, 4), np.int8)), g.array(np.ones(4, np.float32))
    zero = g.array(np.zeros((1, 4) if what == "zero point" else 4, np.int8))
    w = g.node("DequantizeLinear", integers, scales, zero, axis=3 if what == "axis" else 1)
    proto = g.proto(quantized(g, g.node("MatMul", quantized(g, g.x(2, 8)), w)))
    for run in (by_definition, by_programs):
        with pytest.raises(ProgramError, match=what):
            run(proto, g.feeds)


@pytest.mark.parametrize("operator", ["Sigmoid", "Add"])
def test_signed_results_of_unsigned_integers(operator: str) -> None:
    """ONNX Runtime's operators take only one type."""
    g = Net(13)
    x = quantized(g, g.x(2, 3))
    y = g.node(operator, *([x] if operator == "Sigmoid" else [x, quantized(g, g.x(2, 3))]))
    assert fused(g, quantized(g, y, zero=0, dtype=np.int8)) == {operator}


@pytest.mark.parametrize("what", [
    "limits computed", "limits inside", "relu inside", "used elsewhere", "other axis", "16 bits",
    "scale computed", "weight computed", "bias of its own", "not quantized",
])  # fmt: skip
def test_no_integers(what: str) -> None:
    g = Net(21)
    image = g.x(2, 4, 6, 6)
    wide = what == "16 bits"
    x = (
        image
        if what == "not quantized"
        else quantized(
            g, image, STEP / 200 if wide else STEP, 30000 if wide else 100,
            np.uint16 if wide else np.uint8,
        )
    )  # fmt: skip
    w = weight(g, 4, 4, 3, 3, axis=1 if what == "other axis" else None)
    if what == "weight computed":
        w = g.node("Mul", w, g.x(1))
    biases = []
    if what == "bias of its own":
        biases = [g.node("Mul", g.w(4), g.x(1))]
    y = g.node("Conv", x, w, *biases)
    extra = [y] if what == "used elsewhere" else []
    if what == "limits computed":
        y = g.node("Clip", y, g.constant(-100.0), g.feed(np.array(0.5, np.float32)))
    elif what == "limits inside":
        y = clip_of(g, y, 0.0, 1.0)
    elif what == "relu inside":
        y = g.node("Relu", y)
    if what == "scale computed":
        scale = g.feed(np.array(STEP, np.float32))
        zero = g.constant(100, np.uint8)
        integers = g.node("QuantizeLinear", y, scale, zero)
        y = g.node("DequantizeLinear", integers, scale, zero)
    else:
        y = quantized(g, y)
    assert "QLinearConv" not in fused(g, y, *extra)


@pytest.mark.parametrize("axis", [None, 1])
@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize("shape", [(5, 6), (2, 5, 6)])
def test_product(axis: int | None, zero: bool, shape: tuple[int, ...]) -> None:
    g = Net(13)
    y = g.node("MatMul", quantized(g, g.x(*shape)), weight(g, 6, 7, axis=axis, zero=zero))
    assert fused(g, quantized(g, y)) == {"QLinearMatMul"}


def test_products_of_computed_matrices() -> None:
    g = Net(13)
    y = g.node("MatMul", quantized(g, g.x(2, 5, 6)), quantized(g, g.x(2, 6, 3), zero=90))
    assert fused(g, quantized(g, y)) == {"QLinearMatMul"}


def test_no_product_with_scales_by_row() -> None:
    """Scales per row of a matrix cannot be factored out of the sums."""
    g = Net(13)
    y = g.node("MatMul", quantized(g, g.x(5, 6)), weight(g, 6, 6, axis=0))
    z = g.node("MatMul", quantized(g, g.x(2, 5, 6)), weight(g, 2, 6, 6, axis=2))
    assert "QLinearMatMul" not in fused(g, quantized(g, y), quantized(g, z))


@pytest.mark.parametrize("transposed", [0, 1])
@pytest.mark.parametrize("bias", ["", "float"])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_gemm(transposed: int, bias: str, axis: int | None) -> None:
    """Scales go by columns of the result."""
    g = Net(13)
    w = weight(g, 6, 6, axis=axis)
    y = g.node("Gemm", quantized(g, g.x(5, 6)), w, *bias_of(g, bias, 6), transB=transposed)
    fits = axis is None or axis == 1 - transposed
    assert fused(g, quantized(g, y)) == {"QGemm" if fits else "Gemm"}


def test_no_gemm() -> None:
    g = Net(13)
    x = quantized(g, g.x(5, 6))
    products = [
        g.node("Gemm", x, weight(g, 6, 7), alpha=0.5),
        g.node("Gemm", x, weight(g, 6, 7), g.w(7), beta=0.5),
        g.node("Gemm", x, weight(g, 6, 7), g.w(5, 7)),
        g.node("Gemm", x, weight(g, 6, 7), g.w(1)),
    ]
    assert "QGemm" not in fused(g, *(quantized(g, y) for y in products))


@pytest.mark.parametrize("kind", ["Add", "Mul"])
@pytest.mark.parametrize("shape", [(2, 4, 3), (4, 1), (1,)])
def test_pairs(kind: str, shape: tuple[int, ...]) -> None:
    g = Net(13)
    y = g.node(kind, quantized(g, g.x(2, 4, 3)), quantized(g, g.x(*shape), 0.02, 128))
    assert fused(g, quantized(g, y, 0.1), step=0.1) == {f"QLinear{kind}"}


@pytest.mark.parametrize(("kind", "attributes"), [
    ("GlobalAveragePool", {}), ("Sigmoid", {}), ("LeakyRelu", {"alpha": 0.2}),
    ("AveragePool", {"kernel_shape": [2, 2], "strides": [2, 2]}),
    ("AveragePool", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1}),
])  # fmt: skip
def test_functions(kind: str, attributes: dict[str, Any]) -> None:
    g = Net(13)
    y = g.node(kind, quantized(g, g.x(2, 3, 4, 4)), **attributes)
    assert fused(g, quantized(g, y)) == {f"QLinear{kind}"}


@pytest.mark.parametrize("same", [False, True])
@pytest.mark.parametrize(("kind", "attributes"), [
    ("MaxPool", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}), ("Flatten", {}),
    ("Transpose", {"perm": [0, 2, 3, 1]}),
])  # fmt: skip
def test_moves(kind: str, attributes: dict[str, Any], same: bool) -> None:
    """Integers are moved only where both sides have the same scale."""
    g = Net(13)
    y = g.node(kind, quantized(g, g.x(2, 3, 4, 4)), **attributes)
    proto = g.proto(quantized(g, y, STEP if same else STEP * 2))
    assert kinds(proto)["DequantizeLinear"] == (1 if same else 2)
    fused(g, y)


def test_whole_block() -> None:
    """Integers pass from one convolution to the next, and through the sum."""
    g = Net(13)
    x = quantized(g, g.x(1, 4, 6, 6), zero=128)
    y = quantized(g, g.node("Relu", g.node("Conv", x, weight(g, 4, 4, 1, 1, axis=0))), zero=0)
    y = quantized(g, g.node("Conv", y, weight(g, 4, 4, 1, 1, axis=0)), zero=128)
    y = quantized(g, g.node("Relu", g.node("Add", x, y)), zero=0)
    proto = g.proto(y)
    operators = kinds(proto)
    assert operators == {
        "QuantizeLinear": 1,
        "QLinearConv": 2,
        "QLinearAdd": 1,
        "DequantizeLinear": 1,
    }
    fused(g, y, steps=3)


def dynamic(g: Net, x: str, w: str, scale: str, zero: str, to: int = TensorProto.FLOAT) -> str:
    """A product as ONNX Runtime's dynamic quantizer writes it."""
    integers, unit, offset = g.nodes("DynamicQuantizeLinear", [x], 3)
    total = g.node("MatMulInteger", integers, w, offset, *([zero] if zero else []))
    return g.node("Mul", g.node("Cast", total, to=to), g.node("Mul", unit, scale))


@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize("size", [(), (1,), (7,)])
def test_dynamic_product(zero: bool, size: tuple[int, ...]) -> None:
    g = Net(17)
    w = g.array(np.round(g.numbers(6, 7) * 40).astype(np.int8))
    scale = g.array((np.arange(np.prod(size, dtype=int)) * 0.01 + 0.01).reshape(size), np.float32)
    offset = g.array(np.full(size, 3, np.int8)) if zero else ""
    y = dynamic(g, g.x(5, 6), w, scale, offset)
    assert fused(g, y, step=1e-4) == {"DynamicQuantizeMatMul"}


def columns(g: Net) -> tuple[str, str]:
    w = g.array(np.round(g.numbers(6, 5) * 40).astype(np.int8))
    return w, g.array(np.arange(5, dtype=np.float32).reshape(5, 1) * 0.01 + 0.01)


def test_no_dynamic_product() -> None:
    """Scales by row, weights that are computed, another quantization's scale."""
    g = Net(17)
    w, rows = columns(g)
    scale = g.array(0.01, np.float32)
    x = g.x(5, 6)
    integers, _, offset = g.nodes("DynamicQuantizeLinear", [x], 3)
    other = g.nodes("DynamicQuantizeLinear", [g.x(4, 6)], 3)[1]
    total = g.node("Cast", g.node("MatMulInteger", integers, w, offset), to=TensorProto.FLOAT)
    given: Array = np.ones((6, 5), np.int8)
    outputs = [
        dynamic(g, x, w, rows, ""),
        dynamic(g, x, g.feed(given), scale, ""),
        g.node("Mul", total, g.node("Mul", other, scale)),
    ]
    assert "DynamicQuantizeMatMul" not in fused(g, *outputs, step=1e-4)


@pytest.mark.parametrize(("domain", "dtype", "zero"), [
    ("", np.uint16, 30000), ("", np.int16, -5), ("", np.int16, None),
    ("com.microsoft", np.uint16, 0), ("com.microsoft", np.int16, 7),
])  # fmt: skip
def test_sixteen_bits(domain: str, dtype: Any, zero: int | None) -> None:
    """Values are rounded by kernels, to the same numbers; some are beyond the integers' range."""
    g = Net(21)
    scale = np.float32(0.0007)
    names = [g.array(scale)] + ([] if zero is None else [g.array(zero, dtype)])
    kind = {} if zero is not None else {"output_dtype": TensorProto.INT16}
    x = g.feed(np.concatenate([g.numbers(1000) * 20, np.arange(-9, 9) * scale / 2], dtype="f4"))
    integers = g.nodes("QuantizeLinear", [x, *names], 1, domain=domain, **kind)
    [y] = g.nodes("DequantizeLinear", [*integers, *names], 1, domain=domain)
    model = g.model()
    model.graph.output.append(helper.make_tensor_value_info(y, TensorProto.FLOAT, ["n"]))
    model.opset_import.extend([helper.make_opsetid("com.microsoft", 1)] * bool(domain))
    wanted = by_definition(model, g.feeds)[0]
    np.testing.assert_array_equal(by_onnxruntime(model, g.feeds)[0], wanted)
    np.testing.assert_array_equal(by_programs(model, g.feeds)[0], wanted)
    assert kinds(model) == {"QuantizeDequantize": 1}
    run = runner(model)
    outputs_of(run, g.feeds)
    (program,) = run.programs()
    assert not any(i.operator.host for i in program.instructions)


@pytest.mark.parametrize("what", ["read elsewhere", "an output", "other scale", "other zero point"])
def test_sixteen_bits_that_stay_integers(what: str) -> None:
    g = Net(21)
    scale, zero = g.array(0.01, np.float32), g.array(100, np.uint16)
    integers = g.node("QuantizeLinear", g.x(3, 4), scale, zero)
    others = {"other scale": g.array(0.02, np.float32), "other zero point": g.array(9, np.uint16)}
    y = g.node(
        "DequantizeLinear", integers, others["other scale"] if what == "other scale" else scale,
        others["other zero point"] if what == "other zero point" else zero,
    )  # fmt: skip
    flat = g.node("Reshape", integers, g.array([12]))
    extra = {"an output": [integers], "read elsewhere": [flat]}
    proto = g.proto(y, *extra.get(what, []))
    assert "QuantizeDequantize" not in kinds(proto)
    wanted = by_definition(proto, g.feeds)
    for ours, theirs in zip(by_programs(proto, g.feeds), wanted, strict=True):
        np.testing.assert_array_equal(ours, theirs)
