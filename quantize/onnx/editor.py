"""A model's graphs while they are rewritten: what is constant, what nodes become, what is left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx.inliner
import onnx.version_converter
from onnx import GraphProto, NodeProto, TensorProto, helper

from halfbyte.errors import UnsupportedError
from halfbyte.quantize.onnx.model_writer import Payload
from halfbyte.quantize.onnx.source import Source

MICROSOFT = "com.microsoft"
TYPES: dict[int, str] = {
    TensorProto.FLOAT: "F32", TensorProto.FLOAT16: "F16", TensorProto.BFLOAT16: "BF16",
    TensorProto.DOUBLE: "F64",
}  # fmt: skip
"""Names of the types that weights have."""

CHUNK = 1 << 24  # bytes copied at once
CHAIN = ("Identity", "Transpose", "Cast")
"""Nodes between a constant and what reads it."""


class Scope:
    """One graph, and the graphs around it whose values it sees."""

    def __init__(self, graph: GraphProto, outer: Scope | None, overridable: set[str]) -> None:
        self.graph, self.outer = graph, outer
        self.tensors = {t.name: t for t in graph.initializer if t.name not in overridable}
        self.producers = {name: node for node in graph.node for name in node.output if name}
        for node in graph.node:
            if node.op_type == "Constant" and node.domain in ("", "ai.onnx"):
                made = constant_value(node)
                if made is not None:
                    self.tensors[node.output[0]] = made

    def constant(self, name: str) -> TensorProto | None:
        """The tensor of that name, if it is one that nobody can replace."""
        scope: Scope | None = self
        while scope is not None:
            found: TensorProto | None = scope.tensors.get(name)
            if found is not None:
                return found
            scope = scope.outer
        return None

    def producer(self, name: str) -> NodeProto | None:
        """The node that makes a value."""
        scope: Scope | None = self
        while scope is not None:
            found: NodeProto | None = scope.producers.get(name)
            if found is not None:
                return found
            scope = scope.outer
        return None


@dataclass(frozen=True)
class Weight:
    """A constant as a node reads it: perhaps transposed, and of another type."""

    tensor: TensorProto
    transposed: bool
    data_type: int  # as it is read

    @property
    def name(self) -> str:
        """Of the tensor."""
        return self.tensor.name

    @property
    def shape(self) -> tuple[int, ...]:
        """As it is read."""
        dims = tuple(self.tensor.dims)
        return dims[::-1] if self.transposed else dims


class Editor:
    """A model that is being rewritten.

    New tensors go to the main graph, whose values every body of a loop or a branch sees.

    Parameters
    ----------
    source : Source
        Its model is changed in place. Functions are inlined.
    """

    def __init__(self, source: Source) -> None:
        if source.model.functions:
            source.model.CopyFrom(onnx.inliner.inline_local_functions(source.model))
        self.source = source
        self.model = source.model
        self.original = source.model
        self.payloads: dict[str, Payload] = {}
        self.added: set[str] = set()  # constants that were not there
        self._overridable = self._separate_inputs()
        self.refresh()

    def refresh(self) -> None:
        """Look at the graphs anew, after they were changed."""
        self.main = Scope(self.model.graph, None, self._overridable)
        self.scopes = [self.main, *_inner_scopes(self.main)]
        self._names = {name for s in self.scopes for name in _all_names(s.graph)}
        self._types: dict[str, onnx.TypeProto] | None = None

    def keep_original(self) -> None:
        """Remember the model as it is now, which does the same as the one that was read."""
        self.original = _clone(self.model)

    def readers(self) -> dict[str, list[NodeProto]]:
        """Nodes of the main graph by the values that they, or their bodies, read."""
        found: dict[str, list[NodeProto]] = {}
        for node in self.model.graph.node:
            for name in {name for name in node.input if name} | captured_names(node):
                found.setdefault(name, []).append(node)
        return found

    def _separate_inputs(self) -> set[str]:
        """Initializers that a caller may replace.

        Before version 4 of the format every initializer had to be an input too; there they are
        taken as constants.
        """
        graph, named = self.model.graph, {t.name for t in self.model.graph.initializer}
        both = {value.name for value in graph.input} & named
        if self.model.ir_version >= 4:
            return both
        inputs = [value for value in graph.input if value.name not in both]
        del graph.input[:]
        graph.input.extend(inputs)
        return set()

    @property
    def types(self) -> dict[str, onnx.TypeProto]:
        """Types of values, as far as ONNX's inference finds them."""
        if self._types is None:
            self._types = value_types(self.model)
        return self._types

    @property
    def overridable(self) -> set[str]:
        """Initializers that are inputs too."""
        return self._overridable

    def opset(self, domain: str = "") -> int:
        """The version of a domain, 0 where it is not imported."""
        wanted = ("", "ai.onnx") if domain == "" else (domain,)
        return max((o.version for o in self.model.opset_import if o.domain in wanted), default=0)

    def import_microsoft(self) -> None:
        """Declare ONNX Runtime's own operators."""
        if not self.opset(MICROSOFT):
            self.model.opset_import.append(helper.make_opsetid(MICROSOFT, 1))

    def fresh(self, name: str) -> str:
        """A name that nothing has yet."""
        made, count = name, 1
        while made in self._names:
            count += 1
            made = f"{name}_{count}"
        self._names.add(made)
        return made

    def weight(self, scope: Scope, name: str) -> Weight | None:
        """The constant that a value is: itself, or transposed (a matrix), cast or copied."""
        transposed, data_type = False, None
        if not name:
            return None
        for _ in range(8):
            tensor = scope.constant(name)
            if tensor is not None:
                read = tensor.data_type if data_type is None else data_type
                if tensor.data_type not in TYPES or read not in TYPES:
                    return None
                return Weight(tensor, transposed, read)
            node = scope.producer(name)
            if node is None or node.op_type not in CHAIN or node.domain not in ("", "ai.onnx"):
                return None
            if node.op_type == "Transpose":
                if list(attribute(node, "perm", [1, 0])) != [1, 0]:
                    return None
                transposed = not transposed
            elif node.op_type == "Cast" and data_type is None:
                data_type = attribute(node, "to", 0)
            name = input_of(node, 0)
        return None

    def add(self, name: str, array: npt.NDArray[Any]) -> str:
        """A small constant; returns its name."""
        made = onnx.numpy_helper.from_array(array, self.fresh(name))
        self.model.graph.initializer.append(made)
        self.main.tensors[made.name] = made
        self.added.add(made.name)
        return made.name

    def add_payload(self, name: str, data_type: int, shape: Sequence[int], made: Payload) -> str:
        """A constant whose numbers are made while they are written; returns its name."""
        tensor = TensorProto(name=self.fresh(name), data_type=data_type, dims=shape)
        self.model.graph.initializer.append(tensor)
        self.main.tensors[tensor.name] = tensor
        self.added.add(tensor.name)
        self.payloads[tensor.name] = made
        return tensor.name

    def prune(self) -> None:
        """Remove constants that nothing reads any more, and nodes that only passed them on."""
        self.refresh()
        bodies = [scope.graph for scope in self.scopes]
        reads = Counter(name for graph in bodies for name in _read_names(graph))
        for graph in reversed(bodies):
            kept = []
            for node in reversed(graph.node):
                passes_on = node.op_type in ("Constant", *CHAIN) and _is_standard(node)
                if passes_on and not any(reads[name] for name in node.output):
                    reads.subtract(node.input)
                else:
                    kept.append(node)
            replace_nodes(graph, kept[::-1])
            tensors = [t for t in graph.initializer if reads[t.name] or t.name in self.overridable]
            del graph.initializer[:]
            graph.initializer.extend(tensors)
            there = set(_all_names(graph))
            values = [value for value in graph.value_info if value.name in there]
            del graph.value_info[:]
            graph.value_info.extend(values)
        self.refresh()

    def finish(self) -> None:
        """Declare the versions that the model needs now."""
        needed = helper.find_min_ir_version_for(self.model.opset_import, ignore_unknown=True)
        self.model.ir_version = max(self.model.ir_version, needed, 4)

    def write_payloads(self) -> dict[str, Payload]:
        """The numbers of all large initializers: those that were made, and those that stay."""
        kept = {
            t.name: self._copied(t)
            for t in self.model.graph.initializer
            if t.name in self.source.bulk and t.name not in self.payloads
        }
        names = {t.name for t in self.model.graph.initializer}
        return {n: self._checked(p) for n, p in (kept | self.payloads).items() if n in names}

    def _checked(self, payload: Payload) -> Payload:
        """Its numbers, of a source that nobody changes before they are made, or after."""

        def parts() -> Iterator[npt.NDArray[Any]]:
            self.source.file.check()
            for part in payload.parts():
                yield part
                self.source.file.check()

        return Payload(payload.size, parts)

    def _copied(self, tensor: TensorProto) -> Payload:
        data = self.source.bulk[tensor.name]

        def parts() -> Iterator[npt.NDArray[Any]]:
            for first in range(0, data.size, CHUNK):
                yield data[first : first + CHUNK]
                self.source.file.forget()

        return Payload(data.size, parts)


