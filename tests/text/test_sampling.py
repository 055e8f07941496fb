"""From logits to a token."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from halfbyte.errors import HalfbyteError
from halfbyte.text.sampling import Sampler, largest, log_softmax, token_logprob
from halfbyte.text.stopping import StopStrings

LOGITS = np.log(np.array([0.1, 0.4, 0.05, 0.25, 0.2], np.float32))
DRAWS = 4000


def frequencies(sampler: Sampler) -> np.ndarray:
    drawn = [sampler.sample(LOGITS) for _ in range(DRAWS)]
    return np.bincount(drawn, minlength=5) / DRAWS


def test_greedy_takes_the_likeliest_and_the_first_of_equals() -> None:
    assert Sampler(0).sample(LOGITS) == 1
    assert Sampler(0).sample(np.array([1, 3, 3], np.float32)) == 1


def test_temperature_one_is_the_distribution() -> None:
    # 5 standard deviations of a frequency
    p = np.exp(LOGITS)
    assert (abs(frequencies(Sampler(1, seed=0)) - p) < 5 * np.sqrt(p * (1 - p) / DRAWS)).all()


def test_top_k_and_top_p_together() -> None:
    drawn = frequencies(Sampler(1, top_k=3, top_p=0.7, seed=0))
    assert (drawn > 0).tolist() == [0, 1, 0, 1, 0]  # of 0.85, 0.4 and 0.25 are 76 %
    assert drawn[1] == pytest.approx(0.4 / 0.65, abs=0.05)


def test_seed_decides() -> None:
    a, b, c = (
        [s.sample(LOGITS) for _ in range(50)] for s in (Sampler(1, seed=s) for s in (1, 1, 2))
    )
    assert a == b != c


def expected_distribution(
    logits: np.ndarray, prompt: list[int], text: list[int], **o: Any
) -> np.ndarray:
    """Probabilities [vocabulary] by the formulas of the module's docstring, token by token."""
    z = logits.astype(np.float64)
    for token, value in o.get("logit_bias", {}).items():
        z[token] += value
    for token in {*prompt, *text}:
        penalty = o.get("repetition_penalty", 1)
        z[token] = z[token] / penalty if z[token] > 0 else z[token] * penalty
    for token in set(text):
        z[token] -= o.get("frequency_penalty", 0) * text.count(token)
        z[token] -= o.get("presence_penalty", 0)
    z /= o["temperature"]
    order = np.argsort(-z, kind="stable")
    if o.get("top_k"):
        z[order[o["top_k"] :]] = -np.inf
    p = np.exp(z - z.max()) / np.exp(z - z.max()).sum()
    if o.get("top_p", 1) < 1:
        before = np.cumsum(p[order]) - p[order]
        p[order[before >= o["top_p"]]] = 0
    p[p < o.get("min_p", 0) * p.max()] = 0
    return p / p.sum()


CHAINS: dict[str, dict[str, Any]] = {
    "temperature": {"temperature": 1.7},
    "top-k": {"temperature": 1, "top_k": 7},
    "top-k of all": {"temperature": 1, "top_k": 5000},
    "top-p": {"temperature": 0.7, "top_p": 0.8},
    "top-p of one token": {"temperature": 1, "top_p": 1e-9},
    "top-p of a flat distribution": {"temperature": 50, "top_p": 0.9},
    "min-p": {"temperature": 2, "min_p": 0.05},
    "repetition": {"temperature": 1, "repetition_penalty": 1.3},
    "less than 1 repeats": {"temperature": 1, "repetition_penalty": 0.8},
    "frequency": {"temperature": 1, "frequency_penalty": 0.7},
    "presence": {"temperature": 1, "presence_penalty": -1.5},
    "bias": {"temperature": 1, "logit_bias": {3: 5.0, 4: -np.inf, 999: 1.0}},
    "all": {
        "temperature": 0.9, "top_k": 200, "top_p": 0.95, "min_p": 0.02, "repetition_penalty": 1.1,
        "frequency_penalty": 0.2, "presence_penalty": 0.3, "logit_bias": {0: 2.0, 5: -3.0},
    },
}  # fmt: skip


