"""Integer products in ONNX models, with dynamic or fixed scales of activations."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto
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
    session,
    tensors_of,
    write,
)

from halfbyte.errors import HalfbyteError
from halfbyte.onnx.session import InferenceSession
from halfbyte.quantize import Report
from halfbyte.quantize.onnx import Options, quantize_onnx


def quantized(path: Path, samples: Path | None = None, **options: Any) -> Report:
    return quantize_onnx(path, options=Options(**options), samples=samples)


def samples_of(folder: Path, feeds: dict[str, Array]) -> Path:
    """Many samples similar to some feeds."""
    rng = np.random.default_rng(3)
    tensors = {
        name: rng.standard_normal((16, *x.shape[1:]), np.float32)
        if x.dtype == np.float32
        else rng.integers(0, x.max() + 1, (16, *x.shape[1:]))
        for name, x in feeds.items()
    }
    np.savez(folder / "samples.npz", **tensors)
    return folder / "samples.npz"


# ---- dynamic scales ------------------------------------------------------------------------------


def rounded(x: Array) -> tuple[Array, np.float32, int]:
    """DynamicQuantizeLinear's quantized value, scale and zero point."""
    low, high = min(x.min(), 0), max(x.max(), 0)
    scale = np.float32((np.float32(high) - np.float32(low)) / np.float32(255))
    zero = int(np.clip(np.rint(-low / scale), 0, 255))
    return np.clip(np.rint(x / scale) + zero, 0, 255), scale, zero


@pytest.mark.parametrize("per_channel", [False, True])
def test_dynamic_products(tmp_path: Path, per_channel: bool) -> None:
    """The result of the integers, in ONNX Runtime and here, up to rounding in float32."""
    w, v, bias = normal(48, 40), normal(40, 48, seed=1), normal(40, seed=2)
    w *= np.exp(normal(1, 40, seed=4))
    nodes = [
        node("MatMul", ["x", "w"], ["p"], name="first"),
        node("Gemm", ["x", "v", "b"], ["y"], transB=1, alpha=0.5, beta=2.0),
    ]
    path = write(
        tmp_path / "m.onnx", nodes, {"x": (TensorProto.FLOAT, ["n", 48])},
        {"p": (TensorProto.FLOAT, ["n", 40]), "y": (TensorProto.FLOAT, ["n", 40])},
        {"w": w, "v": v, "b": bias},
    )  # fmt: skip
    report = quantized(path, method="dynamic", per_channel=per_channel)
    tensors = tensors_of(report.output)
    assert tensors["w.q8_scale"].shape == ((40,) if per_channel else ())
    assert tensors["v.q8_scale"].shape == ((40,) if per_channel else ())
    x = normal(9, 48, seed=3)
    q, scale, zero = rounded(x)
    p = (q - zero) @ tensors["w.q8"].astype(np.float64) * scale * tensors["w.q8_scale"]
    y = (q - zero) @ tensors["v.q8"].T.astype(np.float64) * scale * tensors["v.q8_scale"]
    assert operators(report.output).count("DynamicQuantizeLinear") == 1
    for outputs in (
        run(report.output, {"x": x}),
        InferenceSession(report.output).run(None, {"x": x}),
    ):
        np.testing.assert_allclose(outputs[0], p, rtol=1e-5, atol=1e-4)
        np.testing.assert_allclose(outputs[1], y + 2 * bias, rtol=1e-5, atol=1e-4)
    off = np.abs(tensors["w.q8"] * tensors["w.q8_scale"] - w)
    assert (off <= 0.5001 * tensors["w.q8_scale"]).all()


@pytest.mark.parametrize("per_channel", [False, True])
def test_dynamic_models(tmp_path: Path, per_channel: bool) -> None:
    """Only standard operators, fused by ONNX Runtime; channels are closer than whole tensors."""
    for make, feeds in ((products, IDS), (convolutions, PICTURES)):
        path = make(tmp_path / f"{make.__name__}.onnx")
        report = quantized(path, method="dynamic", per_channel=per_channel)
        assert all(not o.domain for o in load(report.output).opset_import)
        optimized = tmp_path / "optimized.onnx"
        (y,) = run(report.output, feeds, optimized=optimized)
        assert cosine(run(path, feeds)[0], y) > 0.9995
        names = operators(optimized)
        assert "ConvInteger" in names or names.count("DynamicQuantizeMatMul") == 3
        assert report.outputs[0].cosine is not None
        assert report.outputs[0].cosine > 0.9995


