"""Types of inputs and outputs for packages that bind them, such as optimum-onnx."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from onnx import TensorProto
from tests.onnx.session.models import FLOAT, HALFBYTE, INT64, model, node, session, tensor

TypeHelper = HALFBYTE.transformers.io_binding_helper.TypeHelper
CASTS = model(
    [node("Cast", "x", "y", to=INT64), node("Cast", "x", "z", to=TensorProto.BFLOAT16)],
    [tensor("x")], [tensor("y", INT64), tensor("z", TensorProto.BFLOAT16)],
)  # fmt: skip
HALVES = model(
    [node("Cast", "x", to=FLOAT)], [tensor("x", TensorProto.FLOAT16)], [tensor("y", FLOAT)]
)


def test_types_of_a_session() -> None:
    ours = session(HALFBYTE, CASTS)
    assert TypeHelper.get_input_type(ours, "x") == "tensor(float)"
    assert TypeHelper.get_output_type(ours, "y") == "tensor(int64)"
    for find in (TypeHelper.get_input_type, TypeHelper.get_output_type):
        with pytest.raises(ValueError, match="'w': expected one of"):
            find(ours, "w")
    types = TypeHelper.get_io_numpy_type_map(session(HALFBYTE, HALVES))
    assert types == {"x": np.float16, "y": np.float32}
    with pytest.raises(ValueError, match=r"'tensor\(bfloat16\)': expected one of"):
        TypeHelper.get_io_numpy_type_map(ours)


def test_types_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("int64", "int32", "float32", "float16", "bool", "uint8")
    torch = SimpleNamespace(**{name: f"torch.{name}" for name in names})
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert TypeHelper.ort_type_to_torch_type("tensor(float16)") == "torch.float16"
    for name in names:
        kind = TypeHelper.torch_type_to_numpy_type(f"torch.{name}")
        assert np.dtype(kind) == np.dtype(name)
        assert TypeHelper.numpy_type_to_torch_type(np.dtype(name)) == f"torch.{name}"
    with pytest.raises(ValueError, match="'float64': expected one of"):
        TypeHelper.numpy_type_to_torch_type(np.float64)
    with pytest.raises(ValueError, match="complex: expected one of"):
        TypeHelper.torch_type_to_numpy_type("complex")


def test_the_path_of_a_session(tmp_path: Path) -> None:
    """As ONNX Runtime's sessions have it, under the same private name."""
    path = tmp_path / "m.onnx"
    path.write_bytes(CASTS)
    assert session(HALFBYTE, path)._model_path == str(path)
    assert session(HALFBYTE, CASTS)._model_path is None
