"""The inputs that a node may have and their element types, by its operator's name and version."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from halfbyte.core.interrupt import step
from halfbyte.errors import ProgramError
from halfbyte.onnx.files import dtypes
from halfbyte.onnx.files.initializers import is_stored_array, stored
from halfbyte.onnx.files.model import Model, Node
from halfbyte.onnx.reference.registry import find
from halfbyte.onnx.reference.signatures import signature_of
from halfbyte.onnx.reference.type_table import INPUTS, SETS

Dtype = np.dtype[Any]


@dataclass(frozen=True)
class Rule:
    """The types of a node's inputs and outputs; inputs after the last may have any.

    Attributes
    ----------
    inputs : tuple
        Letter ("-" for any type), numbers of the types if they are known, and whether it repeats.
    outputs : tuple of str
        The letter of the inputs whose type an output has, or the number of its type, or "-".
    """

    inputs: tuple[tuple[str, frozenset[int] | None, bool], ...]
    outputs: tuple[str, ...]

    def problem(self, known_types: Sequence[Dtype | None]) -> str | None:
        """The problem with the types of inputs, if any; None is a type that is not known."""
        seen: dict[str, Dtype] = {}
        for place, dtype in enumerate(known_types):
            letter, types = self._at(place)
            if dtype is None or letter == "-":
                continue
            if types is not None and dtypes.NUMBERS.get(dtype) not in types:
                names = ", ".join(_name(dtypes.DTYPES[number]) for number in sorted(types))
                return f"input {place} is {_name(dtype)}, expected {names}"
            if seen.setdefault(letter, dtype) != dtype:
                return f"input {place} is {_name(dtype)}, expected {_name(seen[letter])}"
        return None

    def results(self, known_types: Sequence[Dtype | None]) -> list[Dtype | None]:
        """Types of outputs, as far as the inputs' types decide them."""
        seen = {self._at(i)[0]: dtype for i, dtype in enumerate(known_types) if dtype is not None}
        return [
            dtypes.DTYPES.get(int(word)) if word.isdigit() else seen.get(word)
            for word in self.outputs
        ]

    def maximum(self) -> int:
        """The largest number of outputs; any number where it is not known."""
        many = not self.outputs or self.outputs[-1].endswith("*")
        return 1 << 30 if many else len(self.outputs)

    def _at(self, place: int) -> tuple[str, frozenset[int] | None]:
        at = min(place, len(self.inputs) - 1)
        if at < 0 or (place > at and not self.inputs[at][2]):
            return "-", None
        return self.inputs[at][:2]


@functools.cache
def rule_of(domain: str, name: str, version: int) -> Rule:
    """The rule of an operator's version."""
    if domain:
        definition = find(domain, name, version)
        words = ((definition and definition.types) or ">") + " -*"
    else:
        matching = (words for since, words in INPUTS.get(name, ()) if since <= version)
        words = next(matching, ">")
    inputs, _, outputs = words.partition(">")
    return Rule(tuple(map(_input, inputs.split())), tuple(outputs.split()))


def _input(word: str) -> tuple[str, frozenset[int] | None, bool]:
    letter, types, repeats = word[0], word[1:].removesuffix("*"), word.endswith("*")
    numbers = types[1:].split(",") if types.startswith(".") else SETS[int(types or 0)].split()
    return letter, frozenset(map(int, numbers)) if types else None, repeats


def check_types(model: Model) -> dict[str, Dtype | None]:
    """Check that nodes have their inputs, and that types fit from node to node where known.

    Returns the types of the main graph's values; None, or no entry, where one is not known.

    Raises
    ------
    ProgramError
        They do not. Fused nodes would hide it.
    """
    graph = model.graph
    known: dict[str, Dtype | None] = {
        v.name: dtypes.DTYPES.get(v.type.dtype)
        for v in graph.inputs if v.type is not None and v.type.kind == "tensor"
    }  # fmt: skip
    known |= {n: v.dtype for n, v in stored(graph.initializers).items() if is_stored_array(v)}
    for node in graph.nodes:
        step()
        version = node.version or model.opsets.get(node.domain, 1)
        rule = rule_of(node.domain, node.op_type, version)
        known_types = [known.get(name) if name else None for name in node.inputs]
        problem = rule.problem(known_types) or _wrong_count(node, rule, version)
        if problem:
            raise ProgramError(f"{model.path}: {node}: {problem}")
        known |= dict(zip(node.outputs, rule.results(known_types), strict=False))
        known |= _stated(node)
    return known


def _wrong_count(node: Node, rule: Rule, version: int) -> str | None:
    """The problem with the number of inputs and outputs, if any."""
    if any(node.outputs[rule.maximum() :]):
        return f"{len(node.outputs)} outputs, expected {rule.maximum()}"
    definition = find(node.domain, node.op_type, version)
    needed = () if definition is None else signature_of(definition).needed
    left_out = [i for i in needed if i >= len(node.inputs) or not node.inputs[i]]
    return f"input {left_out[0]} is left out" if left_out else None


def _stated(node: Node) -> Mapping[str, Dtype | None]:
    """The type of an output that an attribute names."""
    to = node.attributes.get("to")
    if node.op_type != "Cast" or node.domain or not isinstance(to, int):
        return {}
    return {node.outputs[0]: dtypes.DTYPES.get(to)}


def _name(dtype: Dtype) -> str:
    return "string" if dtype == dtypes.STRING else dtypes.special_name(dtype) or dtype.name
