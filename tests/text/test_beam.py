"""Beam search, compared with all possible texts, and with processing each beam from its start."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.sampled import often

import halfbyte
from halfbyte.errors import HalfbyteError
from halfbyte.text.beam import search
from halfbyte.text.sampling import Sampler, log_softmax

PROMPT = "One morning, Tom"
CACHES = ("f32", "f16", "q8_0")
STOP = 4


def table(seed: int, depth: int) -> dict[tuple[int, ...], np.ndarray]:
    """Logits of five tokens after every text of up to `depth` of the first four."""
    rng = np.random.default_rng(seed)
    texts = [t for n in range(depth + 1) for t in itertools.product(range(4), repeat=n)]
    return {text: 2 * rng.standard_normal(5, np.float32) for text in texts}


def run(logits: dict[tuple[int, ...], np.ndarray], **options: Any) -> list[tuple[list[int], float]]:
    return search(
        logits[()],
        (),
        lambda _, ids: (logits[tuple(ids)], ()),
        lambda row, _: row,
        {STOP},
        **options,
    )


@pytest.mark.parametrize("penalty", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("seed", range(10))
def test_wide_enough_it_finds_the_best_of_all(seed: int, penalty: float) -> None:
    """With as many beams as texts, nothing is pruned: every text has its score."""
    depth, logits = 3, table(seed, 3)
    actual = run(logits, num_beams=400, length_penalty=penalty, limit=depth)
    expected = []
    for n in range(depth + 1):
        for text in itertools.product(range(4), repeat=n):
            tokens = text if n == depth else (*text, STOP)
            total = sum(log_softmax(logits[text[:i]])[t] for i, t in enumerate(tokens))
            expected.append((list(text), total / len(tokens) ** penalty))
    expected.sort(key=lambda text: -text[1])
    assert [ids for ids, _ in actual] == [ids for ids, _ in expected]
    np.testing.assert_allclose([s for _, s in actual], [s for _, s in expected])


def plainly(
    logits: dict[tuple[int, ...], np.ndarray], num_beams: int, penalty: float, limit: int
) -> list[tuple[list[int], float]]:
    """The same algorithm over one array of all candidates at each step."""
    live, finished = [((), 0.0)], []
    for length in range(1, limit + 1):
        rows = np.array([total + log_softmax(logits[text]) for text, total in live])
        order = np.argsort(-rows, axis=None, kind="stable")[: 2 * num_beams]
        ranked = [(*divmod(int(i), 5), rows.flat[i]) for i in order]
        for beam, token, total in ranked[:num_beams]:
            if token == STOP:
                finished.append((list(live[beam][0]), total / length**penalty))
        finished = sorted(finished, key=lambda text: -text[1])[:num_beams]
        live = [((*live[b][0], t), total) for b, t, total in ranked if t != STOP][:num_beams]
        if len(finished) == num_beams and live[0][1] / length**penalty <= finished[-1][1]:
            return finished
    finished += [(list(text), total / limit**penalty) for text, total in live]
    return sorted(finished, key=lambda text: -text[1])[:num_beams]


@pytest.mark.parametrize("num_beams", [1, 2, 3, 5])
@pytest.mark.parametrize("penalty", [0.0, 1.0, -1.0])
def test_narrow_beams(num_beams: int, penalty: float) -> None:
    for seed in range(30):
        logits = table(seed, 5)
        actual = run(logits, num_beams=num_beams, length_penalty=penalty, limit=5)
        expected = plainly(logits, num_beams, penalty, 5)
        assert [ids for ids, _ in actual] == [ids for ids, _ in expected]
        np.testing.assert_allclose([s for _, s in actual], [s for _, s in expected])


def test_one_beam_is_greedy(storyteller: Path) -> None:
    with halfbyte.load(storyteller) as model:
        [beam] = model.beam_search(PROMPT, num_beams=1, max_tokens=30)
        assert beam.text == model.generate(PROMPT, max_tokens=30, temperature=0)


@pytest.mark.parametrize(
    ("backend", "cache"),
    often(
        itertools.product(("native", "numpy"), CACHES),
        [("numpy", "f32"), *itertools.product(("native",), CACHES)],
    ),
)
def test_a_beam_s_rows_of_the_cache_are_its_own(
    storyteller: Path, cache: str, backend: str
) -> None:
    """The beams are the same as if each were processed from its start; native ones to the bit."""
    with halfbyte.load(storyteller, cache=cache, backend=backend) as model:
        ids = model.tokenizer.encode(PROMPT)
        sampler = Sampler(repetition_penalty=1.2)

        def from_start(_: tuple[()], generated: list[int]) -> tuple[np.ndarray, tuple[()]]:
            model.reset()
            return model.feed([*ids, *generated])[0].copy(), ()

        expected = search(
            model.logits(ids)[-1], (), from_start, lambda row, text: sampler.adjust(row, ids, text),
            model.tokenizer.stop_ids, 3, 0.7, 25,
        )  # fmt: skip
        beams = model.beam_search(
            PROMPT, num_beams=3, length_penalty=0.7, max_tokens=25, repetition_penalty=1.2
        )
        assert [beam.ids for beam in beams] == [ids for ids, _ in expected]
        scores = [score for _, score in expected]
        np.testing.assert_allclose(
            [beam.score for beam in beams], scores, rtol=1e-3 if backend == "numpy" else 0
        )
        assert model.tokens == ids
        assert model.generate(PROMPT, max_tokens=9, temperature=0) == halfbyte.load(
            storyteller, cache=cache, backend=backend
        ).generate(PROMPT, max_tokens=9, temperature=0)


def test_the_context_ends_all_beams(storyteller: Path) -> None:
    with halfbyte.load(storyteller, context=20) as model:
        beams = model.beam_search(PROMPT, num_beams=2)
        assert max(len(beam.ids) for beam in beams) <= 21 - len(model.tokenizer.encode(PROMPT))


@pytest.mark.parametrize(
    "options", [{"num_beams": 0}, {"max_tokens": 0}, {"length_penalty": np.inf}]
)
def test_arguments_are_checked(storyteller: Path, options: dict[str, Any]) -> None:
    with halfbyte.load(storyteller) as model, pytest.raises(HalfbyteError, match="expected"):
        model.beam_search(PROMPT, **options)
