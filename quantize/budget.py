"""Types chosen so that a file has a number of bytes, and loses the least by what was measured."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from halfbyte.errors import HalfbyteError
from halfbyte.quantize.allocation import Option, allocate
from halfbyte.quantize.methods import Task
from halfbyte.quantize.recipe import Choice
from halfbyte.quantize.sensitivity import Sensitivity, candidates, measure

POINTS = 12  # of the curve


@dataclass(frozen=True)
class Budget:
    """Mean bits per weight of all tensors, or bytes of the file; one of the two."""

    bits: float | None = None
    size: int | None = None

    def __str__(self) -> str:
        return f"{self.bits:g} bits" if self.bits is not None else _megabytes(self.size or 0)

    @property
    def name(self) -> str:
        """For a file's name."""
        return str(self).replace(" ", "")


class Point(NamedTuple):
    """What the model would lose with a number of bits per weight."""

    bits: float
    nbytes: int
    divergence: float


class Allocation(NamedTuple):
    """The choices within a budget, their losses by tensor, and those of other budgets."""

    choices: list[Choice]
    losses: dict[str, float]
    curve: list[Point]


class Room:
    """How many bytes some tensors may have.

    Parameters
    ----------
    choices : sequence of Choice
        Of all tensors.
    free : collection of str
        Names of those whose type is to be chosen.
    budget : Budget
    header : int
        Bytes of the file that are no tensor's.
    alignment : int
        Of tensors in the file, in bytes.

    Raises
    ------
    HalfbyteError
        Nothing fits, or everything does with bytes left; the message says the nearest.
    """

    def __init__(
        self, choices: Sequence[Choice], free: Collection[str], budget: Budget, *,
        header: int, alignment: int,
    ) -> None:  # fmt: skip
        self.budget, self._alignment = budget, alignment
        self.weights = sum(math.prod(c.tensor.shape) for c in choices)
        self.fixed = sum(self._stored(c) for c in choices if c.tensor.name not in free)
        self.header = 0 if budget.size is None else header
        tensors = [c.tensor for c in choices if c.tensor.name in free]
        sizes = [[self._rounded(t.row_count * f.row_bytes(t.columns)) for f in candidates(t)]
                 for t in tensors]  # fmt: skip
        least, most = (self._all(sum(f(s) for s in sizes)) for f in (min, max))
        if budget.size is not None:
            wanted, texts = (
                budget.size,
                [f"{n / 1e6:.6f}".rstrip("0").rstrip(".") + "MB" for n in (least, most)],
            )
        else:
            wanted = math.floor((budget.bits or 0) * self.weights / 8)
            texts = [
                f"{rounded(800 * n / self.weights) / 100:g} bits"
                for rounded, n in ((math.ceil, least), (math.floor, most))
            ]
        if not least <= wanted <= most or not tensors:
            raise HalfbyteError(
                f"{budget}: expected {texts[0]} to {texts[1]} for this model; the nearest is "
                f"{texts[wanted > most]}"
            )
        self.free = wanted - self.header - self.fixed
        self.range = least - self.header - self.fixed, most - self.header - self.fixed

    def bits(self, nbytes: int) -> float:
        """Bits per weight of all tensors, of which the free ones have these bytes."""
        return 8 * (nbytes + self.fixed) / self.weights

    def padded(self, option: Option) -> Option:
        """An option as it counts."""
        return option._replace(nbytes=self._rounded(option.nbytes))

    def _rounded(self, nbytes: int) -> int:
        whole = self.budget.size is not None
        return -(-nbytes // self._alignment) * self._alignment if whole else nbytes

    def _stored(self, choice: Choice) -> int:
        tensor = choice.tensor
        return self._rounded(tensor.row_count * choice.format.row_bytes(tensor.columns))

    def _all(self, nbytes: int) -> int:
        return nbytes + self.fixed + self.header


def choose_within(
    task: Task, choices: Sequence[Choice], free: Collection[str], room: Room
) -> Allocation:
    """Measure each free tensor, and choose their types."""
    names = [c.tensor.name for c in choices if c.tensor.name in free]
    known = measure(task, names)
    tensors = [[room.padded(option) for option in known[name].options] for name in names]
    chosen = dict(zip(names, allocate(tensors, room.free), strict=True))
    curve = []
    for nbytes in np.linspace(*room.range, POINTS).astype(int).tolist():
        at = [options[i] for options, i in zip(tensors, allocate(tensors, nbytes), strict=True)]
        total = sum(option.nbytes for option in at)
        curve.append(
            Point(room.bits(total), total + room.fixed + room.header, sum(o.loss for o in at))
        )
    return Allocation(
        [_taken(c, known, chosen) for c in choices],
        {name: known[name].options[i].loss for name, i in chosen.items()},
        curve,
    )


def _taken(choice: Choice, known: dict[str, Sensitivity], chosen: dict[str, int]) -> Choice:
    name = choice.tensor.name
    if name not in chosen:
        return choice
    return replace(choice, format=known[name].formats[chosen[name]], note="")


def commonest(choices: Sequence[Choice]) -> str:
    """The name of the format of most weights, for the file's metadata."""
    sizes: Counter[str] = Counter()
    for choice in choices:
        if choice.format.presets:
            sizes[choice.format.name] += math.prod(choice.tensor.shape)
    return sizes.most_common(1)[0][0]


def _megabytes(nbytes: int) -> str:
    return f"{nbytes / 1e6:.6g}MB"
