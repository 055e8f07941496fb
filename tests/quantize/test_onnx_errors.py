"""Bad ONNX input leads to one line, exit code 2, no partial file, and untouched input."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tests.quantize.small_models import (
    IDS,
    Array,
    cosine,
    node,
    normal,
    products,
    run,
    tensors_of,
    write,
)
from tests.quantize.test_errors import line, names
from tests.quantize.test_errors import run as command

from halfbyte.quantize.onnx import Options, quantize_onnx

F = TensorProto.FLOAT


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return products(tmp_path / "model.onnx")


def matrix(path: Path, w: Array, name: str = "w", **options: int) -> Path:
    """One product."""
    k, n = w.shape
    return write(
        path, [node("MatMul", ["x", name], ["y"], name="product")], {"x": (F, ["n", k])},
        {"y": (F, ["n", n])}, {name: w}, **options,
    )  # fmt: skip


def test_the_command(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = model.parent / "report.json"
    assert command(model, "--int8", "--json", report, "--verbose") == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "model.onnx (ONNX, opset 17)" in out
    assert "logits: cosine 0.9999" in out
    assert "  table" in out
    assert names(model.parent) == ["model-int8.onnx", "model.onnx", "report.json"]
    result = json.loads(report.read_text())
    assert {row["name"]: row["type"] for row in result["rows"]}["up"] == "Q8_0"
    assert result["outputs"][0]["cosine"] > 0.9999
    assert cosine(run(model, IDS)[0], run(model.parent / "model-int8.onnx", IDS)[0]) > 0.9999


def test_all_options(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = model.parent
    np.savez(folder / "samples.npz", ids=np.arange(60).reshape(6, 10))
    for options in (
        ["--int8", "--dynamic", "--per-channel", "--external"],
        ["--int8", "--static", "--calibrate", folder / "samples.npz", "--activations", "int8",
         "--calibration-method", "entropy"],
        ["--int4", "--pure", "--rtn", "--keep", "up=int8", "--no-compare", "--threads", "1"],
        ["--fp16", "--fp16-io"],
        ["--bf16", "--mean", "0,0,0", "--std", "1,1,1"],
    ):  # fmt: skip
        assert command(model, *options, "-o", folder / "out.onnx") == 0
        assert capsys.readouterr().err == ""
        assert run(folder / "out.onnx", IDS)[0].shape == (21, 100)


def test_content_decides(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = model.rename(model.with_name("model.bin"))
    assert command(other, "--int8") == 0
    assert names(model.parent) == ["model-int8.onnx", "model.bin"]
    (model.parent / "text.onnx").write_text("no model")
    capsys.readouterr()
    assert command(model.parent / "text.onnx", "--int8") == 2
    assert "text.onnx: not an ONNX model" in line(capsys)
    assert command(model.parent / "none.onnx", "--int8") == 2
    assert "none.onnx: cannot be read: No such file" in line(capsys)


def test_truncated(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = model.read_bytes()
    for size in (1, 100, len(whole) // 2, len(whole) - 1):
        model.write_bytes(whole[:size])
        assert command(model, "--int8") == 2
        assert "model.onnx: " in line(capsys)
        assert names(model.parent) == ["model.onnx"]


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("method", [[], ["--dynamic"]])
def test_weights_that_are_not_finite(
    tmp_path: Path, value: float, method: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    w = normal(64, 96)
    w[33, 7] = value
    path = matrix(tmp_path / "bad.onnx", w)
    assert command(path, "--int8", *method) == 2
    expected = f"tensor 'w': expected finite weights, found {value} at row 33, column 7"
    assert expected in line(capsys)
    assert names(tmp_path) == ["bad.onnx"]


def test_tables_with_infinities_stay(tmp_path: Path) -> None:
    """Such as masks; other weights of the file are quantized."""
    table = np.where(normal(64, 64) > 0, 0, -np.inf).astype(np.float32)
    nodes = [
        node("Gather", ["table", "ids"], ["mask"]),
        node("MatMul", ["x", "w"], ["scores"]),
        node("Add", ["scores", "mask"], ["sums"]),
        node("Softmax", ["sums"], ["y"], axis=-1),
    ]
    path = write(
        tmp_path / "m.onnx", nodes, {"x": (F, [4, 64]), "ids": (TensorProto.INT64, [4])},
        {"y": (F, [4, 64])}, {"table": table, "w": normal(64, 64, seed=1) / 8},
    )  # fmt: skip
    report = quantize_onnx(path, options=Options(type="int8"))
    assert {row.name: row.type for row in report.rows} == {"table": "F32", "w": "Q8_0"}
    assert "values are infinite" in report.table()
    feeds = {"x": normal(4, 64, seed=2), "ids": np.arange(4)}
    np.testing.assert_allclose(run(report.output, feeds)[0], run(path, feeds)[0], atol=0.02)


def test_quantized_already(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(model, "--int4") == 0
    small = model.with_name("model-int4.onnx")
    capsys.readouterr()
    assert command(small, "--int8") == 2
    assert "(GatherBlockQuantized): the model is quantized already" in line(capsys)
    assert command(small, "--int8", "--requantize") == 2
    assert "expected weights of MatMul, Gemm, Gather or Conv, found none" in line(capsys)


def test_nothing_to_quantize(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(
        tmp_path / "m.onnx", [node("Relu", ["x"], ["y"])], {"x": (F, [4])}, {"y": (F, [4])}, {}
    )
    for kind in ("--int8", "--int4", "--bf16"):
        assert command(path, kind) == 2
        assert "expected weights of" in line(capsys)
    assert names(tmp_path) == ["m.onnx"]


def test_the_input_is_not_replaced(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = model.read_bytes()
    link = model.with_name("link.onnx")
    link.hardlink_to(model)
    for options in (["-o", model], ["-o", link], ["-o", model.parent / "x.onnx", "--json", model]):
        assert command(model, "--int8", *options) == 2
        assert "is an input; choose another output" in line(capsys)
    assert model.read_bytes() == before
    assert names(model.parent) == ["link.onnx", "model.onnx"]


def test_data_beside_the_model_is_not_replaced(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loaded = onnx.load(model)
    name = "out.onnx.0123456789ab.data"
    onnx.save(loaded, model, save_as_external_data=True, location=name, size_threshold=0)
    before = (model.parent / name).read_bytes()
    assert command(model, "--int8", "-o", model.parent / "out.onnx", "--external") == 2
    assert f"{name}: is an input" in line(capsys)
    assert (model.parent / name).read_bytes() == before


def test_outputs_that_cannot_be_written(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (model.parent / "folder").mkdir()
    for target in (model.parent / "none" / "out.onnx", model.parent / "folder"):
        assert command(model, "--int8", "-o", target) == 2
        assert "cannot be written" in line(capsys)
    os.mkfifo(model.parent / "fifo.onnx")
    assert command(model, "--int8", "-o", model.parent / "fifo.onnx") == 2
    assert "not a regular file" in line(capsys)
    assert names(model.parent) == ["fifo.onnx", "folder", "model.onnx"]


def test_a_failure_while_writing_keeps_the_old_file(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The data is renamed first; where the model cannot be, the old data stays as it was."""
    before = ["out.onnx", "out.onnx.0123456789ab.data"]
    for name in before:
        (model.parent / name).write_text("old")
    replace = Path.replace

    def full(self: Path, target: Path) -> Path:
        if str(target).endswith("out.onnx"):
            raise OSError(28, "No space left on device")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", full)
    assert command(model, "--int8", "--external", "--force", "-o", model.parent / "out.onnx") == 2
    assert "out.onnx: cannot be written: No space left" in line(capsys)
    monkeypatch.undo()
    assert names(model.parent) == sorted(["model.onnx", *before])
    assert all((model.parent / name).read_text() == "old" for name in before)


