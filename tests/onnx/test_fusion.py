"""Fusions: patterns that exporters write become one node, similar ones do not.

Each graph is run by definitions as it is and fused, by programs and by ONNX Runtime.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto
from tests.onnx.graphs import Net, check, kinds

ROOT = math.sqrt(2 / math.pi)
Build = Callable[..., str]


def fused(net: Net, *outputs: str, bound: float = 1e-5) -> set[str]:
    """Operators of the prepared graph, whose results are checked."""
    proto = net.proto(*outputs)
    check(proto, net.feeds, bound)
    return set(kinds(proto))


# ---- Gelu, Swish, HardSwish ----------------------------------------------------------------------


def gelu_erf(
    g: Net, x: str, *, divide: bool = True, root: float = math.sqrt(2), half: Any = 0.5,
    one: float = 1.0, order: int = 0, of: str = "",
) -> str:  # fmt: skip
    inner = of or x
    scaled = (
        g.node("Div", inner, g.constant(root))
        if divide
        else g.node("Mul", g.constant(1 / root), inner)
    )
    gate = g.node("Add", g.node("Erf", scaled), g.constant(one))
    factor = g.constant(half)
    if order == 0:
        return g.node("Mul", g.node("Mul", x, gate), factor)
    if order == 1:
        return g.node("Mul", g.node("Mul", x, factor), gate)
    return g.node("Mul", x, g.node("Mul", factor, gate))


def gelu_tanh(
    g: Net, x: str, *, cube: str = "Pow", root: float = ROOT, cubic: float = 0.044715,
    power: float = 3.0, order: int = 1,
) -> str:  # fmt: skip
    def number(value: float) -> str:
        return g.constant(value)

    if cube == "Pow":
        term = g.node("Mul", g.node("Pow", x, number(power)), number(cubic))
    elif cube == "Mul":
        term = g.node("Mul", number(cubic), g.node("Mul", x, g.node("Mul", x, x)))
    else:  # with x factored out of the sum
        square = g.node("Mul", g.node("Mul", x, number(cubic)), x)
        total = g.node("Add", square, number(1.0))
        tanh = g.node("Tanh", g.node("Mul", g.node("Mul", x, number(root)), total))
        gate = g.node("Add", tanh, number(1.0))
        return g.node("Mul", g.node("Mul", x, number(0.5)), gate)
    inner = g.node("Mul", g.node("Add", x, term), number(root))
    gate = g.node("Add", g.node("Tanh", inner), number(1.0))
    if order == 0:
        return g.node("Mul", g.node("Mul", x, gate), number(0.5))
    return g.node("Mul", g.node("Mul", number(0.5), x), gate)


@pytest.mark.parametrize("opset", [11, 17, 18])
@pytest.mark.parametrize("options", [
    *({"order": order, "divide": divide} for order in (0, 1, 2) for divide in (True, False)),
    {"root": 1.4142}, {"half": [0.5]},
])  # fmt: skip
def test_gelu_by_erf(options: dict[str, Any], opset: int) -> None:
    g = Net(opset)
    assert fused(g, gelu_erf(g, g.x(3, 5), **options)) == {"Gelu"}


@pytest.mark.parametrize("options", [
    {}, {"order": 0}, {"cube": "Mul"}, {"cube": "Mul", "order": 0}, {"cube": "out"},
    {"root": 0.7978845608},
])  # fmt: skip
def test_gelu_by_tanh(options: dict[str, Any]) -> None:
    g = Net()
    assert fused(g, gelu_tanh(g, g.x(3, 5), **options)) == {"Gelu"}


@pytest.mark.parametrize("build", [
    lambda g, x: gelu_erf(g, x, root=1.41),
    lambda g, x: gelu_erf(g, x, half=0.501),
    lambda g, x: gelu_erf(g, x, half=[[[0.5]]]),  # adds a dimension
    lambda g, x: gelu_erf(g, x, half=[0.5] * 5),
    lambda g, x: gelu_erf(g, x, one=1.01),
    lambda g, x: gelu_erf(g, x, of=g.node("Neg", x)),
    lambda g, x: gelu_erf(g, x, of=g.x(3, 5)),
    lambda g, x: gelu_tanh(g, x, cubic=0.0448),
    lambda g, x: gelu_tanh(g, x, power=2.0),
    lambda g, x: gelu_tanh(g, x, root=0.8),
    lambda g, x: gelu_tanh(g, x, cube="out", cubic=0.05),
])  # fmt: skip
def test_no_gelu(build: Build) -> None:
    g = Net()
    assert "Gelu" not in fused(g, build(g, g.x(3, 5)))


@pytest.mark.parametrize(("shape", "half", "is_fused"), [
    ((), 0.5, True), ((), [0.5], False), ((1,), [0.5], True),
])  # fmt: skip
def test_gelu_of_a_scalar(shape: tuple[int, ...], half: Any, is_fused: bool) -> None:
    """A vector of one number makes a vector of it."""
    g = Net()
    assert ("Gelu" in fused(g, gelu_erf(g, g.x(*shape), half=half))) == is_fused


def test_gelu_with_its_middle_as_an_output() -> None:
    """Outputs stay; the rest of the graph may change."""
    g = Net()
    x = g.x(3, 5)
    erf = g.node("Erf", g.node("Div", x, g.constant(math.sqrt(2))))
    product = g.node("Mul", x, g.node("Add", erf, g.constant(1.0)))
    assert fused(g, g.node("Mul", product, g.constant(0.5)), product, erf) >= {"Erf"}


@pytest.mark.parametrize("alpha", [None, 1.702, 2.0])
@pytest.mark.parametrize("swapped", [False, True])
def test_swish(alpha: float | None, swapped: bool) -> None:
    g = Net()
    x = g.x(3, 5)
    scaled = x if alpha is None else g.node("Mul", x, g.constant(alpha))
    pair = [x, g.node("Sigmoid", scaled)]
    operators = fused(g, g.node("Mul", *(pair[::-1] if swapped else pair)))
    assert operators == {"Swish" if alpha is None else "QuickGelu"}


def test_no_swish() -> None:
    g = Net()
    x, y = g.x(3, 5), g.x(3, 5)
    gate, number = g.node("Sigmoid", x), g.constant([[1.702]])
    scaled = g.node("Sigmoid", g.node("Mul", x, g.array(np.arange(5, dtype=np.float32))))
    outputs = [
        g.node("Mul", y, gate),
        g.node("Mul", gate, gate),
        g.node("Mul", x, scaled),
        g.node("Mul", y, g.node("Sigmoid", g.node("Mul", y, number))),
    ]
    assert not fused(g, *outputs) & {"Swish", "QuickGelu"}


@pytest.mark.parametrize(("threshold", "fits"), [(20.0, True), (19.0, False)])
def test_softplus_that_is_x_where_it_is_large(threshold: float, fits: bool) -> None:
    g = Net()
    x = g.node("Mul", g.x(3, 5), g.constant(30.0))
    large = g.node("Greater", x, g.constant(threshold))
    operators = fused(g, g.node("Where", large, x, g.node("Softplus", x)))
    assert ("Where" not in operators) == fits


def clip_of(g: Net, x: str, low: Any, high: Any) -> str:
    if g.opset < 11:
        return g.node("Clip", x, min=low, max=high)
    return g.node("Clip", x, g.constant(low), g.constant(high))


@pytest.mark.parametrize("spelling", ["sigmoid", "product", "quotient"])
def test_hard_swish(spelling: str) -> None:
    g = Net(13)
    x = g.x(3, 5)
    if spelling == "sigmoid":
        y = g.node("Mul", x, g.node("HardSigmoid", x, alpha=1 / 6, beta=0.5))
    else:
        clip = clip_of(g, g.node("Add", x, g.constant(3.0)), 0.0, 6.0)
        if spelling == "product":
            y = g.node("Div", g.node("Mul", x, clip), g.constant(6.0))
        else:
            y = g.node("Mul", x, g.node("Div", clip, g.constant(6.0)))
    assert fused(g, y) == {"HardSwish"}


@pytest.mark.parametrize(("add", "high", "divisor", "alpha"), [
    (2.0, 6.0, 6.0, 0.2), (3.0, 5.0, 6.0, 1 / 7), (3.0, 6.0, 5.0, 0.2),
])  # fmt: skip
def test_no_hard_swish(add: float, high: float, divisor: float, alpha: float) -> None:
    g = Net()
    x = g.x(3, 5)
    clip = clip_of(g, g.node("Add", x, g.constant(add)), 0.0, high)
    outputs = [
        g.node("Div", g.node("Mul", x, clip), g.constant(divisor)),
        g.node("Mul", x, g.node("HardSigmoid", x, alpha=alpha)),
    ]
    assert "HardSwish" not in fused(g, *outputs)


# ---- normalizations ------------------------------------------------------------------------------


def layer_norm(
    g: Net, x: str, size: int, *, axis: int = -1, twice: bool = False, square: str = "Pow",
    inverse: str = "Div", scale: str = "", bias: str | None = None, power: float = 2.0,
    centre: str = "",
) -> str:  # fmt: skip
    scale = scale or g.w(size)
    centred = g.node("Sub", x, g.reduce_mean(x, axis))
    again = g.node("Sub", x, g.reduce_mean(centre or x, axis)) if twice or centre else centred
    squared = (
        g.node("Pow", again, g.constant(power)) if square == "Pow" else g.node("Mul", again, again)
    )
    total = g.node("Add", g.reduce_mean(squared, axis), g.constant(1e-5))
    root = g.node("Sqrt", total)
    if inverse == "Div":
        y = g.node("Div", centred, root)
    elif inverse == "Reciprocal":
        y = g.node("Mul", centred, g.node("Reciprocal", root))
    else:
        y = g.node("Mul", g.node("Div", g.constant(1.0), root), centred)
    y = g.node("Mul", y, scale) if not twice else g.node("Mul", scale, y)
    if bias == "":
        return y
    return g.node("Add", y, bias or g.w(size)) if not twice else g.node("Add", g.w(size), y)


@pytest.mark.parametrize("opset", [11, 17, 18])
@pytest.mark.parametrize("options", [
    {}, {"twice": True}, {"square": "Mul"}, {"inverse": "Reciprocal"}, {"inverse": "one over"},
    {"axis": 2}, {"bias": ""},
])  # fmt: skip
def test_layer_norm(options: dict[str, Any], opset: int) -> None:
    g = Net(opset)
    assert fused(g, layer_norm(g, g.x(2, 3, 8), 8, **options)) == {"LayerNormalization"}


@pytest.mark.parametrize("build", [
    lambda g, x: layer_norm(g, x, 8, axis=1, scale=g.w(8)),
    lambda g, x: layer_norm(g, x, 8, power=3.0),
    lambda g, x: layer_norm(g, x, 8, scale=g.x(8)),
    lambda g, x: layer_norm(g, x, 8, scale=g.w(3, 1)),
    lambda g, x: layer_norm(g, x, 8, centre=g.x(2, 3, 8)),
])  # fmt: skip
def test_no_layer_norm(build: Build) -> None:
    g = Net()
    assert "LayerNormalization" not in fused(g, build(g, g.x(2, 3, 8)), bound=1e-4)


def test_layer_norm_with_another_bias() -> None:
    """An addend that is not a vector is not part of the norm."""
    g = Net()
    operators = fused(g, layer_norm(g, g.x(2, 3, 8), 8, bias=g.x(2, 3, 8)))
    assert operators == {"LayerNormalization", "Add"}


def test_layer_norm_of_doubles_stays_exact() -> None:
    g = Net()
    x = g.x(2, 8, dtype=np.float64)
    centred = g.node("Sub", x, g.reduce_mean(x, -1))
    total = g.node(
        "Add", g.reduce_mean(g.node("Mul", centred, centred), -1), g.array([1e-5], np.float64)
    )
    scale = g.array(g.numbers(8), np.float64)
    y = g.node("Mul", g.node("Div", centred, g.node("Sqrt", total)), scale)
    assert "LayerNormalization" not in fused(g, y, bound=1e-14)


def test_layer_norm_of_tensorflow() -> None:
    """x f + (bias - mean f)."""
    g = Net(13)
    x = g.x(2, 3, 8)
    mean = g.reduce_mean(x, 2)
    centred = g.node("Sub", x, mean)
    variance = g.reduce_mean(g.node("Mul", centred, centred), 2)
    inverse = g.node("Reciprocal", g.node("Sqrt", g.node("Add", variance, g.constant(1e-3))))
    factor = g.node("Mul", inverse, g.w(8))
    rest = g.node("Sub", g.w(8), g.node("Mul", mean, factor))
    assert fused(g, g.node("Add", g.node("Mul", x, factor), rest)) == {"LayerNormalization"}


@pytest.mark.parametrize("inverse", ["Div", "Reciprocal", "one over"])
def test_rms_norm(inverse: str) -> None:
    g = Net()
    x = g.x(2, 3, 8)
    mean = g.reduce_mean(g.node("Pow", x, g.constant(2.0)), -1)
    root = g.node("Sqrt", g.node("Add", mean, g.constant(1e-6)))
    if inverse == "Div":
        y = g.node("Div", x, root)
    elif inverse == "Reciprocal":
        y = g.node("Mul", x, g.node("Reciprocal", root))
    else:
        y = g.node("Mul", x, g.node("Div", g.constant(1.0), root))
    assert fused(g, g.node("Mul", g.w(8), y)) == {"RMSNormalization"}


def test_no_rms_norm() -> None:
    g = Net()
    x, other = g.x(2, 3, 8), g.x(2, 3, 8)

    def normed(of: str, divided: str, axis: int, scale: str) -> str:
        total = g.node("Add", g.reduce_mean(g.node("Mul", of, of), axis), g.constant(1e-6))
        return g.node("Mul", g.node("Div", divided, g.node("Sqrt", total)), scale)

    outputs = [
        normed(other, x, -1, g.w(8)), normed(x, x, 1, g.w(8)), normed(x, x, -1, g.x(8)),
        normed(x, x, -1, g.w(3, 1)),
    ]  # fmt: skip
    assert "RMSNormalization" not in fused(g, *outputs, bound=1e-4)


def rms_norm(g: Net, x: str, size: int) -> str:
    mean = g.reduce_mean(g.node("Mul", x, x), -1)
    root = g.node("Sqrt", g.node("Add", mean, g.constant(1e-6)))
    return g.node("Mul", g.node("Div", x, root), g.w(size))


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("build", [layer_norm, rms_norm])
@pytest.mark.parametrize(("columns", "size"), [(1, 8), (8, 1), (1, 1)])
def test_spelled_norms_that_are_broadcast(
    columns: int, size: int, build: Build, skip: bool
) -> None:
    """Rows of one number by a scale of several, and the other way round; of sums too."""
    g = Net()
    x = g.node("Add", g.x(2, 3, columns), g.x(3, 1)) if skip else g.x(2, 3, columns)
    operators = fused(g, build(g, x, size), g.node("Neg", x))
    assert not operators & {"ReduceMean", "Sqrt", "Div"}


def norm(g: Net, x: str, size: int = 8) -> str:
    return g.node("LayerNormalization", x, g.w(size), g.w(size), axis=-1, epsilon=1e-5)


@pytest.mark.parametrize("shapes", [
    ((2, 3, 8), (2, 3, 8)), ((2, 3, 8), (3, 8)), ((3, 8), (2, 3, 8)), ((2, 3, 8), (1, 3, 8)),
    ((2, 3, 8), (2, 1, 8)), ((2, 1, 8), (1, 3, 8)), ((2, 3, 4, 8), (2, 3, 4, 8)), ((8,), (8,)),
    ((2, 3, 8), (2, 3, 1)),
])  # fmt: skip
@pytest.mark.parametrize("used", [False, True])
def test_sums_that_are_normalized(shapes: tuple[tuple[int, ...], ...], used: bool) -> None:
    """Operands may be broadcast; the sum is an output where it is used."""
    g = Net()
    total = g.node("Add", *(g.x(*shape) for shape in shapes))
    before = g.node("Neg", total) if used else ""
    outputs = [norm(g, total)]
    outputs += [g.node("Add", outputs[0], total), before] if used else []
    assert "SkipLayerNormalization" in fused(g, *outputs)


def test_sums_that_are_outputs_or_have_constants() -> None:
    g = Net()
    x, y = g.x(2, 3, 8), g.x(2, 3, 8)
    total = g.node("Add", x, y)
    moved = g.node("Add", x, g.w(8))
    operators = fused(g, norm(g, total), total, norm(g, moved))
    assert operators == {"Add", "LayerNormalization"}


def test_a_norm_of_a_sum_by_one_number() -> None:
    """ONNX broadcasts the scale; the fused operator of ONNX Runtime does not."""
    g = Net()
    operators = fused(g, norm(g, g.node("Add", g.x(2, 3, 8), g.x(2, 3, 8)), 1))
    assert operators == {"Add", "LayerNormalization"}


def test_two_norms_of_one_sum() -> None:
    """Both parallel branches of a layer; and a sum of sums."""
    g = Net()
    total = g.node("Add", g.x(2, 3, 8), g.x(2, 3, 8))
    first, second = norm(g, total), norm(g, total)
    third = norm(g, g.node("Add", g.node("Add", first, second), total))
    assert fused(g, third, second) >= {"SkipLayerNormalization", "LayerNormalization"}


# ---- broadcasting --------------------------------------------------------------------------------


@pytest.mark.parametrize("used", [False, True])
def test_what_is_cast_is_repeated_after(used: bool) -> None:
    """A mask is cast before it is expanded, unless another node reads it expanded."""
    g = Net()
    mask = g.feed(np.array([[1, 1, 0], [1, 0, 0]], np.int64))
    wide = g.node("Expand", g.node("Unsqueeze", mask, g.array([-1], np.int64)),
                  g.array([2, 3, 4], np.int64))  # fmt: skip
    proto = g.proto(g.node("Cast", wide, to=1), *([wide] if used else []))
    check(proto, g.feeds, 0)
    order = list(kinds(proto))
    assert (order.index("Expand") < order.index("Cast")) == used


# ---- products ------------------------------------------------------------------------------------


@pytest.mark.parametrize("activation", ["", "Relu", "erf", "tanh"])
@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("shape", [(5, 6), (2, 5, 6), (6,)])
def test_linear(shape: tuple[int, ...], swapped: bool, activation: str) -> None:
    g = Net()
    operands = [g.node("MatMul", g.x(*shape), g.w(6, 7)), g.w(7)]
    y = g.node("Add", *(operands[::-1] if swapped else operands))
    if activation == "Relu":
        y = g.node("Relu", y)
    elif activation:
        y = gelu_erf(g, y) if activation == "erf" else gelu_tanh(g, y)
    assert fused(g, y) == {"Linear"}


def test_no_linear() -> None:
    g = Net()
    x, one = g.x(5, 6), g.x(1, 6)
    shared = g.node("MatMul", x, g.w(6, 7))
    outputs = [
        g.node("Add", shared, g.w(7)), g.node("Neg", shared),  # the product is used elsewhere
        g.node("Add", g.node("MatMul", x, g.w(6, 7)), g.w(5, 1)),
        g.node("Add", g.node("MatMul", x, g.w(6, 7)), g.w(1)),
        g.node("Add", g.node("MatMul", x, g.w(6, 1)), g.w(7)),  # wider than the product
        g.node("Add", g.node("MatMul", one, g.w(6, 7)), g.w(3, 7)),
        g.node("Add", g.node("MatMul", x, g.x(6, 7)), g.w(7)),
        g.node("Add", g.node("MatMul", x, g.w(2, 6, 7)), g.w(7)),
        g.node("Add", g.node("MatMul", x, g.w(6, 7)), g.x(7)),
    ]  # fmt: skip
    assert "Linear" not in fused(g, *outputs)


def test_linear_is_used_twice() -> None:
    """An activation is fused only if no other node reads the product."""
    g = Net()
    y = g.node("Add", g.node("MatMul", g.x(5, 6), g.w(6, 7)), g.w(7))
    assert fused(g, g.node("Relu", y), y) == {"Linear", "Relu"}


# ---- convolutions --------------------------------------------------------------------------------


def conv(g: Net, x: str, inputs: int, outputs: int, *, bias: bool = False, **given: Any) -> str:
    names = [g.w(outputs, inputs // given.get("group", 1), 3, 3, scale=0.3)]
    names += [g.w(outputs)] if bias else []
    return g.node("Conv", x, *names, **{"pads": [1, 1, 1, 1], **given})


def batch_norm(g: Net, x: str, channels: int, **given: Any) -> str:
    variance = g.array(np.abs(g.numbers(channels)) + 0.5)
    names = [g.w(channels), g.w(channels), g.w(channels), variance]
    return g.node("BatchNormalization", x, *names, **given)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("activation", ["", "Relu", "Clip", "LeakyRelu", "HardSigmoid", "Sigmoid",
                                        "Tanh"])  # fmt: skip
@pytest.mark.parametrize("group", [1, 2, 4])
def test_convolution_with_norm_and_activation(bias: bool, activation: str, group: int) -> None:
    g = Net()
    y = batch_norm(g, conv(g, g.x(2, 4, 6, 5), 4, 8, bias=bias, group=group), 8, epsilon=1e-3)
    if activation == "Clip":
        y = clip_of(g, y, 0.0, 6.0)
    elif activation:
        y = g.node(activation, y)
    assert fused(g, y) == {"FusedConv" if activation else "Conv"}


def test_no_norm_in_a_convolution() -> None:
    g = Net(17)
    x = g.x(2, 4, 6, 5)
    shared = conv(g, x, 4, 8)
    computed = g.node(
        "BatchNormalization", conv(g, x, 4, 8), g.x(8), g.w(8), g.w(8), g.array(np.ones(8), "f4")
    )
    weights = g.node("Conv", x, g.x(8, 4, 1, 1))
    outputs = [batch_norm(g, shared, 8), g.node("Neg", shared), computed, batch_norm(g, weights, 8)]
    proto = g.proto(*outputs)
    check(proto, g.feeds)
    assert kinds(proto)["BatchNormalization"] == 3


def test_a_norm_beyond_float32() -> None:
    """Its factors overflow without a warning, as in the definition."""
    g = Net()
    scale, variance = (g.array(np.full(8, v), np.float32) for v in (3e38, 1e-8))
    y = g.node(
        "BatchNormalization", conv(g, g.x(1, 4, 6, 5), 4, 8), scale, g.w(8), g.w(8), variance
    )
    assert kinds(g.proto(y)) == {"Conv": 1}


def test_training_is_not_inference() -> None:
    """In training mode, statistics are the batch's own."""
    g = Net(15)
    y = conv(g, g.x(2, 4, 6, 5), 4, 8)
    names = [g.w(8), g.w(8), g.w(8), g.array(np.ones(8), np.float32)]
    outputs = g.nodes("BatchNormalization", [y, *names], 3, training_mode=1, epsilon=1e-3)
    assert "BatchNormalization" in fused(g, *outputs)


