"""Running a graph node by node in NumPy, each node by its definition.

Complete and slow: the reference that programs (`capture`) are compared with.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from halfbyte.core.interrupt import step
from halfbyte.errors import HalfbyteError, OutOfMemoryError, ProgramError, UnsupportedError
from halfbyte.onnx.files import dtypes
from halfbyte.onnx.files.model import Function, Graph, Model, Node, Reference, SparseTensor
from halfbyte.onnx.files.tensors import MAX_RANK
from halfbyte.onnx.reference import lookup
from halfbyte.onnx.reference.arrays import check_elements
from halfbyte.onnx.reference.registry import Body, Definition
from halfbyte.onnx.reference.signatures import signature_of, wrong_attribute
from halfbyte.onnx.reference.types import Rule, rule_of

# Raised by definitions and rules for nodes that do not fit the standard.
# NumPy raises RuntimeError for arrays with more dimensions than some functions take.
UNFIT = (
    ValueError, TypeError, IndexError, KeyError, AttributeError, ArithmeticError, RuntimeError,
)  # fmt: skip

Values: TypeAlias = "ChainMap[str, Any]"
Observer = Callable[[Node, str, Any], None]  # called with each value, once computed


class Bound:
    """A subgraph with the values around it; see `registry.Body`."""

    def __init__(self, graph: Graph, run: Callable[[Sequence[Any]], list[Any]]) -> None:
        self.graph = graph
        self._run = run

    def __call__(self, *inputs: Any) -> list[Any]:
        return self._run(inputs)


class Evaluator:
    """Runs a model's nodes by their definitions.

    Parameters
    ----------
    model : Model
    observe : callable, optional
        Called with node, name and value for every output of every node of the main graph.

    The caller may interrupt the run at each node and each run of a body; see `interrupt`.
    """

    def __init__(self, model: Model, observe: Observer | None = None) -> None:
        self.model = model
        self.path = model.path
        self._observe = observe

    def run(self, feeds: Mapping[str, Any], names: Sequence[str] | None = None) -> dict[str, Any]:
        """Values of the graph's outputs, or of those named (any value of the main graph)."""
        graph = self.model.graph
        wanted = [v.name for v in graph.outputs] if names is None else list(names)
        values: Values = ChainMap({"": None}, dict(feeds), dict(graph.initializers))
        self._nodes(graph.nodes, values, self.model.opsets, set(wanted), self._observe)
        return {name: values[name] for name in wanted}

    def node(self, node: Node, values: Values) -> None:
        """Run one node of the main graph; its outputs are put into `values`."""
        self._node(node, values, self.model.opsets)

    def _nodes(
        self,
        nodes: Iterable[Node],
        values: Values,
        opsets: Mapping[str, int],
        kept: set[str],
        observe: Observer | None = None,
    ) -> None:
        """Run nodes in order; a value is dropped after its last use."""
        nodes = list(nodes)
        last = {name: i for i, node in enumerate(nodes) for name in used_names(node)}
        for index, node in enumerate(nodes):
            self._node(node, values, opsets)
            if observe is not None:
                for name in filter(None, node.outputs):
                    observe(node, name, values[name])
            for name in (*used_names(node), *node.outputs):
                if last.get(name, -1) <= index and name not in kept and name:
                    values.maps[0].pop(name, None)

    def _node(self, node: Node, values: Values, opsets: Mapping[str, int]) -> None:
        step()
        function = self.model.functions.get((node.domain, node.op_type, node.overload))
        try:
            inputs = [values[name] for name in node.inputs]
        except KeyError as error:
            raise ProgramError(f"{self.path}: {node}: no value {error} before it") from None
        if function is not None:
            results: Sequence[Any] = self._function(function, node, inputs)
        else:
            results = self._call(node, inputs, values, opsets)
        check_outputs(node, results, f"{self.path}: {node}")
        for name, value in zip(node.outputs, results, strict=False):
            if name:
                values[name] = value

    def _function(self, function: Function, node: Node, inputs: list[Any]) -> list[Any]:
        attributes = {**function.defaults, **node.attributes}
        values: Values = ChainMap({"": None, **dict.fromkeys(function.inputs)})
        values.update(zip(function.inputs, inputs, strict=False))
        nodes = [resolved(inner, attributes) for inner in function.nodes]
        self._nodes(nodes, values, function.opsets, set(function.outputs))
        return [values[name] for name in function.outputs]

    def _call(
        self, node: Node, inputs: list[Any], values: Values, opsets: Mapping[str, int]
    ) -> Sequence[Any]:
        version = node.version or opsets.get(node.domain, 1)
        definition = lookup(node.domain, node.op_type, version, f"{self.path}: {node}")

        def bind(graph: Graph) -> Body:
            return Bound(graph, lambda inputs: self._body(graph, inputs, values, opsets))

        opset = opsets.get("", 1) if node.domain else version
        return bound(definition, node, opset, bind, f"{self.path}: {node}")(inputs)

    def _body(
        self, graph: Graph, inputs: Sequence[Any], values: Values, opsets: Mapping[str, int]
    ) -> list[Any]:
        step()
        inner = values.new_child(dict(graph.initializers))
        inner.update(zip((v.name for v in graph.inputs), inputs, strict=True))
        wanted = [v.name for v in graph.outputs]
        self._nodes(graph.nodes, inner, opsets, set(wanted))
        return [inner[name] for name in wanted]


