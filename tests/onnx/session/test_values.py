"""`OrtValue` and `IOBinding` beside ONNX Runtime's."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.onnx.session.models import FLOAT, HALFBYTE, ONNX_RUNTIME, added, identity, session
from tests.onnx.session.test_errors import compare, outcome

X = np.arange(2, dtype=np.float32)
METHODS = (
    "data_type", "element_type", "shape", "device_name", "has_value", "is_tensor",
    "is_sparse_tensor", "is_tensor_sequence", "tensor_size_in_bytes",
)  # fmt: skip

VALUES: dict[str, Callable[[Any], Any]] = {
    "array": lambda V: V.ortvalue_from_numpy(X),
    "strided array": lambda V: V.ortvalue_from_numpy(np.zeros((4, 4))[::2, 1:]),
    "bools": lambda V: V.ortvalue_from_numpy(np.array([[True]])),
    "shape and NumPy's type": lambda V: V.ortvalue_from_shape_and_type([2, 3], np.int64),
    "shape and number": lambda V: V.ortvalue_from_shape_and_type([2, 3], 16),
    "bytes of another type": lambda V: V.ortvalue_from_numpy_with_onnx_type(
        np.zeros((2, 3), np.uint16), 16
    ),
    "the same type": lambda V: V.ortvalue_from_numpy_with_onnx_type(X, 1),
    "dlpack": lambda V: V.from_dlpack(X),
}


@pytest.mark.parametrize("name", VALUES)
def test_descriptions_of_values(name: str) -> None:
    theirs, ours = (VALUES[name](api.OrtValue) for api in (ONNX_RUNTIME, HALFBYTE))
    described = [{m: getattr(v, m)() for m in METHODS} for v in (theirs, ours)]
    assert described[1] == described[0]
    if described[0]["element_type"] != 16:  # ONNX Runtime returns no bfloat16 arrays
        assert ours.numpy().dtype == theirs.numpy().dtype
        assert np.asarray(ours).shape == np.from_dlpack(ours).shape == theirs.numpy().shape
    else:
        assert ours.numpy().dtype == ml_dtypes.bfloat16


def test_values_share_the_callers_memory() -> None:
    for api in (ONNX_RUNTIME, HALFBYTE):
        x = X.copy()
        value = api.OrtValue.ortvalue_from_numpy(x)
        x[0] = 9
        assert value.numpy().tolist() == [9, 1]
        assert value.data_ptr() == x.ctypes.data
        value.update_inplace(np.array([3, 4], np.float32))
        assert x.tolist() == [3, 4]
        (y,) = session(api, identity()).run(None, {"x": value})
        assert y.tolist() == [3, 4]


WRONG: dict[str, Callable[[Any], Any]] = {
    "another device": lambda V: V.ortvalue_from_numpy(X, "cuda", 0),
    "another size": lambda V: V.ortvalue_from_numpy(X).update_inplace(np.ones(3, np.float32)),
    "no element type": lambda V: V.ortvalue_from_shape_and_type([2], 99),
}


@pytest.mark.parametrize("name", WRONG)
def test_invalid_values(name: str) -> None:
    ours = outcome(lambda: WRONG[name](HALFBYTE.OrtValue))
    theirs = outcome(lambda: WRONG[name](ONNX_RUNTIME.OrtValue))
    compare(name, ours, theirs)


def test_more_than_there_is_memory_for() -> None:
    from halfbyte.errors import OutOfMemoryError

    with pytest.raises(OutOfMemoryError):
        HALFBYTE.OrtValue.ortvalue_from_shape_and_type([1 << 62], np.float32)


def test_run_with_values() -> None:
    for api in (ONNX_RUNTIME, HALFBYTE):
        value = api.OrtValue.ortvalue_from_numpy(X[None])
        (y,) = session(api, added()).run_with_ort_values(["y"], {"x": value})
        assert isinstance(y, api.OrtValue)
        assert (y.numpy().tolist(), y.shape()) == ([[1, 3]], [1, 2])


def both(work: Callable[[ModuleType, Any], Any]) -> list[Any]:
    return [work(api, session(api, identity(FLOAT, ["n"]))) for api in (ONNX_RUNTIME, HALFBYTE)]


def test_binding_arrays() -> None:
    def work(api: ModuleType, opened: Any) -> Any:
        binding = opened.io_binding()
        x = X.copy()
        binding.bind_cpu_input("x", x)
        binding.bind_output("y")
        results = []
        for factor in (1, 2):
            x *= factor
            opened.run_with_iobinding(binding)
            results.append([v.tolist() for v in binding.copy_outputs_to_cpu()])
        binding.clear_binding_outputs()
        return results, [v.data_type() for v in binding.get_outputs()]

    theirs, ours = both(work)
    assert ours == theirs == ([[[0, 1]], [[0, 2]]], [])


def test_binding_memory() -> None:
    def work(api: ModuleType, opened: Any) -> Any:
        binding, out = opened.io_binding(), np.zeros(2, np.float32)
        binding.bind_input("x", "cpu", 0, np.float32, [2], X.ctypes.data)
        binding.bind_output("y", "cpu", 0, np.float32, [2], out.ctypes.data)
        opened.run_with_iobinding(binding)
        value = api.OrtValue.ortvalue_from_numpy(np.zeros(2, np.float32))
        binding.bind_ortvalue_input("x", api.OrtValue.ortvalue_from_numpy(X + 1))
        binding.bind_ortvalue_output("y", value)
        binding.synchronize_inputs()
        opened.run_with_iobinding(binding)
        binding.synchronize_outputs()
        return out.tolist(), value.numpy().tolist(), binding.get_outputs()[0].shape()

    theirs, ours = both(work)
    assert ours == theirs == ([0, 1], [1, 2], [2])


def _wrong_output(api: ModuleType, opened: Any) -> None:
    binding = opened.io_binding()
    binding.bind_cpu_input("x", X)
    three = np.zeros(3, np.float32)
    binding.bind_ortvalue_output("y", api.OrtValue.ortvalue_from_numpy(three))
    opened.run_with_iobinding(binding)


def _no_output(api: ModuleType, opened: Any) -> None:
    binding = opened.io_binding()
    binding.bind_cpu_input("x", X)
    opened.run_with_iobinding(binding)


def _no_input(api: ModuleType, opened: Any) -> None:
    binding = opened.io_binding()
    binding.bind_output("y")
    opened.run_with_iobinding(binding)


def _unknown_output(api: ModuleType, opened: Any) -> None:
    binding = opened.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_output("q")
    opened.run_with_iobinding(binding)


BINDINGS: dict[str, Callable[[ModuleType, Any], Any]] = {
    "memory of another shape": _wrong_output,
    "no output": _no_output,
    "no input": _no_input,
    "unknown output": _unknown_output,
    "unknown input": lambda api, opened: opened.io_binding().bind_cpu_input("q", X),
    "memory without a shape": lambda api, opened: opened.io_binding().bind_output(
        "y", buffer_ptr=1
    ),
}


@pytest.mark.parametrize("name", BINDINGS)
def test_bindings_that_do_not_fit(name: str) -> None:
    theirs, ours = both(lambda api, opened: outcome(lambda: BINDINGS[name](api, opened)))
    compare(name, ours, theirs)
