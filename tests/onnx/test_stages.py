"""Programs by shapes: captured at the first run, kept in a bounded cache, ended by values."""

from __future__ import annotations

import tracemalloc
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import TensorProto, helper
from tests.onnx.convert import model_from
from tests.onnx.graphs import Net, assert_close, by_definition, by_onnxruntime, outputs_of

from halfbyte.core.backends import Executable, open_program
from halfbyte.core.interrupt import interruptible
from halfbyte.core.program import Program
from halfbyte.errors import HalfbyteError
from halfbyte.onnx.prepare import prepare
from halfbyte.onnx.runner import MAX_STAGES, Runner

Array = npt.NDArray[Any]


class Opener:
    """Opens programs, and lists which of them were opened and closed."""

    def __init__(self) -> None:
        self.opened: list[Program] = []
        self.closed: list[Program] = []

    def __call__(self, program: Program) -> Executable:
        executable = open_program(program, "native", 1)
        self.opened.append(program)
        close = executable.close

        def closing() -> None:
            self.closed.append(program)
            close()

        executable.close = closing  # type: ignore[method-assign]
        return executable


class Witness:
    """Lists what ran: the operators of each program, and nodes between programs in brackets."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def program(self, program: Program, start: float, seconds: Array) -> None:
        assert len(seconds) == len(program.instructions)
        names = (i.operator.onnx for i in program.instructions)
        self.seen.append(" ".join(names))

    def node(self, node: Any, start: float, seconds: float, inputs: Any, outputs: Any) -> None:
        assert len(outputs) == len([name for name in node.outputs if name])
        self.seen.append(f"[{node.op_type}]")


def seen(run: Runner, feeds: Mapping[str, Any]) -> list[str]:
    witness = Witness()
    run.run(feeds, [v.name for v in run.model.graph.outputs], witness)
    return witness.seen


def runner_of(net: Net, *outputs: str) -> tuple[onnx.ModelProto, Runner, Opener]:
    proto, opener = net.proto(*outputs), Opener()
    return proto, Runner(prepare(model_from(proto)), opener, name_sizes=False), opener


def same(proto: onnx.ModelProto, run: Runner, feeds: Mapping[str, Any]) -> None:
    """The runner has the results of the definitions and of ONNX Runtime."""
    outputs = outputs_of(run, feeds)
    assert_close(outputs, by_definition(proto, feeds))
    assert_close(outputs, by_onnxruntime(proto, feeds))


def rows(net: Net, count: int) -> dict[str, Array]:
    """Feeds for `x0` [count, 3]."""
    return {"x0": net.numbers(count, 3)}


def test_a_program_for_each_shape() -> None:
    """It is captured when the shape first occurs, and only then."""
    net = Net()
    proto, run, opener = runner_of(net, net.node("Relu", net.x(2, 3)))
    assert not opener.opened
    for count, opened in ((2, 1), (5, 2), (2, 2), (5, 2), (1, 3)):
        same(proto, run, rows(net, count))
        assert len(opener.opened) == opened
    assert [p.inputs["x0"].shape for p in run.programs()] == [(2, 3), (5, 3), (1, 3)]


def test_the_least_recently_used_program_is_dropped() -> None:
    """Its threads are stopped; the others stay."""
    net = Net()
    proto, run, opener = runner_of(net, net.node("Relu", net.x(2, 3)))
    for count in range(1, MAX_STAGES + 1):
        same(proto, run, rows(net, count))
    first, second = opener.opened[:2]
    same(proto, run, rows(net, 1))  # now 2 is the oldest
    assert not opener.closed
    same(proto, run, rows(net, MAX_STAGES + 1))
    assert opener.closed == [second]
    assert len(run.programs()) == MAX_STAGES
    same(proto, run, rows(net, 1))
    assert len(opener.opened) == MAX_STAGES + 1
    assert first in run.programs()
    same(proto, run, rows(net, 2))
    assert len(opener.opened) == MAX_STAGES + 2
    run.close()
    assert set(opener.closed) == set(opener.opened)


def positive(net: Net) -> str:
    """A column of the positive elements, doubled: its length depends on values."""
    x = net.node("Mul", net.x(2, 3), net.constant(2.0))
    places = net.node("NonZero", net.node("Relu", x))
    gathered = net.node("GatherND", x, net.node("Transpose", places))
    return net.node("Neg", net.node("Reshape", gathered, net.ints(-1, 1)))


def test_shapes_that_depend_on_values_end_a_program() -> None:
    """After the node, a program is captured for the shapes of its results."""
    net = Net()
    proto, run, opener = runner_of(net, positive(net))
    some, more = np.array([[1, -1, 2]], np.float32), np.array([[1, 3, 2]], np.float32)
    same(proto, run, {"x0": some})
    assert len(opener.opened) == 2
    same(proto, run, {"x0": some * 7})
    assert len(opener.opened) == 2
    same(proto, run, {"x0": more})
    assert len(opener.opened) == 3  # the first one does not depend on values
    assert seen(run, {"x0": more}) == ["Binary Unary", "[NonZero]", "Transpose GatherND Unary"]


def test_empty_results_need_no_instruction() -> None:
    """Where nothing is selected, what follows is known."""
    net = Net()
    proto, run, _ = runner_of(net, positive(net))
    nothing = {"x0": -np.ones((2, 3), np.float32)}
    same(proto, run, nothing)
    assert seen(run, nothing) == ["Binary Unary", "[NonZero]"]
    same(proto, run, {"x0": np.ones((2, 3), np.float32)})


def test_what_follows_from_several_counts_is_one_program() -> None:
    """Ends of programs that need none of each other follow one another."""
    net = Net()
    x = net.x(2, 3)
    ends = [net.node("NonZero", net.node(kind, x)) for kind in ("Relu", "Ceil")]
    proto, run, _ = runner_of(net, *(net.node("Transpose", end) for end in ends))
    same(proto, run, net.feeds)
    kinds = seen(run, net.feeds)
    assert kinds[1:3] == ["[NonZero]"] * 2
    assert len(kinds) == 4


def test_stages_are_kept_by_all_shapes_before_them() -> None:
    """An equal count from an input of another shape has its own program."""
    net = Net()
    proto, run, opener = runner_of(net, positive(net))
    for shape in ((1, 4), (2, 2), (4, 1)):
        same(proto, run, {"x0": np.ones(shape, np.float32)})
    assert len(opener.opened) == 6
    for count in range(5, 5 + MAX_STAGES):
        same(proto, run, {"x0": np.ones((1, count), np.float32)})
    assert len(run.programs()) == 2 * MAX_STAGES


def test_values_that_are_not_tensors_end_a_program() -> None:
    """Lists and strings stay in Python; tensors from them go on in a program."""
    net = Net(opset=17)
    x = net.node("Relu", net.x(4, 3))
    parts = net.node("SplitToSequence", x, net.constant(2, np.int64), axis=0)
    last = net.node("SequenceAt", parts, net.constant(-1, np.int64))
    proto, run, _ = runner_of(net, net.node("Neg", last))
    same(proto, run, net.feeds)
    assert seen(run, net.feeds) == ["Unary", "[SplitToSequence]", "[SequenceAt]", "Unary"]


def test_loops_run_between_programs() -> None:
    """Each iteration runs the program of the body."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Add", ["v", "v"], ["w"])],
        "body",
        [helper.make_tensor_value_info("i", TensorProto.INT64, []),
         helper.make_tensor_value_info("go", TensorProto.BOOL, []),
         helper.make_tensor_value_info("v", TensorProto.FLOAT, None)],
        [helper.make_tensor_value_info("on", TensorProto.BOOL, []),
         helper.make_tensor_value_info("w", TensorProto.FLOAT, None)],
    )  # fmt: skip
    net = Net()
    x = net.node("Relu", net.x(2, 3))
    y = net.node("Loop", net.constant(3, np.int64), "", x, body=body)
    proto, run, _ = runner_of(net, net.node("Neg", y))
    same(proto, run, net.feeds)
    assert seen(run, net.feeds) == ["Unary", *["Binary"] * 3, "[Loop]", "Unary"]
    calls = []
    with interruptible(lambda: calls.append(1)):
        run.run(net.feeds, ["/Neg_output_0"])
    assert len(calls) >= 2 + 3 + 1  # programs, also of the body, and the loop


