"""Long graphs: time and memory grow in proportion to their length, for all kinds of nodes."""

from __future__ import annotations

import importlib
import sys
import tracemalloc
from collections.abc import Callable
from types import FrameType

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

import halfbyte

FEWER, MORE = 125, 500
MAX_RATIO = 4.2  # of the lines executed, for four times as many nodes; quadratic work has 16


def serialized(
    nodes: list[NodeProto], outputs: list[str], functions: tuple[object, ...] = ()
) -> bytes:
    """A model of one input [4] and constants `c` [4] and `zero` []."""
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [
            numpy_helper.from_array(np.ones(4, np.float32), "c"),
            numpy_helper.from_array(np.float32(0), "zero"),
        ],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10, functions=functions)
    return bytes(model.SerializeToString())


def chain(count: int, *operators: str, domain: str = "") -> list[NodeProto]:
    """Nodes that each read the result of the one before; the last value is y."""
    names = ["x", *(f"v{i}" for i in range(count - 1)), "y"]
    return [
        helper.make_node(
            (kind := operators[i % len(operators)]),
            [names[i], "c"] if kind in ("Add", "Mul") else [names[i]],
            [names[i + 1]],
            domain=domain,
        )
        for i in range(count)
    ]


def mixed(count: int) -> bytes:
    return serialized(chain(count, "Exp", "Add", "Cos", "Mul", "Softmax", "Transpose"), ["y"])


def gelus(count: int) -> bytes:
    """Many copies of a pattern that is fused."""
    return serialized(chain(count, "Sigmoid", "Mul", "Add", "Relu"), ["y"])


def outputs(count: int) -> bytes:
    names = [f"y{i}" for i in range(count)]
    return serialized([helper.make_node("Neg", ["x"], [name]) for name in names], names)


def late(count: int) -> bytes:
    """Every value is needed until the end."""
    nodes = chain(count, "Neg", "Exp")
    return serialized([*nodes, helper.make_node("Max", [n.output[0] for n in nodes], ["z"])], ["z"])


def functions(count: int) -> bytes:
    function = helper.make_function(
        "own", "F", ["a"], ["b"],
        [helper.make_node("Neg", ["a"], ["t"]), helper.make_node("Abs", ["t"], ["b"])],
        [helper.make_opsetid("", 21)],
    )  # fmt: skip
    return serialized(chain(count // 2, "F", domain="own"), ["y"], (function,))


def programs(count: int) -> bytes:
    """Each condition ends a program, because the run decides between its branches."""
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Greater", ["sum", "zero"], ["positive"]),
    ]
    before = "x"
    for i in range(count // 4):
        value = helper.make_tensor_value_info("r", TensorProto.FLOAT, None)
        branches = [
            helper.make_graph([helper.make_node(kind, [before], ["r"])], kind, [], [value])
            for kind in ("Neg", "Abs")
        ]
        nodes.append(
            helper.make_node(
                "If", ["positive"], [f"v{i}"], then_branch=branches[0], else_branch=branches[1]
            )
        )
        before = f"v{i}"
    return serialized(nodes, [before])


KINDS: dict[str, Callable[[int], bytes]] = {
    "mixed": mixed, "fused": gelus, "outputs": outputs, "late": late, "functions": functions,
    "programs": programs,
}  # fmt: skip


def run_twice(data: bytes) -> None:
    with halfbyte.InferenceSession(data) as session:
        for _ in range(2):
            session.run(None, {"x": np.ones(4, np.float32)})


def lines(data: bytes) -> int:
    """Lines of Python executed from loading to the end of the second run.

    Counted instead of timed: the count is the same on a machine that does other work too.
    """
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> object:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        run_twice(data)
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("kind", KINDS)
def test_work_grows_with_the_length(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # By size, some hundreds of buffers take quadratic time, which this bounds.
    plan = importlib.import_module("halfbyte.core.passes.plan_memory")
    monkeypatch.setattr(plan, "MAX_BY_SIZE", FEWER // 5)
    run_twice(KINDS[kind](10))  # first imports
    assert lines(KINDS[kind](MORE)) < MAX_RATIO * lines(KINDS[kind](FEWER))


def test_memory_grows_with_the_length() -> None:
    def peak(count: int) -> int:
        tracemalloc.start()
        run_twice(outputs(count))
        largest = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return largest

    run_twice(outputs(10))  # first imports
    assert peak(1000) < 6 * peak(250)