@pytest.mark.parametrize(("shape", "is_bias"), [
    ((1, 8, 1, 1), True), ((8, 1, 1), True), ((1, 1, 8), False), ((8, 6, 8), False),
    ((), True), ((1,), True), ((8,), False), ((2, 8, 1, 1), False), ((1, 2, 8, 1, 1), False),
])  # fmt: skip
@pytest.mark.parametrize("kind", ["Add", "Mul"])
@pytest.mark.parametrize("bias", [False, True])
def test_constants_after_a_convolution(
    shape: tuple[int, ...], is_bias: bool, kind: str, bias: bool
) -> None:
    """One number per channel is a bias or a factor; along another axis of its size it is not."""
    g = Net()
    x = g.x(2, 4, 6, 8)
    proto = g.proto(g.node(kind, conv(g, x, 4, 8, bias=bias), g.w(*shape)))
    check(proto, g.feeds)
    assert (kind not in kinds(proto)) == is_bias


def test_constants_in_a_row_after_a_convolution() -> None:
    """Also after a normalization; infinite ones are left."""
    g = Net()
    y = batch_norm(g, conv(g, g.x(2, 4, 6, 5), 4, 8), 8)
    for kind, shape in (("Mul", (1, 8, 1, 1)), ("Add", (8, 1, 1)), ("Mul", (1,)), ("Add", ())):
        y = g.node(kind, y, g.w(*shape))
    assert fused(g, y) == {"Conv"}
    g = Net()
    y = g.node("Add", conv(g, g.x(1, 4, 6, 5), 4, 8), g.array(np.float32(-np.inf)))
    assert fused(g, y) == {"Conv", "Add"}


