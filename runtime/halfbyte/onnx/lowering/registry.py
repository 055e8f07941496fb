"""Which operators of a program an ONNX node becomes: one rule an ONNX operator.

A rule is called as the operator's definition is, positional inputs and attributes by keyword, with
the :class:`~halfbyte.onnx.capture.Capture` before them. Inputs are `Value` (computed), arrays
(constants) or None (left out); attributes that the node does not have keep the rule's default. It
records operators and returns a `Value`, or a tuple of them (None for outputs that it does not
make), or a constant array; or it returns None where no kernel fits these shapes, types and
attributes: then the node's NumPy definition runs inside the program.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

MICROSOFT = "com.microsoft"
OWN = "ai.halfbyte"
Rule = Callable[..., Any]
_RULES: dict[tuple[str, str], Rule] = {}

AnyRule = TypeVar("AnyRule", bound=Rule)


def lower(*names: str, domain: str = "") -> Callable[[AnyRule], AnyRule]:
    """Declare the decorated function to be the rule of these operators of a domain."""

    def declare(rule: AnyRule) -> AnyRule:
        for name in names:
            _RULES[domain, name] = rule
        return rule

    return declare


def rule_of(domain: str, name: str) -> Rule | None:
    """The rule of an operator, if it has one."""
    return _RULES.get((domain, name))


def lowered() -> list[tuple[str, str]]:
    """Domain and name of every operator that has a rule."""
    return sorted(_RULES)
