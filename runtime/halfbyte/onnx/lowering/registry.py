"""Rules: functions that record the operators of a program for an ONNX node, one per ONNX operator.

A rule is called as the operator's definition is, with inputs as positional arguments and attributes
as keywords, after the :class:`~halfbyte.onnx.capture.Capture`. Inputs are `Value` (computed),
arrays (constants) or None (missing); an attribute that the node lacks has the default of the rule.

It records operators and returns a `Value`, a tuple of them (with None for outputs that it does not
compute), or a constant array. It returns None where no kernel fits the shapes, types and
attributes: then the node's NumPy definition runs inside the program. The same happens where a rule
or an operator's demand raises, so that the definition accepts the operands or says what is wrong.
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
    """Decorate a function as the rule of these operators of a domain."""

    def declare(rule: AnyRule) -> AnyRule:
        for name in names:
            _RULES[domain, name] = rule
        return rule

    return declare


def rule_of(domain: str, name: str) -> Rule | None:
    """The rule of an operator, or None."""
    return _RULES.get((domain, name))


def lowered() -> list[tuple[str, str]]:
    """The domain and name of every operator with a rule."""
    return sorted(_RULES)