def test_dynamic_raises_old_opsets(tmp_path: Path) -> None:
    path = products(tmp_path / "m.onnx", opset=8)
    report = quantized(path, method="dynamic")
    assert load(report.output).opset_import[0].version == 11
    assert cosine(run(path, IDS)[0], run(report.output, IDS)[0]) > 0.9995


# ---- fixed scales --------------------------------------------------------------------------------


@pytest.mark.parametrize("activations", ["uint8", "int8"])
def test_static_convolution(tmp_path: Path, activations: str) -> None:
    """The result is off by no more than what its parts are rounded by.

    A product of an activation, half a step sx off, and a weight, half a step sw off, is off by
    |w| sx / 2 + |x| sw / 2 + sx sw / 4; the bias by half its step sx sw, the result by half of sy.
    """
    w, bias = normal(8, 3, 3, 3) / 3, normal(8, seed=1)
    path = write(
        tmp_path / "m.onnx", [node("Conv", ["x", "w", "b"], ["y"], name="conv", pads=[1] * 4)],
        {"x": (TensorProto.FLOAT, ["n", 3, 12, 12])}, {"y": (TensorProto.FLOAT, ["n", 8, 12, 12])},
        {"w": w, "b": bias},
    )  # fmt: skip
    x = normal(4, 3, 12, 12, seed=2)
    np.savez(tmp_path / "samples.npz", x=x)
    report = quantized(path, tmp_path / "samples.npz", method="static", activations=activations)
    optimized = tmp_path / "optimized.onnx"
    (y,) = run(report.output, {"x": x}, optimized=optimized)
    assert "QLinearConv" in operators(optimized)
    tensors = tensors_of(report.output)
    assert tensors["x_zero"].dtype == tensors["y_zero"].dtype == np.dtype(activations)
    assert tensors["w_bias_quantized"].dtype == np.int32
    sx, sw, sy = tensors["x_scale"], tensors["w.q8_scale"][:, None, None], tensors["y_scale"]
    np.testing.assert_allclose(sx, (x.max() - x.min()) / 255, rtol=1e-6)
    np.testing.assert_array_equal(tensors["w_bias_scale"], sx * tensors["w.q8_scale"])
    off = tensors["w_bias_quantized"] * tensors["w_bias_scale"].astype(np.float64) - bias
    assert (np.abs(off) <= 0.5001 * tensors["w_bias_scale"]).all()
    lowest = 0 if activations == "uint8" else -128
    assert tensors["x_zero"] == lowest + round(-float(x.min()) / float(sx))
    ones = (np.abs(x), np.ones_like(w)), (np.ones_like(x), np.abs(w)), (np.ones_like(x), w * 0 + 1)
    sums = [conv(*pair) for pair in ones]
    bound = sums[1] * sx / 2 + sums[0] * sw / 2 + sums[2] * sx * sw / 4 + sx * sw / 2 + sy / 2
    exact = conv(x, w) + bias[:, None, None]
    assert (np.abs(y - exact) <= 1.001 * bound + 1e-5).all()
    ours = InferenceSession(report.output).run(None, {"x": x})[0]
    assert (np.abs(ours - y) <= sy * 1.001).all(), "one step, where a sum lies between two"


