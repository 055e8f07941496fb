"""Which of several formats each tensor takes, so that losses are smallest within a number of bytes.

Losses add up, so this is a knapsack with one choice per tensor. It is solved exactly: partial
choices that another one beats in bytes and loss are dropped, and so are those that cannot become
better than a known solution, by the bound of Lagrange (a price per byte).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]


class Option(NamedTuple):
    """What a choice costs."""

    nbytes: int
    loss: float


class _Table:
    """All options, [tensors, options]; where a tensor has fewer, the first again."""

    def __init__(self, tensors: Sequence[Sequence[Option]]) -> None:
        most = max(map(len, tensors), default=1)
        rows = [[*options, *[options[0]] * (most - len(options))] for options in tensors]
        self.nbytes: I64 = np.array([[o.nbytes for o in row] for row in rows], np.int64)
        self.loss: F64 = np.array([[o.loss for o in row] for row in rows])

    def chosen(self, price: float) -> I64:
        """The best options where a byte costs a price."""
        chosen: I64 = (self.loss + price * self.nbytes).argmin(axis=1)
        return chosen

    def total(self, chosen: I64) -> int:
        """Bytes of a choice."""
        return int(np.take_along_axis(self.nbytes, chosen[:, None], axis=1).sum())

    def loss_of(self, chosen: I64) -> float:
        """Its loss."""
        return float(np.take_along_axis(self.loss, chosen[:, None], axis=1).sum())

    def price(self, budget: int) -> float:
        """The lowest price, nearly, at which the best options fit."""
        low, high = 0.0, 1e-12
        if self.total(self.chosen(low)) <= budget:
            return low
        while self.total(self.chosen(high)) > budget and high < 1e30:
            high *= 4
        for _ in range(60):
            middle = (low + high) / 2
            fits = self.total(self.chosen(middle)) <= budget
            low, high = (low, middle) if fits else (middle, high)
        return high

    def fitting(self, price: float, budget: int) -> I64:
        """A solution that fits: that of the price, improved where something still fits."""
        chosen = self.chosen(price)
        if self.total(chosen) > budget:
            chosen = self.nbytes.argmin(axis=1)
        left = budget - self.total(chosen)
        for number in range(len(chosen)):
            now = chosen[number]
            more = self.nbytes[number] - self.nbytes[number, now]
            loss = np.where(more <= left, self.loss[number], np.inf)
            chosen[number] = best = int(loss.argmin())
            left -= more[best]
        return chosen


class _States(NamedTuple):
    """Partial choices: their bytes and losses, which state each extends, and by which option."""

    nbytes: I64
    loss: F64
    before: I64
    option: I64

    def taken(self, places: I64) -> _States:
        """Some of them."""
        return _States(
            self.nbytes[places], self.loss[places], self.before[places], self.option[places]
        )


def allocate(tensors: Sequence[Sequence[Option]], budget: int) -> list[int]:
    """The index of each tensor's option, with the smallest sum of losses within the bytes.

    Raises
    ------
    ValueError
        Not even the smallest options fit.
    """
    table = _Table(tensors)
    least = int(table.nbytes.min(axis=1).sum())
    if least > budget:
        raise ValueError(f"expected at least {least} bytes, found {budget}")
    price = table.price(budget)
    bounds = (table.loss + price * table.nbytes).min(axis=1)
    rest_bound = np.append(np.cumsum(bounds[::-1])[::-1], 0.0)
    rest_bytes = np.append(np.cumsum(table.nbytes.min(axis=1)[::-1])[::-1], 0)
    limit = table.loss_of(table.fitting(price, budget)) * (1 + 1e-9) + 1e-300
    zero = np.zeros(1, np.int64)
    steps = [_States(zero, np.zeros(1), zero, zero)]
    for number, options in enumerate(tensors, 1):
        states = _extended(steps[-1], options)
        bound = states.loss + price * (states.nbytes - budget) + rest_bound[number]
        fits = states.nbytes + rest_bytes[number] <= budget
        steps.append(_best(states.taken(np.flatnonzero(fits & (bound <= limit)))))
    state, chosen = int(steps[-1].loss.argmin()), []
    for step in steps[:0:-1]:
        chosen.append(int(step.option[state]))
        state = int(step.before[state])
    return chosen[::-1]


def _extended(states: _States, options: Sequence[Option]) -> _States:
    """Each state with each option."""
    nbytes = np.array([option.nbytes for option in options], np.int64)
    loss = np.array([option.loss for option in options])
    count = len(states.loss)
    return _States(
        np.add.outer(nbytes, states.nbytes).reshape(-1),
        np.add.outer(loss, states.loss).reshape(-1),
        np.tile(np.arange(count), len(options)),
        np.repeat(np.arange(len(options)), count),
    )


def _best(states: _States) -> _States:
    """The states that no other one beats in both."""
    order = np.lexsort((states.loss, states.nbytes))
    loss = states.loss[order]
    before = np.minimum.accumulate(np.append(np.inf, loss[:-1]))
    kept = order[loss < before]
    return states.taken(kept)
