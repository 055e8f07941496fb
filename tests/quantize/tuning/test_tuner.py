"""Tuning: what is learned is what the file holds, and brings a small model nearer to its floats."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.quantize.tuning.cases import normal
from tests.text.architectures import models

import halfbyte
from halfbyte.errors import HalfbyteError, UnsupportedError
from halfbyte.quantize import quantize_file
from halfbyte.quantize.gguf_writer import write_gguf
from halfbyte.quantize.tuning import pieces
from halfbyte.quantize.tuning.blas import single_threaded
from halfbyte.quantize.tuning.learned import Matrix, Vector, learns
from halfbyte.quantize.tuning.pieces import cut
from halfbyte.quantize.tuning.tuner import Schedule, Tuned, tune
from halfbyte.text.opening import open_model
from halfbyte.text.planning import Settings, capture_model
from halfbyte.weights import FORMATS, ScaledFormat, Tensor

SHORT = Schedule(steps=6, every=2)
SCALED = [f for f in FORMATS.values() if learns(f)]


def windows(vocabulary: int, count: int = 6, size: int = 20) -> list[Any]:
    generator = np.random.default_rng(1)
    return [generator.integers(3, vocabulary, size).astype(np.int32) for _ in range(count)]


@pytest.fixture(scope="module")
def storytellers(storyteller: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The model in floats, and rounded to nearest."""
    target = tmp_path_factory.mktemp("tuning") / "q4_0.gguf"
    quantize_file(storyteller, "int4", target, rtn=True)
    return storyteller, target


def tuned(
    paths: tuple[Path, Path], schedule: Schedule = SHORT, **options: Any
) -> tuple[Tuned, Mapping[str, Tensor]]:
    files = [open_model(path) for path in paths]
    vocabulary = files[0].tensors["token_embd.weight"].shape[0]
    start = dict(files[1].tensors)
    return tune(files[0], start, windows(vocabulary), schedule, **options), start


@pytest.mark.parametrize("format_", SCALED, ids=lambda f: f.name)
def test_a_matrix_is_what_the_file_holds(format_: type[ScaledFormat]) -> None:
    """To the bit, at first and after steps, which change scales only."""
    x = normal(5, 512, seed=1)
    start = format_.encode(x)
    matrix = Matrix(Tensor("w", format_, x.shape, start.reshape(-1)))
    assert matrix.encoded().tobytes() == start.tobytes()
    np.testing.assert_array_equal(matrix.values(), format_.decode(start))
    for _ in range(12):
        matrix.descend(matrix.values() - x * np.float32(1.4), 0.02)
    np.testing.assert_array_equal(matrix.values(), format_.decode(matrix.encoded()))
    decoded = (format_.decode(rows) for rows in (start, matrix.encoded()))
    before, after = (np.square(values - 1.4 * x).mean() for values in decoded)
    assert after < before
    np.testing.assert_array_equal(format_.quantized(matrix.encoded()).q, format_.quantized(start).q)


@pytest.mark.parametrize("format_", SCALED, ids=lambda f: f.name)
def test_a_step_moves_values_as_far_in_every_format(format_: type[ScaledFormat]) -> None:
    """About as far as the rate says: a minimum makes up for what its scale would add to it."""
    x, rate = normal(64, 512, seed=1), 0.001
    matrix = Matrix(Tensor("w", format_, x.shape, format_.encode(x).reshape(-1)))
    before = matrix.values()
    matrix.descend(normal(64, 512, seed=2), rate)
    moved = np.linalg.norm(matrix.values() - before) / np.linalg.norm(before)
    assert 0.8 * rate < moved < 2.6 * rate


def test_only_scales_with_gradients_are_learned() -> None:
    assert {"Q4_0", "Q8_0", "Q3_K", "Q2_K", "Q4_K", "IQ4_NL"} <= {f.name for f in SCALED}
    assert not any(map(learns, (FORMATS[n] for n in ("MXFP4", "F16", "F32", "IQ2_XXS", "TQ2_0"))))


def test_a_vector_moves_against_its_gradient() -> None:
    vector = Vector(np.array([1, -2, 3], np.float32))
    vector.descend(np.array([1, -1, 0], np.float32), 0.01)
    np.testing.assert_allclose(vector.values(), [0.99, -1.99, 3], rtol=1e-6)
    assert vector.encoded().tobytes() == vector.values().tobytes()


