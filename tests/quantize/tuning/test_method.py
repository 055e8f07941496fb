"""``--method tuned``: from a model and a text, or none, to a file."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np
import pytest
from tests.text.architectures import models

import halfbyte
from halfbyte.cli import quantize as main
from halfbyte.cli import quantize_command
from halfbyte.formats import ModelFile
from halfbyte.quantize import quantize_file, run
from halfbyte.quantize.calibration import texts
from halfbyte.quantize.tuning.tuner import Schedule
from halfbyte.text.opening import open_model
from halfbyte.weights import Tensor


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text and a schedule of some milliseconds."""
    monkeypatch.setattr(texts.own_windows, "__defaults__", (300,))
    schedule = Schedule(steps=4, every=2, rate=0.001, vector_rate=0.001)
    monkeypatch.setattr(Schedule, "of", lambda size, weights: schedule)


@pytest.fixture
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model."""
    return models.write(tmp_path_factory.mktemp("model") / "model.gguf", "llama")


def integers(file: ModelFile) -> dict[str, bytes]:
    """Those of Q4_0, without scales."""
    matrices = (t for t in file.tensors.values() if t.format.name == "Q4_0")
    return {t.name: t.format.quantized(t.rows).q.tobytes() for t in matrices}


def test_scales_and_norms_change_after_gptq(model: Path, tmp_path: Path) -> None:
    """Integers stay, as does all that lies outside of layers, but the last norm."""
    paths = {method: tmp_path / f"{method}.gguf" for method in ("gptq", "tuned")}
    progress: list[tuple[int, int]] = []
    for method, path in paths.items():
        report = quantize_file(
            model, "int4", path, method=method, threads=2,
            progress=lambda done, total: progress.append((done, total)),
        )  # fmt: skip
    assert report.notes[0].startswith("tuned: divergence ")
    assert progress[-1][0] >= 0.95 * progress[-1][1]
    start, tuned = (open_model(path) for path in paths.values())
    assert integers(tuned) == integers(start)
    changed = {n for n, t in tuned.tensors.items() if t.data.tobytes() != _bytes(start, t)}
    assert {"blk.0.attn_norm.weight", "blk.1.ffn_down.weight", "output_norm.weight"} <= changed
    assert "token_embd.weight" not in changed
    with halfbyte.load(paths["tuned"]) as loaded:
        assert len(loaded.logits([1, 5, 7])) == 3
    assert {p.name for p in tmp_path.iterdir()} == {"gptq.gguf", "tuned.gguf"}


def _bytes(file: ModelFile, tensor: Tensor) -> bytes:
    return file.tensors[tensor.name].data.tobytes()


def test_vectors_have_their_types(model: Path, tmp_path: Path) -> None:
    """Those that are kept in F16 are learned in F32, then rounded."""
    out, norm = tmp_path / "o.gguf", "blk.0.attn_norm.weight"
    quantize_file(model, "int4", out, method="tuned", keep=[("*norm*", "F16")], threads=1)
    start, tuned = (open_model(path).tensors[norm] for path in (model, out))
    assert tuned.format.name == "F16"
    ratio = tuned.decode() / start.decode()
    scales = np.exp2(np.rint(np.log2(ratio)))  # of equalized channels
    assert 0 < np.abs(ratio / scales - 1).max() < 0.02


def test_an_interrupted_run_goes_on(model: Path, tmp_path: Path) -> None:
    out, whole = tmp_path / "o.gguf", tmp_path / "whole.gguf"

    def interrupt(done: int, total: int) -> None:
        if (tmp_path / "o.gguf.tuning").exists():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        quantize_file(model, "int4", out, method="tuned", threads=1, progress=interrupt)
    assert [p.name for p in tmp_path.iterdir()] == ["o.gguf.tuning"]
    quantize_file(model, "int4", out, method="tuned", threads=1)
    quantize_file(model, "int4", whole, method="tuned", threads=1)
    assert out.read_bytes() == whole.read_bytes()
    assert {p.name for p in tmp_path.iterdir()} == {"o.gguf", "whole.gguf"}


REFUSED = {
    "mixtral": "which --method gptq rounds",
    "mamba2": "which --method gptq rounds",
    "gemma3n": "--method search quantizes it",
}


@pytest.mark.parametrize("name", REFUSED)
def test_models_that_cannot_be_tuned_are_refused(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the model writes a text."""
    monkeypatch.delattr(run, "own_windows")
    path = models.write(tmp_path / "model.gguf", name)
    out = tmp_path / "o.gguf"
    assert main([str(path), "--int4", "--method", "tuned", "-o", str(out)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert REFUSED[name] in error
    assert not out.exists()


def test_a_file_that_is_no_checkpoint_stays(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a text, nor arrays of somebody else."""
    monkeypatch.delattr(run, "own_windows")
    out, other = tmp_path / "o.gguf", tmp_path / "o.gguf.tuning"
    np.savez(other.with_suffix(".npz"), check=np.zeros(3))
    arrays = other.with_suffix(".npz").read_bytes()
    other.with_suffix(".npz").unlink()
    for data in (b"notes", arrays):
        other.write_bytes(data)
        assert main([str(model), "--int4", "--method", "tuned", "-o", str(out)]) == 2
        assert f"{other}: exists already, and is no checkpoint" in capsys.readouterr().err
        assert other.read_bytes() == data
        assert [p.name for p in tmp_path.iterdir()] == [other.name]


@pytest.mark.parametrize("method", ["gptq", "tuned"])
def test_types_without_scales_are_refused(
    method: str, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.delattr(run, "own_windows")
    out = tmp_path / "o.gguf"
    assert main([str(model), "--fp16", "--method", method, "-o", str(out)]) == 2
    assert f"expected a type such as int4 for method '{method}'" in capsys.readouterr().err
    assert not any(tmp_path.iterdir())


def test_a_terminal_sees_the_divergence(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr(quantize_command.time, "perf_counter", itertools.count().__next__)
    out = tmp_path / "o.gguf"
    assert main([str(model), "--int4", "--method", "tuned", "-o", str(out)]) == 0
    shown = re.findall(r"MB/s  KL (\S+)", capsys.readouterr().err)
    losses = [float(text) for text in dict.fromkeys(shown)]
    assert losses == sorted(losses, reverse=True)
    assert losses
