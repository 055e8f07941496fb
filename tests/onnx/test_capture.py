"""Capture of nodes: as operators with kernels, as constants, or as NumPy's work in the program."""

from __future__ import annotations

import gc
import itertools
import weakref
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tests.onnx.graphs import (
    Net,
    assert_close,
    by_definition,
    by_onnxruntime,
    by_programs,
    check,
    outputs_of,
    runner,
)

from halfbyte.core.buffer import Buffer
from halfbyte.core.profiling import Profile
from halfbyte.core.program import Program
from halfbyte.errors import HalfbyteError
from halfbyte.onnx.lowering import blocks
from halfbyte.onnx.lowering.registry import rule_of
from halfbyte.onnx.runner import Runner

MICROSOFT = "com.microsoft"
LARGE = 520  # a square matrix of it has more than a megabyte


def operators(run: Runner) -> list[list[str]]:
    """The operators of each program; NumPy's work has the names of ONNX."""
    return [
        [i.operator.onnx if i.operator.host else i.operator.name for i in program.instructions]
        for program in run.programs()
    ]


def ran(net: Net, *outputs: str) -> Runner:
    """A runner after one run, whose results were those of the definitions."""
    proto = net.proto(*outputs)
    run = runner(proto)
    assert_close(outputs_of(run, net.feeds), by_definition(proto, net.feeds))
    return run


def constants(program: Program) -> set[Buffer]:
    """The large weights of a program."""
    return {b.root for b in program.buffers if b.root.value is not None and b.nbytes > 2200}


# ---- NumPy's work --------------------------------------------------------------------------------


def test_operators_without_kernels_run_inside_the_program() -> None:
    """There is still one program, and the profile names the operator."""
    assert rule_of("", "Sin") is None
    net = Net()
    y = net.node("Neg", net.node("Sin", net.node("Relu", net.x(3, 5))))
    proto = net.proto(y)
    check(proto, net.feeds)
    run, profile = runner(proto), Profile()

    class Watching:
        def program(self, program: Program, start: float, seconds: Any) -> None:
            profile.add(program, {}, seconds, start)

        def node(self, *arguments: Any) -> None:
            raise AssertionError("a node outside of the program")

    run.run(net.feeds, [y], Watching())
    assert operators(run) == [["unary", "Sin", "unary"]]
    assert [(name, row.calls) for name, row in profile.rows.items()] == [
        ("unary_relu", 1), ("numpy:Sin", 1), ("unary_neg", 1)
    ]  # fmt: skip
    assert "numpy:Sin" in profile.table()


def test_types_without_kernels_run_inside_the_program() -> None:
    net = Net()
    x = net.node("Cast", net.x(2, 3), to=TensorProto.DOUBLE)
    run = ran(net, net.node("Add", x, x))
    assert operators(run) == [["Cast", "Add"]]


def test_rules_that_return_none_leave_nothing() -> None:
    """The rule of Split moves the first part before it reaches the second, which is empty."""
    net = Net()
    parts = net.nodes("Split", [net.node("Relu", net.x(3, 2)), net.ints(3, 0)], 2, axis=0)
    assert operators(ran(net, *parts)) == [["unary", "Split"]]


def test_unused_results_are_not_computed() -> None:
    """Only the shape of a product is used, which is known without it."""
    net = Net()
    x = net.x(4, 6)
    y = net.node("Shape", net.node("MatMul", x, net.w(6, 5)))
    assert operators(ran(net, net.node("Reshape", net.x(5, 4), y))) == [[]]


def test_errors_name_the_node() -> None:
    net = Net()
    proto = net.proto(net.node("MatMul", net.node("Relu", net.x(2, 3)), net.x(4, 5)))
    with pytest.raises(HalfbyteError, match=r"model\.onnx: node '/MatMul' \(MatMul\)"):
        by_programs(proto, net.feeds)


# ---- constants -----------------------------------------------------------------------------------


