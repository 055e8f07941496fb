"""Graphs of float16 compute in float32 between their inputs and outputs, as in ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tests.onnx.convert import model_from
from tests.onnx.graphs import Net, assert_close, by_onnxruntime, by_programs, kinds, runner

from halfbyte.onnx.prepare import prepare

H, FLOAT = np.float16, TensorProto.FLOAT
HALF = TensorProto.FLOAT16
ROUNDING = 2e-3  # of float16, where ONNX Runtime rounds between nodes


class HalfNet(Net):
    """A net of float16."""

    def x(self, *shape: int, name: str = "", dtype: Any = H) -> str:
        return super().x(*shape, name=name, dtype=dtype)

    def w(self, *shape: int, scale: float = 1.0) -> str:
        return self.array(self.numbers(*shape) * scale, H)


def transformer(g: HalfNet) -> list[str]:
    """A table, LayerNormalization, Gemm with both orders, Gelu and a head."""
    ids = g.feed(np.array([[3, 1, 2, 7]], np.int64), "ids")
    rows = g.node("Gather", g.w(50, 192), ids)
    normal = g.node("LayerNormalization", rows, g.w(192), g.w(192), axis=-1)
    wide = g.node("Add", g.node("MatMul", normal, g.w(192, 256, scale=0.1)), g.w(256))
    gate = g.node("Erf", g.node("Div", wide, g.array(2**0.5, H)))
    half = g.node("Mul", g.node("Mul", wide, g.node("Add", gate, g.array(1, H))), g.array(0.5, H))
    flat = g.node("Reshape", half, g.array([-1, 256]))
    gemm = g.node("Gemm", flat, g.w(192, 256, scale=0.1), g.w(192), transB=1)
    head = g.node("MatMul", gemm, g.w(192, 64, scale=0.1))
    return [wide, g.node("Softmax", head, axis=-1)]


def convolutions(g: HalfNet) -> list[str]:
    x = g.node("Conv", g.x(1, 3, 9, 9), g.w(8, 3, 3, 3))
    moments = [g.array(np.full(8, value), H) for value in (0.5, 0.25, 0.125, 2)]
    x = g.node("Relu", g.node("BatchNormalization", x, *moments))
    return [g.node("GlobalAveragePool", g.node("Conv", x, g.w(8, 1, 3, 3), group=8))]


def mixed(g: HalfNet) -> list[str]:
    """Parts in float32, and a whole number."""
    x = g.node("Cast", g.x(4, 8), to=FLOAT)
    y = g.node("Cast", g.node("Add", x, g.array(np.ones(8), np.float32)), to=HALF)
    z = g.node("Mul", y, g.node("Cast", g.feed(np.arange(8)), to=HALF))
    return [y, z, g.node("Cast", z, to=FLOAT), g.node("Cast", z, to=TensorProto.INT64)]


def large(g: HalfNet) -> list[str]:
    """Squares beyond the range of float16, and below it."""
    x = g.node("Mul", g.x(3, 64), g.array(1000, H))
    y = g.node("Div", g.x(3, 64), g.array(30000, H))
    return [g.node("Sqrt", g.node("ReduceMean", g.node("Mul", v, v), axes=[-1])) for v in (x, y)]


def masked(g: HalfNet) -> list[str]:
    """The lowest float32 hides keys; a query sees none."""
    scores = g.node("MatMul", g.x(5, 16), g.w(16, 5))
    seen = np.tril(np.ones((5, 5), np.float32))
    seen[2] = 0
    hidden = g.node("Sub", g.array(1, np.float32), g.feed(seen))
    mask = g.node("Mul", hidden, g.array(-3.4e38, np.float32))
    total = g.node("Add", scores, g.node("Cast", mask, to=HALF))
    return [g.node("Softmax", total, axis=-1)]


def passed_on(g: HalfNet) -> list[str]:
    """Outputs that are read, an input and a constant."""
    x, w = g.x(4, 128), g.w(128, 96, scale=0.1)
    y = g.node("MatMul", x, w)
    return [y, g.node("Relu", y), g.node("Identity", x), g.node("Identity", w)]


def branches(g: HalfNet) -> list[str]:
    """A branch that reads values from outside and has a constant and a cast of its own."""
    x, w = g.x(4, 128), g.w(128, 96, scale=0.1)
    y = g.node("MatMul", x, w)

    def body(name: str, kind: str) -> onnx.GraphProto:
        one = helper.make_node("Cast", [f"{name}_c"], [f"{name}_one"], to=HALF)
        nodes = [one, helper.make_node(kind, [y, f"{name}_one"], [f"{name}_y"])]
        result = helper.make_tensor_value_info(f"{name}_y", HALF, ["n", 96])
        constant = onnx.numpy_helper.from_array(np.array(3, np.float32), f"{name}_c")
        return helper.make_graph(nodes, name, [], [result], [constant])

    condition = g.feed(np.array(True))
    z = g.node("If", condition, then_branch=body("yes", "Mul"), else_branch=body("no", "Add"))
    return [z, y]


BUILDS = (transformer, convolutions, mixed, large, masked, passed_on, branches)


def outputs_as(g: HalfNet, build: Callable[[HalfNet], list[str]]) -> onnx.ModelProto:
    proto = g.proto(*build(g))
    onnx.checker.check_model(proto)
    return proto


@pytest.mark.parametrize("build", BUILDS, ids=lambda build: build.__name__)
def test_results_are_onnxruntimes(build: Callable[[HalfNet], list[str]]) -> None:
    g = HalfNet()
    proto = outputs_as(g, build)
    theirs = by_onnxruntime(proto, g.feeds)
    assert all(np.isfinite(values).all() for values in theirs)
    assert_close(by_programs(proto, g.feeds), theirs, ROUNDING)
    types = {v.name: v.type.tensor_type.elem_type for v in proto.graph.output}
    assert HALF in types.values()


def test_kernels_compute_them() -> None:
    """Besides lookups in halves and casts at the ends, NumPy computes nothing."""
    g = HalfNet()
    proto = outputs_as(g, transformer)
    assert kinds(proto)["Linear"] == 3
    run = runner(proto)
    run.run(g.feeds, [v.name for v in proto.graph.output])
    (program,) = run.programs()
    hosted = {i.operator.onnx for i in program.instructions if i.operator.host}
    assert hosted <= {"Gather", "Cast"}


def test_matrices_stay_halves() -> None:
    """Tables and matrices of products are views of the file; a convolution's weights are not."""
    g = HalfNet()
    model = prepare(model_from(outputs_as(g, transformer)))
    sizes = {v.shape: v.dtype for v in model.graph.initializers.values() if v.size > 4096}
    assert sizes == dict.fromkeys([(50, 192), (192, 256), (256, 192), (192, 64)], np.dtype(H))


def test_numbers_that_a_graph_rounds_stay_rounded() -> None:
    """A cast to float16 and back, with nothing between."""
    g = Net()
    x = g.feed(np.float32([1.0001, 1e5, -3e38, 1e-9]))
    y = g.node("Cast", g.node("Cast", g.node("Abs", x), to=HALF), to=FLOAT)
    proto = g.proto(y)
    assert_close(by_programs(proto, g.feeds), by_onnxruntime(proto, g.feeds), 0)


def test_sequences_of_halves_stay() -> None:
    g = HalfNet()
    x = g.x(4, 2)
    parts = g.node("SplitToSequence", g.node("Mul", x, x), axis=0)
    model = g.model()
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(HALF, ["n", 2]))
    model.graph.output.append(helper.make_value_info(parts, kind))
    ((values,), (theirs,)) = by_programs(model, g.feeds), by_onnxruntime(model, g.feeds)
    assert_close(values, theirs, 0)