def test_a_check_that_raises_ends_the_run() -> None:
    net = Net()
    proto, run, _ = runner_of(net, positive(net))

    def stop() -> None:
        raise HalfbyteError("enough")

    with pytest.raises(HalfbyteError, match="enough"), interruptible(stop):
        run.run(net.feeds, ["/Neg_output_0"])
    same(proto, run, net.feeds)


def test_results_are_the_callers_own() -> None:
    """Neither the next run nor the caller changes the results of the other."""
    net = Net()
    x = net.x(2, 3)
    proto, run, _ = runner_of(net, net.node("Identity", x), net.node("Relu", x))
    first = outputs_of(run, net.feeds)
    kept = [y.copy() for y in first]
    outputs_of(run, {"x0": -net.feeds["x0"]})
    assert_close(first, kept, 0)
    for y in first:
        y[...] = 7
    again = outputs_of(run, net.feeds)
    assert_close(again, kept, 0)
    same(proto, run, net.feeds)
    assert not np.shares_memory(again[0], net.feeds["x0"])


def test_outputs_that_nothing_computes() -> None:
    """Initializers and shapes need no program, nor does a graph that has only these."""
    net = Net()
    x = net.x(2, 3)
    proto, run, opener = runner_of(net, net.node("Shape", x), net.node("Identity", net.w(4)))
    same(proto, run, net.feeds)
    assert [p.instructions for p in opener.opened] == []


