"""Calls of definitions: a node as a function of its inputs, with checks before and after."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from halfbyte.errors import HalfbyteError, OutOfMemoryError, ProgramError, UnsupportedError
from halfbyte.onnx.files import dtypes
from halfbyte.onnx.files.model import Graph, Node, SparseTensor
from halfbyte.onnx.files.tensors import MAX_RANK
from halfbyte.onnx.reference.arrays import check_elements
from halfbyte.onnx.reference.registry import Body, Definition
from halfbyte.onnx.reference.signatures import signature_of, wrong_attribute
from halfbyte.onnx.reference.types import Rule, rule_of

Dtype = np.dtype[Any]

# Raised by definitions and rules for nodes that do not fit the standard.
# NumPy raises RuntimeError for arrays with more dimensions than some functions take.
UNFIT = (
    ValueError, TypeError, IndexError, KeyError, AttributeError, ArithmeticError, RuntimeError,
)  # fmt: skip


def bound(
    definition: Definition,
    node: Node,
    opset: int,
    bind: Callable[[Graph], Body],
    where: str,
) -> Call:
    """A node as a function of only its inputs: from a list of values to its outputs.

    Raises
    ------
    UnsupportedError
        The node has an attribute that the operator's definition does not know.
    ProgramError
        An attribute is missing, or not of the type that the definition takes.
    """
    unknown = sorted(set(node.attributes) - definition.attributes - definition.given)
    if unknown:
        raise UnsupportedError(
            f"{where}: attribute {unknown[0]!r}: expected one of {sorted(definition.attributes)}"
        )
    if problem := wrong_attribute(definition, node.attributes):
        raise ProgramError(f"{where}: {problem}")
    missing = sorted(signature_of(definition).required - node.attributes.keys())
    if missing:
        raise ProgramError(f"{where}: attribute {missing[0]!r} is required")
    keywords: dict[str, Any] = {
        name: bind(value) if isinstance(value, Graph) else value
        for name, value in node.attributes.items()
    }
    for name, value in (("outputs", len(node.outputs)), ("opset", opset)):
        if name in definition.given:
            keywords.setdefault(name, value)  # an attribute of that name has precedence

    types = rule_of(node.domain, node.op_type, opset)
    return Call(definition, keywords, types, where)


@dataclass(frozen=True)
class Call:
    """A definition with a node's attributes."""

    definition: Definition
    keywords: Mapping[str, Any]
    types: Rule
    where: str

    def check(self, inputs: Sequence[Any], dtypes: Sequence[np.dtype[Any] | None]) -> None:
        """Check the number of inputs and their types; `dtypes` are the types of arrays.

        Raises
        ------
        ProgramError
            An input is missing, or its type does not fit.
        """
        signature = signature_of(self.definition)
        if not signature.minimum <= len(inputs) <= signature.maximum:
            raise ProgramError(
                f"{self.where}: {len(inputs)} inputs, expected {signature.minimum} to "
                f"{signature.maximum}"
            )
        left_out = [i for i in signature.needed if inputs[i] is None]
        if left_out:
            raise ProgramError(f"{self.where}: input {left_out[0]} is left out")
        if problem := self.types.problem(dtypes):
            raise ProgramError(f"{self.where}: {problem}")

    def infer(self, inputs: Sequence[Any]) -> list[tuple[np.dtype[Any], tuple[int, ...]]] | None:
        """Types and shapes of results; values of inputs count only where they are constants.

        None where the definition has no rule for them.

        Raises
        ------
        ProgramError
            Inputs do not fit each other.
        MemoryBudgetError
            Results do not fit into the memory.
        """
        rule = self.definition.infer.shapes
        if rule is None:
            return None
        known = [v.dtype if isinstance(v, np.ndarray) else None for v in inputs]
        try:
            inferred = rule(*inputs, **self.keywords)
            results = _listed(inferred)
            kinds = itertools.zip_longest(results, self.types.results(known)[: len(results)])
            types = [self._type(result, kind, known) for result, kind in kinds]
            specs = [
                (dtype, check_elements(getattr(result, "shape", result), dtype.itemsize))
                for dtype, result in zip(types, results, strict=True)
                if dtype is not None
            ]
        except UNFIT as error:
            raise ProgramError(f"{self.where}: {error} for {_described(inputs)}") from error
        return specs if specs and len(specs) == len(results) else None

    def _type(self, result: Any, kind: Dtype | None, known: Sequence[Dtype | None]) -> Dtype | None:
        """The dtype of a result that a rule gives, after it is narrowed as `__call__` does."""
        if not isinstance(result, np.ndarray):
            return kind
        special = next((dtype for dtype in known if dtype is not None and dtype.names), None)
        narrowed = special if not self.definition.special and _is_float(result) else None
        return narrowed or result.dtype

    def __call__(self, inputs: Sequence[Any]) -> Sequence[Any]:
        self.check(inputs, [v.dtype if isinstance(v, np.ndarray) else None for v in inputs])
        return self.run(inputs)

    def run(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """The results for inputs whose number and types were checked."""
        with np.errstate(all="ignore"):
            results = self.quietly(inputs)
        check_ranks(results, self.where)
        return results

    def quietly(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """The same where NumPy's warnings are off, and the results' ranks were inferred."""
        special = None
        if not self.definition.special and any(map(_is_special, inputs)):
            special = next(v.dtype for v in inputs if _is_special(v))
            inputs = [dtypes.widen(v) if _is_special(v) else v for v in inputs]
        try:
            result = self.definition.meaning(*inputs, **self.keywords)
        except HalfbyteError as error:
            raise type(error)(f"{self.where}: {error}") from error
        except MemoryError as error:
            raise OutOfMemoryError(f"{self.where}: {error} for {_described(inputs)}") from error
        except UNFIT as error:
            raise ProgramError(f"{self.where}: {error} for {_described(inputs)}") from error
        results = result if isinstance(result, tuple) else (result,)
        if special is not None:
            results = tuple(dtypes.narrow(r, special) if _is_float(r) else r for r in results)
        return results


def check_ranks(results: Iterable[Any], where: str) -> None:
    """Raise `ProgramError` where a result has more dimensions than an array here may have."""
    for result in results:
        rank = len(getattr(result, "shape", ()))
        if rank > MAX_RANK:
            raise ProgramError(f"{where}: {rank} dimensions, expected at most {MAX_RANK}")


def _listed(results: Any) -> Sequence[Any]:
    """The shapes, or arrays, that a rule gives as a sequence of them."""
    if results is None:
        return []
    one = isinstance(results, np.ndarray) or not all(
        isinstance(result, tuple | np.ndarray) for result in results
    )
    return [results] if one or results == () else results


def _is_special(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.names is not None


def _is_float(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == np.float32


def _described(inputs: Sequence[Any]) -> str:
    """Shapes and types of inputs, for messages."""

    def one(value: Any) -> str:
        if isinstance(value, np.ndarray):
            return f"{value.dtype}{list(value.shape)}"
        return type(value).__name__ if not isinstance(value, SparseTensor) else "sparse"

    return ", ".join(map(one, inputs)) or "no inputs"
