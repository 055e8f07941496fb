"""Small ONNX models for the tests of their quantization, and ONNX Runtime, which judges them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from onnx import NodeProto, TensorProto, helper, numpy_helper
from tests.onnx.exact_sums import exact_sums

Array = npt.NDArray[Any]
Shape = Sequence[int | str]

node = helper.make_node


def normal(*shape: int, seed: int = 0) -> npt.NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def write(
    path: Path,
    nodes: Iterable[NodeProto],
    inputs: Mapping[str, tuple[int, Shape]],
    outputs: Mapping[str, tuple[int, Shape]],
    tensors: Mapping[str, Array],
    *,
    opset: int = 17,
    ir: int = 8,
    overridable: Iterable[str] = (),
    functions: Sequence[onnx.FunctionProto] = (),
    domains: Iterable[str] = (),
) -> Path:
    """A checked model file; initializers in `overridable` are inputs as well."""
    values = [helper.make_tensor_value_info(n, *kind) for n, kind in inputs.items()]
    for name in overridable:
        tensor = numpy_helper.from_array(tensors[name])
        values.append(helper.make_tensor_value_info(name, tensor.data_type, tensors[name].shape))
    graph = helper.make_graph(
        nodes,
        "graph",
        values,
        [helper.make_tensor_value_info(n, *kind) for n, kind in outputs.items()],
        [numpy_helper.from_array(np.ascontiguousarray(v), n) for n, v in tensors.items()],
    )
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=ir, functions=functions)
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return path


def products(path: Path, *, dtype: type = np.float32, opset: int = 17) -> Path:
    """An embedding, MatMul, Gemm with a bias, and a head tied to the embedding."""
    kind = TensorProto.FLOAT if dtype is np.float32 else TensorProto.FLOAT16
    nodes = [
        node("Gather", ["table", "ids"], ["rows"], name="embedding"),
        node("MatMul", ["rows", "up"], ["wide"], name="up_product"),
        node("Relu", ["wide"], ["active"]),
        node("Reshape", ["active", "flat"], ["active2"]),
        node("Gemm", ["active2", "down", "bias"], ["narrow"], name="down_product", transB=1),
        node("Transpose", ["table"], ["transposed"], perm=[1, 0]),
        node("MatMul", ["narrow", "transposed"], ["logits"], name="head"),
    ]
    tensors = {
        "table": normal(100, 64, seed=1), "up": normal(64, 80, seed=2) / 8,
        "down": normal(64, 80, seed=3) / 9, "bias": normal(64, seed=4),
    }  # fmt: skip
    constants: dict[str, Array] = {name: x.astype(dtype) for name, x in tensors.items()}
    constants["flat"] = np.array([-1, 80])
    return write(
        path, nodes, {"ids": (TensorProto.INT64, ["n", "t"])}, {"logits": (kind, ["m", 100])},
        constants, opset=opset,
    )  # fmt: skip


def convolutions(path: Path, *, opset: int = 17) -> Path:
    """Two convolutions with BatchNormalization and ReLU6, a residual, pooling and a classifier."""
    ends = ["low", "high"] if opset >= 11 else []
    limits = {} if opset >= 11 else {"min": 0.0, "max": 6.0}
    nodes = [
        node("Conv", ["x", "first"], ["a"], name="first_conv", pads=[1, 1, 1, 1]),
        node("BatchNormalization", ["a", "gain", "shift", "mean", "variance"], ["b"]),
        node("Clip", ["b", *ends], ["c"], **limits),
        node("Conv", ["c", "second", "bias"], ["d"], name="second_conv", group=8, pads=[1] * 4),
        node("Relu", ["d"], ["e"]),
        node("Add", ["c", "e"], ["f"], name="residual"),
        node("GlobalAveragePool", ["f"], ["g"]),
        node("Flatten", ["g"], ["h"]),
        node("Gemm", ["h", "head", "head_bias"], ["y"], name="head_product", transB=1),
    ]
    tensors: dict[str, Array] = {
        "first": normal(8, 3, 3, 3, seed=1) / 4, "gain": 1 + normal(8, seed=2) / 4,
        "shift": normal(8, seed=3), "mean": normal(8, seed=4), "variance": 1 + normal(8, seed=5)**2,
        "second": normal(8, 1, 3, 3, seed=6) / 2, "bias": normal(8, seed=7),
        "head": normal(40, 8, seed=8), "head_bias": normal(40, seed=9),
    }  # fmt: skip
    if ends:
        tensors |= {"low": np.array(0, np.float32), "high": np.array(6, np.float32)}
    return write(
        path, nodes, {"x": (TensorProto.FLOAT, ["n", 3, 12, 12])},
        {"y": (TensorProto.FLOAT, ["n", 40])}, tensors, opset=opset,
    )  # fmt: skip


def session(
    path: Path | str, *, level: str = "ALL", optimized: Path | None = None
) -> onnxruntime.InferenceSession:
    """A session of ONNX Runtime on one thread; the optimized graph is written to `optimized`."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    exact_sums(options, path)
    options.graph_optimization_level = getattr(
        onnxruntime.GraphOptimizationLevel, f"ORT_{'ENABLE_ALL' if level == 'ALL' else level}"
    )
    if optimized is not None:
        options.optimized_model_filepath = str(optimized)
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def run(path: Path | str, feeds: Mapping[str, Array], **options: Any) -> list[Array]:
    """All outputs; the file is checked first."""
    onnx.checker.check_model(str(path), full_check=True)
    actual: list[Array] = session(path, **options).run(None, dict(feeds))
    return actual


def cosine(a: Array, b: Array) -> float:
    x, y = a.astype(np.float64).reshape(-1), b.astype(np.float64).reshape(-1)
    return float(x @ y / np.sqrt((x @ x) * (y @ y)))


def load(path: Path | str) -> onnx.ModelProto:
    return onnx.load(str(path))


def tensors_of(path: Path | str) -> dict[str, Array]:
    """Initializers by name."""
    return {t.name: numpy_helper.to_array(t) for t in load(path).graph.initializer}


def operators(path: Path | str) -> list[str]:
    """Operators of the main graph, sorted."""
    return sorted(n.op_type for n in load(path).graph.node)


def attributes(model_node: NodeProto) -> dict[str, Any]:
    return {a.name: helper.get_attribute_value(a) for a in model_node.attribute}


def find(path: Path | str, *, op: str = "", name: str = "") -> NodeProto:
    """The only node of an operator, or of a name."""
    (result,) = (
        n for n in load(path).graph.node if (not op or n.op_type == op) and name in ("", n.name)
    )
    return result


IDS = {"ids": np.random.default_rng(5).integers(0, 100, (3, 7))}
PICTURES = {"x": normal(2, 3, 12, 12, seed=11)}
