"""Small graphs that need much: the work at loading is bounded, and a run refuses by name."""

from __future__ import annotations

import resource
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper
from tests.onnx.session.models import node

import halfbyte
from halfbyte import room
from halfbyte.core.backends import memory
from halfbyte.device.graphs import GraphPlanner
from halfbyte.errors import HalfbyteError, OutOfMemoryError, UnsupportedError
from halfbyte.onnx.capture import Capture
from halfbyte.onnx.files import open_onnx
from halfbyte.onnx.inlining import CONSTANT_BYTES
from halfbyte.onnx.prepare import prepare
from halfbyte.onnx.reference import arrays
from halfbyte.onnx.session.errors import RuntimeException

LITTLE = 100e6  # bytes that are reported as available


def serialized(
    nodes: list[NodeProto], constants: dict[str, Any], sparse: tuple[Any, ...] = ()
) -> bytes:
    """A model from x [2] to y."""
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(v), name) for name, v in constants.items()],
        sparse_initializer=sparse,
    )  # fmt: skip
    opset = helper.make_opsetid("", 21)
    return bytes(helper.make_model(graph, opset_imports=[opset]).SerializeToString())


def huge_sparse() -> bytes:
    """A sparse initializer of one number in a dense shape of 8.6 GB."""
    sparse = helper.make_sparse_tensor(
        numpy_helper.from_array(np.float32([1]), "s"),
        numpy_helper.from_array(np.int64([7]), "at"),
        [1 << 31, 1],
    )
    return serialized(
        [node("Gather", "s i", "t"), node("Add", "x t", "y")], {"i": np.int64([7])}, (sparse,)
    )


def run(data: bytes) -> Any:
    with halfbyte.InferenceSession(data) as session:
        return session.run(None, {"x": np.float32([1, 2])})[0]


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (arrays, memory):
        monkeypatch.setattr(module, "available_bytes", lambda: LITTLE)


@pytest.mark.usefixtures("little")
def test_a_large_sparse_initializer_takes_no_memory_at_loading() -> None:
    data = huge_sparse()
    tracemalloc.start()
    with halfbyte.InferenceSession(data) as session:
        assert tracemalloc.get_traced_memory()[1] < 2e6
        with pytest.raises(RuntimeException, match=r"node of Constant: .*8\.6 GB.*100 MB are left"):
            session.run(None, {"x": np.float32([1, 2])})
    tracemalloc.stop()


def test_small_sparse_initializers_are_constants() -> None:
    sparse = helper.make_sparse_tensor(
        numpy_helper.from_array(np.float32([1, 5]), "s"),
        numpy_helper.from_array(np.int64([0, 1]), "at"),
        [2],
    )
    data = serialized([node("Add", "x s", "y")], {}, (sparse,))
    np.testing.assert_array_equal(run(data), [2, 7])
    prepared = prepare(open_onnx(data))
    assert [n.op_type for n in prepared.graph.nodes] == ["Add"]


def test_the_total_of_folded_constants_is_bounded() -> None:
    count = 200
    nodes = [node("ConstantOfShape", "size", f"c{i}") for i in range(count)]
    nodes += [node("Add", f"c{i} one", f"d{i}") for i in range(count)]
    nodes += [node("Sum", " ".join(f"d{i}" for i in range(count)), "sum")]
    nodes += [node("ReduceMax", "sum", "most", keepdims=0), node("Add", "x most", "y")]
    data = serialized(nodes, {"size": np.int64([250_000]), "one": np.float32(1)})
    prepared = prepare(open_onnx(data))
    values = prepared.graph.initializers.values()
    assert sum(v.nbytes for v in values if isinstance(v, np.ndarray)) <= CONSTANT_BYTES + 1000
    np.testing.assert_array_equal(run(data), [count + 1, count + 2])


def test_too_much_work_is_not_done_at_loading() -> None:
    """An Einsum of four vectors with 10^13 products."""
    data = serialized(
        [node("Einsum", "c c c c", "e", equation="a,b,c,d->"), node("Add", "x e", "y")],
        {"c": np.ones(1800, np.float32)},
    )
    prepared = prepare(open_onnx(data))
    assert [n.op_type for n in prepared.graph.nodes] == ["Einsum", "Add"]
    small = serialized(
        [node("Einsum", "c c", "e", equation="a,b->"), node("Add", "x e", "y")],
        {"c": np.ones(30, np.float32)},
    )
    assert [n.op_type for n in prepare(open_onnx(small)).graph.nodes] == ["Add"]


def planner(data: bytes) -> GraphPlanner:
    return GraphPlanner(open_onnx(data))