@pytest.mark.parametrize("name", ["llama", "phi3", "gpt2", "qwen2", "gemma2", "cohere"])
def test_pieces_are_the_model(name: str, tmp_path: Path) -> None:
    path = models.write(tmp_path / "model.gguf", name)
    ids = np.array(models.ids(name), np.int32)
    file = open_model(path)
    cuts = cut(capture_model(file, Settings(batch=len(ids), cache="f32")))
    layers = [piece for piece in cuts if piece.prefix]
    assert len({id(piece.shape) for piece in layers}) < len(layers)  # two share one
    x: Any = ids
    for piece in cuts:
        piece.shape.load(
            {s: t.decode() if isinstance(t, Tensor) else t for s, t in piece.tensors.items()}
        )
        x = piece.shape.run(x).copy()
    with halfbyte.load(path, backend="numpy", activations="float") as model:
        np.testing.assert_allclose(x, model.logits(ids.tolist()), rtol=0, atol=1e-4)


def test_divergence_falls_the_same_with_any_number_of_threads(
    storytellers: tuple[Path, Path], tmp_path: Path
) -> None:
    seen: list[tuple[int, int, float]] = []
    one, start = tuned(storytellers, progress=lambda *values: seen.append(values))
    assert [step for step, _, _ in seen] == [0, 2, 4, 6]
    assert (one.before, one.after) == (seen[0][2], seen[-1][2])
    assert one.after < 0.8 * one.before
    two, _ = tuned(storytellers, threads=2)
    assert two.after == one.after
    assert all(two.encoded[n].tobytes() == x.tobytes() for n, x in one.encoded.items())
    names = {n for n, t in start.items() if n.startswith("blk.") or len(t.shape) == 1}
    assert one.encoded.keys() == names
    file = open_model(storytellers[1])
    changed = [
        Tensor(n, t.format, t.shape, one.encoded[n].reshape(-1)) if n in names else t
        for n, t in file.tensors.items()
    ]
    write_gguf(tmp_path / "tuned.gguf", file.metadata, changed)
    held = windows(1024)[-1].tolist()
    paths = (storytellers[0], storytellers[1], tmp_path / "tuned.gguf")
    options: Any = {"backend": "numpy", "activations": "float", "cache": "f32"}
    logs = []
    for path in paths:
        with halfbyte.load(path, **options) as model:
            logits = model.logits(held).astype(np.float64)
        logs.append(logits - np.log(np.exp(logits).sum(axis=1, keepdims=True)))
    losses = [float((np.exp(logs[0]) * (logs[0] - q)).sum(axis=1).mean()) for q in logs[1:]]
    np.testing.assert_allclose(losses, [one.before, one.after], rtol=1e-3)


class Stopped(Exception):
    """As by Ctrl-C."""


def test_an_interrupted_run_goes_on(storytellers: tuple[Path, Path], tmp_path: Path) -> None:
    path = tmp_path / "out.gguf.tuning"
    path.write_bytes(b"no checkpoint")  # is ignored

    def stop(step: int, steps: int, loss: float) -> None:
        if step == 4:
            raise Stopped

    with pytest.raises(Stopped):
        tuned(storytellers, checkpoint=path, progress=stop)
    steps: list[int] = []
    again, _ = tuned(storytellers, checkpoint=path, progress=lambda step, *_: steps.append(step))
    assert steps == [2, 4, 6]
    assert not path.exists()
    whole, _ = tuned(storytellers)
    assert (again.before, again.after, again.step) == (whole.before, whole.after, whole.step)
    assert all(again.encoded[n].tobytes() == x.tobytes() for n, x in whole.encoded.items())


def test_another_run_s_checkpoint_is_ignored(
    storytellers: tuple[Path, Path], tmp_path: Path
) -> None:
    path = tmp_path / "out.gguf.tuning"

    def stop(step: int, steps: int, loss: float) -> None:
        if step == 4:
            raise Stopped

    with pytest.raises(Stopped):
        tuned(storytellers, checkpoint=path, progress=stop)
    assert path.exists()
    steps: list[int] = []
    other = Schedule(steps=2, every=1)
    tuned(storytellers, other, checkpoint=path, progress=lambda step, *_: steps.append(step))
    assert steps == [0, 1, 2]


