"""From logits to a token."""

from __future__ import annotations

import numpy as np
import pytest

from halfbyte.errors import HalfbyteError
from halfbyte.sampling import Sampler

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


def test_temperature_sharpens() -> None:
    p = np.exp(LOGITS.astype(np.float64) / 0.5)
    p /= p.sum()
    assert (abs(frequencies(Sampler(0.5, seed=0)) - p) < 5 * np.sqrt(p * (1 - p) / DRAWS)).all()


def test_top_k_keeps_the_likeliest() -> None:
    found = frequencies(Sampler(1, top_k=2, seed=0))
    assert (found > 0).tolist() == [False, True, False, True, False]
    assert found[1] == pytest.approx(0.4 / 0.65, abs=0.05)


def test_top_p_keeps_the_smallest_set() -> None:
    assert (frequencies(Sampler(1, top_p=0.6, seed=0)) > 0).tolist() == [0, 1, 0, 1, 0]
    assert (frequencies(Sampler(1, top_p=0.7, seed=0)) > 0).tolist() == [0, 1, 0, 1, 1]
    assert (frequencies(Sampler(1, top_p=1e-9, seed=0)) > 0).tolist() == [0, 1, 0, 0, 0]


def test_top_k_and_top_p_together() -> None:
    found = frequencies(Sampler(1, top_k=3, top_p=0.7, seed=0))
    assert (found > 0).tolist() == [0, 1, 0, 1, 0]  # of 0.85, 0.4 and 0.25 are 76 %


def test_seed_decides() -> None:
    a, b, c = (
        [s.sample(LOGITS) for _ in range(50)] for s in (Sampler(1, seed=s) for s in (1, 1, 2))
    )
    assert a == b != c


@pytest.mark.parametrize(
    "arguments", [{"temperature": -1}, {"temperature": np.nan}, {"top_k": -1}, {"top_p": 0}]
)
def test_arguments_are_checked(arguments: dict[str, float]) -> None:
    with pytest.raises(HalfbyteError, match="expected"):
        Sampler(**arguments)  # type: ignore[arg-type]