@pytest.mark.parametrize("stored", ["int8", "float16"])
def test_constants_after_a_convolution_with_stored_weights(stored: str) -> None:
    """Weights that are made of few bits are float32 before a kernel reads them."""
    g = Net(13)
    weights = g.numbers(8, 4, 3, 3)
    if stored == "int8":
        narrow = g.array((20 * weights).clip(-127, 127).astype(np.int8))
        w = g.node("DequantizeLinear", narrow, g.array(np.full(8, 0.01, np.float32)), axis=0)
    else:
        w = g.node("Cast", g.array(weights.astype(np.float16)), to=1)
    y = batch_norm(g, g.node("Conv", g.x(2, 4, 6, 5), w, g.w(8), pads=[1, 1, 1, 1]), 8)
    y = g.node("Add", g.node("Mul", y, g.w(1, 8, 1, 1)), g.w(8, 1, 1))
    assert fused(g, y) <= {"Conv", "ScaledKernel", "DequantizeLinear", "Cast"}


def test_constants_after_a_convolution_with_computed_weights() -> None:
    """Weights that the call gives are not known when a factor would be folded into them."""
    g = Net(19)
    scale = g.array(np.full(8, 0.01, np.float32))
    given = g.node("DequantizeLinear", g.node("Cast", g.x(8, 4, 3, 3), to=3), scale, axis=0)
    y = g.node("Conv", g.x(2, 4, 6, 5), given)
    proto = g.proto(g.node("Mul", y, g.w(1, 8, 1, 1)))
    check(proto, g.feeds)
    assert kinds(proto)["Mul"] == 1


