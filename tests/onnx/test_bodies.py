"""Bodies of If, Loop and Scan as programs, and branches that are chosen before a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import helper, parser
from tests.onnx.convert import model_from
from tests.onnx.graphs import assert_close, by_definition, by_onnxruntime, outputs_of, runner
from tests.onnx.test_control import HEAD, LOOP, NESTED, SCAN
from tests.support import wasm

from halfbyte.onnx.evaluate import Evaluator
from halfbyte.onnx.files import open_onnx
from halfbyte.onnx.graph_programs import GraphPrograms
from halfbyte.onnx.prepare import prepare
from halfbyte.onnx.runner import Runner

Array = npt.NDArray[Any]
X = np.arange(12, dtype=np.float32).reshape(3, 4) / 7

# Both branches multiply by the same matrix, and use the same names for other values
BRANCHES = """
m (CONDITION, float[n, 4] x, float[4, 4] v) => (float[n, 4] y, float[a, b] z)
<float[4, 4] w> {
  twice = Add (x, x)
  sizes = Shape (twice)
  flat = Constant <value = int64[1] {-1}> ()
  SETUP
  y, z = If (c) <
    then_branch = t () => (float[n, 4] r, float[a, b] s) {
      p = MatMul (twice, w)
      h = Relu (p)
      one = Constant <value = float {1.0}> ()
      r = Add (h, one)
      s = Reshape (r, sizes)
    },
    else_branch = e () => (float[n, 4] r, float[a, b] u) {
      u = Identity (twice)
      p = MatMul (x, w)
      one = Constant <value = float {3.0}> ()
      q = Mul (p, one)
      r = Sub (q, twice)
    }>
}"""


def model(text: str, **initializers: Array) -> onnx.ModelProto:
    proto = parser.parse_model(HEAD + text)
    for name, value in initializers.items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
        for given in [v for v in proto.graph.input if v.name == name]:
            proto.graph.input.remove(given)
    return proto


def branches(condition: str, setup: str = "") -> onnx.ModelProto:
    text = BRANCHES.replace("CONDITION", condition).replace("SETUP", setup)
    text = text.replace(", float[4, 4] v", "").replace("<float[4, 4] w>", "")
    w = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)
    return model(text, w=w)


def assert_same(proto: onnx.ModelProto, run: Runner, feeds: Mapping[str, Any]) -> None:
    ours = outputs_of(run, feeds)
    assert_close(ours, by_definition(proto, feeds))
    assert_close(ours, by_onnxruntime(proto, feeds))


class Between:
    """Lists the nodes that ran between programs."""

    def __init__(self) -> None:
        self.nodes: list[str] = []

    def program(self, *arguments: Any) -> None: ...

    def node(self, node: Any, *arguments: Any) -> None:
        self.nodes.append(node.op_type)


def between(run: Runner, feeds: Mapping[str, Any]) -> list[str]:
    observer = Between()
    run.run(feeds, [v.name for v in run.model.graph.outputs], observer)
    return observer.nodes


def operators(run: Runner) -> list[str]:
    return [i.operator.name for program in run.programs() for i in program.instructions]


@pytest.mark.parametrize(("condition", "setup", "values"), [
    ("bool[1] c", "", ([True], [False])),
    ("int64 rate", "k = Constant <value = int64 {8}> ()  c = Equal (rate, k)", (8, 16)),
])  # fmt: skip
def test_a_condition_of_few_numbers_is_known_before_the_run(
    condition: str, setup: str, values: Sequence[Any]
) -> None:
    """Each branch is one program with the nodes around it, and both share the packed weights."""
    proto = branches(condition, setup)
    run = runner(proto)
    name = condition.split()[1]
    for value in (*values, *values):
        feeds = {name: np.array(value), "x": X}
        assert_same(proto, run, feeds)
        assert between(run, feeds) == []
    assert len(run.programs()) == 2
    packed = [
        i.inputs[1].root
        for program in run.programs()
        for i in program.instructions
        if i.operator.name == "matmul_panels"
    ]
    assert len(packed) == 2
    assert packed[0] is packed[1]


def test_a_condition_of_computed_numbers_runs_its_branch_as_a_program() -> None:
    """Shapes around a branch are constants in it, also when they change."""
    setup = (
        "m = ReduceMax <keepdims = 0> (x)  k = Constant <value = float {1.0}> ()  c = Less(m, k)"
    )
    proto = branches("bool unused", setup)
    del proto.graph.input[0]
    run = runner(proto, name_sizes=False)
    large = np.concatenate([X, X])  # more than a few numbers
    for x in (large, -large, large[:5], -large[:5], large):
        assert_same(proto, run, {"x": x})
        assert between(run, {"x": x}) == ["If"]
    assert "host" not in " ".join(operators(run)).lower()
    assert operators(run).count("matmul_panels") == 4  # two shapes of each branch


@pytest.mark.parametrize("taken", [True, False])
def test_a_constant_condition_is_chosen_at_preparation(taken: bool) -> None:
    proto = branches("bool c")
    del proto.graph.input[0]
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array(taken), "c"))
    run = runner(proto)
    assert "If" not in [node.op_type for node in run.model.graph.nodes]
    assert_same(proto, run, {"x": X})
    for branch in proto.graph.node[-1].attribute:  # a result from outside, which we accept
        branch.g.output[1].name = "twice"
    assert_close(outputs_of(runner(proto), {"x": X}), by_definition(proto, {"x": X}))


def test_prepared_bodies_are_graphs_that_the_definitions_run() -> None:
    proto = branches("bool[1] c")
    prepared = prepare(model_from(proto))
    (node,) = (node for node in prepared.graph.nodes if node.op_type == "If")
    kinds = [inner.op_type for inner in node.attributes["then_branch"].nodes]
    assert "Constant" not in kinds
    assert len(kinds) < 5  # product and activation are one node
    for value in ([True], [False]):
        feeds = {"c": np.array(value), "x": X}
        outputs = list(Evaluator(prepared).run(feeds).values())
        assert_close(outputs, by_onnxruntime(proto, feeds))


@pytest.mark.parametrize("text", [LOOP, NESTED])
@pytest.mark.parametrize("trips", [0, 1, 5])
def test_loops(text: str, trips: int) -> None:
    proto = model(text)
    run = runner(proto)
    feeds = {"n": np.array(trips, np.int64), "go": np.array(True), "x": X}
    for _ in range(2):
        assert_same(proto, run, feeds)
    if trips:
        assert "binary" in operators(run)


def test_scans() -> None:
    proto = model(SCAN.replace("ATTRIBUTES", "scan_output_axes = [1]"))
    assert_same(proto, runner(proto), {"s": np.ones(4, np.float32), "x": X})


def test_values_that_trade_places_and_grow() -> None:
    """An iteration's results are its inputs in another order, and one is longer each time."""
    proto = model(
        """
    m (int64 n, float[2] x) => (float[2] p, float[2] q, float[k] all) {
      go = Constant <value = int64 {1}> ()
      yes = Cast <to = 9> (go)
      y = Neg (x)
      p, q, all = Loop (n, yes, x, y, x) <body = b (int64 i, bool c, float[2] a, float[2] b,
          float[l] long) => (bool d, float[2] b, float[2] a, float[h] longer) {
        d = Identity (c)
        sum = Add (a, x)
        longer = Concat <axis = 0> (long, sum)
      }>
    }""".replace("float[2] b, float[2] a, float[h]", "float[2] b2, float[2] a2, float[h]").replace(
            "sum = Add", "b2 = Identity (b)  a2 = Identity (a)  sum = Add"
        )
    )
    run = runner(proto)
    for trips in (3, 4):
        assert_same(proto, run, {"n": np.array(trips, np.int64), "x": X[0, :2]})


