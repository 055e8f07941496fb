"""The Python interface: contexts, batches, streams, limits."""

from __future__ import annotations

import asyncio
import itertools
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from tests.support import aio
from tests.support.sampled import often

import halfbyte
from halfbyte.core.profiling import Profile
from halfbyte.errors import HalfbyteError
from halfbyte.quantize import quantize_file
from halfbyte.text import generate

PROMPT = "Once upon a time there was a small fox who lived in the wood."
IDS = [1, 300, 301, 302, 303, 290, 291, 292, 293, 294, 295]


@pytest.fixture(scope="module", params=["storyteller.bin", "int8", "int4", "fp16"])
def path(
    request: pytest.FixtureRequest, storyteller: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The shipped model in every type."""
    if request.param == "storyteller.bin":
        return storyteller
    target = tmp_path_factory.mktemp("model") / f"{request.param}.gguf"
    quantize_file(storyteller, request.param, target)
    return target


def test_logits_do_not_depend_on_how_tokens_arrive(path: Path) -> None:
    """One by one, at once, or in batches of four: to the bit."""
    with halfbyte.load(path) as model, halfbyte.load(path, batch=4) as batched:
        at_once = model.logits(IDS)
        model.reset()
        single = np.vstack([model.feed([token]).copy() for token in IDS])
        np.testing.assert_array_equal(single, at_once)
        np.testing.assert_array_equal(batched.logits(IDS), at_once)
        batched.reset()
        np.testing.assert_array_equal(batched.feed(IDS, rows=3), at_once[-3:])


def test_backends_agree(path: Path, backend: str) -> None:
    """Teacher-forced against NumPy. An int8 activation may be rounded the other way, which changes
    logits less than rounding them all does."""
    logits: dict[str, list[npt.NDArray[np.float32]]] = {}
    for activations, name in itertools.product(("float", "int8"), ("numpy", backend)):
        with halfbyte.load(path, backend=name, activations=activations) as model:
            logits.setdefault(activations, []).append(model.logits(IDS))
    floats, integers = logits["float"], logits["int8"]
    assert np.abs(floats[0] - floats[1]).max() < 2e-3
    rounding = np.abs(floats[0] - integers[0]).max()
    assert np.abs(integers[0] - integers[1]).max() < max(rounding, 2e-3)


def test_passes_off_differs_only_by_the_activations(path: Path) -> None:
    with (
        halfbyte.load(path, passes=False) as plain,
        halfbyte.load(path, activations="float") as float_,
    ):
        np.testing.assert_array_equal(plain.logits(IDS), float_.logits(IDS))


@pytest.mark.parametrize("kind", often(["int8", "int4"], ["int4"]))
def test_int8_activations_cost_no_quality(
    kind: str, storyteller: Path, repository: Path, tmp_path: Path
) -> None:
    """Within 0.1 % of float activations' perplexity on held-out stories, at the same weights."""
    quantize_file(storyteller, kind, tmp_path / "model.gguf")
    stories = (repository / "tests/data/storyteller-heldout.txt").read_text(encoding="utf-8")
    perplexities = []
    for activations in ("int8", "float"):
        with halfbyte.load(tmp_path / "model.gguf", activations=activations) as model:
            perplexities.append(model.perplexity(stories))
    assert abs(perplexities[0] / perplexities[1] - 1) < 0.001


def test_context_ends_the_text(storyteller: Path) -> None:
    with halfbyte.load(storyteller, context=20) as model:
        pieces = list(model.stream("Once", max_tokens=1000, temperature=0))
        assert model.position <= 20
        assert 0 < len(pieces) <= 21
        with pytest.raises(HalfbyteError, match="do not fit the context of 20"):
            model.logits(list(range(3, 24)))


def test_perplexity_is_that_of_the_logits(storyteller: Path) -> None:
    """In windows as long as the context, each after the beginning-of-text token."""
    text = "Once upon a time, there was a little girl named Lily. She lived in a village."
    with halfbyte.load(storyteller, context=8) as model:
        ids = model.tokenizer.encode(text)
        losses = []
        for start in range(1, len(ids), 8):
            window = ids[start : start + 8]
            logits = model.logits([ids[0], *window[:-1]]).astype(np.float64)
            p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
            losses += [-np.log(p[i, token]) for i, token in enumerate(window)]
        assert model.perplexity(text) == pytest.approx(np.exp(np.mean(losses)), rel=1e-6)


def test_perplexity_of_impossible_tokens_is_infinite(
    storyteller: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(halfbyte.LanguageModel, "token_losses", lambda *_: np.full(3, 1e3))
    with halfbyte.load(storyteller) as model:
        assert model.perplexity("Once upon a time") == np.inf


def test_shipped_model_is_as_good_as_it_says(storyteller: Path, repository: Path) -> None:
    """Its held-out perplexity, computed story by story as by the training tool."""
    stated = re.search(r"perplexity ([\d.]+)", storyteller.with_suffix(".txt").read_text())
    assert stated
    stories = (repository / "tests/data/storyteller-heldout.txt").read_text().strip().split("\n\n")
    with halfbyte.load(storyteller) as model:
        losses = []
        for story in stories:
            ids = [*model.tokenizer.encode(story), model.tokenizer.eos][: model.context + 1]
            losses.append(model.token_losses(ids))
    assert np.exp(np.concatenate(losses).mean()) == pytest.approx(float(stated[1]), rel=1e-4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"activations": "int4"}, "activations 'int4': expected"),
        ({"cache": "q8"}, "cache 'q8': expected one of"),
        ({"batch": 0}, "batch of 0 tokens: expected 1 or more"),
        ({"context": 0}, "context of 0 tokens: expected 1 to 256"),
    ],
)
def test_arguments_are_checked(
    storyteller: Path, arguments: dict[str, object], message: str
) -> None:
    with pytest.raises(HalfbyteError, match=message):
        halfbyte.load(storyteller, **arguments)  # type: ignore[arg-type]


