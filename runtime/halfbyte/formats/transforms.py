"""Transforms of a tensor's values from Hugging Face's order to GGUF's."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.errors import FormatError

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Transform:
    """A transform of a tensor's values; `apply` takes and returns all of them.

    If `moves`, values are only permuted, and arrays may have any dtype (BF16 as uint16); otherwise
    they are float32. If it `widens`, GGUF has the result in F32, in a shape of its own. `factors`
    multiply rows, or all of them alike. `columns` permutes the numbers of columns. With `axes` and
    `rows` the axes are permuted first, then the rows by their numbers. `more` rows of zeros follow.
    `matrices` is how many a matrix is split into, along its rows, before all that. With `either`,
    tensors may be in GGUF's order already, which their shape shows.
    """

    name: str  # for people
    apply: Callable[[Array], Array]
    moves: bool = True
    widens: bool = False
    factors: npt.NDArray[np.float32] | None = field(default=None, compare=False)
    columns: Callable[[Array], Array] | None = None
    axes: tuple[int, ...] = ()
    rows: Callable[[Array], Array] | None = None
    more: int = 0
    matrices: int = 0
    either: bool = False

    def fitting(self, shape: tuple[int, ...], wanted: tuple[int, ...]) -> Transform:
        """The transform of a tensor of this shape, of which GGUF has the shape `wanted`."""
        return SAME if self.either and shape == wanted else self


SAME = Transform("as it is", lambda x: x)
TRANSPOSED = Transform("transposed", lambda x: np.ascontiguousarray(x.T), axes=(1, 0))
FLATTENED = Transform("as a vector", lambda x: x.reshape(-1), widens=True)
KERNELS = Transform("without the middle axis", lambda x: x.reshape(len(x), -1), widens=True)
PLUS_ONE = Transform("plus one", lambda x: x + np.float32(1), moves=False)
DECAYS = Transform("-exp(x)", lambda x: -np.exp(x), moves=False, widens=True)
COLUMN = Transform("as a column", lambda x: x.reshape(-1, 1), widens=True)
DECAYS_COLUMN = Transform(
    "-exp(x) as a column", lambda x: -np.exp(x.reshape(-1, 1)), moves=False, widens=True
)


def _halves(x: Array, heads: int) -> Array:
    """Rows as [head, half, row of it]."""
    if len(x) % (2 * heads):
        raise FormatError(f"{len(x)} rows: expected whole pairs in each of {heads} heads")
    return x.reshape(heads, 2, len(x) // heads // 2, *x.shape[1:])


def _interleave(x: Array, heads: int) -> Array:
    return np.ascontiguousarray(_halves(x, heads).swapaxes(1, 2)).reshape(x.shape)


def _swap(x: Array, heads: int) -> Array:
    return np.ascontiguousarray(_halves(x, heads)[:, ::-1]).reshape(x.shape)


def _regroup(x: Array, groups: tuple[int, int, int], order: tuple[int, ...]) -> Array:
    if len(x) != math.prod(groups):
        raise FormatError(f"{len(x)} rows: expected {math.prod(groups)}")
    parts = x.reshape(*groups, *x.shape[1:]).swapaxes(0, 1)[list(order)]
    return np.ascontiguousarray(parts).reshape(x.shape)


def _split_groups(x: Array, groups: int, queries: int, head: int) -> Array:
    if len(x) != groups * (queries + 2) * head:
        raise FormatError(f"{len(x)} rows: expected {groups * (queries + 2) * head}")
    heads = x.reshape(groups, queries + 2, head, *x.shape[1:])
    parts = (heads[:, :queries], heads[:, queries], heads[:, queries + 1])
    return np.concatenate([part.reshape(-1, *x.shape[1:]) for part in parts])


def _tile(x: Array, groups: tuple[int, int, int], first: int) -> Array:
    return np.concatenate([x[:first], _regroup(x[first:], groups, tuple(range(groups[1])))])


def _from_row(x: Array, first: int) -> Array:
    return x[first:]


def _first_rows(x: Array, count: int) -> Array:
    return x[:count]


def padded(more: int) -> Transform:
    """A matrix with further rows of zeros."""
    if not more:
        return SAME
    return Transform(f"{more} more rows", partial(np.pad, pad_width=((0, more), (0, 0))), more=more)


def first_rows(count: int) -> Transform:
    """The first rows only."""
    return Transform(f"the first {count} rows", partial(_first_rows, count=count))


def from_row(first: int) -> Transform:
    """Without the rows before this one."""
    return Transform(f"rows from {first} on", partial(_from_row, first=first))


def regrouped(groups: tuple[int, int, int], order: tuple[int, ...]) -> Transform:
    """Rows [group, matrix, row] become [matrix, group, row], matrices in `order`."""
    function = partial(_regroup, groups=groups, order=order)
    return Transform(f"rows of {groups[0]} groups", function)


def tiled(groups: tuple[int, int, int], first: int = 0) -> Transform:
    """Rows [group, head, row] from `first` on become [head, group, row]."""
    function = partial(_tile, groups=groups, first=first)
    return Transform(f"rows of {groups[0]} groups apart", function)


def of_columns(rows: Transform) -> Transform:
    """Columns in the order that a permutation gives rows."""
    order = rows.apply
    return Transform(
        f"columns as {rows.name}", lambda x: x[:, order(np.arange(x.shape[1]))], columns=order
    )


def then(one: Transform, other: Transform) -> Transform:
    """Two transforms of vectors or small matrices, one after the other."""
    return Transform(
        f"{one.name}, {other.name}", lambda x: other.apply(one.apply(x)), moves=False,
        widens=one.widens or other.widens,
    )  # fmt: skip


def ungrouped(groups: int, queries: int, head: int) -> Transform:
    """Of groups, each of some queries, a key and a value, all queries come first."""
    function = partial(_split_groups, groups=groups, queries=queries, head=head)
    return Transform(f"rows of {groups} groups", function)


def _even_first(x: Array) -> Array:
    return np.concatenate([x[:, ::2], x[:, 1::2]], axis=1)


EVEN_FIRST = Transform("even columns first", _even_first, widens=True)
EXPERTS = Transform("transposed experts", lambda x: x.swapaxes(1, 2), axes=(0, 2, 1))
EITHER_EXPERTS = replace(EXPERTS, either=True)
EVEN_EXPERTS = Transform(
    "transposed experts, even rows first", lambda x: _even_first(x.swapaxes(1, 2)),
    axes=(0, 2, 1), rows=_even_first,
)  # fmt: skip


def split_rows(count: int, *, transposed: bool = False) -> Transform:
    """A matrix as several, one below the other; each of them transposed, if so."""
    if transposed:
        return replace(EXPERTS, name=f"{count} transposed matrices", matrices=count)
    return Transform(f"{count} matrices", SAME.apply, matrices=count)


def scaled(factors: npt.NDArray[np.float32] | float) -> Transform:
    """Rows of a matrix times their factors, or times one factor."""
    each = np.asarray(factors, np.float32)
    if np.all(each == 1):
        return SAME
    return Transform("scaled", lambda x: x * each[..., None], moves=False, factors=each)


def in_rows(count: int) -> Transform:
    """A vector as the rows of a matrix."""
    return Transform(f"as {count} rows", lambda x: x.reshape(count, -1), widens=True)


def swapped(heads: int) -> Transform:
    """The halves of each head swapped: pairs that rotated backwards rotate forwards then."""
    return Transform(f"halves of {heads} heads swapped", partial(_swap, heads=heads))


def interleaved(heads: int) -> Transform:
    """Rows (j, j + half) of each head become neighbours, which GGUF's Llama rotates together."""
    return Transform(f"rows of {heads} heads interleaved", partial(_interleave, heads=heads))
