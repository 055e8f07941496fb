"""The inputs and attributes that operators take, from the signatures of their definitions."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from halfbyte.onnx.files.model import Graph, Reference, SparseTensor, TypeInfo
from halfbyte.onnx.reference.registry import GIVEN, Definition

# Types that an attribute's annotation allows. ONNX's INT is taken for a FLOAT too, since some
# versions of an operator have one and others the other.
_KINDS: dict[str, tuple[type, ...]] = {
    "int": (int,), "float": (float, int), "str": (str, bytes), "Array": (np.ndarray,),
    "Body": (Graph,), "SparseTensor": (SparseTensor,), "TypeInfo": (TypeInfo,),
}  # fmt: skip


@dataclass(frozen=True)
class Signature:
    """The inputs and attributes of a definition.

    Attributes
    ----------
    minimum, maximum : int
        Number of inputs.
    inputs : tuple of str
        Their names, without variadic ones.
    needed : tuple of int
        Inputs that must not be left out.
    required : frozenset of str
        Attributes without a default.
    kinds : dict of str to (bool, tuple of type)
        Whether an attribute is a list, and the types of its values, where they are known.
    """

    minimum: int
    maximum: int
    inputs: tuple[str, ...]
    needed: tuple[int, ...]
    required: frozenset[str]
    kinds: dict[str, tuple[bool, tuple[type, ...]]]


@functools.cache
def signature_of(definition: Definition) -> Signature:
    """Read the signature of a definition's function."""
    parameters = inspect.signature(definition.meaning).parameters.values()
    inputs = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    named = [p for p in parameters if p.kind is p.KEYWORD_ONLY and p.name not in GIVEN]
    kinds = {p.name: _kind(str(p.annotation)) for p in named}
    return Signature(
        sum(p.default is p.empty for p in inputs),
        1 << 30 if definition.variadic else len(inputs),
        tuple(p.name for p in inputs),
        tuple(
            i for i, p in enumerate(inputs) if p.default is p.empty and str(p.annotation) == "Array"
        ),
        frozenset(p.name for p in named if p.default is p.empty),
        {name: kind for name, kind in kinds.items() if kind is not None},
    )


def _kind(annotation: str) -> tuple[bool, tuple[type, ...]] | None:
    text = annotation.removesuffix(" | None")
    for form in ("Sequence[", "list["):
        if text.startswith(form):
            kind = _KINDS.get(text[len(form) : -1])
            return (True, kind) if kind else None
    kind = _KINDS.get(text)
    return (False, kind) if kind else None


def wrong_attribute(definition: Definition, attributes: Mapping[str, Any]) -> str | None:
    """The problem with the type of an attribute; None where all are right."""
    kinds = signature_of(definition).kinds
    for name, value in attributes.items():
        kind = kinds.get(name)
        if kind is not None and not isinstance(value, Reference) and not _is(value, *kind):
            return (
                f"attribute {name!r}: {_described(value)}, expected "
                f"{'a list of ' if kind[0] else ''}{kind[1][0].__name__}"
            )
    return None


def _is(value: Any, many: bool, types: tuple[type, ...]) -> bool:
    if many:
        return isinstance(value, list) and all(isinstance(item, types) for item in value)
    return isinstance(value, types)


def _described(value: Any) -> str:
    if isinstance(value, list):
        inner = sorted({type(item).__name__ for item in value})
        return f"a list of {' and '.join(inner) or 'nothing'}"
    return type(value).__name__
