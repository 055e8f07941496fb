"""Graphs whose operands do not fit are refused with halfbyte's errors, which name the node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.onnx.session.models import FLOAT, model, node, tensor, weight

import halfbyte
from halfbyte.core.backends.memory import Memory
from halfbyte.errors import HalfbyteError


def refused(data: bytes | Path, feeds: dict[str, Any]) -> str:
    """The message of the error, at loading or in the run."""
    with pytest.raises(HalfbyteError) as caught:
        halfbyte.InferenceSession(data).run(None, feeds)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("length", [0, 1, 3, 5, 4096])
def test_a_bias_has_a_number_for_each_filter(length: int) -> None:
    """Otherwise the kernel would read memory after the end of the bias."""
    weights = [weight("w", np.ones((4, 2, 3, 3))), weight("b", np.ones(length))]
    x, y = tensor("x", FLOAT, [1, 2, 5, 5]), tensor("y", FLOAT, None)
    data = model([node("Conv", "x w b", "y")], [x], [y], weights)
    message = refused(data, {"x": np.ones((1, 2, 5, 5), np.float32)})
    assert "(Conv)" in message or "of Conv" in message
    assert f"bias of shape [{length}]: expected [4]" in message


def test_more_dimensions_than_numpy_has() -> None:
    """Some functions of NumPy allow 64 and some 32."""
    x, y = tensor("x", FLOAT, [1]), tensor("y", FLOAT, None)
    for kind, rank in (("Expand", 64), ("Expand", 33), ("Reshape", 64), ("Reshape", 300)):
        shape = weight("shape", np.ones(rank), np.int64)
        data = model([node(kind, "x shape", "y")], [x], [y], [shape])
        message = refused(data, {"x": np.ones(1, np.float32)})
        assert f"of {kind}" in message
        assert f"a result of {rank} axes" in message or "dimension" in message
    axes = weight("axes", np.arange(40), np.int64)
    data = model([node("Unsqueeze", "x axes", "y")], [x], [y], [axes])
    assert "of Unsqueeze" in refused(data, {"x": np.ones(1, np.float32)})


def test_types_fit_from_node_to_node() -> None:
    """Also in patterns that are fused, after which the types are not visible any more."""
    nodes = [node("MatMul", "x w", "m"), node("Add", "m b", "a"), node("Relu", "a", "y")]
    weights = [weight("w", np.ones((4, 3))), weight("b", np.ones(3), np.float64)]
    x, y = tensor("x", FLOAT, [2, 4]), tensor("y", FLOAT, None)
    message = refused(model(nodes, [x], [y], weights), {"x": np.ones((2, 4), np.float32)})
    assert "Add: input 1 is float64, expected float32" in message


@pytest.mark.parametrize("opset", [13, 18])
def test_as_many_parts_as_outputs(opset: int) -> None:
    sizes = weight("sizes", np.array([1, 1, 2]), np.int64)
    x, y, z = tensor("x", FLOAT, [4]), tensor("y", FLOAT, None), tensor("z", FLOAT, None)
    data = model([node("Split", "x sizes", "y z")], [x], [y, z], [sizes], opset=opset)
    assert "3 sizes of 2 outputs" in refused(data, {"x": np.ones(4, np.float32)})


def test_outputs_that_an_operator_does_not_have() -> None:
    x, y, z = (tensor(n, FLOAT, None) for n in "xyz")
    data = model([node("Relu", "x", "y z")], [x], [y, z], [])
    assert "2 outputs, expected 1" in refused(data, {"x": np.ones(3, np.float32)})


def test_biases_at_odd_addresses() -> None:
    """Kernels get an aligned copy of data at any address of a file."""
    raw = np.zeros(4 * 8 + 1, np.uint8)[1:].view(np.int32)
    assert not raw.flags.aligned
    assert Memory().reach(raw).flags.aligned
    assert Memory().reach(np.ones((4, 4), np.float32).T).flags.c_contiguous


@pytest.mark.data
@pytest.mark.parametrize(
    "name",
    ["conv-bias-leak", "conv-bias-wrong-shape", "expand-64-dims", "reshape-300-dims"],
)
def test_files_made_to_hurt(name: str, data: Path) -> None:
    file = data / f"attacks/{name}.onnx"
    with halfbyte.InferenceSession(file) as session:
        feeds = {
            argument.name: np.ones(
                [size if isinstance(size, int) else 1 for size in argument.shape],
                np.int64 if "int64" in argument.type else np.float32,
            )
            for argument in session.get_inputs()
        }
    assert file.name in refused(file, feeds)