def test_constants_are_folded_once_for_all_shapes() -> None:
    """The prepared graph has a single node, unless a large result comes from small inputs."""
    net = Net()
    bias = net.node("Mul", net.node("Exp", net.w(6)), net.constant(2.0))
    proto = net.proto(net.node("Add", net.x(2, 6), bias))
    run = runner(proto)
    assert [node.op_type for node in run.model.graph.nodes] == ["Add"]
    net = Net()
    wide = net.node("Expand", net.w(1), net.ints(1 << 9, 1 << 10))
    run = ran(net, net.node("Add", net.x(1), wide))
    assert [node.op_type for node in run.model.graph.nodes] == ["Expand", "Add"]
    assert "Expand" not in itertools.chain(*operators(run))


def test_large_constants_in_nodes_are_weights() -> None:
    """As initializers, they are packed at capture, not in each run."""
    net = Net()
    w = net.constant(net.numbers(LARGE, LARGE))
    run = ran(net, net.node("MatMul", net.x(2, LARGE), w))
    assert operators(run) == [["matmul_panels"]]


def test_known_branches_are_taken_at_capture() -> None:
    """A condition on shapes chooses; one on values ends the program."""
    branches = {}
    for name, operator in (("then_branch", "Neg"), ("else_branch", "Exp")):
        node = helper.make_node(operator, ["x0"], [f"of {operator}"])
        result = helper.make_tensor_value_info(f"of {operator}", TensorProto.FLOAT, None)
        branches[name] = helper.make_graph([node], name, [], [result])
    net = Net()
    small = net.node("Less", net.dim(net.x(2, 3), 0), net.constant(3, np.int64))
    y = net.node("If", small, **branches)
    proto = net.proto(y)
    run = runner(proto)
    for rows, function in ((2, np.negative), (4, np.exp)):
        x = net.numbers(rows, 3)
        assert_close(outputs_of(run, {"x0": x}), [function(x)])
    assert operators(run) == [["unary"], ["unary"]]
    origins = [i.origin for program in run.programs() for i in program.instructions]
    assert origins == ["of Neg", "of Exp"]
    net = Net()
    first = net.node("Gather", net.x(2, 3), net.constant(0, np.int64))
    y = net.node(
        "If", net.node("Less", net.node("ReduceSum", first), net.constant(0.0)), **branches
    )
    run = runner(net.proto(y))
    outputs_of(run, net.feeds)
    assert [node.op_type for node in run.model.graph.nodes][-1] == "If"
    assert operators(run)[-1] == ["unary"]  # the branch is a program of its own


def test_branches_may_have_the_same_names() -> None:
    """Each computes its own constant from the same weight, also in the kernels' memory."""
    net = Net()
    x, w = net.x(2, 8), net.w(8, 8)
    branches = {}
    for name, operator in (("then_branch", "Neg"), ("else_branch", "Exp")):
        nodes = [
            helper.make_node(operator, [w], ["t"]),
            helper.make_node("MatMul", [x, "t"], [name]),
        ]
        result = helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
        branches[name] = helper.make_graph(nodes, name, [], [result])
    small = net.node("Less", net.dim(x, 0), net.constant(3, np.int64))
    proto = net.proto(net.node("If", small, **branches))
    run = runner(proto)
    for rows in (2, 4, 1, 3):
        feeds = {x: net.numbers(rows, 8)}
        assert_close(outputs_of(run, feeds), by_definition(proto, feeds))


# ---- weights -------------------------------------------------------------------------------------