@pytest.mark.parametrize(("size", "factor"), [(1e-25, 1e20), (1e25, 1e-25)])
def test_factors_that_weights_have_no_room_for(size: float, factor: float) -> None:
    """The product of a weight and the factor would be beyond float32, or nearly 0."""
    g = Net()
    x = g.node("Mul", g.x(1, 4, 6, 5), g.array(np.float32(size)))
    y = g.node("Conv", x, g.w(8, 4, 1, 1, scale=1 / size))
    proto = g.proto(
        g.node("Mul", g.node("Mul", y, g.array(np.float32(factor))), g.constant(1 / factor))
    )
    check(proto, g.feeds)
    assert kinds(proto)["Mul"] == 3


@pytest.mark.parametrize("activation", ["", "Relu"])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("group", [1, 4])
def test_residual_of_a_convolution(activation: str, stride: int, group: int) -> None:
    g = Net()
    x = g.node("Relu", g.x(2, 4, 6, 5))
    straight = x if stride == 1 else conv(g, x, 4, 4, strides=[2, 2])
    y = g.node("Add", straight, conv(g, x, 4, 4, strides=[stride] * 2, group=group))
    operators = fused(g, g.node(activation, y) if activation else y)
    assert operators <= {"FusedConv", "Conv", "Relu"}
    assert "FusedConv" in operators