def test_a_name_inside_a_branch_is_not_the_condition_outside() -> None:
    """The inner If reads the value of its own graph."""
    graph = parser.parse_graph("""
    g (bool[1] c, float[2] x) => (float[2] y) {
      y = If (c) <
        then_branch = t () => (float[2] r) {
          k = Not (c)
          r = If (k) <then_branch = tt () => (float[2] u) { u = Neg (x) },
                      else_branch = te () => (float[2] u) { u = Exp (x) }>
        },
        else_branch = e () => (float[2] r) {
          r = If (c) <then_branch = et () => (float[2] u) { u = Abs (x) },
                      else_branch = ee () => (float[2] u) { u = Sqrt (x) }>
        }>
    }""")
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    run = runner(proto)
    for value in ([True], [False]):
        assert_same(proto, run, {"c": np.array(value), "x": X[1, :2]})


def test_a_plan_has_the_programs_of_bodies() -> None:
    proto = model(LOOP)
    run = runner(proto)
    feeds = {"n": np.array(3, np.int64), "go": np.array(True), "x": X}
    planned = [i.operator.name for program in run.plan(feeds) for i in program.instructions]
    assert planned.count("binary") + planned.count("add") >= 1
    run.close()


def test_bodies_are_kept_by_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second run of the same shapes captures nothing."""
    proto = model(NESTED)
    run = runner(proto)
    feeds = {"n": np.array(4, np.int64), "go": np.array(True), "x": X}
    outputs_of(run, feeds)

    def refuse(*arguments: Any) -> None:
        raise AssertionError("captured again")

    monkeypatch.setattr(GraphPrograms, "_capture", refuse)
    assert_close(outputs_of(run, feeds), by_onnxruntime(proto, feeds))


def test_a_branch_may_have_a_value_named_as_the_condition() -> None:
    """ONNX Runtime refuses such a graph; inside, the name is that of the inner value."""
    proto = model("""
    m (bool[1] c, float[2] x) => (float[2] y) {
      y = If (c) <
        then_branch = t () => (float[2] r) {
          k = ReduceMax <keepdims = 0> (x)
          c = Less (k, k)
          r = If (c) <then_branch = tt () => (float[2] u) { u = Neg (x) },
                      else_branch = te () => (float[2] u) { u = Exp (x) }>
        },
        else_branch = e () => (float[2] r) { r = Abs (x) }>
    }""")
    feeds = {"c": np.array([True]), "x": X[1, :2]}
    assert_close(outputs_of(runner(proto), feeds), [np.exp(X[1, :2])])


def test_constants_around_a_body_follow_from_shapes() -> None:
    """The body has no other operand whose shape changes."""
    proto = model("""
    m (float[n, 4] x) => (float[2] y) {
      total = ReduceSum <keepdims = 0> (x)
      sizes = Shape (x)
      k = Constant <value = float {0.0}> ()
      c = Less (total, k)
      y = If (c) <then_branch = t () => (float[2] r) { f = Cast <to = 1> (sizes)
                                                       r = Mul (f, total) },
                  else_branch = e () => (float[2] s) { g = Cast <to = 1> (sizes)
                                                       s = Add (g, total) }>
    }""")
    run = runner(proto)
    for count in (5, 6, 7):
        for sign in (1, -1):
            x = np.full((count, 4), sign / 8, np.float32)
            assert_same(proto, run, {"x": x})
            assert between(run, {"x": x}) == ["If"]


def test_constants_of_branches_with_one_name() -> None:
    """Each is another value in the graph around them."""
    branch = "{name} () => (float[2] r{name}) <float k = {{VALUE}}> {{ r{name} = Add (x, k) }}"
    nodes = [
        f"y{i} = If (c) <then_branch = {branch.format(name=f't{i}').replace('VALUE', f'{i}.5')}, "
        f"else_branch = {branch.format(name=f'e{i}').replace('VALUE', f'{i}.25')}>"
        for i in range(2)
    ]
    proto = model(
        f"m (float[2] x) => (float[2] y0, float[2] y1) <bool c = {{1}}> {{ {' '.join(nodes)} }}"
    )
    run = runner(proto)
    assert "If" not in [node.op_type for node in run.model.graph.nodes]
    assert_same(proto, run, {"x": X[0, :2]})


def test_a_condition_of_many_nodes_ends_a_program() -> None:
    """However long the chain is, it is neither followed to its end nor computed twice."""
    chain = " ".join(f"c{i + 1} = Not (c{i})" for i in range(2000))
    proto = model(f"""
    m (bool[1] c0, float[2] x) => (float[2] y) {{
      {chain}
      y = If (c2000) <then_branch = t () => (float[2] r) {{ r = Neg (x) }},
                      else_branch = e () => (float[2] s) {{ s = Abs (x) }}>
    }}""")
    run = runner(proto)
    feeds = {"c0": np.array([True]), "x": X[1, :2]}
    assert between(run, feeds) == ["If"]
    assert_close(outputs_of(run, feeds), [-X[1, :2]])


def test_weights_of_bodies_in_memory_apart(tmp_path: Path) -> None:
    """As in a tab: those around both branches are packed once, and so is each branch's own."""
    size = 40  # its matrices are large enough to leave NumPy's memory
    proto = model(f"""
    m (float[n, {size}] x) => (float[n, {size}] y) {{
      most = ReduceMax <keepdims = 0> (x)
      k = Constant <value = float {{2.0}}> ()
      c = Less (most, k)
      y = If (c) <then_branch = t () => (float[n, {size}] r) {{ h = MatMul (x, w)  r = Relu (h) }},
                  else_branch = e () => (float[n, {size}] s) {{ v = Neg (w)  h = MatMul (x, w)
                                                                 s = MatMul (h, v) }}>
    }}""")
    w = np.random.default_rng(0).standard_normal((size, size)).astype(np.float32) / 8
    proto.graph.initializer.append(onnx.numpy_helper.from_array(w, "w"))
    path = tmp_path / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    memory = wasm.reused("simd128").memory
    prepared = prepare(open_onnx(path, memory=memory))
    run = Runner(prepared, wasm.opener("simd128"), memory=memory)
    for count in (1, 3):
        for top in (1, 4):
            x = np.full((count, size), top, np.float32)
            assert_close(outputs_of(run, {"x": x}), by_onnxruntime(proto, {"x": x}), 1e-5)
    products = [
        i.inputs[1].root
        for program in run.programs()
        for i in program.instructions
        if i.operator.name == "matmul_panels"
    ]
    assert len(products) == 6
    assert len(set(map(id, products))) == 2
