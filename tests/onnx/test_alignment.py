"""Constants at odd addresses are copied once where NumPy would copy them in each run."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from tests.onnx.convert import model_from
from tests.onnx.graphs import Net, assert_close, by_definition, outputs_of

from halfbyte.core.backends import open_program
from halfbyte.onnx.calls import Call
from halfbyte.onnx.prepare import prepare
from halfbyte.onnx.runner import Runner


def odd(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The array at an odd address."""
    data = np.zeros(array.nbytes + 1, np.uint8)[1:].view(array.dtype).reshape(array.shape)
    data[...] = array
    assert not data.flags.aligned
    return data


def opened(proto: onnx.ModelProto) -> Runner:
    model = prepare(model_from(proto))
    constants = model.graph.initializers
    for name, value in list(constants.items()):
        if value.nbytes > 64:
            constants[name] = odd(value)
    return Runner(model, lambda program: open_program(program, "native", 1))


@pytest.mark.parametrize("between", [False, True])
def test_definitions_get_aligned_constants(between: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a program, and in nodes between programs."""
    net = Net()
    matrix = net.constant(net.numbers(8, 50, dtype=np.float64), np.float64)
    if between:
        rows = net.node("Greater", net.x(8), net.constant(0.0))
        y = net.node("Compress", matrix, rows, axis=0)
    else:
        y = net.node("MatMul", net.x(3, 8, dtype=np.float64), matrix)
    proto = net.proto(y)
    expected = by_definition(proto, net.feeds)
    run = opened(proto)
    given: list[npt.NDArray[Any]] = []
    call = Call.quietly

    def seen(self: Call, inputs: Any) -> Any:
        given.extend(v for v in inputs if isinstance(v, np.ndarray))
        return call(self, inputs)

    monkeypatch.setattr(Call, "quietly", seen)
    for _ in range(2):
        assert_close(outputs_of(run, net.feeds), expected)
    matrices = [v for v in given if v.shape == run.model.graph.initializers[matrix].shape]
    assert matrices
    assert all(v.flags.aligned for v in matrices)
    assert len({v.ctypes.data for v in matrices}) == 1
