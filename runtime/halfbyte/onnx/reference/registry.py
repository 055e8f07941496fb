"""The registry of definitions: domain, name, version -> a function of arrays.

A definition is a plain function. Positional parameters are the operator's inputs (None where one
is left out, ``*parts`` for variadic ones), keyword-only parameters are its attributes under ONNX's
names, and the result is one value or a tuple. These keyword-only names are given by the caller of a
definition, not by the node, where the definition has them:

    outputs   how many outputs the node names (an int)
    opset     the version of the default domain that the node is under

An attribute that is a graph arrives as a :class:`Body`, which is called with the values of the
graph's inputs and returns a list of its outputs.

Values are NumPy arrays (never NumPy scalars, so that shapes are kept), lists for sequences, None
for an empty optional, dicts for maps, and `SparseTensor`.
"""

from __future__ import annotations

import functools
import inspect
import pkgutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, Protocol, TypeVar

from halfbyte.errors import UnsupportedError
from halfbyte.onnx.files.model import Graph
from halfbyte.onnx.reference._shapes import UNKNOWN, Rule
from halfbyte.onnx.reference.operator_index import OPERATORS

GIVEN = frozenset({"outputs", "opset"})  # keywords that are not attributes
MICROSOFT = "com.microsoft"
ML = "ai.onnx.ml"


class Body(Protocol):
    """A subgraph, with the values around it bound."""

    @property
    def graph(self) -> Graph:
        """The subgraph, with the types of its inputs and outputs as far as the file gives them."""

    def __call__(self, *inputs: Any) -> list[Any]:
        """Run the graph; returns the values of its outputs."""


@dataclass(frozen=True, eq=False)
class Definition:
    """One version of an operator.

    Attributes
    ----------
    since : int
        The first version of the domain that it defines.
    decided_by : tuple of int
        Inputs whose values, and not only shapes, decide the shapes of the outputs.
    dynamic : bool
        Values of any input may decide them (NonZero, Loop, ...), or a value is not a tensor:
        they have no rule for shapes.
    special : bool
        Takes and returns types that NumPy lacks in their stored form; other definitions get numbers
        (`dtypes.widen`), and their results are rounded to the type of the inputs.
    pure : bool
        The same inputs give the same result (random operators do not).
    product : bool
        Its work is bounded by the product of its inputs' sizes, not by the size of its results.
    infer : Rule
        Shapes and ranks of results before they are computed.
    types : str
        Types of inputs and outputs in the notation of `type_table`, which has those of ONNX's own
        operators. Numbers of types follow a dot where it matters which they are: ONNX Runtime's
        operators take more types with every release.
    """

    domain: str
    name: str
    since: int
    meaning: Callable[..., Any]
    attributes: frozenset[str]
    given: frozenset[str]
    variadic: bool
    decided_by: tuple[int, ...] = ()
    dynamic: bool = False
    special: bool = False
    pure: bool = True
    product: bool = False
    infer: Rule = UNKNOWN
    types: str = ""


_PENDING: dict[tuple[str, str], list[str]] = {}  # operators -> modules that are not imported yet
for _module, _names in OPERATORS.items():
    for _name in _names.split():
        _domain, _, _kind = _name.rpartition(":")
        _PENDING.setdefault((_domain, _kind), []).append(_module)
# In the order of the list, whatever is imported first
_DEFINITIONS: dict[tuple[str, str], list[Definition]] = {key: [] for key in _PENDING}

Meaning = TypeVar("Meaning", bound=Callable[..., Any])


def define(
    name: str,
    *,
    since: int = 1,
    domain: str = "",
    decided_by: Sequence[int] = (),
    **traits: Any,
) -> Callable[[Meaning], Meaning]:
    """Declare the decorated function as the definition of an operator.

    `traits` are further fields of :class:`Definition`.
    """

    def declare(meaning: Meaning) -> Meaning:
        code = inspect.unwrap(meaning).__code__  # `inspect.signature` would take 20 ms for all
        positional = code.co_argcount
        keywords = {*code.co_varnames[positional : positional + code.co_kwonlyargcount]}
        rule = traits.get("infer", UNKNOWN)
        if rule.views:
            traits["infer"] = replace(rule, shapes=meaning)
        definition = Definition(
            domain, name, since, meaning, frozenset(keywords - GIVEN), frozenset(keywords & GIVEN),
            bool(code.co_flags & inspect.CO_VARARGS),
            tuple(decided_by), **traits,
        )  # fmt: skip
        versions = _DEFINITIONS.setdefault((domain, name), [])
        versions.append(definition)
        versions.sort(key=lambda definition: -definition.since)
        return meaning

    return declare


def find(domain: str, name: str, version: int) -> Definition | None:
    """The newest definition up to `version`; None where there is none."""
    key = domain, name
    definitions: Sequence[Definition] | None = _DEFINITIONS.get(key)
    if not definitions or key in _PENDING:
        definitions = _definitions(domain, name)
    for definition in definitions:
        if definition.since <= version:
            return definition
    return None


def _definitions(domain: str, name: str) -> Sequence[Definition]:
    """Every definition of an operator, the newest first, from the modules that have it."""
    modules = _PENDING.get((domain, name), ())
    for module in modules:
        import_module(f"{__package__}.{module}")
    if modules:
        _PENDING.pop((domain, name), None)
    elif not _DEFINITIONS.get((domain, name)):
        _import_all()  # a module that is not in the list may have it
    return _DEFINITIONS.get((domain, name), ())


@functools.cache
def _import_all() -> None:
    """Import every module of definitions."""
    path = sys.modules[__package__].__path__
    for module in pkgutil.walk_packages(path, f"{__package__}."):
        import_module(module.name)
    _PENDING.clear()


def lookup(domain: str, name: str, version: int, where: str) -> Definition:
    """The newest definition up to `version`. Raises `UnsupportedError` where there is none."""
    definition = find(domain, name, version)
    if definition is None:
        known = _definitions(domain, name)
        kind = f"{domain}.{name}" if domain else name
        reason = (
            f"version {version}; known from version {known[-1].since} on"
            if known
            else "is not an operator that halfbyte knows"
        )
        raise UnsupportedError(f"{where}: operator {kind}: {reason}")
    return definition


def versions(domain: str, name: str) -> list[Definition]:
    """Every definition of an operator, the newest first."""
    return list(_definitions(domain, name))


def operators() -> list[tuple[str, str]]:
    """Domain and name of every operator."""
    _import_all()
    return sorted(_DEFINITIONS)
