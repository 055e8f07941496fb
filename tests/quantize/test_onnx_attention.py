"""Attention in int8: chosen when a model is quantized, obeyed when it runs."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from tests.onnx.test_slices import feeds_of
from tools.onnx_models import make, save

from halfbyte.cli import main
from halfbyte.cli import quantize as quantize_main
from halfbyte.core import ops
from halfbyte.errors import HalfbyteError
from halfbyte.onnx.runner import INT8_ATTENTION
from halfbyte.onnx.session import InferenceSession, SessionOptions
from halfbyte.quantize.onnx import Options, output_quality, quantize_onnx


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("source") / "bert.onnx"
    save(make("bert-small", pooled=True), path)
    return path


def is_int8(path: Path, expected: bool | None = None) -> bool:
    """Whether attention is in int8 when the file runs."""
    options = SessionOptions(int8_attention=expected)
    session = InferenceSession(str(path), options)
    session.run(None, feeds_of(2, 16))
    operators = {i.operator for program in session.programs() for i in program.instructions}
    assert len(operators & {ops.attention, ops.attention_int8}) == 1
    return ops.attention_int8 in operators


def says(path: Path) -> list[str]:
    return [p.value for p in onnx.load(path).metadata_props if p.key == INT8_ATTENTION]


def test_attention_that_leaves_outputs_is_in_int8(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "q.onnx"
    report = quantize_onnx(source, target, Options(type="int8"))
    (note,) = [note for note in report.notes if "attention" in note]
    assert note.startswith("attention in int8")
    assert float(note.split(" at ")[1].split()[0]) > output_quality.ATTENTION_DB
    assert says(target) == ["1"]
    assert (is_int8(target), is_int8(target, True), is_int8(target, False)) == (True, True, False)


def test_attention_that_spoils_outputs_is_in_floats(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output_quality, "ATTENTION_DB", 90.0)
    target = tmp_path / "q.onnx"
    report = quantize_onnx(source, target, Options(type="int4"))
    assert any(note.startswith("attention in floats") for note in report.notes)
    assert says(target) == []
    assert (is_int8(target), is_int8(target, True), is_int8(target, False)) == (False, True, False)


def test_attention_as_it_is_asked_for(source: Path, tmp_path: Path) -> None:
    """Also without a run; models that are quantized again do not keep the old choice."""
    first, second = tmp_path / "first.onnx", tmp_path / "second.onnx"
    quantize_onnx(source, first, Options(type="int8", attention="int8", compare=False))
    assert says(first) == ["1"]
    keep = [("*attention*", "fp32")]
    quantize_onnx(source, second, Options(type="int8", keep=keep, compare=False))
    assert says(second) == []
    with pytest.raises(HalfbyteError, match="attention 'often': expected one of"):
        quantize_onnx(source, tmp_path / "no.onnx", Options(attention="often"))


@pytest.mark.parametrize("words", [["--fp16"], ["--int8", "--dynamic"]])
def test_the_attention_option_is_refused_where_it_has_no_effect(
    source: Path, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "q.onnx"
    code = quantize_main([str(source), *words, "--attention", "int8", "-o", str(target)])
    assert code == 2
    assert "attention 'int8': expected type 'int8' or 'int4'" in capsys.readouterr().err
    assert not target.exists()


def test_attention_is_of_graphs(
    storyteller: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "q.gguf"
    words = ["--int4", "--attention", "int8", "-o", str(target)]
    assert quantize_main([str(storyteller), *words]) == 2
    assert "--attention is for ONNX models" in capsys.readouterr().err
    assert not target.exists()


@pytest.mark.parametrize("attention", ["int8", "floats"])
@pytest.mark.parametrize("workload", ["validate", "trace"])
def test_quantized_files_pass_their_evaluation(
    source: Path, tmp_path: Path, attention: str, workload: str
) -> None:
    """Even though the graph has activations in floats."""
    target = tmp_path / "q.onnx"
    quantize_onnx(source, target, Options(type="int8", attention=attention, compare=False))
    assert main(["eval", str(target), "--workload", workload]) == 0


def test_models_without_attention_say_nothing(tmp_path: Path) -> None:
    source, target = tmp_path / "m.onnx", tmp_path / "q.onnx"
    save(make("resnet-small"), source)
    report = quantize_onnx(source, target, Options(type="int8"))
    assert not any("attention" in note for note in report.notes)
    assert says(target) == []