def test_a_start_that_steps_make_worse_remains(storytellers: tuple[Path, Path]) -> None:
    result, _ = tuned(storytellers, Schedule(steps=2, every=1, rate=0.5, vector_rate=0.5))
    assert (result.step, result.after) == (0, result.before)
    assert not result.encoded


def test_larger_models_take_fewer_steps() -> None:
    """For about the time that 48 take of 135 million weights, within bounds."""
    steps = [Schedule.of(512, weights).steps for weights in (10**6, 10**8, 134_515_008, 10**10)]
    assert steps == [160, 65, 48, 40]
    assert Schedule.of(128, 134_515_008).every == 20


def test_a_short_rest_of_a_text_does_not_judge(storytellers: tuple[Path, Path]) -> None:
    """A last window of two tokens is learned from; the longest are held out."""
    files = [open_model(path) for path in storytellers]
    long, rest = windows(1024, 3), np.array([1, 5], np.int32)
    results = [
        tune(files[0], dict(files[1].tensors), texts, Schedule(steps=1, every=1))
        for texts in ([*long, rest], [rest, *long])
    ]
    assert results[0].before == results[1].before
    alone = tune(files[0], dict(files[1].tensors), long, Schedule(steps=1, every=1))
    assert results[0].before == alone.before


def test_logits_are_computed_some_rows_at_a_time(
    storytellers: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a window of 20 tokens all together, or seven."""
    short = Schedule(steps=2, every=2)
    whole, _ = tuned(storytellers, short)
    monkeypatch.setattr(pieces, "HEAD_NUMBERS", 7 * 1024 + 5)
    file = open_model(storytellers[0])
    assert cut(capture_model(file, Settings(batch=20)))[-1].shape.most == 7
    parts, _ = tuned(storytellers, short)
    np.testing.assert_allclose(parts.before, whole.before, rtol=1e-5)
    np.testing.assert_allclose(parts.after, whole.after, rtol=1e-3)


@pytest.mark.parametrize("name", ["phi3", "gpt2", "qwen2"])
def test_parts_and_biases_are_learned(name: str, tmp_path: Path) -> None:
    """Of matrices and biases that several products share."""
    path = models.write(tmp_path / "model.gguf", name)
    quantize_file(path, "int4", tmp_path / "q.gguf", rtn=True)
    float_file, file = open_model(path), open_model(tmp_path / "q.gguf")
    start, vocabulary = dict(file.tensors), file.tensors["token_embd.weight"].shape[0]
    slow = Schedule(steps=6, every=3, rate=0.003, vector_rate=0.001, windows=8)
    result = tune(float_file, start, windows(vocabulary, 9, 40), slow)
    assert result.after < result.before
    layers = {n for n, t in start.items() if n.startswith("blk.") and learns(t.format)}
    assert layers <= result.encoded.keys()
    assert all(x.nbytes == start[n].nbytes for n, x in result.encoded.items())
    if name == "qwen2":
        assert "blk.0.attn_q.bias" in result.encoded


def test_what_cannot_be_tuned_is_refused(storytellers: tuple[Path, Path], tmp_path: Path) -> None:
    file = open_model(storytellers[0])
    with pytest.raises(HalfbyteError, match="at least 2 windows of tokens, found 1"):
        tune(file, dict(file.tensors), windows(1024, 1))
    mamba = open_model(models.write(tmp_path / "mamba.gguf", "mamba"))
    with pytest.raises(UnsupportedError, match="has no gradient"):
        tune(mamba, dict(mamba.tensors), windows(60))


def test_products_have_one_thread_each_only_meanwhile() -> None:
    library = ctypes.CDLL(np._core._multiarray_umath.__file__)  # type: ignore[attr-defined]
    get = getattr(library, "scipy_openblas_get_num_threads64_", None)
    if get is None:  # NumPy has another library of products
        with single_threaded():
            return
    before = get()
    with single_threaded():
        assert get() == 1
    assert get() == before
