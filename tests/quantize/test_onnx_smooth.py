"""Smoothed norms: the same model before rounding, and a better one after."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from benches.onnx.measure import sentences
from onnx import TensorProto, numpy_helper
from tests.quantize.small_models import Array, load, node, normal, operators, run, tensors_of, write
from tools.onnx_models import bert, make, minilm, save

from halfbyte.onnx.session import InferenceSession
from halfbyte.quantize import Report
from halfbyte.quantize.onnx import Options, quantize_onnx
from halfbyte.quantize.onnx.calibrate import Calibration
from halfbyte.quantize.onnx.editor import Editor
from halfbyte.quantize.onnx.rewriter import find_product
from halfbyte.quantize.onnx.samples import Inputs
from halfbyte.quantize.onnx.smooth import find_groups, smooth
from halfbyte.quantize.onnx.source import read_source

FLOAT = TensorProto.FLOAT
X = {"x": normal(5, 64, seed=9)}


def norms(path: Path, *, dtype: type = np.float32, overridable: tuple[str, ...] = ()) -> Path:
    """Two norms that share a gain with a large channel; one has a residual, one a Reshape."""
    kind = FLOAT if dtype is np.float32 else TensorProto.FLOAT16
    gain = 1 + normal(64, seed=1) / 4
    gain[[3, 40]] = 30, 80
    nodes = [
        node("LayerNormalization", ["x", "gain", "shift"], ["first"]),
        node("MatMul", ["first", "w"], ["product"], name="w_product"),
        node("Add", ["product", "first"], ["sum"]),
        node("LayerNormalization", ["sum", "gain", "shift"], ["second"]),
        node("Reshape", ["second", "shape"], ["flat"]),
        node("Gemm", ["flat", "v", "bias"], ["y"], name="v_product", transB=1),
    ]
    tensors = {"gain": gain, "shift": normal(64, seed=2), "w": normal(64, 64, seed=3) / 8,
               "v": normal(48, 64, seed=4) / 8, "bias": normal(48, seed=5)}  # fmt: skip
    constants: dict[str, Array] = {name: value.astype(dtype) for name, value in tensors.items()}
    constants["shape"] = np.array([-1, 64])
    outputs = {"y": (kind, ["m", 48]), "first": (kind, ["n", 64])}
    return write(path, nodes, {"x": (kind, ["n", 64])}, outputs, constants, overridable=overridable)


def smoothed(path: Path, output: Path) -> list[Array]:
    """Write the model with smoothed norms and float weights; returns the products' factors."""
    editor, source = Editor(read_source(path)), load(path)
    inputs, main = Inputs(editor), editor.main
    candidates = (find_product(editor, main, one) for one in editor.model.graph.node)
    products = [product for product in candidates if product is not None]
    squares = Calibration([inputs.random(seed) for seed in range(3)]).squares(editor)
    factors = smooth(editor, find_groups(editor, products), squares)
    weights = {t.name: numpy_helper.to_array(t) for t in source.graph.initializer}
    for product in products:
        s = factors.get(product.node.output[0])
        if s is not None:
            name, by_rows = product.weight.name, product.by_rows != product.weight.transposed
            weights[name] = weights[name] * (s if by_rows else s[:, None])
    for tensor in editor.model.graph.initializer:
        if tensor.name in weights:
            tensor.CopyFrom(numpy_helper.from_array(weights[tensor.name], tensor.name))
    onnx.save(editor.model, output)
    return list(factors.values())


def difference(path: Path, other: Path, feeds: dict[str, Array]) -> float:
    """The largest error of all outputs, relative to their size."""
    pairs = zip(run(path, feeds), run(other, feeds), strict=True)
    return max(float(np.abs(x - y).max() / np.abs(x).max()) for x, y in pairs)


def test_results_before_rounding_are_unchanged(tmp_path: Path) -> None:
    path = norms(tmp_path / "m.onnx")
    factors = smoothed(path, tmp_path / "o.onnx")
    assert len(factors) == 2
    assert all(s.max() > 3 for s in factors)
    assert difference(path, tmp_path / "o.onnx", X) < 1e-6


@pytest.mark.parametrize(
    ("name", "products", "residuals"), [("bert", 8, 4), ("decomposed", 8, 4), ("gpt2-small", 5, 0)]
)
def test_whole_models_do_not_change(
    tmp_path: Path, name: str, products: int, residuals: int
) -> None:
    """Norms after a residual and before it, as one node and decomposed."""
    config = bert.BertConfig(2, 64, 4, 128, vocabulary=1000, positions=128,
                             decomposed=name == "decomposed", pooled=True)  # fmt: skip
    path = tmp_path / "m.onnx"
    save(make(name) if name == "gpt2-small" else bert.build(config), path)
    feeds = dict(Inputs(Editor(read_source(path))).random(7))
    assert len(smoothed(path, tmp_path / "o.onnx")) == products
    assert difference(path, tmp_path / "o.onnx", feeds) < 1e-5
    added = operators(tmp_path / "o.onnx").count("Mul") - operators(path).count("Mul")
    assert added == residuals


