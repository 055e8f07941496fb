"""Control flow, sequences and maps beyond ONNX's own tests, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser
from tests.onnx.convert import model_from

from halfbyte.errors import HalfbyteError
from halfbyte.onnx.evaluate import Evaluator

HEAD = '<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 3]>\n'
X = np.arange(12, dtype=np.float32).reshape(3, 4)
N = np.array(3, np.int64)

LOOP = """
m (int64 n, bool go, float[3, 4] x) => (float[3, 4] y, float[k, 3, 4] all) {
  y, all = Loop (n, go, x) <body = b (int64 i, bool c, float[3, 4] v)
      => (bool d, float[3, 4] w, float[3, 4] s) {
    w = Add (v, x)
    s = Identity (w)
    limit = Constant <value = float {40.0}> ()
    most = ReduceMax <keepdims = 0> (w)
    d = Less (most, limit)
  }>
}"""

SCAN = """
m (float[4] s, float[3, 4] x) => (float[4] t, float[a, b] y) {
  t, y = Scan <num_scan_inputs = 1, ATTRIBUTES, body = b (float[4] v, float[4] p)
      => (float[4] w, float[4] q) { w = Add (v, p)  q = Mul (w, p) }> (s, x)
}"""

NESTED = """
m (int64 n, bool go, float[3, 4] x) => (float[3, 4] y) {
  y = Loop (n, go, x) <body = b (int64 i, bool c, float[3, 4] v) => (bool d, float[3, 4] w) {
    d = Identity (c)
    two = Constant <value = int64 {2}> ()
    odd = Mod (i, two)
    flag = Cast <to = 9> (odd)
    w = If (flag) <then_branch = t () => (float[3, 4] r) { r = Add (v, x) },
                   else_branch = e () => (float[3, 4] r) { r = Sub (v, x) }>
  }>
}"""

ERASE = """
m (float[3, 4] x, int64 at) => (float[a, b] y, int64 n) {
  whole = SplitToSequence (x)
  less = SequenceErase (whole, at)
  more = SequenceInsert (less, x)
  n = SequenceLength (more)
  y = ConcatFromSequence <axis = 0> (more)
}"""


def both(text: str, feeds: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    """Outputs of a model, ours and ONNX Runtime's."""
    proto = parser.parse_model(HEAD + text)
    onnx.checker.check_model(proto)
    ours = list(Evaluator(model_from(proto)).run(feeds).values())
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options)
    return ours, session.run(None, feeds)


def assert_same(text: str, feeds: dict[str, Any]) -> list[Any]:
    ours, theirs = both(text, feeds)
    for mine, yours in zip(ours, theirs, strict=True):
        assert mine.dtype == yours.dtype
        assert mine.shape == yours.shape
        np.testing.assert_array_equal(mine, yours)
    return ours


@pytest.mark.parametrize(("trips", "go"), [(3, True), (9, True), (1, True), (0, True), (3, False)])
def test_loop_ends_as_onnxruntime(trips: int, go: bool) -> None:
    feeds = {"n": np.array(trips, np.int64), "go": np.array(go), "x": X}
    _, every = assert_same(LOOP, feeds)
    assert len(every) == (min(trips, 3) if go else 0)


def test_branches_inside_a_loop_see_values_around_them() -> None:
    assert_same(NESTED, {"n": N, "go": np.array(True), "x": X})


@pytest.mark.parametrize("attributes", [
    "scan_input_directions = [0]", "scan_input_directions = [1]", "scan_output_directions = [1]",
    "scan_output_axes = [1]", "scan_output_axes = [-1]",
])  # fmt: skip
def test_scan(attributes: str) -> None:
    assert_same(SCAN.replace("ATTRIBUTES", attributes), {"s": np.ones(4, np.float32), "x": X})


@pytest.mark.parametrize("at", [0, 2, -1, -3])
def test_sequences(at: int) -> None:
    assert_same(ERASE, {"x": X, "at": np.array(at, np.int64)})


@pytest.mark.parametrize("at", [3, -4])
def test_positions_outside_of_a_sequence_are_refused(at: int) -> None:
    model = model_from(parser.parse_model(HEAD + ERASE))
    with pytest.raises(HalfbyteError, match=f"position {at} of a sequence of 3"):
        Evaluator(model).run({"x": X, "at": np.array(at, np.int64)})


def one_node(operator: str, given: str, result: str, attributes: dict[str, Any]) -> onnx.ModelProto:
    """A model of one node of ai.onnx.ml with the types of its input and output."""
    node = onnx.helper.make_node(operator, ["x"], ["y"], domain="ai.onnx.ml", **attributes)
    types = parser.parse_graph(f"g ({given} x) => ({result} y) {{ }}")
    graph = onnx.helper.make_graph([node], "g", types.input, types.output)
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("ai.onnx.ml", 3)]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)


MAPS: list[tuple[str, str, str, dict[str, Any], Any]] = [
    ("ZipMap", "float[2, 2]", "seq(map(string, float))", {"classlabels_strings": ["a", "b"]},
     X[:2, :2]),
    ("ZipMap", "float[2, 2]", "seq(map(int64, float))", {"classlabels_int64s": [5, 6]}, X[:2, :2]),
    ("DictVectorizer", "map(string, float)", "float[1, 3]",
     {"string_vocabulary": ["c", "a", "b"]}, {"a": 1.5, "b": 2.5}),
    ("DictVectorizer", "map(int64, float)", "float[1, 2]", {"int64_vocabulary": [4, 5]},
     {5: 1.5, 9: 2.5}),
    ("CastMap", "map(int64, float)", "float[1, 2]", {"cast_to": "TO_FLOAT"}, {7: 1.5, 2: 2.5}),
    ("CastMap", "map(int64, float)", "int64[1, 4]",
     {"cast_to": "TO_INT64", "map_form": "SPARSE", "max_map": 4}, {3: 1.0, 1: 2.0}),
]  # fmt: skip


@pytest.mark.parametrize(("operator", "given", "result", "attributes", "value"), MAPS)
def test_maps(
    operator: str, given: str, result: str, attributes: dict[str, Any], value: Any
) -> None:
    proto = one_node(operator, given, result, attributes)
    (ours,) = Evaluator(model_from(proto)).run({"x": value}).values()
    (theirs,) = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {"x": value})
    if isinstance(theirs, list):
        assert ours == theirs
    else:
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)
