"""Integer weights in ONNX models: the same numbers as in GGUF, and the same result everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tests.quantize.small_models import (
    IDS,
    PICTURES,
    Array,
    attributes,
    convolutions,
    cosine,
    find,
    load,
    node,
    normal,
    operators,
    products,
    run,
    tensors_of,
    write,
)
from tests.quantize.test_quantize import write_model

from halfbyte.onnx.session import InferenceSession
from halfbyte.quantize import Report, quantize_file
from halfbyte.quantize.onnx import Options, quantize_onnx
from halfbyte.text.opening import open_model
from halfbyte.weights import Q4_0, Q8_0

FORMATS = {"int8": (8, Q8_0), "int4": (4, Q4_0)}


def quantized(path: Path, type: str = "int8", **options: Any) -> Report:
    return quantize_onnx(path, options=Options(type=type, **options))


def types(report: Report) -> dict[str, str]:
    return {row.name: row.type for row in report.rows}


def codes_of(path: str, name: str) -> tuple[Array, Array]:
    """Quantized values [n, blocks, 32], signed, and scales of a tensor of MatMulNBits."""
    tensors = tensors_of(path)
    u, scales = tensors[name], tensors[f"{name}_scale"]
    bits = 4 if u.shape[-1] == 16 else 8
    if bits == 4:
        u = np.stack([u & 15, u >> 4], axis=-1)
    return u.reshape(*scales.shape, 32).astype(np.int16) - (1 << bits - 1), scales


def values_of(path: str, name: str) -> Array:
    """The same as numbers [n, columns of whole blocks]."""
    q, scales = codes_of(path, name)
    y: Array = (q * scales[..., None]).reshape(len(q), -1)
    return y


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("rtn", [False, True])
def test_blocks_are_those_of_gguf(tmp_path: Path, kind: str, rtn: bool) -> None:
    """Quantized values and scales, bit for bit, so that a runtime can restore GGUF's blocks."""
    bits, format_ = FORMATS[kind]
    x = normal(48, 96) * np.exp(normal(48, 1, seed=1))
    x[0], x[1, :32] = 0, -0.0
    nodes = [node("Gemm", ["x", "w"], ["y"], transB=1)]
    path = write(
        tmp_path / "m.onnx", nodes, {"x": (TensorProto.FLOAT, ["n", 96])},
        {"y": (TensorProto.FLOAT, ["n", 48])}, {"w": x},
    )  # fmt: skip
    report = quantized(path, kind, rtn=rtn, pure=True)
    gguf = quantize_file(write_model(tmp_path / "m.gguf", {"w": x}), kind, rtn=rtn)
    want_q, want_d, _ = format_.quantized(open_model(gguf.output).tensors["w"].rows)
    q, d = codes_of(report.output, f"w.q{bits}")
    np.testing.assert_array_equal(q, want_q)
    np.testing.assert_array_equal(d, want_d)
    assert d.dtype == np.float32
    rows = [next(row for row in r.rows if row.name == "w") for r in (report, gguf)]
    assert rows[0].snr_db == pytest.approx(rows[1].snr_db, abs=1e-6)
    assert rows[0].search_gain_db == rows[1].search_gain_db


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("k", [32, 80, 96])
def test_products_are_those_of_the_blocks(tmp_path: Path, kind: str, k: int) -> None:
    """ONNX Runtime's result is that of the decoded weights, except for its rounding of activations.

    It rounds each block of 32 activations to steps of their largest over 127, so a sum is off by at
    most half a step times the sum of its weights' magnitudes, for each block.
    """
    bits, _ = FORMATS[kind]
    w, bias = normal(k, 40, seed=1), normal(40, seed=2)
    nodes = [
        node("MatMul", ["x", "w"], ["p"], name="plain"),
        node("Gemm", ["x", "w", "b"], ["y"], name="biased", alpha=0.5, beta=2.0),
        node("Gemm", ["x", "w", "p"], ["z"], name="added", beta=3.0),
    ]
    outputs = {name: (TensorProto.FLOAT, ["n", 40]) for name in "pyz"}
    path = write(
        tmp_path / "m.onnx", nodes, {"x": (TensorProto.FLOAT, ["n", k])}, outputs,
        {"w": w, "b": bias},
    )  # fmt: skip
    report = quantized(path, kind, pure=True)
    x = normal(9, k, seed=3)
    p, y, z = run(report.output, {"x": x})
    tensors = tensors_of(report.output)
    assert tensors[f"w.q{bits}"].shape == (40, -(-k // 32), 4 * bits)
    decoded = values_of(report.output, f"w.q{bits}")
    assert (decoded[:, k:] == 0).all()
    wide = np.zeros((9, decoded.shape[1]), np.float32)
    wide[:, :k] = x
    steps = np.abs(wide.reshape(9, -1, 32)).max(axis=-1) / 127
    bound = steps @ np.abs(decoded.reshape(40, -1, 32)).sum(axis=-1).T * 0.502 + 1e-4
    exact = wide @ decoded.T
    assert (np.abs(p - exact) <= bound).all()
    assert (np.abs(z - (exact + 3 * p)) <= bound).all()
    biased = find(report.output, name="biased").input
    assert len(biased) == 6, "its bias is an input"
    halved = values_of(report.output, biased[1])
    assert cosine(halved[:, :k], w.T) > 0.99
    assert np.linalg.norm(halved) == pytest.approx(np.linalg.norm(w) / 2, rel=0.01)
    assert (np.abs(y - (wide @ halved.T + 2 * bias)) <= bound).all()
    again = InferenceSession(report.output).run(None, {"x": x})
    for ours, theirs in zip(again, (p, y, z), strict=True):
        assert (np.abs(ours - theirs) <= 5 * bound).all()


def test_recipe(tmp_path: Path) -> None:
    path = products(tmp_path / "m.onnx")
    before = run(path, IDS)[0]
    report = quantized(path)
    assert report.output == str(tmp_path / "m-int8.onnx")
    assert types(report) == {"table": "Q8_0", "up": "Q8_0", "down": "Q8_0", "bias": "F32"}
    assert cosine(before, run(report.output, IDS)[0]) > 0.9999
    assert report.bytes_after == Path(report.output).stat().st_size < report.bytes_before / 3
    assert operators(report.output) == [
        "GatherBlockQuantized", "MatMulNBits", "MatMulNBits", "MatMulNBits", "Relu", "Reshape",
        "Reshape",
    ]  # fmt: skip
    report = quantized(path, "int4")
    assert types(report) == {"table": "Q8_0", "up": "Q4_0", "down": "Q4_0", "bias": "F32"}
    assert cosine(before, run(report.output, IDS)[0]) > 0.997
    report = quantized(path, "int4", pure=True)
    assert types(report)["table"] == "Q4_0"
    assert cosine(before, run(report.output, IDS)[0]) > 0.99


def test_tied_table_is_stored_once(tmp_path: Path) -> None:
    report = quantized(products(tmp_path / "m.onnx"))
    names = [name for name in tensors_of(report.output) if name.startswith("table")]
    assert sorted(names) == ["table.q8", "table.q8.shape", "table.q8_scale"]


def test_keep(tmp_path: Path) -> None:
    path = products(tmp_path / "m.onnx")
    before = run(path, IDS)[0]
    keep = [("*", "fp32"), ("up", "int4"), ("down_*", "bf16"), ("embedding", "fp16")]
    report = quantized(path, "int8", keep=keep)
    formats = types(report)
    assert formats["up"] == "Q4_0"
    assert formats["down"] == "BF16"
    assert {row.type for row in report.rows if row.name == "table"} == {"F16", "F32"}
    assert cosine(before, run(report.output, IDS)[0]) > 0.995


def test_convolutions(tmp_path: Path) -> None:
    path = convolutions(tmp_path / "m.onnx")
    before = run(path, PICTURES)[0]
    report = quantized(path)
    assert {types(report)[name] for name in ("first", "second")} == {"int8"}
    assert "BatchNormalization" not in operators(report.output)
    assert cosine(before, run(report.output, PICTURES)[0]) > 0.9999
    assert tensors_of(report.output)["first.q8"].dtype == np.int8
    kept = quantized(path, keep=[("first_conv", "fp32")])
    assert "BatchNormalization" in operators(kept.output)
    assert cosine(before, run(kept.output, PICTURES)[0]) > 0.9999


@pytest.mark.parametrize("opset", [7, 9, 11])
def test_older_opsets_are_raised_where_it_is_needed(tmp_path: Path, opset: int) -> None:
    path = convolutions(tmp_path / "m.onnx", opset=opset)
    before = run(path, PICTURES)[0]
    report = quantized(path)
    assert {o.version for o in load(report.output).opset_import if not o.domain} == {13}
    assert cosine(before, run(report.output, PICTURES)[0]) > 0.9999
    path = products(tmp_path / "p.onnx", opset=opset)
    report = quantized(path)
    assert {o.version for o in load(report.output).opset_import if not o.domain} == {opset}
    assert cosine(run(path, IDS)[0], run(report.output, IDS)[0]) > 0.9999


def test_recurrent_weights_take_channels(tmp_path: Path) -> None:
    tensors = {"w": normal(1, 64, 24) / 5, "r": normal(1, 64, 16, seed=1) / 4}
    nodes = [node("LSTM", ["x", "w", "r"], ["y"], hidden_size=16)]
    path = write(
        tmp_path / "m.onnx", nodes, {"x": (TensorProto.FLOAT, [5, 2, 24])},
        {"y": (TensorProto.FLOAT, [5, 1, 2, 16])}, tensors,
    )  # fmt: skip
    feeds = {"x": normal(5, 2, 24, seed=2)}
    report = quantized(path)
    assert types(report) == {"w": "int8", "r": "int8"}
    assert tensors_of(report.output)["w.q8_scale"].shape == (64,)
    assert cosine(run(path, feeds)[0], run(report.output, feeds)[0]) > 0.9999


@pytest.mark.parametrize("kind", FORMATS)
def test_half_precision_models(tmp_path: Path, kind: str) -> None:
    """Scales have the type of the activations, and are the same F16 numbers."""
    path = products(tmp_path / "m.onnx", dtype=np.float16)
    report = quantized(path, kind)
    tensors = tensors_of(report.output)
    assert {v.dtype for n, v in tensors.items() if n.endswith("_scale")} == {np.dtype(np.float16)}
    assert cosine(run(path, IDS)[0], run(report.output, IDS)[0]) > 0.997


def test_constants_by_nodes_and_casts(tmp_path: Path) -> None:
    w = normal(64, 64) / 8
    constant = onnx.numpy_helper.from_array(w.astype(np.float16))
    nodes = [
        node("Constant", [], ["half"], value=constant),
        node("Cast", ["half"], ["w"], to=TensorProto.FLOAT),
        node("Transpose", ["w"], ["transposed"]),
        node("MatMul", ["x", "w"], ["a"]),
        node("MatMul", ["a", "transposed"], ["y"]),
    ]
    path = write(
        tmp_path / "m.onnx", nodes, {"x": (TensorProto.FLOAT, ["n", 64])},
        {"y": (TensorProto.FLOAT, ["n", 64])}, {},
    )  # fmt: skip
    feeds = {"x": normal(3, 64, seed=1)}
    report = quantized(path)
    assert operators(report.output) == ["MatMulNBits", "MatMulNBits"]
    assert [row.source for row in report.rows] == ["F16", "F16"]
    assert cosine(run(path, feeds)[0], run(report.output, feeds)[0]) > 0.9999


def test_weights_that_a_caller_may_replace_stay(tmp_path: Path) -> None:
    """From version 4 of the format on; before, every initializer had to be an input."""
    tensors = {"w": normal(64, 64) / 8, "v": normal(64, 64, seed=1) / 8}
    nodes = [node("MatMul", ["x", "w"], ["a"]), node("MatMul", ["a", "v"], ["y"])]
    for ir, kept in ((8, {"v": "Q8_0", "w": "F32"}), (3, {"v": "Q8_0", "w": "Q8_0"})):
        path = write(
            tmp_path / f"m{ir}.onnx", nodes, {"x": (TensorProto.FLOAT, ["n", 64])},
            {"y": (TensorProto.FLOAT, ["n", 64])}, tensors, ir=ir, opset=8,
            overridable=["w"] if ir > 3 else ["w", "v"],
        )  # fmt: skip
        report = quantized(path)
        assert types(report) == kept
        assert ir == 3 or "an input too" in report.table()
        feeds = {"x": normal(3, 64, seed=1)}
        assert cosine(run(path, feeds)[0], run(report.output, feeds)[0]) > 0.9999
        assert len(load(report.output).graph.input) == (2 if ir > 3 else 1)


def test_files_of_old_exporters(tmp_path: Path) -> None:
    """They list all initializers among the inputs, whatever the version: these are constants."""
    tensors = {"w": normal(64, 64) / 8, "b": normal(64, seed=1)}
    path = write(
        tmp_path / "m.onnx", [node("Gemm", ["x", "w", "b"], ["y"])],
        {"x": (TensorProto.FLOAT, ["n", 64])}, {"y": (TensorProto.FLOAT, ["n", 64])}, tensors,
        overridable=["w", "b"],
    )  # fmt: skip
    report = quantized(path)
    assert types(report) == {"b": "F32", "w": "Q8_0"}
    assert any("all 2 initializers that are inputs too" in note for note in report.notes)
    assert [value.name for value in load(report.output).graph.input] == ["x"]
    feeds = {"x": normal(3, 64, seed=2)}
    assert cosine(run(path, feeds)[0], run(report.output, feeds)[0]) > 0.9999


def body(name: str, weight: str, *, own: bool) -> onnx.GraphProto:
    """A branch that multiplies by a matrix of its own, or one from outside."""
    tensors = [onnx.numpy_helper.from_array(normal(64, 64, seed=3) / 8, weight)] if own else []
    result = helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, ["n", 64])
    nodes = [node("MatMul", ["x", weight], [f"{name}_y"], name=name)]
    return helper.make_graph(nodes, name, [], [result], tensors)


def test_branches(tmp_path: Path) -> None:
    nodes = [node("If", ["condition"], ["y"], then_branch=body("yes", "inner", own=True),
                  else_branch=body("no", "outer", own=False))]  # fmt: skip
    path = write(
        tmp_path / "m.onnx", nodes,
        {"condition": (TensorProto.BOOL, []), "x": (TensorProto.FLOAT, ["n", 64])},
        {"y": (TensorProto.FLOAT, ["n", 64])}, {"outer": normal(64, 64) / 8},
    )  # fmt: skip
    report = quantized(path)
    assert types(report) == {"inner": "Q8_0", "outer": "Q8_0"}
    for condition in (True, False):
        feeds = {"condition": np.array(condition), "x": normal(3, 64, seed=1)}
        assert cosine(run(path, feeds)[0], run(report.output, feeds)[0]) > 0.9999


@pytest.mark.parametrize("type_", ["int8", "fp16"])
def test_branches_may_use_one_name_for_two_matrices(tmp_path: Path, type_: str) -> None:
    bodies = {name: body(name, "w", own=True) for name in ("yes", "no")}
    bodies["no"].initializer[0].CopyFrom(onnx.numpy_helper.from_array(normal(64, 64), "w"))
    nodes = [node("If", ["condition"], ["y"], then_branch=bodies["yes"], else_branch=bodies["no"])]
    path = write(
        tmp_path / "m.onnx", nodes,
        {"condition": (TensorProto.BOOL, []), "x": (TensorProto.FLOAT, ["n", 64])},
        {"y": (TensorProto.FLOAT, ["n", 64])}, {},
    )  # fmt: skip
    report = quantized(path, type=type_)
    assert len(report.rows) == 2
    for condition in (True, False):
        feeds = {"condition": np.array(condition), "x": normal(3, 64, seed=1)}
        assert cosine(run(path, feeds)[0], run(report.output, feeds)[0]) > 0.9999


def test_functions_are_inlined(tmp_path: Path) -> None:
    function = helper.make_function(
        "own", "Twice", ["a", "m"], ["c"],
        [node("MatMul", ["a", "m"], ["b"]), node("MatMul", ["b", "m"], ["c"])],
        [helper.make_opsetid("", 17)],
    )  # fmt: skip
    path = write(
        tmp_path / "m.onnx", [node("Twice", ["x", "w"], ["y"], domain="own")],
        {"x": (TensorProto.FLOAT, ["n", 64])}, {"y": (TensorProto.FLOAT, ["n", 64])},
        {"w": normal(64, 64) / 8}, functions=[function], domains=["own"],
    )  # fmt: skip
    report = quantized(path)
    assert operators(report.output) == ["MatMulNBits", "MatMulNBits"]
    feeds = {"x": normal(3, 64, seed=1)}
    assert cosine(run(path, feeds)[0], run(report.output, feeds)[0]) > 0.9999


def test_what_stays_is_told(tmp_path: Path) -> None:
    tensors: dict[str, Array] = {
        "w": normal(64, 64), "thin": normal(4, 64), "large": normal(64, 64) * 1e9,
        "double": normal(64, 64).astype(np.float64), "cube": normal(2, 64, 64),
        "table": normal(10, 12),
    }  # fmt: skip
    nodes = [
        node("MatMul", ["x", "w"], ["a"]), node("MatMul", ["a", "large"], ["b"]),
        node("MatMul", ["t", "thin"], ["c"]), node("MatMul", ["d", "double"], ["e"]),
        node("MatMul", ["b", "cube"], ["f"]), node("Gather", ["table", "ids"], ["g"]),
    ]  # fmt: skip
    f, d = TensorProto.FLOAT, TensorProto.DOUBLE
    path = write(
        tmp_path / "m.onnx", nodes,
        {"x": (f, ["n", 64]), "t": (f, ["n", 4]), "d": (d, ["n", 64]),
         "ids": (TensorProto.INT64, ["n"])},
        {"f": (f, [2, "n", 64]), "c": (f, ["n", 64]), "e": (d, ["n", 64]), "g": (f, ["n", 12])},
        tensors,
    )  # fmt: skip
    report = quantized(path)
    notes = {row.name: row.note for row in report.rows}
    assert types(report)["w"] == "Q8_0"
    assert notes["large"].startswith("values up to 3.")
    assert notes["large"].endswith("do not fit int8")
    assert notes["thin"] == "rows of 4 are not smaller in this type"
    assert notes["double"] == "products of F64 stay as they are"
    assert notes["table"] == "rows of 12, expected at least 32"
    assert set(types(report).values()) == {"Q8_0", "F32", "F64"}
    feeds = {"x": normal(3, 64, seed=1), "t": normal(3, 4), "d": tensors["double"][:3],
             "ids": np.array([1, 9, 0])}  # fmt: skip
    for expected, actual in zip(run(path, feeds), run(report.output, feeds), strict=True):
        assert cosine(expected, actual) > 0.9999


@pytest.mark.parametrize("columns", [64, 80])
@pytest.mark.parametrize("kind", FORMATS)
def test_tables(tmp_path: Path, kind: str, columns: int) -> None:
    """Rows equal those of the blocks, bit for bit, also when counted from the end."""
    path = write(
        tmp_path / "m.onnx", [node("Gather", ["w", "ids"], ["y"])],
        {"ids": (TensorProto.INT64, ["n", "t"])}, {"y": (TensorProto.FLOAT, ["n", "t", columns])},
        {"w": normal(50, columns)},
    )  # fmt: skip
    report = quantized(path, kind, pure=True)
    ids = np.array([[0, 49, 7], [-1, -50, 3]])
    (y,) = run(report.output, {"ids": ids})
    bits, _ = FORMATS[kind]
    tensors = tensors_of(report.output)
    u, scales = tensors[f"w.q{bits}"], tensors[f"w.q{bits}_scale"]
    if bits == 4:
        u = np.stack([u & 15, u >> 4], axis=-1).reshape(50, columns)
    factors = np.repeat(scales, 32, axis=1)[:, :columns]
    np.testing.assert_array_equal(y, ((u.astype(np.float32) - (1 << bits - 1)) * factors)[ids])
    (again,) = InferenceSession(report.output).run(None, {"ids": ids})
    np.testing.assert_array_equal(again, y)


def test_samples_weigh_the_columns(tmp_path: Path) -> None:
    """Where one column is large in all samples, the search favors its weights."""
    w = normal(64, 64)
    path = write(
        tmp_path / "m.onnx", [node("MatMul", ["x", "w"], ["y"])],
        {"x": (TensorProto.FLOAT, ["n", 64])}, {"y": (TensorProto.FLOAT, ["n", 64])}, {"w": w},
    )  # fmt: skip
    x = normal(40, 64, seed=1)
    x[:, 5] *= 30
    np.savez(tmp_path / "samples.npz", x=x)
    errors = []
    for samples in (None, tmp_path / "samples.npz"):
        report = quantize_onnx(path, options=Options(type="int4", pure=True), samples=samples)
        decoded = values_of(report.output, "w.q4").T
        errors.append(float(np.square(x @ (decoded - w)).sum()))
    assert errors[1] < 0.5 * errors[0]
    assert report.samples == "40 samples"


def test_a_norm_weighs_the_columns(tmp_path: Path) -> None:
    gain = np.ones(64, np.float32)
    gain[7] = 40
    tensors = {"w": normal(64, 64), "gain": gain, "shift": np.zeros(64, np.float32)}
    nodes = [
        node("LayerNormalization", ["x", "gain", "shift"], ["n"]),
        node("MatMul", ["n", "w"], ["y"]),
    ]
    path = write(
        tmp_path / "m.onnx", nodes, {"x": (TensorProto.FLOAT, ["n", 64])},
        {"y": (TensorProto.FLOAT, ["n", 64])}, tensors,
    )  # fmt: skip
    output = quantized(path, "int4", pure=True).output
    scale = gain / tensors_of(output)["gain.smooth"]
    off = values_of(output, "w.q4").T / scale[:, None] - tensors["w"]
    assert np.square(off[7]).mean() < 0.2 * np.square(off[:7]).mean()


def test_outputs_are_compared(tmp_path: Path) -> None:
    path = products(tmp_path / "m.onnx")
    report = quantized(path, "int4")
    (row,) = report.outputs
    assert row.name == "logits"
    assert row.cosine is not None
    assert 0.99 < row.cosine < 1
    assert row.snr_db == pytest.approx(-10 * np.log10(2 * (1 - row.cosine)), abs=1)
    assert f"logits: cosine {row.cosine:.6f}" in report.table()
    assert report.as_json()["outputs"][0]["cosine"] == row.cosine
    assert quantized(path, compare=False).outputs == ()


def test_attributes_say_how(tmp_path: Path) -> None:
    report = quantized(products(tmp_path / "m.onnx"))
    options = attributes(find(report.output, name="up_product"))
    assert options == {"K": 64, "N": 80, "bits": 8, "block_size": 32, "accuracy_level": 4}


@pytest.mark.parametrize("kind", ["int8", "fp16"])
def test_nodes_in_any_order(tmp_path: Path, kind: str) -> None:
    """ONNX Runtime sorts nodes; what we write is sorted."""
    path = products(tmp_path / "m.onnx")
    (expected,) = run(path, IDS)
    model = load(path)
    nodes = list(model.graph.node)
    shuffled = onnx.ModelProto()
    shuffled.CopyFrom(model)
    del shuffled.graph.node[:]
    shuffled.graph.node.extend(nodes[::-1])
    path.write_bytes(shuffled.SerializeToString())
    assert cosine(expected, run(quantized(path, kind).output, IDS)[0]) > 0.9999


def test_numbers_at_odd_addresses(tmp_path: Path) -> None:
    """Protobuf does not align tensors."""
    results = []
    for pad in range(5):
        path = products(tmp_path / f"m{pad}.onnx")
        model = load(path)
        model.producer_name = "x" * (pad + 1)
        onnx.save(model, path)
        for kind in ("int8", "bf16"):
            tensors = tensors_of(quantized(path, kind, compare=False).output)
            results.append({name: value.tobytes() for name, value in tensors.items()})
    assert all(tensors == results[i % 2] for i, tensors in enumerate(results))