def test_further_values_are_kept_on_request() -> None:
    net = Net()
    inner = net.node("Exp", net.x(2, 3))
    proto = net.proto(net.node("Neg", net.node("Relu", inner)))
    run = Runner(prepare(model_from(proto)), Opener(), keep=[inner])
    values = run.run(net.feeds, [inner, "/Neg_output_0"])
    assert_close([values[inner]], [np.exp(net.feeds["x0"])])
    assert_close([values["/Neg_output_0"]], [-np.exp(net.feeds["x0"])])


def test_types_of_feeds_have_their_own_programs() -> None:
    """The graph leaves the type of the input open."""
    net = Net()
    proto, run, opener = runner_of(net, net.node("Cast", net.x(2, 3), to=TensorProto.FLOAT))
    assert proto
    for dtype in (np.float32, np.int64, np.float64):
        feeds = {"x0": np.arange(6).reshape(2, 3).astype(dtype)}
        assert_close(outputs_of(run, feeds), [np.arange(6, dtype=np.float32).reshape(2, 3)])
    assert len(opener.opened) == 3


def test_without_kernels_every_node_is_its_definition() -> None:
    net = Net()
    y = net.node("Gemm", net.node("Relu", net.x(2, 3)), net.w(3, 4))
    proto = net.proto(net.node("Transpose", y))
    run = Runner(prepare(model_from(proto), optimize=False), Opener(), use_kernels=False)
    same(proto, run, net.feeds)
    assert seen(run, net.feeds) == ["Relu Gemm Transpose"]


def test_folded_constants_are_freed_when_nothing_needs_them() -> None:
    """During the capture, one of them exists beside the packed weights, not all."""
    net, count, size = Net(), 8, 64 * 64 * 9 * 4
    y = net.x(1, 64, 4, 4)
    for _ in range(count):
        y = net.node("Conv", y, net.node("Neg", net.w(64, 64, 3, 3)), pads=[1, 1, 1, 1])
    run = Runner(prepare(model_from(net.proto(y)), optimize=False), Opener())
    tracemalloc.start()
    run.plan(net.feeds)
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept >= count * size
    assert peak - kept < count / 2 * size
