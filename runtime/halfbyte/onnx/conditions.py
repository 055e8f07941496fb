"""Conditions of Ifs that are known before a run: they follow from a few numbers of its inputs.

Exported models choose so between sample rates, or between a first step and one with a cache.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from halfbyte.errors import HalfbyteError
from halfbyte.onnx.evaluate import Evaluator, Values
from halfbyte.onnx.files.initializers import is_stored_array, stored
from halfbyte.onnx.files.model import Model, Node
from halfbyte.onnx.reference import find
from halfbyte.onnx.reference.arrays import results_limited

MAX_NODES = 8  # that compute one condition; also inputs that they read
MAX_NUMBERS = 16  # of one value that they read
MAX_BYTES = 1 << 12  # of their results
MAX_KEPT = 64  # numbers for which a condition is remembered


@dataclass
class _Condition:
    """The nodes that compute a condition, in order, and the inputs that they read."""

    nodes: list[Node] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    kept: dict[tuple[Any, ...], bool | None] = field(default_factory=dict)


class Conditions:
    """The conditions of a main graph's Ifs that a few nodes compute from the inputs."""

    def __init__(self, model: Model) -> None:
        self._model, self._evaluator = model, Evaluator(model)
        self._makers: dict[str, Node] = {}
        self._conditions: dict[str, _Condition] = {}
        ifs = [node for node in model.graph.nodes if node.op_type == "If" and not node.domain]
        if ifs:
            self._makers = {name: n for n in model.graph.nodes for name in n.outputs if name}
        for name in dict.fromkeys(name for node in ifs for name in node.inputs[:1]):
            condition = _Condition()
            if name and self._add(name, condition):
                self._conditions[name] = condition

    def __len__(self) -> int:
        return len(self._conditions)

    def of(self, feeds: Mapping[str, Any]) -> dict[str, bool]:
        """The conditions by name that these inputs determine."""
        known: dict[str, bool] = {}
        for name, condition in self._conditions.items():
            inputs = {i: feeds[i] for i in condition.inputs if i in feeds}
            if len(inputs) < len(condition.inputs) or not all(map(_is_small, inputs.values())):
                continue
            key = tuple((v.dtype, v.shape, v.tobytes()) for v in inputs.values())
            if key not in condition.kept:
                if len(condition.kept) == MAX_KEPT:
                    condition.kept.clear()
                condition.kept[key] = self._computed(name, condition.nodes, inputs)
            if (value := condition.kept[key]) is not None:
                known[name] = value
        return known

    def _computed(self, name: str, nodes: list[Node], inputs: dict[str, Any]) -> bool | None:
        values: Values = ChainMap({}, inputs, self._model.graph.initializers, {"": None})
        try:
            with results_limited(MAX_BYTES):
                for node in nodes:
                    self._evaluator.node(node, values)
        except HalfbyteError:
            return None  # the run says what is wrong
        value = values.get(name)
        return bool(value.item()) if isinstance(value, np.ndarray) and value.size == 1 else None

    def _add(self, name: str, condition: _Condition, depth: int = 0) -> bool:
        """Add what computes a value, in order; False if that is much or not pure."""
        constant = stored(self._model.graph.initializers).get(name)
        if constant is not None:
            return is_stored_array(constant) and constant.size <= MAX_NUMBERS
        node = self._makers.get(name)
        if node is None:
            condition.inputs += [] if name in condition.inputs else [name]
            return len(condition.inputs) <= MAX_NODES
        if node in condition.nodes:
            return True
        version = node.version or self._model.opsets.get(node.domain, 1)
        definition = find(node.domain, node.op_type, version)
        if definition is None or not definition.pure or node.graphs:
            return False
        if len(condition.nodes) >= MAX_NODES or depth >= MAX_NODES:
            return False
        if not all(self._add(used, condition, depth + 1) for used in node.inputs if used):
            return False
        condition.nodes.append(node)
        return len(condition.nodes) <= MAX_NODES


def _is_small(value: Any) -> bool:
    numbers = isinstance(value, np.ndarray) and not value.dtype.hasobject
    return numbers and value.size <= MAX_NUMBERS
