"""What the page sees and hears, natively: boxes of lines, parts with speech."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from halfbyte.errors import HalfbyteError
from halfbyte.web.graphs.graph_model import GraphModel
from halfbyte.web.graphs.hearing import FRAME, MAX_SECONDS, RATE, parts, probabilities
from halfbyte.web.graphs.sight import boxes, regions, resized


def test_regions_are_connected_runs() -> None:
    """A ring whose sides meet only in its last row is one region; a diagonal does not connect."""
    rows = ["1000001", "1000001", "1111111", "0000000", "0110000", "0001100"]
    mask = np.array([[char == "1" for char in row] for row in rows])
    assert sorted(regions(mask)) == [(0, 0, 7, 3), (1, 4, 3, 5), (3, 5, 5, 6)]
    assert regions(np.zeros((3, 4), bool)) == []


def test_boxes_grow_and_come_from_top_to_bottom() -> None:
    """Weak and tiny regions fall away; a box grows by 1.6 areas per perimeter, to the border."""
    scores = np.zeros((100, 200), np.float32)
    scores[60:70, 20:120] = 0.9
    scores[2:12, 100:190] = 0.9
    scores[80:90, 0:50] = 0.4  # too uncertain
    scores[40:42, 0:50] = 0.9  # too thin
    assert boxes(scores) == [(93, 0, 197, 19), (13, 53, 127, 77)]


def test_resizing_is_linear() -> None:
    ramp = np.broadcast_to(np.arange(8, dtype=np.float32)[None, :, None], (4, 8, 3))
    assert resized(ramp, 2, 4)[0, :, 0].tolist() == [0.5, 2.5, 4.5, 6.5]
    assert resized(ramp, 8, 16).shape == (8, 16, 3)
    assert resized(ramp, 4, 8).tolist() == ramp.tolist()


def test_parts_with_speech() -> None:
    """Short silences do not end a part; what is too short is none."""
    speech = np.zeros(100, np.float32)
    speech[10:20] = 0.9
    speech[20:24] = 0.1  # a short silence
    speech[24:40] = 0.4  # goes on below the threshold at which speech begins, but does not begin
    speech[24] = 0.6
    speech[70:74] = 0.9  # too short
    second = FRAME / RATE
    assert parts(speech) == [(10 * second, 40 * second)]


def test_a_sound_that_cannot_be_heard() -> None:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", [x], [y])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    model = GraphModel("other.onnx", proto.SerializeToString())
    for size in (0, MAX_SECONDS * RATE + 1):
        with pytest.raises(HalfbyteError, match="expected at most 120 s, and some"):
            probabilities(model, np.zeros(size, np.float32).tobytes())
    with pytest.raises(HalfbyteError, match=r"other.onnx: expected the inputs input, h, c"):
        probabilities(model, np.zeros(FRAME, np.float32).tobytes())
