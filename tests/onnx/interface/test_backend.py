"""`onnxruntime.backend` gives ONNX Runtime's results."""

from __future__ import annotations

import importlib
import warnings

import numpy as np
import onnx
import pytest
from tests.onnx.session.models import HALFBYTE, model, node, tensor

from halfbyte.onnx.interface import backend as ours

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    theirs = importlib.import_module("onnxruntime.backend")


def test_it_runs_models() -> None:
    data = model([node("Add", "x z")], [tensor("x"), tensor("z")])
    x, z = np.float32([1, 2]), np.float32([3, 5])
    proto = onnx.load_from_string(data)
    for given in (data, proto, HALFBYTE.InferenceSession(data), ours.prepare(data)):
        (result,) = ours.run(given, [x, z], "CPU", graph_optimization_level=(
            HALFBYTE.GraphOptimizationLevel.ORT_ENABLE_ALL), logid="a", unknown=3)  # fmt: skip
        np.testing.assert_array_equal(result, theirs.run(data, [x, z])[0])
    single = model([node("Neg", "x")])
    np.testing.assert_array_equal(ours.run(single, x)[0], theirs.run(single, x)[0])
    assert ours.supports_device("CPU") is theirs.supports_device("CPU") is True
    assert ours.supports_device("CUDA") is theirs.supports_device("CUDA") is False
    assert ours.is_compatible(proto)


def test_refusals() -> None:
    data = model([node("Add", "x z")], [tensor("x"), tensor("z")])
    for api in (ours, theirs):
        with pytest.raises(RuntimeError, match="not permitted"):
            api.prepare(data, enable_profiling=True)
        with pytest.raises(RuntimeError, match="Incompatible device"):
            api.prepare(data, "CUDA")
        with pytest.raises(RuntimeError, match="2 inputs"):
            api.run(data, np.float32([1, 2]))
    with pytest.raises(NotImplementedError):
        ours.OnnxRuntimeBackend.run_node(None, None)
