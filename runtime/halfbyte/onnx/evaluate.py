"""Running a graph node by node in NumPy, each node by its definition.

Complete and slow: the reference that programs (`capture`) are compared with.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

from halfbyte.core.interrupt import step
from halfbyte.errors import ProgramError
from halfbyte.onnx.calls import Call, bound
from halfbyte.onnx.files.model import Function, Graph, Model, Node, Reference
from halfbyte.onnx.reference import lookup
from halfbyte.onnx.reference.registry import Body

Values: TypeAlias = "ChainMap[str, Any]"
_OUTER: WeakKeyDictionary[Graph, frozenset[str]] = WeakKeyDictionary()
RunBody = Callable[[Graph, Sequence[Any], Values], list[Any]]
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
        self._calls: dict[int, tuple[Node, Call]] = {}  # by the identity of nodes, which stay

    def run(self, feeds: Mapping[str, Any], names: Sequence[str] | None = None) -> dict[str, Any]:
        """Values of the graph's outputs, or of those named (any value of the main graph)."""
        graph = self.model.graph
        wanted = [v.name for v in graph.outputs] if names is None else list(names)
        values: Values = ChainMap({"": None}, dict(feeds), graph.initializers)
        self._nodes(graph.nodes, values, self.model.opsets, set(wanted), self._observe)
        return {name: values[name] for name in wanted}

    def node(self, node: Node, values: Values, body: RunBody | None = None) -> None:
        """Run one node of the main graph; its outputs are put into `values`.

        `body` computes the outputs of a graph inside the node, from its inputs and `values`; by
        default it runs node by node as well.
        """
        self._node(node, values, self.model.opsets, body)

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

    def _node(
        self, node: Node, values: Values, opsets: Mapping[str, int], body: RunBody | None = None
    ) -> None:
        step()
        function = self.model.functions.get((node.domain, node.op_type, node.overload))
        try:
            inputs = [values[name] for name in node.inputs]
        except KeyError as error:
            raise ProgramError(f"{self.path}: {node}: no value {error} before it") from None
        if function is not None:
            results: Sequence[Any] = self._function(function, node, inputs)
        else:
            results = self._call(node, inputs, values, opsets, body)
        self._store(node, results, values)

    def _store(self, node: Node, results: Sequence[Any], values: Values) -> None:
        if len(results) < len(node.outputs):
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
        self,
        node: Node,
        inputs: list[Any],
        values: Values,
        opsets: Mapping[str, int],
        body: RunBody | None,
    ) -> Sequence[Any]:
        def bind(graph: Graph) -> Body:
            if body is not None:
                return Bound(graph, lambda inputs: body(graph, inputs, values))
            return Bound(graph, lambda inputs: self._body(graph, inputs, values, opsets))

        return self._bound(node, opsets, bind)(inputs)

    def _bound(
        self,
        node: Node,
        opsets: Mapping[str, int],
        bind: Callable[[Graph], Body] = lambda graph: Bound(graph, list),
    ) -> Call:
        where = f"{self.path}: {node}"
        version = node.version or opsets.get(node.domain, 1)
        definition = lookup(node.domain, node.op_type, version, where)
        opset = opsets.get("", 1) if node.domain else version
        return bound(definition, node, opset, bind, where)

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
    names = set(node.inputs)
    names.discard("")
    for graph in node.graphs:
        if graph not in _OUTER:  # many passes ask, and a graph inside a node never changes
            _OUTER[graph] = frozenset(outer_names(graph))
        names |= _OUTER[graph]
    return names


def outer_names(graph: Graph) -> set[str]:
    """Values that a subgraph takes from the graphs around it."""
    known = set(graph.initializers) | {v.name for v in graph.inputs}
    used: set[str] = set()
    for node in graph.nodes:
        used |= used_names(node) - known
        known.update(node.outputs)
    return used | ({v.name for v in graph.outputs} - known)


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