def test_too_much_work_is_not_done_for_a_plan() -> None:
    """Neither with constants nor with zeros in place of unknown values."""
    equation = ",".join(f"{letter}x" for letter in "abcd") + "->abcd"
    nodes = [
        node("MatMul", "column row", "c"),
        node("ReduceSum", "x", "s", keepdims=1),
        node("Mul", "c s", "v"),
        node("ReduceMax", "e", "most", keepdims=0),
        node("Add", "x most", "y"),
    ]
    sides = {"column": np.ones((40, 1), np.float32), "row": np.ones((1, 3000), np.float32)}
    for inputs in ("c c c c", "v v v v"):
        einsum = node("Einsum", inputs, "e", equation=equation)
        data = serialized([*nodes[:3], einsum, *nodes[3:]], sides)
        with pytest.raises(UnsupportedError, match=r"node of Einsum: .*8\.6e\+09.*found 3\.1e\+10"):
            planner(data).plan({})


def test_an_einsum_of_many_terms_is_refused() -> None:
    """The search for an order takes time with the fourth power of their number."""
    count = 300
    equation = ",".join("a" * count) + "->a"
    data = serialized([node("Einsum", " ".join("x" * count), "y", equation=equation)], {})
    with pytest.raises(HalfbyteError, match="Einsum of 300 terms: expected at most 32"):
        run(data)


def test_a_plan_does_not_depend_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    plans = []
    for left in (1e18, LITTLE):
        monkeypatch.setattr(arrays, "available_bytes", lambda left=left: left)
        plans.append(planner(products()).plan({}).memory)
    assert plans[0] == plans[1]
    assert plans[0]["activations"] > 1e9


@pytest.mark.usefixtures("little")
@pytest.mark.parametrize(("levels", "length", "inputs"), [(14, 900, 1), (14, 9, 400)])
def test_functions_that_grow_too_large_are_refused(levels: int, length: int, inputs: int) -> None:
    """Thousands of nodes whose names grow from call to call, or with very many inputs."""
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    name, functions = "n" * length, []
    for level in range(levels):
        kind, domain = (f"{level - 1}{name}", "own") if level else ("Sum", "")
        count = inputs if level == 0 else 1
        twice = [
            helper.make_node(kind, [a] * count, [b], domain=domain)
            for a, b in (("x", name), (name, "y"))
        ]
        functions.append(helper.make_function("own", f"{level}{name}", ["x"], ["y"], twice, opsets))
    graph = helper.make_graph(
        [helper.make_node(f"{levels - 1}{name}", ["x"], ["y"], domain="own")], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )  # fmt: skip
    proto = helper.make_model(graph, functions=functions, opset_imports=opsets)
    with pytest.raises(HalfbyteError, match=r"functions' nodes|more than 262144 nodes"):
        prepare(open_onnx(proto.SerializeToString()))


@pytest.mark.usefixtures("little")
def test_the_scan_outputs_of_a_loop_are_bounded() -> None:
    body = helper.make_graph(
        [node("Identity", "go", "go2"), node("Identity", "big", "each")],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
        ],
        [
            helper.make_tensor_value_info("go2", TensorProto.BOOL, []),
            helper.make_tensor_value_info("each", TensorProto.FLOAT, None),
        ],
    )
    data = serialized(
        [node("Loop", "trips yes", "all", body=body), node("ReduceMax", "all", "y", keepdims=0)],
        {
            "trips": np.int64(1 << 62),
            "yes": np.array(True),
            "big": np.ones(500_000, np.float32),
        },
    )
    with pytest.raises(RuntimeException, match=r"node of Loop: what the iterations scan, 1.. MB"):
        run(data)


def products() -> bytes:
    """A value that becomes eight times as large nine times."""
    nodes = [node("Reshape", "x column", "m0")]
    for i in range(9):
        nodes += [
            node("MatMul", f"m{i} row", f"p{i}"),
            node("Reshape", f"p{i} column", f"m{i + 1}"),
        ]
    nodes += [node("Identity", "m9", "y")]
    return serialized(nodes, {"column": np.int64([-1, 1]), "row": np.ones((1, 8), np.float32)})


@pytest.mark.usefixtures("little")
def test_results_that_do_not_fit_are_refused_by_name() -> None:
    with pytest.raises(RuntimeException, match=r"node of MatMul: a result of .*100 MB are left"):
        run(products())


LARGE = 1 << 26  # elements of float32 that take more than `LITTLE`
_IMAGE = node("Reshape", "x column", "image")
_COLUMN = {"column": np.int64([1, 1, 1, 2]), "roi": np.float32([])}


