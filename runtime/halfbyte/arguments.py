"""Checks of the public functions' arguments; errors name the argument."""

from __future__ import annotations

import difflib
import operator
from collections.abc import Collection, Mapping, Sequence
from numbers import Real
from typing import Any, NoReturn

from halfbyte.errors import ArgumentTypeError, HalfbyteError


def check_keywords(function: str, names: Mapping[str, Any], known: Collection[str]) -> None:
    """Raise `ArgumentTypeError` for a keyword that a function does not know."""
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, sorted(known), 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ArgumentTypeError(
                f"{function}() got an unexpected keyword argument {name!r}{hint}"
            )


def integer(name: str, value: Any) -> int:
    """The value, if it is an integer."""
    try:
        return operator.index(value)
    except TypeError:
        refuse(name, "int", value)


def number(name: str, value: Any) -> float:
    """The value, if it is a number."""
    return float(value) if isinstance(value, Real) else refuse(name, "a number", value)


def finite(name: str, value: Any) -> float:
    """The value, if it is a number that is finite in float32."""
    if not abs(number(name, value)) < 2.0**128:
        raise HalfbyteError(f"{name}: expected a finite number, found {value}")
    return float(value)


def text(name: str, value: Any) -> str:
    """The value, if it is a string."""
    return value if isinstance(value, str) else refuse(name, "str", value)


def texts(name: str, value: Any) -> list[str]:
    """The values, if they are strings; a single string is refused."""
    if isinstance(value, str | bytes | Mapping) or not hasattr(value, "__iter__"):
        refuse(name, "several str", value)
    return [text(f"{name}[{i}]", item) for i, item in enumerate(value)]


def tokens(name: str, value: Any) -> list[int]:
    """The values, if they are token ids."""
    if isinstance(value, bytes | bytearray) or not hasattr(value, "__iter__"):
        refuse(name, "str", value)
    return [integer(f"{name}[{i}]", item) for i, item in enumerate(value)]


def numbers_by_integer(name: str, value: Any) -> dict[int, float]:
    """The value, if it is a mapping of integers to numbers."""
    if not isinstance(value, Mapping):
        refuse(name, "a mapping of token ids to numbers", value)
    return {integer(f"a key of {name}", k): number(f"{name}[{k}]", v) for k, v in value.items()}


def messages(name: str, value: Any) -> Sequence[Any]:
    """The value, if it can be a list of messages."""
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        refuse(name, "a list of messages", value)
    return value


def refuse(name: str, expected: str, value: Any) -> NoReturn:
    """Raise `ArgumentTypeError` for an argument."""
    raise ArgumentTypeError(f"{name}: expected {expected}, found {type(value).__name__}")
