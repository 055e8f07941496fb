"""Initializers in the memory of all programs of a model, each packed once for each layout."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from halfbyte.core.backends.memory import Memory
from halfbyte.core.backends.shared import memory_of
from halfbyte.core.buffer import Buffer, Kind
from halfbyte.core.dtypes import dtype_key
from halfbyte.formats.mapped import forget
from halfbyte.onnx.files.initializers import Initializers
from halfbyte.onnx.files.model import Graph, Node
from halfbyte.weights import Tensor

if TYPE_CHECKING:
    from halfbyte.onnx.kept_weights import KeptWeights

Array = npt.NDArray[Any]


class SharedWeights:
    """Buffers of initializers, and of constants that are computed from them only.

    Their bytes are in `memory` only, if that is apart from NumPy's.
    """

    def __init__(
        self, graph: Graph, memory: Memory | None = None, kept: KeptWeights | None = None
    ) -> None:
        self._kept = kept
        self._memory: Any = memory if memory is not None and memory.apart else None
        self._names: dict[int, str] = {}
        self._apart: list[tuple[str, Initializers]] = []  # with a prefix of the names
        self._taken: set[str] = set()
        self._register(graph.initializers, "")
        for index, body in enumerate(_bodies(graph)):
            self._register(body.initializers, f"{index}/{body.name}/")
        self._makers: dict[str, Node] = {}
        self._buffers: dict[tuple[str, str], Buffer] = {}

    def _register(self, initializers: Mapping[str, Any], prefix: str) -> None:
        """Know the constants of a graph; the prefix tells those of several graphs apart."""
        self._taken |= {prefix + name for name in initializers}
        if isinstance(initializers, Initializers):
            self._apart.append((prefix, initializers))
        else:
            self._names |= {id(array): prefix + name for name, array in initializers.items()}

    def name(self, array: Array) -> str | None:
        """The name of such an array; None for a constant that depends on shapes."""
        name = self._names.get(id(array))
        for prefix, initializers in () if name is not None else self._apart:
            own = initializers.name_of(array)
            if own is not None:
                return prefix + own
        return name

    def derive(self, node: Node, inputs: Sequence[Any], results: Sequence[Any]) -> None:
        """Register the results of a node whose inputs are all registered, while they exist.

        The next program computes them again, under the same names, and so gets the same buffers.
        Branches of an If may use the same names: a name belongs to the first node that has it.
        The file's pages of the inputs are given back, as the results are beside them.
        """
        for value in inputs:
            if isinstance(value, np.ndarray):
                forget(value)
        if not inputs or not all(v is None or self.name(v) is not None for v in inputs):
            return
        for name, array in zip(node.outputs, results, strict=False):
            if not isinstance(array, np.ndarray) or self.name(array) is not None:
                continue
            if name in self._taken:  # a body may have a value of the same name
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
            self._buffers[name, layout] = self._placed(self._found(array, name, layout, make))
        return self._buffers[name, layout]

    def _found(self, array: Array, name: str, layout: str, make: Callable[[], Buffer]) -> Buffer:
        """The buffer of kept bytes; those of a new one are kept.

        The file's pages of what was packed are given back.
        """
        key = f"{name}:{layout}"
        value = None if self._kept is None else self._kept.get(key)
        if value is not None:
            return Buffer(key, Kind.CONSTANT, str(dtype_key(value.dtype)), value.shape, value)
        buffer = make()
        if isinstance(buffer.value, np.ndarray) and not np.may_share_memory(buffer.value, array):
            forget(array)
            if self._kept is not None:
                self._kept.add(key, buffer.value)
        return buffer

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers, mapped or packed."""
        return sum(buffer.nbytes for buffer in self._buffers.values())

    def room(self, nbytes: int) -> Any:
        """Bytes of any content, in that memory."""
        return np.empty(nbytes, np.uint8) if self._memory is None else self._memory.unset(nbytes)

    def _placed(self, buffer: Buffer) -> Buffer:
        """The buffer, whose bytes NumPy no longer holds if the memory is another."""
        value = buffer.value
        if self._memory is None or buffer.source is not None:
            return buffer
        if isinstance(value, Tensor):
            value = replace(value, data=self._memory.reach(value.data))
        elif isinstance(value, np.ndarray):
            value = self._memory.reach(self._stored(value))
        return replace(buffer, value=value)

    def _stored(self, array: Array) -> Any:
        """An array that is a copy of one in memory apart: that one, which kernels can read."""
        for _, initializers in self._apart:
            name = initializers.name_of(array)
            if name is not None and memory_of(initializers.stored[name]) is self._memory:
                return initializers.stored[name]
        return array


def _bodies(graph: Graph) -> Iterator[Graph]:
    """All graphs inside the nodes of a graph."""
    for node in graph.nodes:
        for body in node.graphs:
            yield body
            yield from _bodies(body)