@pytest.mark.usefixtures("little")
@pytest.mark.parametrize(("nodes", "constants"), [
    ([node("Pad", "x pads", "y")], {"pads": np.int64([0, LARGE])}),
    ([_IMAGE, node("Resize", "image roi scales", "y", mode="nearest")],
     {**_COLUMN, "scales": np.float32([1, 1, LARGE, 1])}),
    ([_IMAGE, node("Resize", "image roi scales", "y", mode="linear")],
     {**_COLUMN, "scales": np.float32([1, 1, 1, LARGE])}),
    ([_IMAGE, node("ConvTranspose", "image w", "y", strides=[1, LARGE])],
     {**_COLUMN, "w": np.ones((1, 1, 1, 1), np.float32)}),
    ([node("Reshape", "x column", "image"),
      node("Conv", "image w", "y", pads=[LARGE, 0, 0, 0, 0, 0], strides=[LARGE, 1, 1])],
     {"column": np.int64([1, 1, 1, 1, 2]), "w": np.ones((1, 1, 2, 1, 2), np.float32)}),
], ids=lambda value: value[-1].op_type if isinstance(value, list) else "")  # fmt: skip
def test_results_that_do_not_fit_are_refused_before_memory_is_taken(
    nodes: list[NodeProto], constants: dict[str, Any]
) -> None:
    data = serialized(nodes, constants)
    with halfbyte.InferenceSession(data) as session:
        tracemalloc.start()
        with pytest.raises(RuntimeException, match=rf"{nodes[-1].op_type}: .*100 MB are left"):
            session.run(None, {"x": np.float32([1, 2])})
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 10e6


def test_a_stride_beyond_the_kernel_takes_no_memory() -> None:
    """One element has one place, whatever the stride is."""
    nodes = [_IMAGE, node("ConvTranspose", "image w", "y", strides=[1 << 40, 1])]
    y = run(serialized(nodes, {**_COLUMN, "w": np.float32([[[[1, 2]]]])}))
    np.testing.assert_array_equal(y, np.float32([[[[1, 4, 4]]]]))


def test_a_resize_to_nothing_takes_no_memory() -> None:
    """The kernel of antialiasing would reach over 2e30 elements."""
    nodes = [_IMAGE, node("Resize", "image roi scales", "y", mode="linear", antialias=1)]
    y = run(serialized(nodes, {**_COLUMN, "scales": np.float32([1, 1, 1e-30, 1])}))
    assert y.shape == (1, 1, 0, 2)


def test_memory_that_a_rule_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*operands: Any) -> None:
        raise MemoryError("Unable to allocate 9 GiB")

    monkeypatch.setattr(Capture, "value", fails)
    with pytest.raises(RuntimeException, match="node of Relu: no memory: Unable to allocate 9 GiB"):
        run(serialized([node("Relu", "x", "y")], {}))


def test_a_plan_that_does_not_fit_names_its_largest_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_bytes", lambda: LITTLE)
    with pytest.raises(RuntimeException, match=r"the largest part is 1074 MB of 'p8'"):
        run(products())


# ---- available memory --------------------------------------------------------------------------


def test_the_limit_of_addresses_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    monkeypatch.setattr(resource, "getrlimit", lambda which: (used + 50_000_000, -1))
    assert 0 < room.available_bytes() <= 50_000_000


def test_the_limit_of_a_control_group_counts(tmp_path: Path) -> None:
    assert room._group_bytes(str(tmp_path)) == float("inf")
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("700\n")
    assert room._group_bytes(str(tmp_path)) == float("inf")
    (tmp_path / "memory.max").write_text("1000\n")
    assert room._group_bytes(str(tmp_path)) == 300
    (tmp_path / "memory.stat").write_text("anon 600\ninactive_file 60\nactive_file 40\n")
    assert room._group_bytes(str(tmp_path)) == 400


def test_memory_errors_of_python_become_ours() -> None:
    with (
        pytest.raises(OutOfMemoryError, match="model: no memory: nothing is left"),
        room.memory_for("model"),
    ):
        raise MemoryError


@pytest.mark.parametrize("operator", ["Expand", "Reshape"])
@pytest.mark.parametrize("rank", [33, 64, 300])
def test_too_many_dimensions_are_refused(operator: str, rank: int) -> None:
    data = serialized([node(operator, "x s", "y")], {"s": np.int64([*[1] * (rank - 1), 2])})
    with pytest.raises(HalfbyteError, match=f"node of {operator}: .*{rank}"):
        run(data)
