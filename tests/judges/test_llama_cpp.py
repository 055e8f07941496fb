"""llama.cpp loads the files we write, and its distributions are ours."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import xllamacpp

import halfbyte
from halfbyte.formats import ModelFile
from halfbyte.quantize import quantize_file
from halfbyte.quantize.calibration import texts
from halfbyte.quantize.gguf_writer import write_gguf
from halfbyte.text.opening import open_model
from halfbyte.weights import F32, Tensor

F64 = npt.NDArray[np.float64]

# Mean KL divergence of our distribution from llama.cpp's, in nats. It remains because llama.cpp
# rounds activations (to F16 for F16 weights, to int8 with F16 scales for blocks); we do not, or do
# with more exact scales.
BOUNDS = {"fp32": 1e-5, "fp16": 1e-5, "int8": 1e-3, "int4": 2e-3}


def distributions(path: Path, steps: int) -> tuple[list[int], F64]:
    """Greedy ids from BOS, and log-probabilities [steps, vocabulary], by llama.cpp."""
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(path)
    parameters.n_ctx, parameters.n_parallel, parameters.n_gpu_layers = 512, 1, 0
    parameters.warmup, parameters.verbosity = False, -1
    parameters.cpuparams.n_threads = 1
    with halfbyte.load(path, threads=1) as model:
        vocabulary = model.vocabulary
    answer = xllamacpp.Server(parameters).handle_completions(
        {
            "prompt": [1],
            "n_predict": steps,
            "temperature": 0,
            "n_probs": vocabulary,
            "cache_prompt": False,
            "ignore_eos": True,
        }
    )
    tokens = answer["choices"][0]["logprobs"]["content"]
    logs = np.full((len(tokens), vocabulary), -np.inf)
    for row, token in zip(logs, tokens, strict=True):
        for candidate in token["top_logprobs"]:
            row[candidate["id"]] = candidate["logprob"]
    return [1, *(token["id"] for token in tokens)], logs


def log_softmax(logits: npt.NDArray[np.float32]) -> F64:
    wide = logits.astype(np.float64)
    wide -= wide.max(axis=1, keepdims=True)
    shifted: F64 = wide - np.log(np.exp(wide).sum(axis=1, keepdims=True))
    return shifted


def divergence(p: F64, q: F64) -> float:
    """Mean over rows of sum p (log p - log q), from log-probabilities."""
    weights = np.exp(p)
    terms = np.where(weights > 0, weights * (np.where(weights > 0, p, 0) - q), 0)
    return float(terms.sum(axis=1).mean())


def as_f32(source: Path, target: Path) -> None:
    """The same model in F32, through our writer."""
    write_f32(open_model(source), target)


def write_f32(file: ModelFile, target: Path) -> None:
    """A model's tensors in F32."""
    tensors = [
        Tensor(t.name, F32, t.shape, F32.encode(t.decode().reshape(1, -1)).reshape(-1))
        for t in file.tensors.values()
    ]
    write_gguf(target, file.metadata, tensors)


@pytest.fixture(
    scope="module",
    params=[
        "storyteller",
        pytest.param("stories260K", marks=[pytest.mark.data, pytest.mark.long]),
    ],
)
def source(request: pytest.FixtureRequest, storyteller: Path) -> Iterator[Path]:
    if request.param == "storyteller":
        yield storyteller
    else:
        yield request.getfixturevalue("data") / "llama2c" / "stories260K.bin"


@pytest.mark.parametrize("steps", [60, pytest.param(200, marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", BOUNDS)
def test_distributions_agree(source: Path, kind: str, steps: int, tmp_path: Path) -> None:
    target = tmp_path / f"{kind}.gguf"
    if kind == "fp32":
        as_f32(source, target)
    else:
        quantize_file(source, kind, target)
    ids, theirs = distributions(target, steps)
    assert len(ids) == steps + 1
    np.testing.assert_allclose(np.exp(theirs).sum(axis=1), 1, rtol=1e-3)
    with halfbyte.load(target) as model:
        ours = log_softmax(model.logits(ids[:-1]))
    assert divergence(theirs, ours) <= BOUNDS[kind]


def test_a_compensated_file(
    storyteller: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(texts.own_windows, "__defaults__", (300,))
    quantize_file(storyteller, "int4", tmp_path / "model.gguf", method="gptq", threads=1)
    ids, theirs = distributions(tmp_path / "model.gguf", 40)
    with halfbyte.load(tmp_path / "model.gguf") as model:
        assert divergence(theirs, log_softmax(model.logits(ids[:-1]))) <= BOUNDS["int4"]


def test_divergence_notices_a_difference(storyteller: Path, tmp_path: Path) -> None:
    """int4 is far beyond the bound of F32, so that a bound can fail."""
    as_f32(storyteller, tmp_path / "f32.gguf")
    quantize_file(storyteller, "int4", tmp_path / "int4.gguf")
    ids, theirs = distributions(tmp_path / "f32.gguf", 64)
    with halfbyte.load(tmp_path / "int4.gguf") as model:
        assert divergence(theirs, log_softmax(model.logits(ids[:-1]))) > 10 * BOUNDS["fp32"]