@pytest.mark.parametrize("swapped", [False, True])
def test_residual_that_is_broadcast(swapped: bool) -> None:
    """A value per channel, also from a convolution, on either side."""
    g = Net()
    x = g.x(2, 4, 6, 5)
    mean = g.node("GlobalAveragePool", x)
    gate = g.node("Conv", mean, g.w(4, 4, 1, 1))
    pair = [conv(g, x, 4, 4), gate]
    fused(g, g.node("Relu", g.node("Add", *(pair[::-1] if swapped else pair))))


def test_sums_of_convolutions_that_are_used_elsewhere() -> None:
    g = Net()
    x = g.x(2, 4, 6, 5)
    first, second = conv(g, x, 4, 4), conv(g, x, 4, 4)
    total = g.node("Add", first, second)
    twice = conv(g, x, 4, 4)
    outputs = [total, first, second, g.node("Relu", total), g.node("Add", twice, twice)]
    assert "FusedConv" not in fused(g, *outputs)


def test_limits_that_are_computed() -> None:
    g = Net()
    x = g.x(2, 4, 6, 5)
    high = g.feed(np.array(0.5, np.float32))
    y = g.node("Clip", conv(g, x, 4, 4), g.constant(0.0), high)
    z = g.node("Clip", conv(g, x, 4, 4), "", g.constant(0.25))
    assert fused(g, y, z) == {"Conv", "Clip", "FusedConv"}


