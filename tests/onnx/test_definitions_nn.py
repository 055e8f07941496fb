"""Neural-network operators: our definitions, older versions too, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from tests.onnx.convert import model_from
from tests.onnx.nn_cases import Array, Case, all_cases

from halfbyte.onnx.evaluate import Evaluator
from halfbyte.onnx.reference import find


def built(case: Case, results: list[Array] | None = None) -> onnx.ModelProto:
    """A model of the case's node; its outputs have the types of `results`."""
    values = case.values()
    names = [f"x{i}" if value is not None else "" for i, value in enumerate(values)]
    outputs = [f"y{i}" for i in range(case.outputs)]
    node = helper.make_node(case.operator, names, outputs, **case.attributes)
    inputs = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
        )
        for name, value in zip(names, values, strict=True)
        if value is not None
    ]
    kinds = [TensorProto.FLOAT] * case.outputs
    if results is not None:
        kinds = [helper.np_dtype_to_tensor_dtype(value.dtype) for value in results]
    infos = [helper.make_tensor_value_info(n, k, None) for n, k in zip(outputs, kinds, strict=True)]
    graph = helper.make_graph([node], "case", inputs, infos)
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", case.opset)], ir_version=8
    )


def feeds(case: Case) -> dict[str, Any]:
    return {f"x{i}": value for i, value in enumerate(case.values()) if value is not None}


def judged(case: Case, results: list[Array]) -> list[Array]:
    """ONNX Runtime's results."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    model = built(case, results).SerializeToString()
    session = onnxruntime.InferenceSession(model, options, ["CPUExecutionProvider"])
    return list(session.run(None, feeds(case)))


@pytest.mark.parametrize("case", all_cases(), ids=str)
def test_definition(case: Case) -> None:
    ours = list(Evaluator(model_from(built(case), f"{case}.onnx")).run(feeds(case)).values())
    for index, (mine, yours) in enumerate(zip(ours, judged(case, ours), strict=True)):
        where = f"output {index}"
        assert mine.dtype == yours.dtype, where
        assert mine.shape == yours.shape, where
        if mine.dtype.kind == "f":
            np.testing.assert_allclose(mine, yours, case.rtol, case.atol, err_msg=where)
        else:
            apart = np.abs(mine.astype(np.int64) - yours.astype(np.int64))
            assert apart.max(initial=0) <= case.apart, f"{where}: {apart.max()} apart"


@pytest.mark.parametrize("version", [10, 16])
def test_shape_of_aligned_regions(version: int) -> None:
    """Both versions have the rule of the regions."""
    definition = find("", "RoiAlign", version)
    assert definition is not None
    rule = definition.infer.shapes
    assert rule is not None
    image, regions = np.zeros((1, 3, 8, 8)), np.zeros((5, 4))
    shape = rule(image, regions, np.zeros(5, np.int64), mode="avg", output_height=2, output_width=4)
    assert shape == (5, 3, 2, 4)


@pytest.mark.parametrize("overlap", [0.0, 0.25, 1.0])
def test_boxes_are_suppressed_as_by_comparing_all(overlap: float) -> None:
    """Only boxes that may overlap along the first axis are compared."""
    rng = np.random.default_rng(5)
    definition = find("", "NonMaxSuppression", 11)
    assert definition is not None
    for count in (0, 1, 60):
        corners = rng.integers(0, 9, (1, count, 4)).astype(np.float32)
        scores = rng.integers(0, 9, (1, 1, count)).astype(np.float32)
        found = definition.meaning(corners, scores, np.int64([count]), np.float32([overlap]), None)
        low, high = np.sort(corners[0].reshape(-1, 2, 2), axis=1).transpose(1, 0, 2)
        kept: list[int] = []
        for box in np.argsort(-scores[0, 0], kind="stable").tolist():
            if all(_shared(low[[box, k]], high[[box, k]]) <= overlap for k in kept):
                kept.append(box)
        assert found[:, 2].tolist() == kept


def _shared(low: Array, high: Array) -> float:
    """The intersection of two boxes over their union, in float32."""
    shared = np.prod(np.maximum(high.min(0) - low.max(0), 0))
    union = np.prod(high - low, axis=1).sum() - shared
    return float(shared / union) if shared > 0 else 0.0
