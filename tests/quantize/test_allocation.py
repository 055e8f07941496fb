"""Bytes are allocated exactly, and measured losses rank tensors as they are."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from halfbyte.quantize.allocation import Option, allocate


def made(seed: int, tensors: int, options: int) -> list[list[Option]]:
    """More bytes lose less, mostly."""
    generator = np.random.default_rng(seed)
    problem = []
    for _ in range(tensors):
        size, scale = generator.integers(1, 40), generator.random() ** 3
        sizes = np.sort(generator.integers(1, 30, options)) * size
        losses = scale * np.exp(-sizes / size / 5) * generator.uniform(0.8, 1.2, options)
        problem.append([Option(int(b), float(x)) for b, x in zip(sizes, losses, strict=True)])
    return problem


@pytest.mark.parametrize("seed", range(8))
def test_the_best_of_all(seed: int) -> None:
    """Beside every combination."""
    problem = made(seed, 6, 4)
    least, most = (sum(f(o.nbytes for o in options) for options in problem) for f in (min, max))
    for budget in np.linspace(least, most, 7).astype(int).tolist():
        chosen = allocate(problem, budget)
        picked = [options[i] for options, i in zip(problem, chosen, strict=True)]
        assert sum(o.nbytes for o in picked) <= budget
        best = min(
            sum(o.loss for o in combination)
            for combination in itertools.product(*problem)
            if sum(o.nbytes for o in combination) <= budget
        )
        assert sum(o.loss for o in picked) == pytest.approx(best, rel=1e-12)


def test_many_tensors_and_every_budget() -> None:
    """More bytes never lose more."""
    problem = made(0, 200, 8)
    least, most = (sum(f(o.nbytes for o in options) for options in problem) for f in (min, max))
    losses = []
    for budget in np.linspace(least, most, 12).astype(int).tolist():
        chosen = allocate(problem, budget)
        picked = [options[i] for options, i in zip(problem, chosen, strict=True)]
        assert sum(o.nbytes for o in picked) <= budget
        losses.append(sum(o.loss for o in picked))
    assert losses == sorted(losses, reverse=True)


def test_too_few_bytes() -> None:
    with pytest.raises(ValueError, match="expected at least 7 bytes, found 6"):
        allocate([[Option(3, 1.0)], [Option(4, 1.0), Option(5, 0.5)]], 6)