def conv(x: Array, w: Array) -> Array:
    """3 x 3, padded by 1."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    y: Array = np.einsum("nchwij,ocij->nohw", windows, w, optimize=True)
    return y


@pytest.mark.parametrize("method", ["minmax", "percentile", "entropy"])
def test_static_model(tmp_path: Path, method: str) -> None:
    """A residual network becomes integer operators from end to end."""
    path = convolutions(tmp_path / "m.onnx")
    report = quantized(path, samples_of(tmp_path, PICTURES), calibration=method)
    optimized = tmp_path / "optimized.onnx"
    (y,) = run(report.output, PICTURES, optimized=optimized)
    counts = Counter(operators(optimized))
    assert counts["QLinearConv"] == 2
    assert counts["QLinearAdd"] == counts["QLinearGlobalAveragePool"] == counts["QGemm"] == 1
    assert not counts["Clip"] + counts["Relu"] + counts["BatchNormalization"]
    expected = run(path, PICTURES)[0]
    assert cosine(expected, y) > (0.999 if method == "minmax" else 0.99)
    (plain,) = session(report.output, level="DISABLE_ALL").run(None, PICTURES)
    assert cosine(plain, y) > 0.9999
    assert cosine(InferenceSession(report.output).run(None, PICTURES)[0], y) > 0.9999
    assert report.samples == "16 samples"


def test_static_products_of_a_transformer_stay_between_floats(tmp_path: Path) -> None:
    path = products(tmp_path / "m.onnx")
    report = quantized(path, samples_of(tmp_path, IDS), method="static")
    optimized = tmp_path / "optimized.onnx"
    (y,) = run(report.output, IDS, optimized=optimized)
    names = operators(optimized)
    assert "QLinearMatMul" in names or "MatMulIntegerToFloat" in names
    assert cosine(run(path, IDS)[0], y) > 0.9995


def test_static_keeps_the_selected_tensors(tmp_path: Path) -> None:
    path = convolutions(tmp_path / "m.onnx")
    samples = samples_of(tmp_path, PICTURES)
    report = quantized(path, samples, keep=[("second_conv", "fp32"), ("residual", "fp32")])
    tensors = tensors_of(report.output)
    assert "second" in tensors
    assert "first.q8" in tensors
    assert cosine(run(path, PICTURES)[0], run(report.output, PICTURES)[0]) > 0.999


def test_static_raises_old_opsets(tmp_path: Path) -> None:
    path = convolutions(tmp_path / "m.onnx", opset=9)
    report = quantized(path, samples_of(tmp_path, PICTURES))
    assert load(report.output).opset_import[0].version == 13
    assert cosine(run(path, PICTURES)[0], run(report.output, PICTURES)[0]) > 0.999


def test_static_values_that_others_read(tmp_path: Path) -> None:
    """Outputs of the graph, pooling with indices, and values read by nodes in floats."""
    nodes = [
        node("Conv", ["x", "w"], ["a"], pads=[1] * 4),
        node("Relu", ["a"], ["b"]),
        node("MaxPool", ["b"], ["c", "where"], kernel_shape=[2, 2], strides=[2, 2]),
        node("MaxPool", ["b"], ["d"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", ["d", "v"], ["e"]),
        node("Erf", ["d"], ["f"]),
        node("Relu", ["e"], ["g"]),
        node("Clip", ["d", "least", "most"], ["i"]),
        node("Transpose", ["e"], ["h"], perm=[0, 2, 3, 1]),
    ]
    f = TensorProto.FLOAT
    path = write(
        tmp_path / "m.onnx", nodes, {"x": (f, ["n", 3, 12, 12])},
        {"a": (f, ["n", 8, 12, 12]), "c": (f, ["n", 8, 6, 6]), "f": (f, ["n", 8, 6, 6]),
         "where": (TensorProto.INT64, ["n", 8, 6, 6]), "g": (f, ["n", 4, 6, 6]),
         "h": (f, ["n", 6, 6, 4]), "i": (f, ["n", 8, 6, 6])},
        {"least": np.array(0.5, np.float32), "most": np.array(1.5, np.float32),
         "w": normal(8, 3, 3, 3) / 3, "v": normal(4, 8, 1, 1, seed=1)},
    )  # fmt: skip
    report = quantized(path, samples_of(tmp_path, PICTURES))
    expected, actual = run(path, PICTURES), run(report.output, PICTURES)
    for x, y in zip(expected, actual, strict=True):
        if x.dtype == np.float32:
            assert cosine(x, y) > 0.999
    assert (expected[3] == actual[3]).mean() > 0.95, "places of maxima, but for ties after rounding"


def test_options_that_do_not_go_together(tmp_path: Path) -> None:
    path = products(tmp_path / "m.onnx")
    for options, message in (
        ({"method": "static"}, "expected samples"),
        ({"method": "dynamic", "type": "int4"}, "method 'dynamic': expected type 'int8'"),
        ({"type": "Q4_K"}, "type 'Q4_K': expected one of"),
        ({"method": "magic"}, "method 'magic': expected one of"),
        ({"calibration": "mean"}, "calibration 'mean': expected one of"),
        ({"activations": "int4"}, "activations 'int4'"),
        ({"fp16_io": True}, "fp16 inputs and outputs"),
    ):
        with pytest.raises(HalfbyteError, match=message):
            quantized(path, **options)
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]
