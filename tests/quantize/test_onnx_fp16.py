"""float16 and bfloat16 in ONNX models, judged by ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tests.quantize.small_models import (
    IDS,
    PICTURES,
    Array,
    convolutions,
    cosine,
    load,
    node,
    normal,
    operators,
    products,
    run,
    tensors_of,
    write,
)

from halfbyte.errors import HalfbyteError
from halfbyte.onnx.session import InferenceSession
from halfbyte.quantize import Report
from halfbyte.quantize.onnx import Options, output_quality, quantize_onnx
from halfbyte.quantize.report import OutputRow

F, H = TensorProto.FLOAT, TensorProto.FLOAT16


def quantized(path: Path, **options: Any) -> Report:
    return quantize_onnx(path, options=Options(**options))


def element_types(path: str) -> dict[str, int]:
    """Types of all values, inferred from the file."""
    model = onnx.shape_inference.infer_shapes(load(path), check_type=True, strict_mode=True)
    values = (*model.graph.input, *model.graph.output, *model.graph.value_info)
    return {value.name: value.type.tensor_type.elem_type for value in values}


@pytest.mark.parametrize("make", [products, convolutions])
def test_fp16(tmp_path: Path, make: Any) -> None:
    """Everything in float16, except inputs and outputs."""
    path, feeds = make(tmp_path / "m.onnx"), IDS if make is products else PICTURES
    report = quantized(path, type="fp16")
    assert {row.type for row in report.rows} <= {"F16", "F32"}
    assert all(row.type == "F16" for row in report.rows if np.prod(row.shape) > 1)
    expected, actual = run(path, feeds)[0], run(report.output, feeds)[0]
    assert actual.dtype == np.float32
    assert cosine(expected, actual) > 0.99999
    kinds = element_types(report.output)
    outer = {v.name for g in [load(report.output).graph] for v in (*g.input, *g.output)}
    assert {kind for name, kind in kinds.items() if name not in outer} <= {H, TensorProto.INT64}
    assert report.bytes_after < 0.7 * report.bytes_before
    assert report.outputs[0].cosine is not None
    assert report.outputs[0].cosine > 0.99999
    assert not report.notes


def test_fp16_io(tmp_path: Path) -> None:
    path = convolutions(tmp_path / "m.onnx")
    report = quantized(path, type="fp16", fp16_io=True)
    feeds = {"x": PICTURES["x"].astype(np.float16)}
    (y,) = run(report.output, feeds)
    assert y.dtype == np.float16
    assert cosine(run(path, PICTURES)[0], y) > 0.9999
    assert "Cast" not in operators(report.output)


def masked(path: Path) -> Path:
    """A masked softmax, whose mask, 1e-12 and large squares float16 cannot represent."""
    nodes = [
        node("Sub", ["one", "mask"], ["off"]),
        node("Mul", ["off", "lowest"], ["bias"], name="scaled_mask"),
        node("MatMul", ["x", "w"], ["scores"], name="product"),
        node("Add", ["scores", "bias"], ["sums"], name="masked"),
        node("Softmax", ["sums"], ["y"], axis=-1, name="softmax"),
        node("Mul", ["scores", "hundred"], ["large"]),
        node("Mul", ["large", "large"], ["squares"], name="square"),
        node("ReduceMean", ["squares"], ["mean"], axes=[-1], name="mean"),
        node("Sqrt", ["mean"], ["root"], name="root"),
        node("Add", ["root", "epsilon"], ["more"], name="more"),
        node("Div", ["large", "more"], ["z"]),
    ]
    tensors: dict[str, Array] = {
        "one": np.array(1, np.float32), "lowest": np.array(-3.4e38, np.float32),
        "hundred": np.array(100, np.float32), "epsilon": np.array(1e-12, np.float32),
        "w": normal(32, 32),
    }  # fmt: skip
    return write(
        path, nodes, {"x": (F, ["n", 32]), "mask": (F, ["n", 32])},
        {"y": (F, ["n", 32]), "z": (F, ["n", 32])}, tensors,
    )  # fmt: skip


def test_islands_where_half_precision_does_not_suffice(tmp_path: Path) -> None:
    path = masked(tmp_path / "m.onnx")
    mask = np.ones((5, 32), np.float32)
    mask[:, 20:] = 0
    np.savez(tmp_path / "samples.npz", x=normal(5, 32, seed=1), mask=mask)
    report = quantize_onnx(path, options=Options(type="fp16"), samples=tmp_path / "samples.npz")
    feeds = {"x": normal(5, 32, seed=1), "mask": mask}
    for expected, actual in zip(run(path, feeds), run(report.output, feeds), strict=True):
        np.testing.assert_allclose(actual, expected, atol=2e-2, rtol=2e-2)
        assert cosine(expected, actual) > 0.9999
    kinds = element_types(report.output)
    assert all(kinds[name] == F for name in ("bias", "sums", "squares", "mean"))
    assert all(kinds[name] == H for name in ("scores", "large", "off"))
    assert any("values up to" in note for note in report.notes)
    assert any("values no larger than 1e-12" in note for note in report.notes)


def test_fp16_keeps_the_selected_tensors(tmp_path: Path) -> None:
    path = products(tmp_path / "m.onnx")
    report = quantized(path, type="fp16", keep=[("up_product", "fp32"), ("down", "fp32")])
    kinds = element_types(report.output)
    assert kinds["wide"] == kinds["narrow"] == F
    assert kinds["rows"] == kinds["active"] == H
    assert tensors_of(report.output)["down"].dtype == np.float32
    assert any("--keep" in note for note in report.notes)
    assert cosine(run(path, IDS)[0], run(report.output, IDS)[0]) > 0.99999


def test_fp16_inputs_that_are_of_float32_by_definition(tmp_path: Path) -> None:
    """Resize's scales; and QuantizeLinear's scale may be of float32 beside float16."""
    nodes = [
        node("Resize", ["x", "", "scales"], ["a"], mode="nearest"),
        node("Cast", ["a"], ["b"], to=TensorProto.DOUBLE),
        node("Cast", ["b"], ["c"], to=F),
        node("Conv", ["c", "w"], ["y"]),
    ]
    tensors: dict[str, Array] = {
        "scales": np.array([1, 1, 2, 2], np.float32),
        "w": normal(4, 3, 1, 1),
    }
    path = write(
        tmp_path / "m.onnx", nodes, {"x": (F, ["n", 3, 4, 4])}, {"y": (F, ["n", 4, 8, 8])}, tensors
    )
    report = quantized(path, type="fp16")
    feeds = {"x": normal(2, 3, 4, 4)}
    assert cosine(run(path, feeds)[0], run(report.output, feeds)[0]) > 0.99999
    assert element_types(report.output)["a"] == H


def test_fp16_beside_bodies_and_own_operators(tmp_path: Path) -> None:
    """Bodies stay in float32, and read float32 as before; so do unknown operators."""
    branches = [
        helper.make_graph(
            [node(op, ["a", "w"], [f"{op}_y"])], op, [],
            [helper.make_tensor_value_info(f"{op}_y", F, ["n", 32])],
        )
        for op in ("MatMul", "Add")
    ]  # fmt: skip
    nodes = [
        node("Relu", ["x"], ["a"]),
        node("If", ["condition"], ["b"], then_branch=branches[0], else_branch=branches[1]),
        node("Gelu", ["b"], ["c"], domain="com.microsoft"),
        node("Inverse", ["c"], ["d"], domain="com.microsoft"),
        node("MatMul", ["d", "w"], ["y"]),
    ]
    path = write(
        tmp_path / "m.onnx", nodes,
        {"condition": (TensorProto.BOOL, []), "x": (F, [32, 32])}, {"y": (F, [32, 32])},
        {"w": normal(32, 32) / 6}, domains=["com.microsoft"],
    )  # fmt: skip
    report = quantized(path, type="fp16")
    for condition in (True, False):
        feeds = {"condition": np.array(condition), "x": np.eye(32, dtype=np.float32) + 0.1}
        assert cosine(run(path, feeds)[0], run(report.output, feeds)[0]) > 0.999
    notes = "\n".join(report.notes)
    assert "it has a subgraph" in notes
    assert "the operator takes no float16" in notes


def test_bf16_is_stored_and_cast(tmp_path: Path) -> None:
    """Matrices are the nearest bfloat16; rows of tables are cast after gathering."""
    path = products(tmp_path / "m.onnx")
    report = quantized(path, type="bf16")
    assert {row.name: row.type for row in report.rows} == {
        "table": "BF16", "up": "BF16", "down": "BF16", "bias": "F32",
    }  # fmt: skip
    before, after = tensors_of(path), tensors_of(report.output)
    for name in ("table", "up", "down"):
        stored = after[f"{name}.bf16"].view(ml_dtypes.bfloat16).astype(np.float32)
        want = before[name].astype(ml_dtypes.bfloat16).astype(np.float32)
        np.testing.assert_array_equal(stored.reshape(want.shape), want)
    assert cosine(run(path, IDS)[0], run(report.output, IDS)[0]) > 0.9999
    assert report.outputs[0].cosine is not None
    assert report.outputs[0].cosine > 0.9999
    gather = next(n for n in load(report.output).graph.node if n.op_type == "Gather")
    assert gather.input[0] == "table.bf16"
    assert report.bytes_after < 0.6 * report.bytes_before


@pytest.mark.parametrize("kind", ["fp16", "bf16"])
@pytest.mark.parametrize("make", [products, convolutions])
def test_our_runtime_agrees(tmp_path: Path, kind: str, make: Any) -> None:
    path, feeds = make(tmp_path / "m.onnx"), IDS if make is products else PICTURES
    report = quantized(path, type=kind)
    (ours,) = InferenceSession(report.output).run(None, feeds)
    assert cosine(ours, run(report.output, feeds)[0]) > 0.99999


@pytest.mark.parametrize("opset", [7, 9])
def test_old_opsets(tmp_path: Path, opset: int) -> None:
    path = convolutions(tmp_path / "m.onnx", opset=opset)
    for kind, raised in (("fp16", opset), ("bf16", 13)):
        report = quantized(path, type=kind)
        assert load(report.output).opset_import[0].version == raised
        assert cosine(run(path, PICTURES)[0], run(report.output, PICTURES)[0]) > 0.9999


@pytest.mark.parametrize("kind", ["ScatterElements", "ScatterND"])
def test_scattered_sums_stay_in_float32(tmp_path: Path, kind: str) -> None:
    """ONNX Runtime does not compute them in float16."""
    places = np.array([0, 2] if kind == "ScatterElements" else [[0], [2]])
    if kind == "ScatterElements":
        places = np.repeat(places[:, None], 32, axis=1)
    nodes = [
        node("MatMul", ["x", "w"], ["a"]),
        node(kind, ["a", "places", "update"], ["b"], reduction="add"),
        node("MatMul", ["b", "w"], ["y"]),
    ]
    path = write(
        tmp_path / "m.onnx", nodes, {"x": (F, [4, 32])}, {"y": (F, [4, 32])},
        {"w": normal(32, 32), "places": places, "update": normal(2, 32, seed=1)}, opset=18,
    )  # fmt: skip
    report = quantized(path, type="fp16")
    feeds = {"x": normal(4, 32, seed=2)}
    assert cosine(run(path, feeds)[0], run(report.output, feeds)[0]) > 0.99999


def test_weights_of_branches(tmp_path: Path) -> None:
    def body(name: str, weight: str) -> onnx.GraphProto:
        tensors = [onnx.numpy_helper.from_array(normal(64, 64, seed=3), weight)]
        result = helper.make_tensor_value_info(f"{name}_y", F, ["n", 64])
        nodes = [node("MatMul", ["x", weight], [f"{name}_y"], name=name)]
        return helper.make_graph(nodes, name, [], [result], tensors)

    branches = node("If", ["c"], ["y"], then_branch=body("yes", "v"), else_branch=body("no", "w"))
    path = write(
        tmp_path / "m.onnx", [branches], {"c": (TensorProto.BOOL, []), "x": (F, ["n", 64])},
        {"y": (F, ["n", 64])}, {},
    )  # fmt: skip
    report = quantized(path, type="fp16")
    assert {row.name: row.type for row in report.rows} == {"v": "F16", "w": "F16"}
    assert report.bytes_after < 0.6 * report.bytes_before
    for condition in (True, False):
        feeds = {"c": np.array(condition), "x": normal(3, 64, seed=1)}
        assert cosine(run(path, feeds)[0], run(report.output, feeds)[0]) > 0.99999


def test_infinities_are_refused(tmp_path: Path) -> None:
    """Squares of small numbers become zero in float16, whatever the largest square is."""
    nodes = [
        node("MatMul", ["x", "w"], ["a"]),
        node("Mul", ["x", "x"], ["squares"]),
        node("Reciprocal", ["squares"], ["b"]),
        node("Add", ["a", "b"], ["y"]),
    ]
    path = write(
        tmp_path / "m.onnx", nodes, {"x": (F, [1, 64])}, {"y": (F, [1, 64])}, {"w": normal(64, 64)}
    )
    samples = tmp_path / "samples.npz"
    np.savez(samples, x=np.geomspace(1e-4, 1, 64, dtype=np.float32)[None])
    with pytest.raises(HalfbyteError, match=r"m-fp16.onnx: output 'y': \d+ numbers became NaN"):
        quantize_onnx(path, options=Options(type="fp16"), samples=samples)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.onnx", "samples.npz"]
    report = quantize_onnx(path, options=Options(type="fp16", compare=False), samples=samples)
    assert Path(report.output).exists()


@pytest.mark.parametrize("external", [False, True])
def test_a_refused_model_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, external: bool
) -> None:
    path = write(
        tmp_path / "m.onnx", [node("MatMul", ["x", "w"], ["y"])], {"x": (F, [1, 64])},
        {"y": (F, [1, 64])}, {"w": normal(64, 64)},
    )  # fmt: skip
    options = Options(type="fp16", external=external)
    quantize_onnx(path, options=options)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    write(
        path, [node("MatMul", ["x", "w"], ["z"]), node("Add", ["z", "z"], ["y"])],
        {"x": (F, [1, 64])}, {"y": (F, [1, 64])}, {"w": 2 * normal(64, 64)},
    )  # fmt: skip
    before[path.name] = path.read_bytes()
    with monkeypatch.context() as patched:
        patched.setattr(output_quality, "compare_outputs", _not_finite)
        patched.setattr(output_quality, "worst_in_halves", lambda *arguments: arguments[-1])
        with pytest.raises(HalfbyteError, match=r"m-fp16.onnx: output 'y': 1 numbers became NaN"):
            quantize_onnx(path, options=options)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before
    quantize_onnx(path, options=options)
    assert {p.name for p in tmp_path.iterdir()} - before.keys() == (
        {p.name for p in tmp_path.glob("*.data")} - before.keys()
    )
    assert (tmp_path / "m-fp16.onnx").read_bytes() != before["m-fp16.onnx"]


def _not_finite(before: Path, after: Path, samples: object) -> list[OutputRow]:
    assert after.read_bytes()
    return [OutputRow("y", None, None, 1)]