# ---- attention -----------------------------------------------------------------------------------


def heads(g: Net, x: str, perm: list[int]) -> str:
    return g.node("Transpose", g.node("Reshape", x, g.ints(0, 0, 2, 4)), perm=perm)


def attention(
    g: Net, *, scale: str = "Div", mask: str = "", hidden: float = -1e9, softmax: dict[str, Any]
    | None = None, transpose: str = "at once",
) -> str:  # fmt: skip
    q, k, v = (g.node("MatMul", g.x(2, 5, 8), g.w(8, 8)) for _ in range(3))
    q, v = (heads(g, y, [0, 2, 1, 3]) for y in (q, v))
    if transpose == "at once":
        k = heads(g, k, [0, 2, 3, 1])
    else:
        k = g.node("Transpose", heads(g, k, [0, 2, 1, 3]), perm=[0, 1, 3, 2])
    if scale == "query":
        q = g.node("Mul", q, g.constant(0.5))
    elif scale == "shape":  # PyTorch's: both times a root that is computed from the shape
        last = g.node("Slice", g.node("Shape", q), g.ints(-1), g.ints(2**63 - 1))
        size = g.node("Sqrt", g.node("Cast", last, to=TensorProto.FLOAT))
        root = g.node("Sqrt", g.node("Div", g.constant(1.0), size))
        q, k = g.node("Mul", q, root), g.node("Mul", k, root)
    scores = g.node("MatMul", q, k)
    if scale in ("Div", "Mul"):
        scores = g.node(scale, scores, g.constant(2.0 if scale == "Div" else 0.5))
    scores = masked(g, scores, mask, hidden)
    weights = g.node("Softmax", scores, **({"axis": -1} if softmax is None else softmax))
    return g.node("MatMul", weights, v)


