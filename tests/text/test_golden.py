"""A trained model against figures and texts of other implementations."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import halfbyte
from halfbyte.quantize import quantize_file

pytestmark = pytest.mark.data


@pytest.fixture(scope="module")
def stories(data: Path) -> Path:
    return data / "llama2c" / "stories260K.bin"


def test_perplexity_is_the_reference_implementations(stories: Path, backend: str) -> None:
    golden = json.loads((stories.parent / "golden.json").read_text(encoding="utf-8"))
    with halfbyte.load(stories, backend=backend) as model:
        assert len(model.tokenizer.encode(golden["sentence"])) == golden["n_tokens"]
        assert model.perplexity(golden["sentence"]) == pytest.approx(golden["perplexity"], rel=1e-4)


@pytest.mark.parametrize("threads", [1, 3])
def test_greedy_text_is_the_reference_implementations(
    stories: Path, backend: str, threads: int
) -> None:
    golden = json.loads((stories.parent / "expected.json").read_text(encoding="utf-8"))
    with halfbyte.load(stories, backend=backend, threads=threads) as model:
        text = model.generate(golden["prompt"], max_tokens=golden["steps"], temperature=0)
    assert text == golden["text"]


@pytest.mark.parametrize(("kind", "loss"), [("int8", 0.005), ("int4", 0.25)])
def test_quantized_perplexity_stays_near(
    stories: Path, data: Path, tmp_path: Path, kind: str, loss: float
) -> None:
    """On real prose, not on one sentence; the bounds are about twice the measured values."""
    text = (data / "text" / "frankenstein.txt").read_text(encoding="utf-8")[:4000]
    quantize_file(stories, kind, tmp_path / "small.gguf")
    with halfbyte.load(stories) as model, halfbyte.load(tmp_path / "small.gguf") as small:
        ids = model.tokenizer.encode(text)
        rise = small.token_losses(ids).mean() - model.token_losses(ids).mean()
        assert np.isfinite(rise)
        assert rise < loss
