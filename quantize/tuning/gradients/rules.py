"""The registry of rules, and how their operators are declared.

A rule records instructions that compute gradients of an instruction's operands from that of its
result. Where no operator of `halfbyte.core.ops` computes one, it uses an operator declared by
`definition`: NumPy, whose products are BLAS's, on every backend.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, TypeAlias

from halfbyte.core.buffer import Buffer
from halfbyte.core.instruction import Instruction, Operation
from halfbyte.core.ops import Operator
from halfbyte.core.ops.operator import unlisted

Rule: TypeAlias = Callable[[Instruction, Buffer, Collection[str]], dict[str, Buffer]]
"""Records gradients of an instruction's operands, from `dy`, that of its result.

It returns them by operand; those that are not among the `wanted` ones are ignored. They have the
shapes of their operands, but those of a cache are [n, heads * width], of rows that a run writes.
"""

RULES: dict[Operation, Rule] = {}


def rule(operator: Operation) -> Callable[[Rule], Rule]:
    """Register the rule of an operator."""

    def register(each: Rule) -> Rule:
        RULES[operator] = each
        return each

    return register


def definition(signature: str) -> Callable[[Callable[..., Any]], Operator]:
    """Declare an operator that only rules use, by its meaning."""
    return lambda meaning: unlisted(meaning.__name__, signature, meaning, host=True)
