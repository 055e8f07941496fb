"""Walks over tensors compared with NumPy's own strides, and nodes that move no elements."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tests.onnx.graphs import Net, by_programs, check, outputs_of, runner

from halfbyte.core.ops.elementwise import PLAN_DIMS, strided
from halfbyte.onnx.lowering.strides import Dimension, broadcast, joined, planned, row_major

Array = npt.NDArray[Any]


def strides_of(array: Array) -> list[int]:
    """NumPy's, in elements."""
    return [step // array.itemsize for step in array.strides]


def walk_of(*arrays: Array) -> list[Dimension]:
    """The walk over arrays of one shape."""
    steps = zip(*map(strides_of, arrays), strict=True)
    return list(zip(arrays[0].shape, steps, strict=True))


def views() -> list[Array]:
    """Views of the numbers 0 to n - 1: permuted, in parts, reversed and repeated."""
    x = np.arange(2 * 3 * 1 * 4 * 5).reshape(2, 3, 1, 4, 5)
    arrays = [x.transpose(order) for order in itertools.permutations(range(5))]
    arrays += [x[:, ::2], x[:, 1:, 0, ::-1], x[0, :, :, 1:3, ::2], x[..., 2], x[1, 2, 0, 3]]
    arrays += [np.broadcast_to(x[:, :1], x.shape), np.broadcast_to(x[..., 1:2], (3, *x.shape))]
    return arrays


def test_row_major() -> None:
    for shape in ((), (7,), (2, 3, 4), (5, 1, 2)):
        assert row_major(shape) == strides_of(np.zeros(shape))


@pytest.mark.parametrize(
    ("shape", "result"),
    [((), (2, 3)), ((3,), (2, 3)), ((2, 1), (2, 3)), ((4, 1, 5), (2, 4, 3, 5)), ((1, 1), (6, 1))],
)
def test_broadcast(shape: tuple[int, ...], result: tuple[int, ...]) -> None:
    """Strides equal NumPy's, except along sizes of 1, where they do not matter."""
    theirs = strides_of(np.broadcast_to(np.zeros(shape), result))
    ours = broadcast(shape, result)
    assert len(ours) == len(result)
    for size, mine, yours in zip(result, ours, theirs, strict=True):
        assert size == 1 or mine == yours


@pytest.mark.parametrize("array", views(), ids=lambda a: f"{a.shape} {strides_of(a)}")
def test_plans_walk_as_numpy(array: Array) -> None:
    """In order, after dimensions were joined."""
    memory = np.arange(120)
    planned_walk = planned(walk_of(array), 1)
    assert planned_walk is not None
    plan, (d, (step,)) = planned_walk
    assert len(plan) == 2 * PLAN_DIMS
    outer = np.array(plan, np.int32)
    first = memory[int(array.reshape(-1)[0]) :]
    walked = strided(first, outer, outer[PLAN_DIMS:], array.size, d, step)
    np.testing.assert_array_equal(walked, array.reshape(-1))


def test_walks_are_joined() -> None:
    """Dimensions are only joined if they are contiguous for all operands."""
    x, bias = np.zeros((2, 3, 4)), np.zeros(4)
    assert joined(walk_of(x), 1) == [(24, (1,))]
    assert joined(walk_of(x.transpose(2, 0, 1)), 1) == [(4, (1,)), (6, (4,))]
    assert joined(walk_of(x[:, :, :2]), 1) == [(6, (4,)), (2, (1,))]
    wide = np.broadcast_to(bias, x.shape)
    assert joined(walk_of(x, wide), 2) == [(6, (4, 0)), (4, (1, 1))]
    assert joined([(1, (9,)), (5, (2,)), (1, (7,))], 1) == [(5, (2,))]
    assert joined([(1, (9, 9))], 2) == [(1, (1, 1))]


def test_plans_have_limits() -> None:
    """There is no plan for too many dimensions, or for numbers beyond 32 bits."""
    apart: list[Dimension] = [(2, (3**i,)) for i in reversed(range(PLAN_DIMS + 2))]
    assert planned(apart, 1) is None
    assert planned(apart[1:], 1) is not None
    assert planned([(2, (2**31,)), (2, (1,))], 1) is None
    assert planned([(2, (2**31 - 1,)), (2, (1,))], 1) is not None
    assert planned([(2**31, (1,))], 1) is None


# ---- nodes that move nothing ---------------------------------------------------------------------


def moved(net: Net, *outputs: str) -> list[str]:
    """The kernels of a graph without the elementwise ones; all results are compared."""
    proto = net.proto(*outputs)
    check(proto, net.feeds)
    run = runner(proto)
    outputs_of(run, net.feeds)
    (program,) = run.programs()
    return [i.operator.name for i in program.instructions if i.operator.name != "unary"]


VIEWS: dict[str, tuple[tuple[int, ...], list[tuple[str, list[int] | None, dict[str, Any]]]]] = {
    "reshape": ((2, 3, 4), [("Reshape", [6, -1], {})]),
    "reshape copies a dimension": ((2, 3, 4), [("Reshape", [0, -1], {})]),
    "flatten": ((2, 3, 4), [("Flatten", None, {"axis": -1})]),
    "flatten to a row": ((2, 3, 4), [("Flatten", None, {"axis": 0})]),
    "squeeze": ((2, 1, 4, 1), [("Squeeze", [-1], {})]),
    "squeeze all": ((2, 1, 4, 1), [("Squeeze", None, {})]),
    "unsqueeze": ((2, 3), [("Unsqueeze", [0, -1], {})]),
    "identity": ((2, 3), [("Identity", None, {})]),
    "dropout": ((2, 3), [("Dropout", None, {})]),
    "sizes of 1 are swapped": ((2, 1, 3, 1), [("Transpose", None, {"perm": [1, 0, 3, 2]})]),
    "back again": (
        (2, 3, 4),
        [("Transpose", None, {"perm": [2, 0, 1]}), ("Transpose", None, {"perm": [1, 2, 0]})],
    ),
    "a group of dimensions, and back": (
        (2, 3, 4, 5),
        [
            ("Transpose", None, {"perm": [2, 3, 0, 1]}),
            ("Transpose", None, {"perm": [2, 3, 0, 1]}),
            ("Reshape", [6, 20], {}),
        ],
    ),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views(name: str) -> None:
    shape, nodes = VIEWS[name]
    net = Net()
    y = net.node("Relu", net.x(*shape))
    for operator, sizes, attributes in nodes:
        inputs = [y] if sizes is None else [y, net.ints(*sizes)]
        y = net.node(operator, *inputs, **attributes)
    assert moved(net, net.node("Neg", y)) == []


@pytest.mark.parametrize(
    ("perm", "wanted"), [([0, 2, 1], ["transpose"]), ([2, 1, 0], ["move"]), ([1, 0, 2], ["move"])]
)
def test_transposes_move_where_they_must(perm: list[int], wanted: list[str]) -> None:
    """Once for all readers of the result."""
    net = Net()
    transposed = net.node("Transpose", net.node("Relu", net.x(2, 3, 4)), perm=perm)
    assert moved(net, net.node("Neg", transposed), net.node("Exp", transposed)) == wanted


def test_products_read_permuted_matrices() -> None:
    """The heads of attention: neither the split nor the transposed keys are moved."""
    net = Net()
    heads = [
        net.node("Transpose", net.node("Reshape", net.x(2, 5, 12), net.ints(2, 5, 3, 4)), perm=perm)
        for perm in ([0, 2, 1, 3], [0, 2, 3, 1])
    ]
    assert moved(net, net.node("MatMul", *heads)) == ["pack_batched", "matmul_batched"]


def test_shapes_are_computed_at_capture() -> None:
    """Shape, Size and arithmetic with them leave no instruction."""
    net = Net()
    x = net.node("Relu", net.x(4, 6))
    half = net.node("Div", net.dim(x, 1), net.constant(2, np.int64))
    y = net.node("Reshape", x, net.shape_of(-1, half))
    count = net.node("Size", x)
    assert moved(net, net.node("Neg", y), net.node("Identity", count)) == []


def test_definitions_refuse_views_that_do_not_fit() -> None:
    net = Net()
    y = net.node("Reshape", net.x(2, 3), net.ints(4, -1))
    proto = net.proto(y)
    with pytest.raises(Exception, match="Reshape") as caught:
        by_programs(proto, net.feeds)
    assert "halfbyte" in type(caught.value).__module__