def masked(g: Net, scores: str, mask: str, hidden: float) -> str:
    seen = np.ones((2, 1, 1, 5), bool)
    seen[1, ..., 3:] = False
    if mask == "Add":
        mask_values = np.where(seen, 0, hidden).astype(np.float32)
        return g.node("Add", scores, g.feed(mask_values, "mask"))
    if mask == "Where":
        return g.node("Where", g.feed(seen, "mask"), scores, g.constant(hidden))
    if mask == "reversed":
        return g.node("Where", g.feed(~seen, "mask"), g.constant(hidden), scores)
    if mask == "triangle":
        triangle = g.array(np.tri(5, dtype=bool))
        return g.node("Where", triangle, scores, g.constant(hidden))
    if mask == "both":
        return masked(g, masked(g, scores, "triangle", hidden), "Add", hidden)
    return scores


FUSED = {"Attention", "MatMul", "Reshape", "Transpose"}


@pytest.mark.parametrize("opset", [11, 13, 18])
@pytest.mark.parametrize("options", [
    *({"scale": scale} for scale in ("", "Div", "Mul", "query", "shape")),
    *({"mask": mask} for mask in ("Add", "Where", "triangle", "both")),
    {"mask": "Add", "hidden": -1e4}, {"mask": "triangle", "hidden": -1e4},
    {"mask": "both", "hidden": float(np.finfo(np.float32).min)},
    {"softmax": {"axis": 3}}, {"transpose": "twice"}, {"scale": "query", "mask": "both"},
])  # fmt: skip
def test_attention(options: dict[str, Any], opset: int) -> None:
    g = Net(opset)
    operators = fused(g, attention(g, **options))
    assert "Attention" in operators
    assert "Softmax" not in operators


