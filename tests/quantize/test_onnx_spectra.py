"""Front ends of speech models, whose quiet bands a logarithm makes as important as loud ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tests.quantize.small_models import Array, cosine, load, node, normal, run, write

from halfbyte.errors import UnsupportedError
from halfbyte.onnx.session import InferenceSession
from halfbyte.quantize.onnx import Options, quantize_onnx

F = TensorProto.FLOAT
N, BINS, BANDS = 256, 129, 32  # samples of a frame, frequencies, bands


def fourier() -> tuple[Array, Array]:
    """Cosines and sines under a window [N, BINS]."""
    angles = 2 * np.pi / N * np.outer(np.arange(N), np.arange(BINS))
    window = np.hanning(N)[:, None] * 100
    cosines, sines = window * np.cos(angles), window * np.sin(angles)
    return cosines.astype(np.float32), sines.astype(np.float32)


def bands() -> Array:
    """Triangles over the frequencies [BINS, BANDS]."""
    centres = np.linspace(2, BINS - 2, BANDS)
    width = BINS / BANDS
    distance = np.abs(np.arange(BINS)[:, None] - centres) / width
    return np.maximum(1 - distance, 0).astype(np.float32) / 1000


def front_end(path: Path, square: str) -> Path:
    """log(bands |F x|² + 2^-24), standardized, and a layer on it."""
    squares = [
        node("Mul", [part, part], [f"{part}2"]) if square == "Mul"
        else node("Pow", [part, "two"], [f"{part}2"]) for part in ("re", "im")
    ]  # fmt: skip
    nodes = [
        node("MatMul", ["x", "cosines"], ["re"], name="cosine_product"),
        node("MatMul", ["x", "sines"], ["im"], name="sine_product"),
        *squares,
        node("Add", ["re2", "im2"], ["power"]),
        node("MatMul", ["power", "bands"], ["energy"], name="band_product"),
        node("Add", ["energy", "tiny"], ["guarded"]),
        node("Log", ["guarded"], ["log"]),
        node("ReduceMean", ["log"], ["mean"], axes=[0]),
        node("Sub", ["log", "mean"], ["features"]),
        node("MatMul", ["features", "layer"], ["y"], name="layer_product"),
    ]
    cosines, sines = fourier()
    tensors: dict[str, Array] = {
        "cosines": cosines, "sines": sines, "bands": bands(), "two": np.array(2, np.float32),
        "tiny": np.array(2.0**-24, np.float32), "layer": normal(BANDS, 64),
    }  # fmt: skip
    if square == "Mul":
        del tensors["two"]
    return write(path, nodes, {"x": (F, ["n", N])},
                 {"features": (F, ["n", BANDS]), "y": (F, ["n", 64])}, tensors)  # fmt: skip


def sound() -> dict[str, Array]:
    """A loud low tone that fades to nothing, over faint noise."""
    time = np.arange(40 * N) / 16000
    tone = np.sin(2 * np.pi * 300 * time) * np.exp(-12 * time)
    noise = normal(len(time)) * 1e-5
    return {"x": (tone + noise).astype(np.float32).reshape(40, N)}


@pytest.mark.parametrize("square", ["Mul", "Pow"])
@pytest.mark.parametrize("type_", ["int8", "int4", "fp16"])
def test_the_spectrum_stays_in_floats(tmp_path: Path, type_: str, square: str) -> None:
    """Both engines have the float32 model's features."""
    path, feeds = front_end(tmp_path / "m.onnx", square), sound()
    report = quantize_onnx(path, options=Options(type=type_))
    expected = run(path, feeds)
    for engine in (run, lambda file, feeds: InferenceSession(file).run(None, feeds)):
        for wanted, actual in zip(expected, engine(report.output, feeds), strict=True):
            assert np.isfinite(actual).all()
            assert cosine(wanted, actual) > (0.99 if type_ == "int4" else 0.9999)
    if type_ != "fp16":
        types = {row.name: row.type for row in report.rows}
        assert types["layer"].startswith("Q")
        assert {types[name] for name in ("cosines", "sines", "bands")} == {"F32"}
        assert "a logarithm reads the spectrum" in report.table()


def test_other_logarithms_keep_nothing(tmp_path: Path) -> None:
    """log(1 + relu(x w)), as SPLADE has it, and the logarithm of a softmax."""
    nodes = [
        node("MatMul", ["x", "w"], ["a"]),
        node("Relu", ["a"], ["b"]),
        node("Add", ["b", "one"], ["c"]),
        node("Log", ["c"], ["d"]),
        node("MatMul", ["d", "v"], ["e"]),
        node("Softmax", ["e"], ["f"], axis=-1),
        node("Log", ["f"], ["y"]),
    ]
    path = write(
        tmp_path / "m.onnx", nodes, {"x": (F, ["n", 64])}, {"y": (F, ["n", 64])},
        {"w": normal(64, 64), "v": normal(64, 64, seed=1), "one": np.array(1, np.float32)},
    )  # fmt: skip
    report = quantize_onnx(path, options=Options(type="int8"))
    assert {row.name: row.type for row in report.rows if row.name in "wv"} == {
        "w": "Q8_0", "v": "Q8_0",
    }  # fmt: skip
    half = load(quantize_onnx(path, options=Options(type="fp16")).output)
    casts = [n for n in half.graph.node if n.op_type == "Cast"]
    kinds = {one.output[0]: helper.get_attribute_value(one.attribute[0]) for one in casts}
    (logarithm,) = (n for n in half.graph.node if n.op_type == "Log" and n.output[0] == "y")
    assert kinds.get(logarithm.input[0], F) == F


def test_a_front_end_alone_is_refused(tmp_path: Path) -> None:
    path = front_end(tmp_path / "m.onnx", "Mul")
    model = load(path)
    del model.graph.node[-1], model.graph.output[-1]
    onnx.save(model, path)
    with pytest.raises(UnsupportedError, match="cosines: a logarithm reads the spectrum"):
        quantize_onnx(path, options=Options(type="int8"))