def inner_graphs(node: NodeProto) -> list[GraphProto]:
    """The bodies of a node: of a branch, a loop, a scan."""
    found = []
    for item in node.attribute:
        found += [item.g] if item.HasField("g") else []
        found += item.graphs
    return found


def captured_names(node: NodeProto) -> set[str]:
    """Names that the bodies of a node read, their own among them."""
    names: set[str] = set()
    pending = inner_graphs(node)
    while pending:
        graph = pending.pop()
        names |= set(_read_names(graph))
        pending += [body for inner in graph.node for body in inner_graphs(inner)]
    return names


def _inner_scopes(scope: Scope) -> Iterator[Scope]:
    for node in scope.graph.node:
        for graph in inner_graphs(node):
            inner = Scope(graph, scope, set())
            yield inner
            yield from _inner_scopes(inner)


def _all_names(graph: GraphProto) -> Iterator[str]:
    yield from (t.name for t in graph.initializer)
    yield from (v.name for v in (*graph.input, *graph.output))
    for node in graph.node:
        yield from (node.name, *node.input, *node.output)


def _read_names(graph: GraphProto) -> Iterator[str]:
    """Names that the nodes of a graph read, and its outputs; not those of its bodies."""
    for node in graph.node:
        yield from filter(None, node.input)
    yield from (value.name for value in graph.output)