def test_tokens_are_checked(storyteller: Path) -> None:
    with halfbyte.load(storyteller) as model:
        for ids in ([-1], [1024], [1, 2**31 - 1]):
            with pytest.raises(HalfbyteError, match="expected 0 to 1023"):
                model.feed(ids)
        with pytest.raises(HalfbyteError, match="0 tokens"):
            model.feed([])
        assert model.position == 0


def test_a_stream_lets_others_run(storyteller: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`astream` has the text of `generate`, and the event loop runs at every token."""
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def stream(model: halfbyte.LanguageModel) -> str:
        task = asyncio.create_task(other())
        pieces = [p async for p in model.astream(PROMPT, max_tokens=30, temperature=0)]
        task.cancel()
        return "".join(pieces)

    monkeypatch.setattr(generate, "PAUSE", 0.0)  # every token of the prompt is slow
    with halfbyte.load(storyteller, backend="numpy") as model:
        expected = model.generate(PROMPT, max_tokens=30, temperature=0)
        model.reset()
        assert aio.run(stream(model)) == expected
        assert turns >= len(model.tokenizer.encode(PROMPT)) + 30


def test_a_long_prompt_is_cut_by_its_speed(storyteller: Path) -> None:
    """The first part has one token, and each at most four times as many as the last."""
    parts: list[int] = []
    with halfbyte.load(storyteller) as model:
        feed = model.feed

        def watch(ids: list[int], rows: int = 1) -> npt.NDArray[np.float32]:
            parts.append(len(ids))
            return feed(ids, rows)

        model.feed = watch  # type: ignore[assignment, method-assign]

        async def first() -> None:
            async for _ in model.astream("Once upon a time there was a fox. " * 20):
                break

        aio.run(first())
    assert parts[0] == 1
    assert all(b <= 4 * a for a, b in itertools.pairwise(parts))
    assert max(parts) > 16


def test_two_texts_at_once_are_both_right(storyteller: Path) -> None:
    """Tokens that the other text removed from the context are processed again."""
    options = {"max_tokens": 5, "seed": 1}
    with halfbyte.load(storyteller) as model:
        expected = [model.generate(prompt, **options) for prompt in ("One", "Two")]
        both = zip(model.stream("One", **options), model.stream("Two", **options), strict=True)
        assert ["".join(pieces) for pieces in zip(*both, strict=True)] == expected


def test_what_the_context_holds_is_not_processed_again(path: Path) -> None:
    """Only tokens that differ from the previous text, and the last, whose logits are needed."""
    with halfbyte.load(path) as model:
        whole = model.logits(IDS).copy()
        assert model.rewind(IDS) == len(IDS) - 1
        np.testing.assert_array_equal(model.feed(IDS[-1:]), whole[-1:])
        assert model.rewind([*IDS[:3], 5, 6]) == 3
        model.feed([5, 6])
        assert model.tokens == [*IDS[:3], 5, 6]
        assert model.rewind(IDS) == 3
        np.testing.assert_array_equal(model.feed(IDS[3:], rows=4), whole[-4:])
        assert model.rewind([9, *IDS]) == 0


def test_a_prompt_is_reused(storyteller: Path) -> None:
    with halfbyte.load(storyteller) as model:
        first = model.generation("Once upon a time there was a fox.", max_tokens=5, seed=1)
        text = "".join(first)
        again = model.generation("Once upon a time there was a cat.", max_tokens=5, seed=1)
        "".join(again)
        assert (first.reused, again.reused) == (
            0,
            len(model.tokenizer.encode("Once upon a time there was a")),
        )
        assert model.generate("Once upon a time there was a fox.", max_tokens=5, seed=1) == text


def test_a_batch_is_each_of_its_prompts(storyteller: Path) -> None:
    prompts = ["Once upon a time", "Once there was", "Tom"]
    with halfbyte.load(storyteller) as model:
        expected = []
        for prompt in prompts:
            model.reset()
            expected.append(model.generate(prompt, max_tokens=20, seed=3))
        assert model.generate_batch(prompts, max_tokens=20, seed=3) == expected


def test_a_seed_decides_whatever_the_threads(path: Path) -> None:
    options = {"max_tokens": 60, "temperature": 1.0, "top_k": 50, "top_p": 0.95, "min_p": 0.01}
    penalties = {"repetition_penalty": 1.1, "frequency_penalty": 0.1, "presence_penalty": 0.1}
    texts = set()
    for threads in (1, 2, 3):
        with halfbyte.load(path, threads=threads) as model:
            texts.add(model.generate(PROMPT, seed=11, **options, **penalties))
    assert len(texts) == 1


def test_log_probabilities_are_those_of_the_logits(storyteller: Path) -> None:
    with halfbyte.load(storyteller) as model:
        generation = model.generation(PROMPT, max_tokens=12, seed=2, top_k=5, logprobs=3)
        "".join(generation)
        logits = model.logits([*generation.prompt_ids, *generation.ids]).astype(np.float64)
    logits = logits[len(generation.prompt_ids) - 1 : -1]
    expected = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    assert len(generation.logprobs) == len(generation.ids) == 12
    for row, token, actual in zip(expected, generation.ids, generation.logprobs, strict=True):
        assert actual.token == token
        assert actual.logprob == pytest.approx(row[token], abs=1e-5)
        best = np.argsort(-row, kind="stable")[:3]
        assert [i for i, _ in actual.top] == best.tolist()
        assert [p for _, p in actual.top] == pytest.approx(row[best].tolist(), abs=1e-5)


def test_a_text_ends_before_a_stop_string(storyteller: Path) -> None:
    with halfbyte.load(storyteller) as model:
        text = model.generate(PROMPT, max_tokens=60, temperature=0)
        stop = text[30:37]
        generation = model.generation(PROMPT, max_tokens=60, temperature=0, stop=["nowhere", stop])
        pieces = list(generation)
    assert "".join(pieces) == generation.text == text[: text.index(stop)]
    assert generation.finish_reason == "stop"


@pytest.mark.parametrize(
    ("options", "reason"), [({"max_tokens": 3}, "length"), ({"max_tokens": 1000}, "context")]
)
def test_why_a_text_ends(storyteller: Path, options: dict[str, int], reason: str) -> None:
    with halfbyte.load(storyteller, context=12) as model:
        generation = model.generation("Tom", temperature=0, **options)
        "".join(generation)
        assert generation.finish_reason == reason
        assert model.position <= 12


@pytest.mark.parametrize("backend", ["numpy", "native"])
def test_no_logits_are_asked_for(path: Path, backend: str) -> None:
    """As while a prompt is processed in parts: the logits after it are the same."""
    with halfbyte.load(path, backend=backend) as model:
        expected = model.feed(IDS).copy()
        model.reset()
        assert model.feed(IDS[:-1], rows=0).shape == (0, model.vocabulary)
        np.testing.assert_allclose(model.feed(IDS[-1:]), expected, rtol=1e-4, atol=1e-4)


def test_profile_without_a_clock_in_c(storyteller: Path) -> None:
    """WebAssembly has none: instructions run one by one, and compute the same."""
    with halfbyte.load(storyteller, backend="wasm-simd128", context=16) as model:
        expected = model.feed(IDS[:3]).copy()
        model.reset()
        model.profile = Profile()
        assert np.array_equal(model.feed(IDS[:3]), expected)
        rows = model.profile.rows
        assert sum(row.calls for row in rows.values()) == len(model.program.instructions)
        assert all(row.seconds > 0 for row in rows.values())


def test_a_text_needs_no_event_loop(storyteller: Path) -> None:
    """Python's modules for it and for connections take as long to import as a program to build."""
    code = (
        "import sys, halfbyte; print(halfbyte.load(sys.argv[1]).generate('Once', max_tokens=3));"
        "print(*{'asyncio', 'ssl', 'socket', 'email', 'http'} & {*sys.modules}, file=sys.stderr)"
    )
    command = [sys.executable, "-c", code, str(storyteller)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout.strip()
    assert done.stderr == "\n"
