"""The number of threads in a browser follows measured times."""

from __future__ import annotations

import pytest

from halfbyte.core.backends.tuning import LASTS, ROUNDS, Tuner, candidates


def seconds(curve: dict[int, float], threads: int, number: int) -> float:
    """A time that is longer at first, while the browser still compiles."""
    return curve[threads] * (3 if number < 4 else 1)


def settle(tuner: Tuner, curve: dict[int, float], *, kind: bool = False) -> list[int]:
    """Numbers of threads of the runs until one is chosen, and of the one after."""
    used = []
    for number in range(ROUNDS * len(curve) + 1):
        threads = tuner.threads(kind)
        used.append(threads)
        tuner.add(kind, threads, seconds(curve, threads, number))
    return used


def test_halves_are_tried() -> None:
    assert candidates(8) == [8, 4, 2, 1]
    assert candidates(6) == [6, 3, 2, 1]
    assert candidates(2) == [2, 1]


@pytest.mark.parametrize(
    ("curve", "expected"),
    [
        ({8: 1.0, 4: 1.5, 2: 2.5, 1: 4.0}, 8),
        ({8: 2.0, 4: 1.1, 2: 1.4, 1: 2.2}, 4),  # small cores hurt
        ({8: 9.0, 4: 5.0, 2: 3.0, 1: 0.2}, 1),  # a small model
        ({8: 0.99, 4: 1.0, 2: 1.5, 1: 2.0}, 4),  # no gain, only heat
    ],
)
def test_the_fastest_is_chosen(curve: dict[int, float], expected: int) -> None:
    used = settle(Tuner(8), curve)
    assert all(used[:-1].count(threads) == ROUNDS for threads in curve)
    assert used[-1] == expected


def test_kinds_have_their_own_answers() -> None:
    tuner = Tuner(2)
    assert settle(tuner, {2: 2.0, 1: 1.0}, kind=False)[-1] == 1
    assert settle(tuner, {2: 1.0, 1: 2.0}, kind=True)[-1] == 2
    assert tuner.threads(kind=False) == 1


def test_an_answer_is_tried_again() -> None:
    """When other work on the machine has ended, for example."""
    tuner = Tuner(2)
    assert settle(tuner, {2: 5.0, 1: 1.0})[-1] == 1
    for _ in range(LASTS - 1):
        assert tuner.threads(kind=False) == 1
        tuner.add(False, 1, 1.0)
    assert settle(tuner, {2: 0.6, 1: 1.0})[-1] == 2


def test_answers_of_an_earlier_visit() -> None:
    """They are told when found, hold for as long, and are not believed if they cannot be right."""
    told: list[dict[str, int]] = []
    first, second = Tuner(8), Tuner(8)
    first.on_answer = second.on_answer = told.append
    settle(first, {8: 4.0, 4: 3.0, 2: 2.0, 1: 2.5})
    settle(first, {8: 1.0, 4: 3.0, 2: 2.0, 1: 2.5}, kind=True)
    assert told == [{"token": 2}, {"token": 2, "prompt": 8}]
    assert second.threads(kind=False) == 8
    second.adopt({**told[-1], "prompt": 3, "more": []})
    assert second.threads(kind=False) == 2
    for _ in range(LASTS):
        second.add(False, second.threads(kind=False), 1.0)
    assert second.threads(kind=False) == second.threads(kind=True) == 8
    second.adopt({"token": None, "prompt": [8]})
    assert second.threads(kind=False) == 8
    assert len(told) == 2
