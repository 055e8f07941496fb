"""The KV cache in Q8_0: its quality, its size, and where it is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import numpy.typing as npt
import pytest
from tests.support.tools import load_tool

import halfbyte
from halfbyte.cli import main
from halfbyte.core.buffer import Kind, maximum
from halfbyte.errors import HalfbyteError
from halfbyte.quantize import quantize_file
from halfbyte.text.model import LanguageModel
from halfbyte.text.planning import Settings, capture_model

IDS = [3 + 7 * i % 500 for i in range(200)]  # crosses groups of sixteen and a step of 128 keys


@pytest.fixture(scope="module")
def tool(repository: Path) -> ModuleType:
    return load_tool(repository, "make_model")


@pytest.fixture(scope="module", params=["storyteller", "small"])
def path(
    request: pytest.FixtureRequest,
    tool: ModuleType,
    storyteller: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """Heads of 32 elements, two to a head of keys, and heads of 64, three to one."""
    target = tmp_path_factory.mktemp("cache") / f"{request.param}.gguf"
    if request.param == "small":
        tool.make_model(target, "small", "Q4_0")
    else:
        quantize_file(storyteller, "int4", target)
    return target


def stories(model: LanguageModel, repository: Path) -> list[npt.NDArray[np.float64]]:
    """Log-probabilities after every token, one array per held-out story."""
    logprobs = []
    text = (repository / "tests/data/storyteller-heldout.txt").read_text()
    for story in text.strip().split("\n\n")[:20]:
        model.reset()
        logits = model.logits(model.tokenizer.encode(story)[: model.context]).astype(np.float64)
        logits -= logits.max(axis=1, keepdims=True)
        logprobs.append(logits - np.log(np.exp(logits).sum(axis=1, keepdims=True)))
    return logprobs


def test_a_story_stays_as_likely(storyteller: Path, repository: Path) -> None:
    """Mean divergence from an F32 cache: a hundredth of that of weights in int8."""
    with (
        halfbyte.load(storyteller) as exact,
        halfbyte.load(storyteller, cache="f16") as fp16,
        halfbyte.load(storyteller, cache="q8_0") as q8_0,
    ):
        expected, *others = (stories(model, repository) for model in (exact, fp16, q8_0))
    divergences = [
        np.mean([(np.exp(p) * (p - q)).sum(1).mean() for p, q in zip(expected, other, strict=True)])
        for other in others
    ]
    assert divergences[0] < 1e-8 < divergences[1] < 1e-6


def test_logits_do_not_depend_on_how_tokens_arrive(path: Path) -> None:
    """At once, in batches of seven, one by one, by three threads: to the bit."""
    with (
        halfbyte.load(path, cache="q8_0", threads=1) as model,
        halfbyte.load(path, cache="q8_0", batch=7, threads=3) as batched,
    ):
        at_once = model.logits(IDS)
        np.testing.assert_array_equal(batched.logits(IDS), at_once)
        model.reset()
        single = np.vstack([model.feed([token]).copy() for token in IDS])
        np.testing.assert_array_equal(single, at_once)


def test_backends_agree(path: Path, backend: str) -> None:
    with (
        halfbyte.load(path, backend="numpy", cache="q8_0", context=150) as model,
        halfbyte.load(path, backend=backend, cache="q8_0", context=150) as other,
        halfbyte.load(path, cache="f16", context=150) as fp16,
    ):
        expected, actual, rounded = (m.logits(IDS[:40]) for m in (model, other, fp16))
    assert np.abs(actual - expected).max() < 0.2
    assert 0 < np.abs(actual - rounded).max() < 0.5


def test_a_plan_is_half_as_large(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = capture_model(halfbyte.text.opening.open_model(path), Settings(128, cache="q8_0"))
    fp16 = capture_model(halfbyte.text.opening.open_model(path), Settings(128, cache="f16"))
    planned, before = (p.bytes_by_kind()[Kind.CACHE] for p in (program, fp16))
    assert planned * 32 == before // 2 * 34
    assert main(["info", str(path), "--context", "128", "--cache", "q8_0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["planned_bytes"]["KV cache"] == planned
    assert maximum(program.sizes["position"]) == 128


def test_attention_moves_what_it_reads(path: Path) -> None:
    """Whole groups of sixteen keys, the values of past tokens, query and result."""
    program = capture_model(halfbyte.text.opening.open_model(path), Settings(128, cache="q8_0"))
    step = next(
        i for i in program.instructions if i.operator is halfbyte.core.ops.group_query_attention
    )
    q, _, v = step.inputs
    c, row = maximum(q.shape[1]), maximum(v.shape[0]) * maximum(v.shape[2]) // 32 * 34
    assert step.bytes_moved({"n": 2, "position": 17, "rows": 1}) == 2 * 2 * c * 4 + (32 + 19) * row


def test_other_heads_are_refused(tool: ModuleType, tmp_path: Path) -> None:
    tool.make_model(tmp_path / "tiny.gguf", "tiny", "Q8_0")
    with pytest.raises(HalfbyteError, match="cache 'q8_0': head_dim 16: expected a multiple of 32"):
        halfbyte.load(tmp_path / "tiny.gguf", cache="q8_0")


def test_the_command_line_takes_it(path: Path) -> None:
    command = [sys.executable, "-m", "halfbyte", "run", path, "Once", "-n", "5", "--cache", "q8_0"]
    command += ["--seed", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "generated 5 tokens" in done.stderr