def quantized(path: Path, **options: Any) -> Report:
    return quantize_onnx(path, path.with_name("o.onnx"), Options(**options))


def test_shared_gains_and_names(tmp_path: Path) -> None:
    """Each norm has a gain of its own, divided once; a value with other readers keeps its name."""
    path = norms(tmp_path / "m.onnx")
    report = quantized(path, type="int8")
    nodes = {one.output[0]: one for one in load(report.output).graph.node}
    assert nodes["first"].op_type == "Mul"
    assert "second" not in nodes
    tensors, before = tensors_of(report.output), tensors_of(path)
    mul = nodes["first"]
    norm, scale = nodes[mul.input[0]], tensors[mul.input[1]]
    for index, name in ((1, "gain"), (2, "shift")):
        assert np.allclose(tensors[norm.input[index]] * scale, before[name], rtol=1e-6)
    other = nodes["sum"]
    assert list(other.input) == ["product", "first"]
    assert nodes["product"].input[0] == mul.input[0]
    (flat,) = (one for one in nodes.values() if one.op_type == "Reshape")
    assert nodes[flat.input[0]].op_type == "LayerNormalization"
    assert nodes[flat.input[0]].input[1] not in ("gain", norm.input[1])
    expected, actual = run(path, X), run(report.output, X)
    assert np.allclose(expected[1], actual[1], rtol=1e-5, atol=1e-5)


def test_it_pays(tmp_path: Path) -> None:
    path = norms(tmp_path / "m.onnx")
    expected = run(path, X)[0]
    errors = {}
    for rtn in (True, False):
        output = quantized(path, type="int8", rtn=rtn).output
        assert ("gain.smooth" in tensors_of(output)) != rtn
        for engine in (run, lambda file, feeds: InferenceSession(file).run(None, feeds)):
            errors[rtn, engine is run] = float(np.abs(engine(output, X)[0] - expected).mean())
    assert errors[False, True] < 0.7 * errors[True, True]
    assert errors[False, False] < 0.7 * errors[True, False]


@pytest.mark.parametrize("why", ["input", "float16", "shared", "kept"])
def test_norms_that_are_not_changed(tmp_path: Path, why: str) -> None:
    """Gains that a caller may replace or that are float16, matrices that others read or in floats.

    Of the last kind is one of two: the other's norm has a new gain and a new bias.
    """
    path = tmp_path / "m.onnx"
    norms(path, dtype=np.float16 if why == "float16" else np.float32,
          overridable=("gain",) if why == "input" else ())  # fmt: skip
    if why == "shared":
        model = load(path)
        for one in model.graph.node:
            if one.op_type == "Gemm":
                del one.input[1:]
                one.input.append("w")
        model.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 64
        onnx.save(model, path)
    keep = [("v_product", "fp32")] if why == "kept" else []
    report = quantized(path, type="int8", keep=keep)
    smooth_names = [name for name in tensors_of(report.output) if ".smooth" in name]
    assert len(smooth_names) == (2 if why == "kept" else 0)
    assert not any("smooth" in note for note in report.notes)


def test_models_that_cannot_be_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halfbyte.quantize.onnx.output_quality.MAX_RUN", 1000)
    report = quantized(norms(tmp_path / "m.onnx"), type="int8")
    assert not any(".smooth" in name for name in tensors_of(report.output))
    assert any("norms not smoothed" in note for note in report.notes)


@pytest.mark.long
def test_every_sentence(tmp_path: Path) -> None:
    """all-MiniLM-L6-v2 in int8: the cosine of each of the benchmark's sentences."""
    path, feeds = tmp_path / "m.onnx", sentences()
    save(minilm.build(), path)
    expected = run(path, feeds)[0]
    bounds = {"int8": (0.999, 0.9998), "int4": (0.9, 0.979)}
    for type_, (least, mean) in bounds.items():
        report = quantized(path, type=type_, compare=False)
        outputs = np.asarray(InferenceSession(report.output).run(None, feeds)[0])
        cosines = (outputs * expected).sum(1) / np.linalg.norm(outputs, axis=1)
        assert cosines.min() >= least, type_
        assert cosines.mean() >= mean, type_