def check_outputs(node: Node, results: Sequence[Any], where: str) -> None:
    """Check that a node has no more outputs than its operator.

    Raises
    ------
    ProgramError
        It has more.
    """
    if any(node.outputs[len(results) :]):
        raise ProgramError(f"{where}: {len(node.outputs)} outputs, expected {len(results)}")


def used_names(node: Node) -> set[str]:
    """Every value that a node reads, including those that its subgraphs take from outside."""
    names = {name for name in node.inputs if name}
    for graph in subgraphs(node):
        names |= outer_names(graph)
    return names


def outer_names(graph: Graph) -> set[str]:
    """Values that a subgraph takes from the graphs around it."""
    known = set(graph.initializers) | {v.name for v in graph.inputs}
    used: set[str] = set()
    for node in graph.nodes:
        used |= used_names(node) - known
        known.update(node.outputs)
    return used | ({v.name for v in graph.outputs} - known)


def subgraphs(node: Node) -> list[Graph]:
    """The graphs among a node's attributes."""
    graphs: list[Graph] = []
    for value in node.attributes.values():
        graphs += [
            g for g in (value if isinstance(value, list) else [value]) if isinstance(g, Graph)
        ]
    return graphs


def resolved(node: Node, attributes: Mapping[str, Any]) -> Node:
    """A function's node with the attributes of the call, in its subgraphs too."""

    def value_of(value: Any) -> Any:
        if isinstance(value, Graph):
            nodes = [resolved(inner, attributes) for inner in value.nodes]
            return Graph(value.name, nodes, value.initializers, value.inputs, value.outputs)
        return value

    values = {
        name: attributes.get(value.name) if isinstance(value, Reference) else value_of(value)
        for name, value in node.attributes.items()
    }
    present = {name: value for name, value in values.items() if value is not None}
    return Node(
        node.op_type, node.inputs, node.outputs, present, node.domain, node.name, node.overload,
        node.version,
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
        if not signature.least <= len(inputs) <= signature.most:
            raise ProgramError(
                f"{self.where}: {len(inputs)} inputs, expected {signature.least} to "
                f"{signature.most}"
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
        dtypes = [v.dtype if isinstance(v, np.ndarray) else None for v in inputs]
        try:
            inferred = rule(*inputs, **self.keywords)
            shapes = [inferred] if isinstance(inferred, tuple) else inferred or []
            kinds = zip(self.types.results(dtypes), shapes, strict=False)
            specs = [(d, check_elements(shape, d.itemsize)) for d, shape in kinds if d is not None]
        except UNFIT as error:
            raise ProgramError(f"{self.where}: {error} for {_described(inputs)}") from error
        return specs if specs and len(specs) == len(shapes) else None

    def __call__(self, inputs: Sequence[Any]) -> Sequence[Any]:
        self.check(inputs, [v.dtype if isinstance(v, np.ndarray) else None for v in inputs])
        special = None
        if not self.definition.special:
            special = next((v.dtype for v in inputs if _is_special(v)), None)
            inputs = [dtypes.widen(v) if _is_special(v) else v for v in inputs]
        try:
            with np.errstate(all="ignore"):
                result = self.definition.meaning(*inputs, **self.keywords)
        except HalfbyteError as error:
            raise type(error)(f"{self.where}: {error}") from error
        except MemoryError as error:
            raise OutOfMemoryError(f"{self.where}: {error} for {_described(inputs)}") from error
        except UNFIT as error:
            raise ProgramError(f"{self.where}: {error} for {_described(inputs)}") from error
        results = result if isinstance(result, tuple) else (result,)
        check_ranks(results, self.where)
        if special is not None:
            results = tuple(dtypes.narrow(r, special) if _is_float(r) else r for r in results)
        return results


def check_ranks(results: Iterable[Any], where: str) -> None:
    """Raise `ProgramError` where a result has more dimensions than an array here may have."""
    for result in results:
        rank = len(getattr(result, "shape", ()))
        if rank > MAX_RANK:
            raise ProgramError(f"{where}: {rank} dimensions, expected at most {MAX_RANK}")


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
