"""How to add an operator: by three declarations, from which everything else follows.

Snake, y = x + sin(a x)^2 / a with a factor for each column (Ziyin, Hartwig and Ueda 2020, Neural
Networks Fail to Learn Periodic Functions), is in no file of the package. The fixture declares it as
files of the package would: its meaning (`ops/`), its definition (`onnx/reference/`) and its rule
(`onnx/lowering/`). With a kernel it would have a line in kernels.h and a body instead of `host`.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.onnx.convert import model_from

import halfbyte
from halfbyte.core import ops
from halfbyte.core.backends import open_program
from halfbyte.core.ops import Operator, operator
from halfbyte.core.passes import plan_memory
from halfbyte.core.program import Program, capture
from halfbyte.device.cost import Cost, Rates, work_of
from halfbyte.device.kernels import HOST, kernel_of, usual_kernels
from halfbyte.errors import ProgramError
from halfbyte.onnx.calls import Call
from halfbyte.onnx.capture import Capture
from halfbyte.onnx.files.model import Node
from halfbyte.onnx.lowering import registry as rules
from halfbyte.onnx.prepare import prepare
from halfbyte.onnx.reference import _shapes, registry
from halfbyte.onnx.reference._numbers import rounded, widened
from halfbyte.onnx.runner import Runner
from halfbyte.onnx.values import Value

Array = npt.NDArray[Any]
DOMAIN = "example.snakes"
WIDTH = 32
SLICES = importlib.import_module("halfbyte.onnx.passes.slice_rows")


def declared() -> Operator:
    """The declarations, as the package's own files would have them."""

    def snake_of(x: Array, a: Array) -> Array:
        """The formula, once, in x's type."""
        return np.asarray(x + np.square(np.sin(a * x)) / a)

    @operator("Snake", "x:f32[n,d] a:f32[d] -> y:f32[n,d]", rows="n", like="unary", host=True)
    def snake(x: Array, a: Array) -> Array:
        """y = x + sin(a x)^2 / a."""
        return snake_of(x, a)

    @registry.define("Snake", domain=DOMAIN, types="a1 a > a", infer=_shapes.same)
    def definition(x: Array, a: Array) -> Array:
        """x + sin(a x)^2 / a; a is over the last axis."""
        return rounded(snake_of(widened(x), widened(a)), x.dtype)

    @rules.lower("Snake", domain=DOMAIN)
    def rule(c: Capture, x: Value, a: Any) -> Value | None:
        """Of float32 rows."""
        if x.dtype != "f32" or a.shape != x.shape[-1:]:
            return None
        return c.value(snake(c.matrix(x, x.size // x.shape[-1], x.shape[-1]), c.plain(a)), x.shape)

    return snake


@pytest.fixture
def snake() -> Iterator[Operator]:
    yield declared()
    del (
        ops.OPERATORS["snake"],
        registry._DEFINITIONS[DOMAIN, "Snake"],
        rules._RULES[DOMAIN, "Snake"],
    )


def expected(x: Array, a: Array) -> Array:
    return x + np.sin(a * x) ** 2 / a


def numbers(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).uniform(0.5, 2, shape).astype(np.float32)


def model_of(dtype: int = TensorProto.FLOAT) -> onnx.ModelProto:
    """Two products with snakes between them."""
    kind = helper.tensor_dtype_to_np_dtype(dtype)
    constants = [
        numpy_helper.from_array(value.astype(kind), name)
        for name, value in (("v", numbers(WIDTH, WIDTH)), ("a", numbers(WIDTH)))
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "v"], ["p"]),
        helper.make_node("Snake", ["p", "a"], ["q"], domain=DOMAIN, name="coiled"),
        helper.make_node("MatMul", ["q", "v"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(name, dtype, ["rows", WIDTH]) for name in "xy")
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    graph = helper.make_graph(nodes, "snakes", [x], [y], constants)
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def runner_of(backend: str, **options: Any) -> Runner:
    model = prepare(model_from(model_of(), "snakes.onnx"))
    return Runner(model, lambda program: open_program(program, backend, 1), **options)


def wanted(x: Array) -> Array:
    v, a = numbers(WIDTH, WIDTH).astype(np.float64), numbers(WIDTH).astype(np.float64)
    return expected(x.astype(np.float64) @ v, a) @ v


def test_it_computes_and_is_recorded(snake: Operator, backend: str) -> None:
    """Without a kernel every backend runs its meaning, for the number of rows of a run."""
    x, a = numbers(5, 8), numbers(8)
    np.testing.assert_allclose(snake(x, a), expected(x, a), rtol=1e-6)
    with capture("snakes") as program:
        n = program.size("n", 5)
        x_in, a_in = program.input("x", "f32", (n, 8)), program.input("a", "f32", (8,))
        program.output("y", snake(x_in, a_in))
        with pytest.raises(ProgramError, match=r"snake: operand 'a'.*expected d = 8, found 7"):
            snake(x_in, program.input("b", "f32", (7,)))
    executable = open_program(plan_memory(program), backend, 1)
    executable.array(x_in)[:3], executable.array(a_in)[:] = x[:3], a
    executable.run({"n": 3})
    np.testing.assert_array_equal(executable.array(program.outputs["y"])[:3], snake(x[:3], a))
    executable.close()


def test_a_session_runs_it(snake: Operator) -> None:
    session = halfbyte.InferenceSession(model_of().SerializeToString())
    x = numbers(7, WIDTH)
    (y,) = session.run(None, {"x": x})
    np.testing.assert_allclose(y, wanted(x), rtol=1e-4)


@pytest.mark.parametrize("backend", ["numpy", "native"])
def test_batches_go_through_it_in_slices(
    snake: Operator, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = numbers(64, WIDTH)
    runner = runner_of(backend)
    whole = runner.run({"x": x}, ["y"])["y"]
    monkeypatch.setattr(SLICES, "CACHE", 1)
    monkeypatch.setattr(SLICES, "MIN_ROWS", 16)
    cut = runner_of(backend)
    np.testing.assert_allclose(cut.run({"x": x}, ["y"])["y"], whole, rtol=1e-6)
    counts = [sum(i.operator is snake for i in p.instructions) for p in programs(runner, cut)]
    assert counts == [1, 4]


def programs(*runners: Runner) -> list[Program]:
    every = [program for runner in runners for program in runner.programs()]
    for runner in runners:
        runner.close()
    return every


def test_its_time_is_estimated(snake: Operator) -> None:
    """As NumPy's time; with a kernel, as the time of the operator that it names as `like`."""
    runner = runner_of("numpy")
    (program,) = runner.plan({"x": numbers(16, WIDTH)})
    work = work_of(program, {})[HOST]
    assert (work.calls, work.passing) == (1, 4 * WIDTH * (2 * 16 + 1))
    one = np.ones(1)
    rates = Rates(1e9 * one, 1e9 * one, 1e9 * one, one, 0 * one, 0 * one)
    seconds = dict(Cost(program, {}, {}).by_kind(rates))
    assert seconds[HOST][0] > 0
    assert kernel_of("snake", {}) == usual_kernels()["unary"]
    runner.close()


def test_shapes_follow_without_running_it(snake: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a type that its rule does not support, the definition runs once per run."""
    model = prepare(model_from(model_of(TensorProto.DOUBLE), "snakes.onnx"))
    calls, call = list[str](), Call.quietly

    def counted(self: Call, given: Any) -> Any:
        calls.append(self.definition.name)
        return call(self, given)

    monkeypatch.setattr(Call, "quietly", counted)
    runner = Runner(model, lambda program: open_program(program, "native", 1))
    x = numbers(3, WIDTH).astype(np.float64)
    (program,) = runner.plan({"x": x})
    assert [i.operator.name for i in program.instructions] == ["MatMul", "Snake", "MatMul"]
    assert calls == []
    y = runner.run({"x": x}, ["y"])["y"]
    assert calls == ["MatMul", "Snake", "MatMul"]
    np.testing.assert_allclose(y, wanted(x), rtol=1e-10)
    runner.close()


def test_its_rank_and_its_types_are_known(snake: Operator) -> None:
    definition = registry.lookup(DOMAIN, "Snake", 1, "here")
    node = Node("Snake", ("p", "a"), ("q",), {}, DOMAIN)
    assert definition.infer.rank is not None
    assert definition.infer.rank([4, 1], node, lambda place: None) == 4
    model = model_of()
    model.graph.initializer[1].CopyFrom(numpy_helper.from_array(np.ones(WIDTH, np.float16), "a"))
    with pytest.raises(ProgramError, match=r"coiled.*input 1 is float16, expected float32"):
        prepare(model_from(model, "snakes.onnx"))
