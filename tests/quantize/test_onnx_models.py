"""Whole models as exporters write them, quantized by all methods, judged by ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.quantize.small_models import Array, cosine, run
from tests.support.sampled import often
from tools.onnx_models import make, minilm, save

from halfbyte.onnx.session import InferenceSession
from halfbyte.quantize import Report
from halfbyte.quantize.onnx import Options, quantize_onnx
from halfbyte.quantize.onnx.editor import Editor
from halfbyte.quantize.onnx.samples import Inputs
from halfbyte.quantize.onnx.source import read_source

# Minimum cosine of the first output; weights are random, and convolutions deep.
WAYS: dict[str, tuple[dict[str, Any], float, float]] = {
    "int8": ({}, 0.9995, 0.99),
    "int4": ({"type": "int4"}, 0.985, 0.98),
    "dynamic": ({"method": "dynamic", "per_channel": True}, 0.9995, 0.98),
    "static": ({"method": "static"}, 0.9995, 0.98),
    "fp16": ({"type": "fp16"}, 0.99999, 0.9995),
    "bf16": ({"type": "bf16"}, 0.9999, 0.995),
}
CONVOLUTIONAL = ("mobilenet-v2-small", "resnet-small")


@pytest.mark.parametrize(
    "name", often(["bert-small", "gpt2-small", *CONVOLUTIONAL], ["bert-small", "resnet-small"])
)
def test_small_models(tmp_path: Path, name: str) -> None:
    path = tmp_path / "m.onnx"
    save(make(name), path)
    inputs = Inputs(Editor(read_source(path)))
    feeds = dict(inputs.random(7))
    samples = [inputs.random(seed) for seed in range(4)]
    np.savez(tmp_path / "s.npz", **{n: np.concatenate([s[n] for s in samples]) for n in feeds})  # type: ignore[arg-type]
    expected = run(path, feeds)[0]
    for way, (options, *bounds) in WAYS.items():
        given = tmp_path / "s.npz" if way == "static" else None
        chosen = Options(**options, compare=False)
        report = quantize_onnx(path, tmp_path / "o.onnx", chosen, samples=given)
        outputs = run(report.output, feeds)[0]
        assert cosine(expected, outputs) > bounds[name in CONVOLUTIONAL], way
        (ours, *_) = InferenceSession(report.output).run(None, feeds)
        assert cosine(ours, outputs) > bounds[name in CONVOLUTIONAL], way
        assert report.bytes_after < 0.65 * report.bytes_before, way


SENTENCES = (
    "The cat sits outside.",
    "A man is playing the guitar.",
    "The new movie is awesome!",
    "Quantization maps real numbers to small integers with a scale for each block of weights.",
    "How do I reset my password?",
    "Interest rates rose again in March, which surprised most economists.",
    "Bananas are rich in potassium.",
    "Error 404: page not found",
    "Can you recommend a good Italian restaurant nearby?",
    "We hiked through dense forest until we noticed that the map was upside down.",
)


@pytest.fixture(scope="module")
def embedder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("minilm") / "minilm.onnx"
    save(minilm.build(), path)
    return path


@pytest.fixture(scope="module")
def tokens() -> dict[str, Array]:
    return minilm.tokens(SENTENCES)


@pytest.mark.parametrize(
    ("options", "mean", "size"),
    [
        pytest.param({"type": "int8"}, 0.9996, 25.6, marks=pytest.mark.long),
        pytest.param({"type": "int4"}, 0.97, 20.3, marks=pytest.mark.long),
        ({"method": "dynamic", "per_channel": True}, 0.99, 23.1),
        ({"type": "fp16"}, 0.999999, 45.4),
    ],
)
def test_sentence_embeddings(
    embedder: Path, tokens: dict[str, Array], options: dict[str, Any], mean: float, size: float
) -> None:
    """all-MiniLM-L6-v2 in ONNX Runtime: the mean cosine of sentences, and megabytes."""
    report: Report = quantize_onnx(
        embedder, embedder.parent / "o.onnx", Options(**options, compare=False)
    )
    (expected,), (outputs,) = run(embedder, tokens), run(report.output, tokens)
    assert np.mean([cosine(x, y) for x, y in zip(expected, outputs, strict=True)]) >= mean
    assert report.bytes_after == pytest.approx(size * 1e6, rel=0.01)
