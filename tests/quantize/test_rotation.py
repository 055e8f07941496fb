"""Rotating the residual stream leaves the model's function as it is."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from tests.quantize.test_calibration import divergence
from tests.support.sampled import sampled
from tests.text.architectures import models

import halfbyte
from halfbyte.cli import quantize as main
from halfbyte.errors import HalfbyteError, UnsupportedError
from halfbyte.formats import ModelFile
from halfbyte.quantize import quantize_file
from halfbyte.quantize.calibration.segments import Segments
from halfbyte.quantize.rotation import EMBEDDING, HEAD, NORM, Rotation, rotated
from halfbyte.text.opening import open_model
from halfbyte.weights import F32Array

LIKE_LLAMA = ("llama", "qwen2", "qwen3", "mixtral", "smollm3", "qwen3_moe", "granite")


@pytest.mark.parametrize("size", [1, 2, 9, 12, 64, 96, 576])
def test_rotations_are_orthogonal_and_mix_all_channels(size: int) -> None:
    r = Rotation(size)(np.eye(size))
    np.testing.assert_allclose(r @ r.T, np.eye(size), atol=1e-12)
    x = np.zeros((1, size))
    x[0, -1] = 1
    assert np.abs(Rotation(size)(x)).max() <= np.sqrt(2 / size) + 1e-12


def logits(file: ModelFile, ids: list[int]) -> F32Array:
    segments = Segments(file, [np.array(ids, np.int32)])
    states = segments.start()
    for segment in segments:
        states = list(segments.run(segment, states))
    return states[0]["logits"]


def test_which_architectures_are_like_llama(tmp_path: Path) -> None:
    for name in LIKE_LLAMA:
        rotated(open_model(models.write(tmp_path / f"{name}.gguf", name)))


@pytest.mark.parametrize("name", sampled([n for n in models.CONFIGS if n != "gemma3n"], 16))
def test_a_rotated_model_is_the_same_function(name: str, tmp_path: Path) -> None:
    """Of every architecture that is not refused."""
    file, ids = open_model(models.write(tmp_path / "model.gguf", name)), models.ids(name)
    with suppress(UnsupportedError):
        turned = rotated(file)
        expected, actual = logits(file, ids), logits(turned, ids)
        assert models.largest_difference(actual, expected) < 1e-5
        assert (turned.tensors[NORM].decode() == 1).all()
        before, after = (f.tensors[EMBEDDING].decode() for f in (file, turned))
        assert models.largest_difference(after, before) > 0.1


def test_the_shipped_model(storyteller: Path) -> None:
    file, ids = open_model(storyteller), list(range(1, 100))
    turned = rotated(file)
    expected = logits(file, ids)
    assert np.abs(logits(turned, ids) - expected).max() < 1e-5 * np.abs(expected).max()
    assert HEAD in turned.tensors


def large(file: ModelFile) -> dict[str, float]:
    """Of matrices, the largest column's size beside the median's."""
    sizes = {}
    for name, tensor in file.tensors.items():
        if len(tensor.shape) == 2:
            rms = np.sqrt(np.square(tensor.decode()).mean(axis=0))
            sizes[name] = float(rms.max() / np.median(rms))
    return sizes


def test_a_large_channel_is_spread(tmp_path: Path) -> None:
    def change(metadata: object, tensors: dict[str, F32Array]) -> None:
        for name in ("blk.0.attn_norm.weight", "blk.0.ffn_norm.weight"):
            tensors[name][3] *= 50

    path = models.write(tmp_path / "model.gguf", "llama", change=change)
    after = large(rotated(open_model(path)))
    assert after["blk.0.attn_q.weight"] < 4
    assert after["blk.0.ffn_up.weight"] < 4


@pytest.mark.long
def test_four_bits_are_no_worse(storyteller: Path, repository: Path, tmp_path: Path) -> None:
    text = tmp_path / "stories.txt"
    held = (repository / "tests/data/storyteller-heldout.txt").read_text("utf-8")
    text.write_text(held[:10000], "utf-8")
    some = held.strip().split("\n\n")[-8:]
    kl = []
    for rotate in (False, True):
        path = tmp_path / f"{rotate}.gguf"
        quantize_file(storyteller, "int4", path, calibrate=text, rotate=rotate, threads=1)
        kl.append(divergence(storyteller, path, some))
    assert kl[1] < 1.1 * kl[0]


def test_the_command(storyteller: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.gguf"
    assert main([str(storyteller), "--int4", "--rotate", "-o", str(out)]) == 0
    assert (
        "note: the head, which was the embedding, is a matrix of its own" in capsys.readouterr().out
    )
    with halfbyte.load(out, threads=1) as model, halfbyte.load(storyteller, threads=1) as before:
        ids = before.tokenizer.encode("Once upon a time there was a girl")
        x, y = model.logits(ids)[-1], before.logits(ids)[-1]
    assert float(np.corrcoef(x, y)[0, 1]) > 0.99


@pytest.mark.parametrize("name", ["gemma2", "gpt2", "olmo2", "mamba", "gemma3"])
def test_models_that_cannot_be_rotated(name: str, tmp_path: Path) -> None:
    path = models.write(tmp_path / "model.gguf", name)
    with pytest.raises(UnsupportedError, match=r"model\.gguf: cannot be rotated: "):
        quantize_file(path, "int4", tmp_path / "out.gguf", rotate=True)
    assert [p.name for p in tmp_path.iterdir()] == ["model.gguf"]


def test_what_a_rotation_excludes(tmp_path: Path) -> None:
    def change(metadata: object, tensors: dict[str, F32Array]) -> None:
        tensors["blk.0.attn_gate_of_something.weight"] = np.ones((4, 4), np.float32)

    path = models.write(tmp_path / "model.gguf", "llama")
    with pytest.raises(HalfbyteError, match="rotate: expected no imatrix"):
        quantize_file(path, "int4", rotate=True, imatrix=path)
    coarse = tmp_path / "q4.gguf"
    quantize_file(path, "int4", coarse, pure=True)
    with pytest.raises(UnsupportedError, match=r"cannot be rotated: tensor .* is Q4_0 already"):
        quantize_file(coarse, "int4", tmp_path / "o.gguf", rotate=True, requantize=True)
    other = models.write(tmp_path / "other.gguf", "llama", change=change)
    with pytest.raises(UnsupportedError, match=r"not known what tensor .blk\.0\.attn_gate_of"):
        rotated(open_model(other))
