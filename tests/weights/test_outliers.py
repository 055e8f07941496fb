"""Channels far larger than the rest, as in trained models, must not cost quality."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import halfbyte
from halfbyte.quantize import quantize_file
from halfbyte.quantize.gguf_writer import write_gguf
from halfbyte.text.opening import open_model
from halfbyte.weights import F32, Tensor

FACTOR = 64
CHANNELS = 8


def twin(source: Path, target: Path) -> None:
    """Write a model of the same function in float: norm channels and rows of `up` times `FACTOR`,
    the columns that read them divided by it.

    A power of two changes no mantissa, so the two models agree to the bit.
    """
    file = open_model(source)
    values = {name: t.decode().copy() for name, t in file.tensors.items()}
    random = np.random.default_rng(0)
    for layer in range(int(file.metadata["llama.block_count"])):
        block = f"blk.{layer}."
        for norm, readers in (
            ("attn_norm", ("attn_q", "attn_k", "attn_v")),
            ("ffn_norm", ("ffn_gate", "ffn_up")),
        ):
            gain = values[f"{block}{norm}.weight"]
            channels = random.choice(len(gain), CHANNELS, replace=False)
            gain[channels] *= FACTOR
            for reader in readers:
                values[f"{block}{reader}.weight"][:, channels] /= FACTOR
        up, down = values[f"{block}ffn_up.weight"], values[f"{block}ffn_down.weight"]
        rows = random.choice(len(up), CHANNELS, replace=False)
        up[rows] *= FACTOR
        down[:, rows] /= FACTOR
    tensors = [
        Tensor(name, F32, v.shape, v.reshape(-1).view(np.uint8)) for name, v in values.items()
    ]
    write_gguf(target, file.metadata, tensors)


@pytest.fixture(scope="module")
def plain_and_twin(storyteller: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    target = tmp_path_factory.mktemp("outliers") / "twin.gguf"
    twin(storyteller, target)
    return [storyteller, target]


@pytest.fixture(scope="module")
def ids(repository: Path, storyteller: Path) -> list[int]:
    text = (repository / "tests/data/storyteller-heldout.txt").read_text(encoding="utf-8")
    with halfbyte.load(storyteller) as model:
        return model.tokenizer.encode(text)[: model.context]


def log_probabilities(path: Path, ids: list[int]) -> np.ndarray:
    with halfbyte.load(path) as model:
        logits = model.logits(ids).astype(np.float64)
    logits -= logits.max(axis=1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def test_twin_is_the_same_function(plain_and_twin: list[Path], ids: list[int]) -> None:
    plain, other = (log_probabilities(path, ids) for path in plain_and_twin)
    np.testing.assert_allclose(other, plain, atol=1e-4)


def divergences(models: list[Path], ids: list[int], target: Path, **options: object) -> list[float]:
    """Mean KL divergence of each quantized model from the plain one in float."""
    float_ = log_probabilities(models[0], ids)
    means = []
    for model in models:
        quantize_file(model, output=target, **options)  # type: ignore[arg-type]
        small = log_probabilities(target, ids)
        means.append(float((np.exp(float_) * (float_ - small)).sum(axis=1).mean()))
    return means


@pytest.mark.parametrize("kind", ["int8", "int4"])
def test_divergence_from_float_is_that_of_the_plain_model(
    plain_and_twin: list[Path], ids: list[int], kind: str, tmp_path: Path
) -> None:
    plain, other = divergences(plain_and_twin, ids, tmp_path / "small.gguf", type=kind)
    assert 0 < other <= 2 * plain


@pytest.mark.parametrize("kind", ["int8", "int4"])
def test_plain_rounding_does_suffer(
    plain_and_twin: list[Path], ids: list[int], kind: str, tmp_path: Path
) -> None:
    """Without equalization the twin diverges more than twice as far: the test above can fail."""
    target = tmp_path / "small.gguf"
    plain, other = divergences(plain_and_twin, ids, target, type=kind, rtn=True)
    assert other > 2 * plain
