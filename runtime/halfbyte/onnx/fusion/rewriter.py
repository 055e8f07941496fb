"""The graph that patterns are matched in: producers and consumers of values, and constants."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.core.interrupt import step
from halfbyte.onnx.evaluate import used_names
from halfbyte.onnx.files.initializers import name_of
from halfbyte.onnx.files.model import Graph, Model, Node
from halfbyte.onnx.fusion.ranks import Ranks, ranks

Array = npt.NDArray[Any]

MICROSOFT = "com.microsoft"
OWN = "ai.halfbyte"  # halfbyte's own operators; see reference/own.py


class Rewriter:
    """A graph under fusion. Nodes are replaced one at a time, in place.

    A pattern is matched from its last node; the nodes before it stay until nothing uses them.

    Attributes
    ----------
    changed : bool
        Whether a node was replaced or a constant added.
    """

    def __init__(self, model: Model) -> None:
        self.model, self.graph = model, model.graph
        self._outputs = {v.name for v in self.graph.outputs}
        self._count = self._last = 0
        self.changed = False
        self._ranks: Ranks | None = None
        self._kinds = {(node.domain, node.op_type) for node in self.graph.nodes}
        self._producers = {name: n for n in self.graph.nodes for name in n.outputs if name}
        self._consumers: dict[str, list[Node]] = defaultdict(list)
        for node in self.graph.nodes:
            step()
            for name in used_names(node):
                self._consumers[name].append(node)

    def nodes(self, *kinds: str, domain: str = "") -> Iterator[Node]:
        """Nodes of these operators, in order."""
        if not any((domain, kind) in self._kinds for kind in kinds):
            return
        for node in list(self.graph.nodes):
            step()
            if node.op_type in kinds and node.domain == domain and self._is_there(node):
                yield node

    def _is_there(self, node: Node) -> bool:
        return any(self._producers.get(name) is node for name in node.outputs if name)

    def producer(self, name: str, *kinds: str, domain: str = "") -> Node | None:
        """The node that computes a value, if it is of one of these operators."""
        node = self._producers.get(name)
        if node is None or node.domain != domain or (kinds and node.op_type not in kinds):
            return None
        return node

    def consumers(self, name: str) -> list[Node]:
        """The nodes that read a value."""
        return self._consumers[name]

    def used_once(self, name: str) -> bool:
        """Whether only one node reads a value, once, and it is not an output of the graph."""
        users = self._consumers[name]
        return len(users) == 1 and users[0].inputs.count(name) <= 1 and name not in self._outputs

    def rank(self, name: str) -> int | None:
        """The number of dimensions of a value, where it is known."""
        if self._ranks is None:
            self._ranks = ranks(self.graph)
        return self._ranks.get(name)

    def is_output(self, name: str) -> bool:
        """Whether a value is an output of the graph."""
        return name in self._outputs

    def constant(self, name: str) -> Array | None:
        """A constant's value."""
        value = self.graph.initializers.get(name)
        return value if isinstance(value, np.ndarray) else None

    def number(self, name: str) -> float | None:
        """The value of a constant of one element and at most one axis."""
        value = self.constant(name)
        return None if value is None else _number(value)

    def split_constant(self, node: Node) -> tuple[str, Array] | None:
        """The computed and the constant operand of a node with two."""
        if len(node.inputs) != 2:
            return None
        for computed, other in (node.inputs, node.inputs[::-1]):
            value = self.constant(other)
            if value is not None and self.constant(computed) is None:
                return computed, value
        return None

    def split_number(self, node: Node) -> tuple[str, float] | None:
        """The computed operand and the constant, where that is a number; see `number`."""
        operands = self.split_constant(node)
        value = None if operands is None else _number(operands[1])
        return None if operands is None or value is None else (operands[0], value)

    def add_constant(self, value: Array) -> str:
        """The name of a new initializer."""
        self._count, self.changed = self._count + 1, True
        name = f"halfbyte/{self._count}"
        while name in self.graph.initializers:
            name += "'"
        self.graph.initializers[name] = value
        return name

    def name_of(self, value: Array) -> str:
        """The name of an initializer, or of a new one."""
        return name_of(self.graph.initializers, value) or self.add_constant(value)

    def replace(self, old: Node, *new: Node) -> None:
        """Put nodes in the place of `old`; they compute the same values."""
        at = self._index(old)
        self.graph.nodes[at : at + 1] = new
        self.changed = True
        self._kinds |= {(node.domain, node.op_type) for node in new}
        for name in used_names(old):
            self._consumers[name].remove(old)
        for name in filter(None, old.outputs):
            self._producers.pop(name, None)
        for node in new:
            self._producers.update({name: node for name in node.outputs if name})
            for name in used_names(node):
                self._consumers[name].append(node)

    def _index(self, node: Node) -> int:
        """The index of a node; most patterns match in order, so the search continues."""
        nodes = self.graph.nodes
        try:
            self._last = nodes.index(node, max(0, self._last - 64))
        except ValueError:
            self._last = nodes.index(node)
        return self._last

    def fresh(self, like: str) -> str:
        """A name that no value has."""
        self._count += 1
        return f"{like}/halfbyte/{self._count}"


def _number(value: Array) -> float | None:
    if value.size != 1 or value.ndim > 1 or value.dtype.kind not in "fiu":
        return None
    return float(value.reshape(-1)[0])


def near(value: float | None, wanted: float) -> bool:
    """Whether a constant is that of a formula, rounded to few digits, float32 or float16."""
    if value is None:
        return False
    return abs(value - wanted) <= 1e-5 * abs(wanted) or value == float(np.float16(wanted))


def make_node(
    kind: str, inputs: Sequence[str], outputs: Sequence[str], *, domain: str = "", version: int = 0,
    name: str = "", **attributes: Any,
) -> Node:  # fmt: skip
    """A node."""
    return Node(kind, tuple(inputs), tuple(outputs), attributes, domain, name, "", version)


def drop_unused(graph: Graph) -> None:
    """Remove, in place, nodes and initializers that no output needs."""
    needed = {v.name for v in graph.outputs}
    kept = []
    for node in reversed(graph.nodes):
        step()
        if not needed.isdisjoint(node.outputs):
            needed |= used_names(node)
            kept.append(node)
    graph.nodes[:] = kept[::-1]
    for name in [n for n in graph.initializers if n not in needed]:
        del graph.initializers[name]
