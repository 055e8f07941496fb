"""Initializers in the memory of all programs of a model, each packed once for each layout."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.core.buffer import Buffer
from halfbyte.onnx.files.model import Graph, Node

Array = npt.NDArray[Any]


class SharedWeights:
    """Buffers of initializers, and of constants that are computed from them only."""

    def __init__(self, graph: Graph) -> None:
        self._names = {id(array): name for name, array in graph.initializers.items()}
        self._makers: dict[str, Node] = {}
        self._buffers: dict[tuple[str, str], Buffer] = {}

    def name(self, array: Array) -> str | None:
        """The name of such an array; None for a constant that depends on shapes."""
        return self._names.get(id(array))

    def derive(self, node: Node, inputs: Sequence[Any], results: Sequence[Any]) -> None:
        """Register the results of a node whose inputs are all registered, while they exist.

        The next program computes them again, under the same names, and so gets the same buffers.
        Branches of an If may use the same names: a name belongs to the first node that has it.
        """
        if not inputs or not all(v is None or id(v) in self._names for v in inputs):
            return
        for name, array in zip(node.outputs, results, strict=False):
            if not isinstance(array, np.ndarray) or id(array) in self._names:
                continue
            if self._makers.setdefault(name, node) is node:
                self._names[id(array)] = name
                weakref.finalize(array, self._names.pop, id(array)).atexit = False

    def get(self, array: Array, layout: str, make: Callable[[], Buffer]) -> Buffer:
        """The buffer of an array in a layout; `make` is called at the first request only.

        A constant without a name belongs to one program: its buffer is made at each request.
        """
        name = self.name(array)
        if name is None:
            return make()
        if (name, layout) not in self._buffers:
            self._buffers[name, layout] = make()
        return self._buffers[name, layout]
