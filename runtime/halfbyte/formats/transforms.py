"""Transforms of a tensor's values from Hugging Face's order to GGUF's."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
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
    they are float32. If it `widens`, GGUF has the result in F32, in a shape of its own.
    """

    name: str  # for people
    apply: Callable[[Array], Array]
    moves: bool = True
    widens: bool = False


SAME = Transform("as it is", lambda x: x)
TRANSPOSED = Transform("transposed", lambda x: np.ascontiguousarray(x.T))
FLATTENED = Transform("as a vector", lambda x: x.reshape(-1), widens=True)
KERNELS = Transform("without the middle axis", lambda x: x.reshape(len(x), -1), widens=True)
PLUS_ONE = Transform("plus one", lambda x: x + np.float32(1), moves=False)


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


def _from_row(x: Array, first: int) -> Array:
    return x[first:]


def from_row(first: int) -> Transform:
    """Without the rows before this one."""
    return Transform(f"rows from {first} on", partial(_from_row, first=first))


def regrouped(groups: tuple[int, int, int], order: tuple[int, ...]) -> Transform:
    """Rows [group, matrix, row] become [matrix, group, row], matrices in `order`."""
    function = partial(_regroup, groups=groups, order=order)
    return Transform(f"rows of {groups[0]} groups", function)


def ungrouped(groups: int, queries: int, head: int) -> Transform:
    """Of groups, each of some queries, a key and a value, all queries come first."""
    function = partial(_split_groups, groups=groups, queries=queries, head=head)
    return Transform(f"rows of {groups} groups", function)


def swapped(heads: int) -> Transform:
    """The halves of each head swapped: pairs that rotated backwards rotate forwards then."""
    return Transform(f"halves of {heads} heads swapped", partial(_swap, heads=heads))


def interleaved(heads: int) -> Transform:
    """Rows (j, j + half) of each head become neighbours, which GGUF's Llama rotates together."""
    return Transform(f"rows of {heads} heads interleaved", partial(_interleave, heads=heads))
