"""The best tokens of a word when many tokens begin with each other."""

from __future__ import annotations

import numpy as np
import pytest

from halfbyte.text.tokenizers.viterbi import Step, Viterbi

UNKNOWN = 10.0  # an unknown character scores this much less than the worst token


def plainly(tokens: dict[str, tuple[int, float]], word: str) -> list[Step]:
    """Every token at every place; of equal sums the longest last token."""
    worst = min(score for _, score in tokens.values()) - UNKNOWN
    best: list[tuple[float, list[Step]]] = [(0.0, [])]
    for end in range(1, len(word) + 1):
        paths = []
        for start in range(end):
            part = word[start:end]
            number, score = tokens.get(part, (None, worst))
            if number is not None or len(part) == 1:
                total, path = best[start]
                paths.append((total + score, [*path, (number, start, end)]))
        best.append(max(paths, key=lambda path: path[0]))
    return best[-1][1]


@pytest.mark.parametrize("seed", range(8))
def test_chains_that_part(seed: int) -> None:
    rng = np.random.default_rng(seed)
    names = {"a" * n for n in range(1, 60)} | {"a" * n + "b" for n in range(2, 50, 3)}
    names |= {"aab" + "ab" * n for n in range(1, 40)} | {"b"}
    ordered = sorted(names)
    scores = -rng.random(len(ordered)) * [len(name) for name in ordered]
    tokens = {name: (i, float(scores[i])) for i, name in enumerate(ordered)}
    viterbi = Viterbi(tokens)
    for _ in range(6):
        word = "".join(rng.choice(list("aaaaaab"), 90)) + "a" * 70
        assert viterbi(word) == plainly(tokens, word)
    assert viterbi("aac" + "a" * 80) == plainly(tokens, "aac" + "a" * 80)


def test_tokens_that_begin_with_each_other_share_a_chain() -> None:
    """1,500 lists of up to 1,500 entries would take a second and 27 MB."""
    tokens = {"a" * n: (n, -float(n % 7)) for n in range(1, 1501)}
    viterbi = Viterbi(tokens)
    viterbi("a" * 4000)
    (chains,) = viterbi._chains.values()
    kept = sum(numbers.size + sums.size for numbers, sums in chains._cached.values())
    assert kept <= 3 * len(tokens)
