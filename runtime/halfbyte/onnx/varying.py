"""Which sizes of inputs differ between calls: those are named when a program is captured.

The first call is captured for its own shapes. A later one that differs in some sizes is captured
with names for these, unless something in the graph needs them as numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from halfbyte.onnx.files.model import Graph
from halfbyte.onnx.size_conditions import SMALLEST
from halfbyte.onnx.sizes import Sizes

MAX_CAPTURES = 16  # with named sizes; models whose conditions keep failing get a program per shape
ROOM = 1.5  # memory for sizes up to the next power of two after so many times the present one
SMALL = 64  # memory for such sizes in any case

Place = tuple[str, int]  # an input and an axis
Signature = tuple[tuple[str, np.dtype[Any] | str, tuple[int, ...]], ...]


class Varying:
    """Of calls whose inputs have the same types and ranks."""

    def __init__(self, graph: Graph) -> None:
        self._declared: dict[Place, str] = {}
        for info in graph.inputs:
            for axis, dim in enumerate((info.type and info.type.shape) or ()):
                if isinstance(dim, str):
                    self._declared[info.name, axis] = dim
        self._first: dict[Place, int] = {}  # the size of the first call
        self._named: dict[Place, None] = {}
        self._fixed: set[Place] = set()
        self._places: dict[str, list[Place]] = {}
        self._captures = 0

    def sizes(self, signature: Signature) -> Sizes | None:
        """Names for the sizes of a call that differ from other calls'; None if there are none."""
        for name, _, shape in signature:
            for axis, size in enumerate(shape):
                if self._first.setdefault((name, axis), size) != size:
                    self._named[name, axis] = None
        shapes = {name: shape for name, _, shape in signature}
        groups: dict[tuple[str, int], list[Place]] = {}
        for place in self._named:
            name, axis = place
            size = shapes[name][axis]
            if place not in self._fixed and size >= SMALLEST:
                declared = self._declared.get(place, f"{name} {axis}")
                groups.setdefault((declared, size), []).append(place)
        if not groups or self._captures == MAX_CAPTURES:
            return None
        self._captures += 1
        self._places = {f"s{i}": places for i, places in enumerate(groups.values())}
        values = {f"s{i}": size for i, (_, size) in enumerate(groups)}
        largest = {name: _largest(size) for name, size in values.items()}
        return Sizes(values, largest, self._places)

    def fix(self, variables: frozenset[str]) -> None:
        """The sizes of the last capture that graphs need as numbers."""
        for variable in variables:
            self._fixed.update(self._places[variable])

    def key(self, signature: Signature) -> tuple[Any, ...]:
        """What is equal for all calls that programs with names may serve."""
        free = self._named.keys() - self._fixed
        return tuple(
            (name, dtype, tuple(
                -1 if (name, axis) in free and size >= SMALLEST else size
                for axis, size in enumerate(shape)
            ))
            for name, dtype, shape in signature
        )  # fmt: skip


def take(sizes: Sizes, shapes: Mapping[str, tuple[int, ...]]) -> bool:
    """Whether a program serves these shapes; its sizes have them from then on."""
    values: dict[str, int] = {}
    for variable, places in sizes.places.items():
        for name, axis in places:
            size = shapes[name][axis]
            if values.setdefault(variable, size) != size:
                return False
    if not sizes.fits(values):
        return False
    sizes.values = values
    return True


def named_shapes(sizes: Sizes, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Shapes with names in place of the sizes that differ."""
    named = {name: list(shape) for name, shape in shapes.items()}
    for variable, places in sizes.places.items():
        for name, axis in places:
            named[name][axis] = sizes.variable(variable)
    return {name: tuple(shape) for name, shape in named.items()}


def _largest(size: int) -> int:
    return max(SMALL, 1 << int(np.ceil(np.log2(size * ROOM))))