@pytest.mark.parametrize("name", CHAINS)
def test_distributions_are_those_of_the_formulas(name: str) -> None:
    options = CHAINS[name]
    rng = np.random.default_rng(len(name))
    for _ in range(20):
        logits = 3 * rng.standard_normal(1000, np.float32)
        prompt, text = rng.integers(0, 1000, 30).tolist(), rng.integers(0, 8, 12).tolist()
        sampler = Sampler(**options)
        before = logits.copy()
        ids, p = sampler.distribution(sampler.adjust(logits, prompt, text))
        actual = np.zeros(1000)
        actual[np.arange(1000) if ids is None else ids] = p / p.sum()
        expected = expected_distribution(logits, prompt, text, **options)
        np.testing.assert_array_equal(actual > 0, expected > 0)
        np.testing.assert_allclose(actual, expected, rtol=1e-5)
        np.testing.assert_array_equal(logits, before)


def test_penalties_and_bias_count_at_temperature_zero_too() -> None:
    assert Sampler(0, logit_bias={0: 9.0}).sample(LOGITS) == 0
    assert Sampler(0, logit_bias={1: -np.inf}).sample(LOGITS) == 3
    assert Sampler(0, presence_penalty=2).sample(LOGITS, text=[1]) == 3
    assert Sampler(0, presence_penalty=2).sample(LOGITS, prompt=[1]) == 1
    assert Sampler(0, repetition_penalty=9).sample(LOGITS, prompt=[1]) == 3


@pytest.mark.parametrize("k", [1, 2, 3, 6, 7, 100])
def test_the_largest_of_equals_are_the_first(k: int) -> None:
    values = np.array([1, 3, 2, 3, 2, 3, 0], np.float32)
    assert largest(values, k).tolist() == [1, 3, 5, 2, 4, 0, 6][:k]


def test_bias_names_tokens_that_are_there() -> None:
    for token in (-1, 5):
        with pytest.raises(HalfbyteError, match="expected tokens from 0 to 4"):
            Sampler(logit_bias={token: 1.0}).sample(LOGITS)
    with pytest.raises(HalfbyteError, match="bans every token"):
        Sampler(logit_bias=dict.fromkeys(range(5), -np.inf)).sample(LOGITS)


def test_log_softmax() -> None:
    np.testing.assert_allclose(np.exp(log_softmax(LOGITS)), [0.1, 0.4, 0.05, 0.25, 0.2], rtol=1e-6)
    result = token_logprob(LOGITS, 2, 2)
    assert (result.token, [token for token, _ in result.top]) == (2, [1, 3])
    assert result.logprob == pytest.approx(np.log(0.05))


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_stop_strings_however_a_text_is_cut(size: int) -> None:
    """The text before the first stop string is passed on, and never a part of a stop string."""
    rng = np.random.default_rng(size)
    for _ in range(300):
        text = "".join(rng.choice(list("ab"), 40))
        strings = ["".join(rng.choice(list("ab"), rng.integers(1, 8))) for _ in range(3)]
        stops, passed = StopStrings(strings), ""
        matches = [(text.index(s) + len(s), text.index(s)) for s in strings if s in text]
        for start in range(0, len(text), size):
            passed += stops.push(text[start : start + size])
            assert not any(s in passed for s in strings)
            if stops.reached:
                break
        assert stops.reached == bool(matches)
        assert passed + stops.flush() == text[: min(matches, default=(0, len(text)))[1]]


@pytest.mark.parametrize("strings", [[""], ["x" * 1025], ["a"] * 65])
def test_stop_strings_are_checked(strings: list[str]) -> None:
    with pytest.raises(HalfbyteError, match="stop: "):
        StopStrings(strings)


@pytest.mark.parametrize(
    "arguments",
    [
        {"temperature": -1},
        {"temperature": np.nan},
        {"top_k": -1},
        {"top_p": 0},
        {"min_p": 2},
        {"seed": -1},
        {"repetition_penalty": 0},
        {"frequency_penalty": np.inf},
        {"presence_penalty": np.nan},
        {"logit_bias": {1: np.nan}},
    ],
)
def test_arguments_are_checked(arguments: dict[str, float]) -> None:
    with pytest.raises(HalfbyteError, match="expected"):
        Sampler(**arguments)  # type: ignore[arg-type]
