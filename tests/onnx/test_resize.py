"""Resize beside ONNX Runtime where a result is as near to one element as to the next."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from halfbyte.onnx.reference.resize import resize

SIZES = (1, 2, 3, 5, 6, 7, 10, 20, 30)
SCALES = (0.3, 1 / 3, 0.5, 2 / 3, 0.7, 0.75, 1.0, 1.1, 1.25, 1.4, 1.6, 1.9, 2.0, 2.5)
TARGETS = (1, 2, 4, 6, 9, 15, 24)
WAYS = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric")
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")

Inputs = tuple[None, npt.NDArray[np.float32] | None, npt.NDArray[np.int64] | None]


def line(size: int) -> npt.NDArray[np.float32]:
    return np.arange(2 * size, dtype=np.float32).reshape(1, 2, size)


def resizes() -> list[tuple[int, Inputs]]:
    """The size of a line, with a scale or with a result's size."""
    scaled: list[tuple[int, Inputs]] = [
        (size, (None, np.array([1, 1, scale], np.float32), None))
        for size in SIZES for scale in SCALES if size * scale > 1
    ]  # fmt: skip
    return scaled + [(n, (None, None, np.array([1, 2, t]))) for n in SIZES for t in TARGETS]


def judged(attributes: dict[str, Any]) -> list[npt.NDArray[np.float32]]:
    """All of them by ONNX Runtime, in one graph."""
    nodes, constants = [], []
    for i, (size, inputs) in enumerate(resizes()):
        names = [f"x{size}"]
        for j, value in enumerate(inputs):
            names.append("" if value is None else f"c{i}-{j}")
            if value is not None:
                constants.append(onnx.numpy_helper.from_array(value, names[-1]))
        nodes.append(helper.make_node("Resize", names, [f"y{i}"], **attributes))
    graph = helper.make_graph(
        nodes, "lines",
        [helper.make_tensor_value_info(f"x{n}", TensorProto.FLOAT, [1, 2, n]) for n in SIZES],
        [helper.make_tensor_value_info(n.output[0], TensorProto.FLOAT, None) for n in nodes],
        constants,
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=10)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    results: list[npt.NDArray[np.float32]] = session.run(None, {f"x{n}": line(n) for n in SIZES})
    return results


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("way", WAYS)
def test_nearest_elements(way: str, rounding: str) -> None:
    attributes = {"coordinate_transformation_mode": way, "nearest_mode": rounding}
    for (size, inputs), theirs in zip(resizes(), judged(attributes), strict=True):
        ours = resize(line(size), *inputs, mode="nearest", **attributes)
        np.testing.assert_array_equal(ours, theirs, f"{size} {inputs}")