def quantized(net: Net, n: int, k: int) -> tuple[list[str], dict[str, int]]:
    """The integers and scales of a matrix in blocks of 32, and the node's attributes."""
    integers = net.array(np.random.default_rng(0).integers(0, 256, (n, k // 32, 16)), np.uint8)
    scales = net.array(np.linspace(0.5, 1, n * k // 32), np.float32)
    return [integers, scales], {"K": k, "N": n, "bits": 4, "block_size": 32}


def proto_of(net: Net, columns: int, *outputs: str) -> onnx.ModelProto:
    """The model with outputs [rows, columns] of MatMulNBits, whose types ONNX cannot infer."""
    if net.model().graph.node[-1].domain != MICROSOFT:
        return net.proto(*outputs)
    model = net.model()
    model.graph.output.extend(
        helper.make_tensor_value_info(y, TensorProto.FLOAT, ["rows", columns]) for y in outputs
    )
    model.opset_import.append(helper.make_opsetid(MICROSOFT, 1))
    return model


def weighted(kind: str) -> tuple[Net, str]:
    """A graph around one kind of weight, whose input x0 may have any number of rows."""
    net = Net(seed=1)
    if kind == "conv":
        return net, net.node("Conv", net.x(2, 3, 9, 9), net.w(40, 3, 3, 3))
    if kind == "normalized conv":
        x = net.node("Conv", net.x(2, 100, 9, 9), net.w(300, 100, 3, 3))
        return net, net.node("BatchNormalization", x, *(net.array(np.full(300, 0.5), np.float32)
                                                        for _ in range(4)))  # fmt: skip
    if kind == "table":
        ids = net.feed(np.array([[3, 1, 2]], np.int64))
        return net, net.node("Gather", net.w(50, 64), ids)
    x = net.x(2, LARGE if kind == "half" else 64)
    if kind == "gemm":
        return net, net.node("Gemm", x, net.w(96, 64), net.w(96), transB=1)
    if kind == "half":
        w = net.array(net.numbers(LARGE, LARGE), np.float16)
        return net, net.node("MatMul", x, net.node("Cast", w, to=TensorProto.FLOAT))
    if kind == "blocks":
        inputs, attributes = quantized(net, 72, 64)
        return net, net.node("MatMulNBits", x, *inputs, domain=MICROSOFT, **attributes)
    return net, net.node("MatMul", x, net.w(64, 96))


KINDS = ("matmul", "gemm", "conv", "normalized conv", "table", "half", "blocks")


@pytest.mark.parametrize("kind", KINDS)
def test_programs_of_all_shapes_share_weights(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks are encoded in several slices, and the last rows as they are in a file."""
    monkeypatch.setattr(blocks, "_SLICE", 32)
    net, y = weighted(kind)
    proto = proto_of(net, 72, y)
    run = runner(proto, name_sizes=False)
    (name,) = net.feeds
    first = net.feeds[name]
    for count in (1, 2, 3):
        feeds = {name: np.concatenate([first] * count)}
        # scales in blocks are rounded to float16
        bound = 1e-3 if kind == "blocks" else 1e-5
        assert_close(outputs_of(run, feeds), by_onnxruntime(proto, feeds), bound)
    programs = run.programs()
    assert len(programs) == 3
    shared = [constants(program) for program in programs]
    assert len(shared[0]) == 1
    assert shared[0] == shared[1] == shared[2]


def held(kind: str) -> tuple[Runner, list[weakref.ref[Any]]]:
    """A runner after one run, and references to its large initializers."""
    net, y = weighted(kind)
    run = runner(net.proto(y))
    outputs_of(run, net.feeds)
    return run, [weakref.ref(v) for v in run.model.graph.initializers.values() if v.nbytes > 10_000]


@pytest.mark.parametrize("kind", ["normalized conv", "half"])
def test_large_constants_are_only_computed_for_packing(kind: str, monkeypatch: Any) -> None:
    """The intermediate forms of a large weight are not kept after it is packed."""
    computed: list[weakref.ref[Any]] = []
    from halfbyte.onnx import capture

    plain = capture.folded

    def watched(*arguments: Any) -> Any:
        results = plain(*arguments)
        computed.extend(weakref.ref(r) for r in results or () if r.nbytes > 1 << 20)
        return results

    monkeypatch.setattr(capture, "folded", watched)
    run, kept = held(kind)
    gc.collect()
    assert computed
    assert not [1 for array in computed if array() is not None]
    assert len(kept) == 1  # what is in the file
    packed = sum(b.nbytes for b in constants(run.programs()[0]))
    original = kept[0]()
    assert original is not None
    assert packed < 1.2 * original.size * 4


@pytest.mark.parametrize("to", [TensorProto.FLOAT, TensorProto.DOUBLE])
def test_large_weights_of_bytes_are_cast_before_a_run(to: int) -> None:
    """Scaled integers, spelled out, as some exporters write them: no run has to unpack them."""
    net = Net()
    integers = np.arange(LARGE * LARGE).reshape(LARGE, LARGE) % 251 - 125
    cast = net.node("Cast", net.array(integers, np.int8), to=to)
    whole = net.node("Cast", cast, to=TensorProto.FLOAT)
    weight = net.node("Mul", whole, net.array(np.linspace(1, 2, LARGE) / 99, np.float32))
    run = ran(net, net.node("MatMul", net.x(3, LARGE), weight))
    ((name,),) = operators(run)
    assert name.startswith("matmul")


def test_plain_constants_are_the_initializers_own_memory() -> None:
    net = Net()
    run = ran(net, net.node("Add", net.x(2, 64, 32), net.w(64, 32)))
    (w,) = run.model.graph.initializers.values()
    assert [np.shares_memory(b.value, w) for b in constants(run.programs()[0])] == [True]


def test_weights_with_the_same_integers_have_their_own_scales() -> None:
    """Each layout has a buffer of its own, in one program."""
    net = Net()
    x = net.x(2, 64)
    (integers, scales), attributes = quantized(net, 64, 64)
    others = net.array(np.linspace(3, 4, 128), np.float32)
    results = [
        net.node("MatMulNBits", x, integers, level_scales, domain=MICROSOFT, **attributes, **level)
        for level_scales in (scales, others)
        for level in ({}, {"accuracy_level": 4})
    ]
    model = proto_of(net, 64, *results)
    ours, wanted = by_programs(model, net.feeds), by_definition(model, net.feeds)
    for mine, exact, rounded in zip(ours, wanted, (False, True) * 2, strict=True):
        assert_close([mine], [exact], 0.02 if rounded else 1e-3)
    run = runner(model)
    outputs_of(run, net.feeds)
    (program,) = run.programs()
    products = [i for i in program.instructions if i.operator.name.startswith("matmul")]
    used = [i.operands["w"].dtype for i in products]
    assert used == ["q4_0", "q4_0_r16"] * 2


def test_rows_are_rounded_once_for_all_that_read_them() -> None:
    net = Net()
    x = net.node("Relu", net.x(3, 64))
    outputs = []
    for _ in range(3):
        inputs, attributes = quantized(net, 32, 64)
        outputs.append(net.node("MatMulNBits", x, *inputs, domain=MICROSOFT, accuracy_level=4,
                              **attributes))  # fmt: skip
    run = runner(proto_of(net, 32, *outputs))
    outputs_of(run, net.feeds)
    (names,) = operators(run)
    assert names == ["unary", "dynamic_quantize"] + ["matmul_int8"] * 3


def test_images_stay_channels_last_between_convolutions() -> None:
    """They are transposed at both ends, once for all readers."""
    net = Net()
    x = net.node("Relu", net.x(2, 3, 8, 8))
    y = net.node("Add", *(net.node("Conv", x, net.w(4, 3, 3, 3)) for _ in range(2)))
    y = net.node("MaxPool", net.node("Sigmoid", y), kernel_shape=[2, 2])
    y = net.node("Conv", y, net.w(5, 4, 1, 1))
    run = ran(net, net.node("Flatten", y), net.node("Reshape", y, net.ints(-1, 5)))
    (names,) = operators(run)
    products = ["conv2d", "conv2d", "unary", "max_pool", "conv2d"]
    assert names == ["unary", "transpose", *products, "transpose"]
