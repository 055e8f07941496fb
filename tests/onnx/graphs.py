"""Small graphs for tests, and their results: by definitions, by programs and by ONNX Runtime."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from onnx import TensorProto, helper
from tests.onnx.convert import model_from
from tests.onnx.exact_sums import EXACT
from tools.onnx_models.builder import FLOAT, GraphBuilder

from halfbyte.core.backends import open_program
from halfbyte.onnx.evaluate import Evaluator
from halfbyte.onnx.prepare import prepare
from halfbyte.onnx.runner import Runner

Array = npt.NDArray[Any]
NUMBERS = {
    np.dtype(np.float32): FLOAT, np.dtype(np.int64): TensorProto.INT64,
    np.dtype(np.bool_): TensorProto.BOOL, np.dtype(np.uint8): TensorProto.UINT8,
    np.dtype(np.int8): TensorProto.INT8, np.dtype(np.int32): TensorProto.INT32,
    np.dtype(np.float16): TensorProto.FLOAT16, np.dtype(np.float64): TensorProto.DOUBLE,
}  # fmt: skip


class Net(GraphBuilder):
    """A graph with the values of its inputs, in `feeds`."""

    def __init__(self, opset: int = 17, seed: int = 0) -> None:
        super().__init__("net", opset)
        self.feeds: dict[str, Array] = {}
        self._random = np.random.default_rng(seed)

    def numbers(self, *shape: int, dtype: npt.DTypeLike = np.float32) -> Array:
        """Normally distributed random numbers."""
        return self._random.standard_normal(shape).astype(dtype)

    def x(self, *shape: int, name: str = "", dtype: npt.DTypeLike = np.float32) -> str:
        """An input of random numbers, declared with its rank but without sizes."""
        return self.feed(self.numbers(*shape, dtype=dtype), name)

    def feed(self, values: Array, name: str = "") -> str:
        """An input of these values."""
        name = name or f"x{len(self.feeds)}"
        self.feeds[name] = values
        dims = [f"{name}_{i}" for i in range(values.ndim)]
        return self.input(name, NUMBERS[values.dtype], dims)

    def w(self, *shape: int, scale: float = 1.0) -> str:
        """An initializer of random numbers."""
        return self.array(self.numbers(*shape) * np.float32(scale))

    def array(self, values: Any, dtype: npt.DTypeLike = None) -> str:
        """An initializer."""
        return self.weight(f"w{len(self._initializers)}", np.asarray(values, dtype))

    def proto(self, *outputs: str) -> onnx.ModelProto:
        """The model with these outputs, whose types ONNX infers."""
        model = self.model()
        del model.graph.output[:]
        model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs)
        inferred = onnx.shape_inference.infer_shapes(model)
        types = {v.name: v for v in (*inferred.graph.value_info, *inferred.graph.output)}
        types |= {v.name: v for v in inferred.graph.input}
        for value in model.graph.output:
            value.CopyFrom(types[value.name])
        domains = {node.domain for node in model.graph.node} - {""}
        model.opset_import.extend(helper.make_opsetid(domain, 1) for domain in sorted(domains))
        return model


def by_definition(proto: onnx.ModelProto, feeds: Mapping[str, Any]) -> list[Any]:
    """The outputs of the original graph, node by node."""
    return list(Evaluator(model_from(proto)).run(feeds).values())


def by_onnxruntime(
    proto: onnx.ModelProto, feeds: Mapping[str, Any], level: str = "DISABLE_ALL"
) -> list[Any]:
    """The outputs of ONNX Runtime on one thread; by default, it rewrites nothing."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_{level}")
    options.add_session_config_entry(*EXACT)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options)
    return list(session.run(None, dict(feeds)))


def runner(
    proto: onnx.ModelProto, backend: str = "native", threads: int = 1, **options: Any
) -> Runner:
    """A runner of the prepared graph."""
    model = prepare(model_from(proto))
    return Runner(model, lambda program: open_program(program, backend, threads), **options)


def outputs_of(run: Runner, feeds: Mapping[str, Any]) -> list[Any]:
    """All outputs."""
    return list(run.run(feeds, [v.name for v in run.model.graph.outputs]).values())


def by_programs(
    proto: onnx.ModelProto, feeds: Mapping[str, Any], backend: str = "native"
) -> list[Any]:
    """The outputs of programs on a backend."""
    return outputs_of(runner(proto, backend), feeds)


def kinds(proto: onnx.ModelProto) -> Counter[str]:
    """The number of nodes of each operator in the prepared graph."""
    return Counter(node.op_type for node in prepare(model_from(proto)).graph.nodes)


def assert_close(
    actual: Sequence[Any], expected: Sequence[Any], bound: float = 1e-5, where: str = ""
) -> None:
    """Same types and shapes; floats differ by at most `bound` of the largest."""
    assert len(actual) == len(expected)
    for index, (ours, theirs) in enumerate(zip(actual, expected, strict=True)):
        label = f"{where} output {index}"
        assert ours.dtype == theirs.dtype, label
        assert ours.shape == theirs.shape, f"{label}: {ours.shape}, expected {theirs.shape}"
        if theirs.dtype.kind != "f" or not theirs.size:
            np.testing.assert_array_equal(ours, theirs, err_msg=label)
            continue
        finite = np.isfinite(theirs)
        np.testing.assert_array_equal(finite, np.isfinite(ours), err_msg=label)
        np.testing.assert_array_equal(ours[~finite], theirs[~finite], err_msg=label)
        largest = max(1.0, float(np.abs(theirs[finite]).max(initial=0)))
        worst = float(np.abs(ours[finite] - theirs[finite]).max(initial=0))
        assert worst <= bound * largest, f"{label}: differs by {worst} of {largest}"


def check(proto: onnx.ModelProto, feeds: Mapping[str, Any], bound: float = 1e-5) -> None:
    """The fused graph, programs and ONNX Runtime agree with the definitions of the graph."""
    wanted = by_definition(proto, feeds)
    fused = list(Evaluator(prepare(model_from(proto))).run(feeds).values())
    assert_close(fused, wanted, bound, "fused:")
    assert_close(by_programs(proto, feeds), wanted, bound, "native:")
    assert_close(by_onnxruntime(proto, feeds), wanted, bound, "onnxruntime:")
