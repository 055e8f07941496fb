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