def _is_standard(node: NodeProto) -> bool:
    return node.domain in ("", "ai.onnx")


def is_op(node: NodeProto | None, *names: str) -> bool:
    """Whether a node is one of ONNX's own operators of these names."""
    return node is not None and node.op_type in names and _is_standard(node)


def input_of(node: NodeProto, index: int) -> str:
    """The name of an input; '' where there is none."""
    return str(node.input[index]) if index < len(node.input) else ""


def attribute(node: NodeProto, name: str, default: Any = None) -> Any:
    """An attribute's value."""
    for item in node.attribute:
        if item.name == name:
            return helper.get_attribute_value(item)
    return default


def constant_value(node: NodeProto) -> TensorProto | None:
    """The tensor of a Constant node, under the name of its output; None of other kinds."""
    for item in node.attribute:
        if item.name == "value":
            made = TensorProto()
            made.CopyFrom(item.t)
        elif item.name in ("value_float", "value_floats"):
            values = np.array(helper.get_attribute_value(item), np.float32)
            made = onnx.numpy_helper.from_array(values)
        elif item.name in ("value_int", "value_ints"):
            made = onnx.numpy_helper.from_array(
                np.array(helper.get_attribute_value(item), np.int64)
            )
        else:
            continue
        made.name = node.output[0]
        return made
    return None


def replace_nodes(graph: GraphProto, nodes: Iterable[NodeProto]) -> None:
    """Give a graph other nodes, which may be some of its own."""
    kept = [_copy(node) for node in nodes]
    del graph.node[:]
    graph.node.extend(kept)


def _copy(node: NodeProto) -> NodeProto:
    made = NodeProto()
    made.CopyFrom(node)
    return made


def _clone(model: onnx.ModelProto) -> onnx.ModelProto:
    made = onnx.ModelProto()
    made.CopyFrom(model)
    return made


def value_types(model: onnx.ModelProto) -> dict[str, onnx.TypeProto]:
    """Types of values as far as ONNX's inference finds them; bodies' values are among them."""
    try:
        found = onnx.shape_inference.infer_shapes(model, data_prop=True)
    except (RuntimeError, ValueError):  # what cannot be inferred is not known
        found = model
    types: dict[str, onnx.TypeProto] = {}
    graphs = [found.graph]
    while graphs:
        graph = graphs.pop()
        for value in (*graph.input, *graph.value_info, *graph.output):
            types[value.name] = value.type
        for node in graph.node:
            graphs += inner_graphs(node)
    return types


def element_type(types: dict[str, onnx.TypeProto], name: str) -> int:
    """The type of a tensor's elements; 0 where it is not known, or no tensor."""
    return types[name].tensor_type.elem_type if name in types else 0


def raise_opset(editor: Editor, version: int, why: str) -> None:
    """Rewrite a model for a newer version of the standard operators.

    Raises
    ------
    UnsupportedError
        ONNX's converter cannot.
    """
    if editor.opset() >= version:
        return
    model, path = editor.model, editor.source.path
    before = _clone(model)
    large = [t for t in before.graph.initializer if t.name in editor.source.bulk]
    del model.graph.initializer[:]
    model.graph.initializer.extend(
        t for t in before.graph.initializer if t.name not in editor.source.bulk
    )
    inputs = {value.name for value in before.graph.input}
    model.graph.input.extend(
        helper.make_tensor_value_info(t.name, t.data_type, list(t.dims))
        for t in large
        if t.name not in inputs
    )
    model.ir_version = max(model.ir_version, 4)
    del model.graph.value_info[:]
    try:
        model.CopyFrom(onnx.version_converter.convert_version(model, version))
    except (RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0][:200]
        raise UnsupportedError(
            f"{path}: {why} needs opset {version}, the model has {editor.opset()}, and it cannot "
            f"be converted: {reason}"
        ) from None
    for values, originals in ((model.graph.input, before.graph.input),
                              (model.graph.output, before.graph.output)):  # fmt: skip
        del values[:]
        values.extend(originals)
    del model.graph.value_info[:]
    model.graph.initializer.extend(large)
    editor.refresh()
