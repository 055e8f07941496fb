"""Names that packages import are there; what is not in halfbyte says so when it is called."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest
from tests.onnx.session.models import HALFBYTE
from tests.onnx.session.test_standin import HIDE, python

from halfbyte.errors import HalfbyteError, UnsupportedError
from halfbyte.onnx.interface import quantization
from halfbyte.onnx.interface.absent import absent

IMPORTS = """
import json
from onnxruntime.quantization import (
    CalibrationDataReader, CalibrationMethod, QuantFormat, QuantType, quantize_dynamic,
    quantize_static,
)
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
from onnxruntime.transformers.fusion_options import FusionOptions
from onnxruntime.transformers.io_binding_helper import CudaSession, TypeHelper
from onnxruntime.transformers.onnx_model import OnnxModel
from onnxruntime.transformers.optimizer import optimize_model
from onnxruntime.tools.symbolic_shape_infer import SymbolicShapeInference
from onnxruntime.capi.onnxruntime_pybind11_state import OrtDevice, OrtValueVector
from onnxruntime.datasets import get_example
import onnxruntime.backend
problems = []
for call in (quantize_dynamic, optimize_model, SymbolicShapeInference, get_example):
    try:
        call("a")
    except Exception as error:
        problems.append([type(error).__name__, str(error)])
print(json.dumps(problems))
"""


def test_packages_may_import_them() -> None:
    problems = python(HIDE + IMPORTS)
    assert {kind for kind, _ in problems} == {"UnsupportedError"}
    assert "onnxruntime.quantization.quantize_dynamic is not in halfbyte" in problems[0][1]
    assert "the command `quantize`" in problems[0][1]


def test_all_are_of_onnx_runtime() -> None:
    for module, names in absent().items():
        if module.startswith(("onnxruntime.transformers", "onnxruntime.tools")):
            continue
        theirs = importlib.import_module(module)
        for name, stand_in in names.items():
            assert hasattr(theirs, name), f"{module}.{name}"
            with pytest.raises(UnsupportedError, match=name):
                stand_in(1, a=2)


@pytest.mark.parametrize("name", ["QuantType", "QuantFormat", "QuantizationMode"])
def test_settings(name: str) -> None:
    from onnxruntime.quantization import quant_utils

    theirs, ours = getattr(quant_utils, name), getattr(quantization, name)
    assert {k: v.value for k, v in ours.__members__.items()} == {
        k: v.value for k, v in theirs.__members__.items()
    }
    first = next(iter(ours))
    assert ours.from_string(str(first)) is first
    with pytest.raises(ValueError, match="expected one of"):
        ours.from_string("other")


def test_a_reader_of_calibration_data() -> None:
    class Reader(quantization.CalibrationDataReader):
        def __init__(self) -> None:
            self.left = [{"x": 1}, {"x": 2}]

        def get_next(self) -> dict[str, int] | None:
            return self.left.pop(0) if self.left else None

    assert [feed for feed in Reader()] == [{"x": 1}, {"x": 2}]  # noqa: C416 - list() asks for a length


@pytest.mark.parametrize("call", [
    lambda: HALFBYTE.register_execution_provider_library("x", "/x.so"),
    lambda: HALFBYTE.unregister_execution_provider_library("x"),
    lambda: HALFBYTE.RunOptions().add_active_adapter(None),
    lambda: HALFBYTE.get_ep_devices()[0].create_sync_stream(),
    lambda: HALFBYTE.ModelCompiler(HALFBYTE.SessionOptions(), "a.onnx"),
])  # fmt: skip
def test_refusals(call: Callable[[], Any]) -> None:
    with pytest.raises(HalfbyteError, match=r"not in halfbyte|cannot be loaded|no streams"):
        call()