@pytest.mark.parametrize(("opset", "options"), [
    (17, {"mask": "reversed"}), (17, {"mask": "Where", "hidden": -100.0}),
    (17, {"mask": "Where", "hidden": -1e4}), (17, {"softmax": {"axis": 2}}),
    (11, {"softmax": {}}), (17, {"softmax": {"axis": 1}}),
])  # fmt: skip
def test_no_attention(opset: int, options: dict[str, Any]) -> None:
    """Masks the wrong way round or too weak; along other axes, also by an old opset's default."""
    g = Net(opset)
    assert "Attention" not in fused(g, attention(g, **options))


def test_no_attention_without_heads() -> None:
    """Of rank 3, and where the rank is not known to be 4; weights that are used elsewhere."""
    g = Net()
    q, k, v = g.x(2, 5, 8), g.node("Transpose", g.x(2, 5, 8), perm=[0, 2, 1]), g.x(2, 5, 8)
    three = g.node("MatMul", g.node("Softmax", g.node("MatMul", q, k)), v)
    many = g.node("Transpose", g.x(2, 2, 5, 4), perm=[0, 1, 3, 2])
    mixed = g.node("MatMul", g.node("Softmax", g.node("MatMul", g.x(5, 4), many)), g.x(2, 2, 5, 4))
    weights = g.node("Softmax", g.node("MatMul", g.x(2, 2, 5, 4), many))
    outputs = [three, mixed, g.node("MatMul", weights, g.x(2, 2, 5, 4)), weights]
    assert "Attention" not in fused(g, *outputs)


@pytest.mark.parametrize(("q", "k"), [
    ((1, 2, 5, 4), (3, 2, 6, 4)), ((3, 2, 5, 4), (1, 2, 6, 4)), ((3, 2, 5, 4), (3, 1, 6, 4)),
    ((3, 1, 5, 4), (3, 2, 6, 4)), ((3, 4, 5, 4), (3, 4, 0, 4)), ((3, 4, 0, 4), (3, 4, 6, 4)),
])  # fmt: skip
def test_attention_that_is_broadcast(q: tuple[int, ...], k: tuple[int, ...]) -> None:
    """Batches and heads of one are broadcast; there may be no keys, or no queries."""
    g = Net()
    keys = g.node("Transpose", g.x(*k), perm=[0, 1, 3, 2])
    weights = g.node("Softmax", g.node("MatMul", g.x(*q), keys), axis=-1)
    fused(g, g.node("MatMul", weights, g.x(*k)))


@pytest.mark.parametrize("opset", [11, 17])
@pytest.mark.parametrize("axis", [3, -1])
@pytest.mark.parametrize("mask", [(3, 1, 2, 5, 6), (2, 1, 6), (3, 2, 1, 6)])
def test_attention_with_masks_of_other_ranks(mask: tuple[int, ...], axis: int, opset: int) -> None:
    """The fourth axis is not the last of five; before version 13 it is the first of two."""
    g = Net(opset)
    keys = g.node("Transpose", g.x(1, 2, 6, 4), perm=[0, 1, 3, 2])
    scores = g.node("Add", g.node("MatMul", g.x(1, 2, 5, 4), keys), g.x(*mask))
    y = g.node("MatMul", g.node("Softmax", scores, axis=axis), g.x(1, 2, 6, 4))
    assert "Attention" in fused(g, y)


def test_attention_of_float16() -> None:
    """The number that hides a key has the graph's own type."""
    g = Net()
    q, k, v = (g.x(1, 2, n, 4, dtype=np.float16) for n in (5, 6, 6))
    scores = g.node("MatMul", q, g.node("Transpose", k, perm=[0, 1, 3, 2]))
    seen = g.feed(np.array([1, 1, 1, 0, 1, 0], np.bool_))
    scores = g.node("Where", seen, scores, g.constant(-np.inf, np.float16))
    y = g.node("MatMul", g.node("Softmax", scores, axis=-1), v)
    assert "Attention" in fused(g, y, bound=4e-3)


def test_masks_that_make_more_of_the_scores() -> None:
    g = Net()
    keys = g.node("Transpose", g.x(1, 2, 6, 4), perm=[0, 1, 3, 2])
    scores = g.node("Add", g.node("MatMul", g.x(1, 2, 5, 4), keys), g.x(3, 1, 5, 6))
    fused(g, g.node("MatMul", g.node("Softmax", scores, axis=-1), g.x(1, 2, 6, 4)))
