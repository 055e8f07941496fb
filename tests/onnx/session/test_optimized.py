"""`optimized_model_filepath`: a file of ONNX's own operators, with the same results everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper, parser
from tests.onnx.session.models import HALFBYTE
from tools.onnx_models import make

from halfbyte.errors import HalfbyteError


def written(proto: onnx.ModelProto, path: Path) -> Any:
    """A session that wrote the file, which ONNX accepts."""
    options = HALFBYTE.SessionOptions()
    options.optimized_model_filepath = path
    session = HALFBYTE.InferenceSession(proto.SerializeToString(), options)
    onnx.checker.check_model(str(path), full_check=True)
    return session


def compared(proto: onnx.ModelProto, path: Path, *calls: dict[str, Any]) -> onnx.ModelProto:
    """The file's results are ours of the model to the bit, and ONNX Runtime's of both files."""
    session = written(proto, path)
    again = HALFBYTE.InferenceSession(path)
    for feeds in calls:
        wanted = session.run(None, feeds)
        for one, other in zip(again.run(None, feeds), wanted, strict=True):
            np.testing.assert_array_equal(one, other)
        first = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, feeds)
        for one, other in zip(
            onnxruntime.InferenceSession(path).run(None, feeds), first, strict=True
        ):
            np.testing.assert_array_equal(one, other)
    return onnx.load(path)


def text(count: int) -> dict[str, Any]:
    ids = np.arange(count)[None] % 7
    return {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": ids % 2}


def test_models_get_fewer_nodes(tmp_path: Path) -> None:
    proto = make("bert-small")
    smaller = compared(proto, tmp_path / "small.onnx", text(5), text(9))
    kinds = {node.op_type for node in smaller.graph.node}
    assert "Constant" not in kinds
    assert {node.domain for node in smaller.graph.node} == {""}
    assert len(smaller.graph.node) < 0.8 * len(proto.graph.node)
    assert [i.name for i in smaller.graph.input] == [i.name for i in proto.graph.input]
    dims = [d.dim_param for d in smaller.graph.input[0].type.tensor_type.shape.dim]
    assert dims == ["batch", "sequence"]


def test_images_and_caches(tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((1, 3, 32, 32)).astype(np.float32)
    proto = make("mobilenet-v2-small")
    size = proto.graph.input[0].type.tensor_type.shape.dim[2].dim_value
    compared(proto, tmp_path / "images.onnx", {"input": np.resize(x, (1, 3, size, size))})
    proto = make("gpt2-small")
    past = {i.name: np.ones((1, 4, 2, 16), np.float32) for i in proto.graph.input[3:]}
    feeds = {
        "input_ids": np.array([[1]]), "attention_mask": np.ones((1, 3), np.int64),
        "position_ids": np.array([[2]]), **past,
    }  # fmt: skip
    compared(proto, tmp_path / "cache.onnx", feeds)


EVERYTHING = """
<ir_version: 8, opset_import: ["" : 17, "own" : 1], metadata_props: ["made": "by hand"]>
agraph (float[n, 4] x, bool c) => (float[n, 4] y, string[k] s, seq(float[n, m]) q)
<float[4] kept = {1.0, 2.0, 3.0, 4.0}, int64[2] sizes = {2, 2}>
{
    one = Constant <value_float = 1.5> ()
    two = Add (one, one)
    z = own.Twice (x)
    w = If (c) <
        then_branch = g1 () => (float[n, 4] t) { t = Mul (z, kept) },
        else_branch = g2 () => (float[n, 4] e) {
            half = Constant <value = float {0.5}> () e = Mul (z, half)
        }
    >
    y = Add (w, two)
    s = Constant <value_strings = ["a", "é"]> ()
    q = SplitToSequence <axis = 1> (x, sizes)
}
<domain: "own", opset_import: ["" : 17]>
Twice (a) => (b) { b = Add (a, a) }
"""


def test_functions_bodies_strings_and_sequences(tmp_path: Path) -> None:
    proto = parser.parse_model(EVERYTHING)
    path = tmp_path / "everything.onnx"
    session = written(proto, path)
    file = onnx.load(path)
    assert not file.functions
    assert {p.key: p.value for p in file.metadata_props} == {"made": "by hand"}
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    for condition in (True, False):
        feeds = {"x": x, "c": np.array(condition)}
        for other in (
            HALFBYTE.InferenceSession(path), onnxruntime.InferenceSession(path),
            onnxruntime.InferenceSession(proto.SerializeToString()),
        ):  # fmt: skip
            (y, s, q), wanted = other.run(None, feeds), session.run(None, feeds)
            np.testing.assert_array_equal(y, wanted[0])
            assert s.tolist() == wanted[1].tolist() == ["a", "é"]
            assert all(np.array_equal(a, b) for a, b in zip(q, wanted[2], strict=True))


def test_nodes_of_the_same_name_lose_it(tmp_path: Path) -> None:
    """ONNX Runtime refuses two in a graph; functions that are inlined may bring them."""
    proto = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> agraph (float[2] x) => (float[2] y)\n'
        "{ z = Neg (x) y = Relu (z) }"
    )
    for node in proto.graph.node:
        node.name = "same"
    path = tmp_path / "same.onnx"
    written(proto, path)
    (y,) = onnxruntime.InferenceSession(path).run(None, {"x": np.array([-1, 2], np.float32)})
    assert y.tolist() == [1, 0]
    assert [node.name for node in onnx.load(path).graph.node] == ["same", ""]


def test_initializers_that_inputs_replace_stay_inputs(tmp_path: Path) -> None:
    proto = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> agraph (float[2] x, float[2] k) => (float[2] y)\n'
        "{ m = Neg (k) y = Mul (x, m) }"
    )
    proto.graph.initializer.append(numpy_helper.from_array(np.array([3, 4], np.float32), "k"))
    x, k = np.array([1, 2], np.float32), np.array([7, 9], np.float32)
    compared(proto, tmp_path / "replaced.onnx", {"x": x}, {"x": x, "k": k})


@pytest.mark.parametrize("kind", [
    TensorProto.BFLOAT16, TensorProto.INT4, TensorProto.FLOAT16, TensorProto.DOUBLE,
    TensorProto.BOOL, TensorProto.UINT8,
])  # fmt: skip
def test_tensors_of_all_widths(tmp_path: Path, kind: int) -> None:
    """Their bytes are as they were."""
    values = helper.make_tensor("w", kind, [3], [1, 0, 1])
    node = helper.make_node("Identity", ["w"], ["y"])
    graph = helper.make_graph(
        [node], "g", [], [helper.make_tensor_value_info("y", kind, [3])], [values]
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    path = tmp_path / "narrow.onnx"
    written(proto, path)
    kept = {t.name: t for t in onnx.load(path).graph.initializer}
    (array,) = (numpy_helper.to_array(t) for t in kept.values())
    np.testing.assert_array_equal(array, numpy_helper.to_array(values))


def test_files_that_cannot_be_written(tmp_path: Path) -> None:
    proto = make("bert-small")
    with pytest.raises(HalfbyteError, match="nowhere"):
        written(proto, tmp_path / "nowhere" / "model.onnx")
    assert not list(tmp_path.iterdir())