def test_patterns(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for option, message in (
        ("none=int8", "no node's or weight's name matches 'none'"),
        ("up=Q4_K", "type 'Q4_K': expected one of"),
        ("up", "expected PATTERN=TYPE"),
    ):
        assert command(model, "--int8", "--keep", option) == 2
        assert message in line(capsys)


def test_options_of_the_other_format(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(model, "--type", "Q4_K_M") == 2
    assert "type 'Q4_K_M': expected one of" in line(capsys)
    assert command(model, "--int8", "--tokenizer", model) == 2
    assert "--tokenizer is for llama2.c models" in line(capsys)
    gguf = model.with_name("model.gguf")
    gguf.write_bytes(b"GGUF")
    for option in ("--dynamic", "--external", "--fp16-io"):
        assert command(gguf, "--int8", option) == 2
        assert "for ONNX models" in line(capsys)


def test_names_that_would_steer_a_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = matrix(tmp_path / "m.onnx", normal(2, 64), name="a\n\x1b[31m")
    assert command(path, "--int8") == 2
    assert "expected weights" in line(capsys)
    path = matrix(tmp_path / "m.onnx", normal(64, 64), name="a\n\x1b[31m")
    assert command(path, "--int8", "--verbose") == 0
    out, _ = capsys.readouterr()
    assert "\x1b" not in out
    assert r"a\n\x1b[31m" in out


def test_names_that_are_taken(tmp_path: Path) -> None:
    tensors = {"w": normal(64, 64) / 8, "w.q8": normal(64, 64, seed=1) / 8}
    nodes = [
        node("MatMul", ["x", "w"], ["w.q8_scale"]),
        node("MatMul", ["w.q8_scale", "w.q8"], ["y"]),
    ]
    path = write(tmp_path / "m.onnx", nodes, {"x": (F, ["n", 64])}, {"y": (F, ["n", 64])}, tensors)
    assert command(path, "--int8") == 0
    feeds = {"x": normal(3, 64)}
    assert cosine(run(path, feeds)[0], run(tmp_path / "m-int8.onnx", feeds)[0]) > 0.9999


def test_a_model_that_cannot_be_run_here_is_quantized(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = [
        node("MatMul", ["x", "w"], ["a"]),
        node("Mystery", ["a"], ["y"], domain="somewhere"),
    ]
    path = write(
        tmp_path / "m.onnx", nodes, {"x": (F, ["n", 64])}, {"y": (F, ["n", 64])},
        {"w": normal(64, 64)}, domains=["somewhere"],
    )  # fmt: skip
    for kind in ("--int8", "--fp16"):
        assert command(path, kind) == 0
        out, err = capsys.readouterr()
        assert err == ""
        assert "outputs not compared" in out
        assert "somewhere.Mystery" in out
    assert tensors_of(tmp_path / "m-fp16.onnx")["w.f16"].dtype == np.float16


def test_old_opsets_that_cannot_be_raised(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """ONNX's converter refuses Scan with lengths; weights that need no other opset are fine."""
    values = [helper.make_tensor_value_info(name, F, [4, 64]) for name in "io"]
    body = helper.make_graph([node("Identity", ["i"], ["o"])], "body", values[:1], values[1:])
    for op, shape, tensors in (
        ("Conv", [1, 9, 4, 64], {"w": normal(5, 9, 1, 1)}),
        ("MatMul", [1, 5, 4, 64], {"w": normal(64, 64)}),
    ):
        nodes = [
            node(op, ["x", "w"], ["a"]),
            node("Scan", ["lengths", "a"], ["y"], num_scan_inputs=1, body=body),
        ]
        path = write(
            tmp_path / f"{op}.onnx", nodes, {"x": (F, shape), "lengths": (TensorProto.INT64, [1])},
            {"y": (F, [1, 5, 4, 64])}, tensors, opset=8, ir=4,
        )  # fmt: skip
        if op == "MatMul":
            assert command(path, "--int8") == 0
        else:
            assert command(path, "--int8") == 2
            expected = "needs opset 13, the model has 8, and it cannot be converted"
            assert expected in line(capsys)


def test_without_onnx(model: Path) -> None:
    """The message says what to install."""
    code = (
        "import sys; sys.modules['onnx'] = None\n"
        "from halfbyte.cli import quantize as main\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(model), "--int8"], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "ONNX models need `pip install 'halfbyte[quantize]'`" in done.stderr
    assert done.stderr.count("\n") == 1
