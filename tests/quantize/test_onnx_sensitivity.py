"""Layers that cost accuracy: how they are measured, and that they are kept more precise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto
from tests.quantize.small_models import (
    PICTURES,
    Array,
    convolutions,
    cosine,
    load,
    node,
    normal,
    products,
    run,
    tensors_of,
    write,
)

from halfbyte.quantize import Report
from halfbyte.quantize.onnx import Options, quantize_onnx
from halfbyte.quantize.onnx.editor import Editor
from halfbyte.quantize.onnx.gates import Gates
from halfbyte.quantize.onnx.running import row_of, sums_of
from halfbyte.quantize.onnx.source import read_source

SIDE = 12


def uneven(path: Path) -> Path:
    """Three convolutions; a channel between the first two is 20 times larger than what counts."""
    first, second = normal(8, 3, 3, 3, seed=1) / 4, normal(8, 8, 1, 1, seed=2)
    first[0] *= 20
    second[:, 0] /= 200
    nodes = [
        node("Conv", ["x", "first"], ["a"], name="first_conv", pads=[1] * 4),
        node("Conv", ["a", "second"], ["b"], name="second_conv"),
        node("Relu", ["b"], ["c"]),
        node("Conv", ["c", "third"], ["y"], name="third_conv", pads=[1] * 4),
    ]
    return write(
        path, nodes, {"x": (TensorProto.FLOAT, ["n", 3, SIDE, SIDE])},
        {"y": (TensorProto.FLOAT, ["n", 4, SIDE, SIDE])},
        {"first": first, "second": second, "third": normal(4, 8, 3, 3, seed=3)},
    )  # fmt: skip


def samples(folder: Path, count: int = 6) -> Path:
    path = folder / "samples.npz"
    np.savez(path, x=normal(count, 3, SIDE, SIDE, seed=9))
    return path


def gates_of(path: Path, written: str) -> Gates:
    editor = Editor(read_source(path))
    return Gates(editor, Path(written))


@pytest.mark.parametrize("kind", ["weights", "static", "dynamic"])
def test_all_gates_give_the_quantized_model_and_none_the_original(
    tmp_path: Path, kind: str
) -> None:
    path = convolutions(tmp_path / "m.onnx")
    data = samples(tmp_path) if kind == "static" else None
    report = quantize_onnx(path, options=Options(method=kind), samples=data)
    gates = gates_of(path, report.output)
    [exact], [rounded] = run(path, PICTURES), run(report.output, PICTURES)
    values = {layer.value for layer in gates.layers}
    # Relu is absorbed by static scales; the head's rows are too short for blocks
    layers = {
        "weights": {"b", "d"},
        "static": {"c", "e", "f", "g", "y"},
        "dynamic": {"b", "d", "y"},
    }
    assert layers[kind] <= values
    np.testing.assert_allclose(gates.run(PICTURES, ())["y"], exact, rtol=1e-4, atol=1e-4)
    step = np.abs(rounded - exact).max()
    np.testing.assert_allclose(gates.run(PICTURES, values)["y"], rounded, atol=step / 4)
    assert gates.losses([(PICTURES, {"y": exact})], values)["y"] > 1e-7
    gates.close()


def test_a_layer_covers_what_the_original_computes_it_from(tmp_path: Path) -> None:
    path = convolutions(tmp_path / "m.onnx")
    report = quantize_onnx(path, options=Options(method="static"), samples=samples(tmp_path))
    gates = gates_of(path, report.output)
    [layer] = [layer for layer in gates.layers if layer.value == "c"]
    assert set(layer.covered) == {"a", "b", "c"}
    assert layer.label == "first_conv (Conv + BatchNormalization + Clip)"
    assert layer.weights == 8 * 27 + 4 * 8 + 2
    gates.close()


def worst(path: Path, report: Report) -> float:
    x = {"x": normal(4, 3, SIDE, SIDE, seed=77)}  # not among the samples
    return cosine(run(path, x)[0], run(report.output, x)[0])


def test_static_keeps_what_is_sensitive_in_floats(tmp_path: Path) -> None:
    path = uneven(tmp_path / "m.onnx")
    data = samples(tmp_path)
    report = quantize_onnx(path, options=Options(type="int8"), samples=data)
    assert worst(path, report) > 0.997
    plain = quantize_onnx(path, options=Options(compare=False), samples=data)
    assert worst(path, plain) < 0.99, "the model should need it"
    assert not plain.layers
    first, *others = report.layers
    assert first.name == "first_conv (Conv)"
    assert first.raised
    assert first.loss > 0.01
    assert not any(row.raised for row in others)
    assert sorted((row.name, row.type) for row in report.rows if len(row.shape) == 4) == [
        ("first", "int8"), ("second", "int8"), ("third", "int8"),
    ]  # fmt: skip
    rounded = {n.input[0] for n in load(report.output).graph.node if n.op_type == "QuantizeLinear"}
    assert "a" not in rounded
    assert any(name.startswith("c") for name in rounded)


def test_weights_that_do_not_fit_int8_are_halves(tmp_path: Path) -> None:
    """Of a channel with one weight far larger than those that count."""
    weight = normal(8, 8, 3, 3, seed=4)
    weight[:, 0] *= 2000  # reads zeros
    nodes = [
        node("Mul", ["x", "mask"], ["masked"]),
        node("Conv", ["masked", "uneven"], ["a"], name="uneven_conv", pads=[1] * 4),
        node("Conv", ["a", "even"], ["y"], name="even_conv", pads=[1] * 4),
    ]
    mask = np.ones((8, 1, 1), np.float32)
    mask[0] = 1e-6
    path = write(
        tmp_path / "m.onnx", nodes, {"x": (TensorProto.FLOAT, ["n", 8, SIDE, SIDE])},
        {"y": (TensorProto.FLOAT, ["n", 4, SIDE, SIDE])},
        {"uneven": weight, "even": normal(4, 8, 3, 3, seed=5), "mask": mask},
    )  # fmt: skip
    report = quantize_onnx(path)
    types = {row.name: row.type for row in report.rows}
    assert (types["uneven"], types["even"]) == ("F16", "int8")
    x = {"x": normal(3, 8, SIDE, SIDE, seed=78)}
    assert cosine(run(path, x)[0], run(report.output, x)[0]) > 0.998
    assert tensors_of(report.output)["uneven.f16"].dtype == np.float16
    assert report.layers[0].name == "uneven_conv (Conv)"
    assert "uneven_conv (Conv): " in report.table()
    assert "1 of 2 layers kept more precise" in report.table()
    assert "even_conv (Conv): 0.99" in report.details()


def test_int4_products_become_int8(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    k = 64
    up = normal(k, k, seed=6)
    nodes = [
        node("MatMul", ["x", "up"], ["a"], name="up_product"),
        node("Tanh", ["a"], ["b"]),
        node("MatMul", ["b", "down"], ["c"], name="down_product"),
        node("Mul", ["c", "c"], ["y"]),
    ]
    tensors: dict[str, Array] = {"up": up, "down": normal(k, k, seed=7)}
    write(path, nodes, {"x": (TensorProto.FLOAT, ["n", k])}, {"y": (TensorProto.FLOAT, ["n", k])},
          tensors)  # fmt: skip
    report = quantize_onnx(path, options=Options(type="int4"))
    assert {row.type for row in report.rows} >= {"Q8_0"}
    assert all(row.type != "F16" for row in report.rows)
    assert 1 - min(row.cosine or 0 for row in report.outputs) < 0.03


def test_an_interrupted_search_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("halfbyte.quantize.onnx.output_quality.search", interrupt)
    path, data, target = uneven(tmp_path / "m.onnx"), samples(tmp_path), tmp_path / "out.onnx"
    target.write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt):
        quantize_onnx(path, target, samples=data)
    assert target.read_bytes() == b"old"
    assert set(tmp_path.iterdir()) == {path, data, target}


@pytest.mark.parametrize(("size", "cosine"), [(1e-120, 1.0), (1e200, None)])
def test_outputs_that_only_doubles_hold(size: float, cosine: float | None) -> None:
    """Products of their squares are 0, and squares infinite; neither warns or divides by 0."""
    x = normal(50).astype(np.float64) * size
    row = row_of("y", sums_of(x, x * 1.5))
    assert row.cosine == (cosine and pytest.approx(cosine))
    assert row.loss == pytest.approx(0, abs=1e-12)


def test_models_that_are_close_are_not_searched(tmp_path: Path) -> None:
    report = quantize_onnx(products(tmp_path / "m.onnx"))
    assert not report.layers
    assert "kept more precise" not in report.table()


def test_groups_are_measured_where_time_is_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("halfbyte.quantize.onnx.sensitivity.SECONDS", -1.0)
    path = uneven(tmp_path / "m.onnx")
    report = quantize_onnx(path, samples=samples(tmp_path))
    assert {row.together for row in report.layers} == {3}
    assert "(measured with 2 beside)" in report.table()
    assert worst(path, report) > 0.998
