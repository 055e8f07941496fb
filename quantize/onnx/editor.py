"""A model while it is rewritten: its graphs, its constants, and new names and tensors.

A weight counts as a constant through copies, casts and transpositions of matrices. New tensors are
computed while the model is written (`Payload`), so an editor needs little memory for them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt
import onnx
import onnx.inliner
from onnx import GraphProto, NodeProto, TensorProto, helper

from halfbyte.quantize.onnx.model_writer import Payload
from halfbyte.quantize.onnx.nodes import (
    all_names,
    attribute,
    captured_names,
    clone,
    constant_value,
    inner_graphs,
    input_of,
    is_op,
    read_names,
    rename,
    replace_nodes,
    value_types,
)
from halfbyte.quantize.onnx.source import Source

MICROSOFT = "com.microsoft"
TYPES: dict[int, str] = {
    TensorProto.FLOAT: "F32", TensorProto.FLOAT16: "F16", TensorProto.BFLOAT16: "BF16",
    TensorProto.DOUBLE: "F64",
}  # fmt: skip
"""Names of the types that weights may have."""

CHUNK = 1 << 24  # bytes copied at once
CHAIN = ("Identity", "Transpose", "Cast")
"""Operators that may stand between a constant and its readers."""


class Scope:
    """A graph, and the graphs around it whose values it sees."""

    def __init__(self, graph: GraphProto, outer: Scope | None, overridable: set[str]) -> None:
        self.graph, self.outer = graph, outer
        self.tensors = {t.name: t for t in graph.initializer if t.name not in overridable}
        self.producers = {name: node for node in graph.node for name in node.output if name}
        for node in graph.node:
            if is_op(node, "Constant"):
                value = constant_value(node)
                if value is not None:
                    self.tensors[node.output[0]] = value

    def constant(self, name: str) -> TensorProto | None:
        """The tensor of that name, if there is one that a caller cannot replace."""
        return next((s.tensors[name] for s in self._outwards() if name in s.tensors), None)

    def producer(self, name: str) -> NodeProto | None:
        """The node that computes a value."""
        return next((s.producers[name] for s in self._outwards() if name in s.producers), None)

    def _outwards(self) -> Iterator[Scope]:
        """This scope, and those around it."""
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.outer


@dataclass(frozen=True)
class Weight:
    """A constant as a node reads it: it may be transposed, and of another type."""

    tensor: TensorProto
    transposed: bool
    data_type: int  # as it is read

    @property
    def name(self) -> str:
        """The name of the tensor."""
        return self.tensor.name

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape as it is read."""
        dims = tuple(self.tensor.dims)
        return dims[::-1] if self.transposed else dims


class Editor:
    """A model that is being rewritten.

    New tensors go to the main graph, whose values are visible in all bodies of loops and branches.

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
        self.added: set[str] = set()  # names of new constants
        self._overridable = self._separate_inputs()
        self.refresh()
        if _separate_constants(self.scopes, self.fresh):
            self.refresh()

    def refresh(self) -> None:
        """Read the graphs again, after a change."""
        self.main = Scope(self.model.graph, None, self._overridable)
        self.scopes = [self.main, *_inner_scopes(self.main)]
        self._names = {name for s in self.scopes for name in all_names(s.graph)}
        self._types: dict[str, onnx.TypeProto] | None = None

    def keep_original(self) -> None:
        """Remember the model as it is now: it still computes what the file's model computes."""
        self.original = clone(self.model)

    def readers(self) -> dict[str, list[NodeProto]]:
        """Nodes of the main graph by the values that they or their bodies read."""
        readers: dict[str, list[NodeProto]] = {}
        for node in self.model.graph.node:
            for name in {name for name in node.input if name} | captured_names(node):
                readers.setdefault(name, []).append(node)
        return readers

    def _separate_inputs(self) -> set[str]:
        """Initializers that a caller may replace.

        Before version 4 of the format every initializer had to be an input as well; these count as
        constants. So do those of newer files whose matrices are all inputs: exporters went on so.
        """
        graph, named = self.model.graph, {t.name for t in self.model.graph.initializer}
        both = {value.name for value in graph.input} & named
        matrices = {t.name for t in graph.initializer if t.data_type in TYPES and len(t.dims) > 1}
        if self.model.ir_version >= 4:
            if not matrices or not matrices <= both:
                return both
            self.source.notes.append(
                f"all {len(both)} initializers that are inputs too are taken as constants"
            )
        inputs = [value for value in graph.input if value.name not in both]
        del graph.input[:]
        graph.input.extend(inputs)
        return set()

    @property
    def types(self) -> dict[str, onnx.TypeProto]:
        """Types of values, as far as ONNX's inference knows them."""
        if self._types is None:
            self._types = value_types(self.model)
        return self._types

    @property
    def overridable(self) -> set[str]:
        """Initializers that are inputs as well."""
        return self._overridable

    def opset(self, domain: str = "") -> int:
        """The version of a domain; 0 where it is not imported."""
        names = ("", "ai.onnx") if domain == "" else (domain,)
        return max((o.version for o in self.model.opset_import if o.domain in names), default=0)

    def import_microsoft(self) -> None:
        """Declare ONNX Runtime's own operators."""
        if not self.opset(MICROSOFT):
            self.model.opset_import.append(helper.make_opsetid(MICROSOFT, 1))

    def fresh(self, name: str) -> str:
        """A name that is not in use yet."""
        unused, count = name, 1
        while unused in self._names:
            count += 1
            unused = f"{name}_{count}"
        self._names.add(unused)
        return unused

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
            if node is None or not is_op(node, *CHAIN):
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
        """Add a small constant; returns its name."""
        return self._add(onnx.numpy_helper.from_array(array, self.fresh(name)))

    def add_payload(self, name: str, data_type: int, shape: Sequence[int], payload: Payload) -> str:
        """Add a constant whose numbers are computed while they are written; returns its name."""
        tensor = TensorProto(name=self.fresh(name), data_type=data_type, dims=shape)
        self.payloads[tensor.name] = payload
        return self._add(tensor)

    def _add(self, tensor: TensorProto) -> str:
        self.model.graph.initializer.append(tensor)
        self.main.tensors[tensor.name] = tensor
        self.added.add(tensor.name)
        return tensor.name

    def prune(self) -> None:
        """Remove constants that are no longer read, and nodes that only passed them on."""
        self.refresh()
        bodies = [scope.graph for scope in self.scopes]
        reads = Counter(name for graph in bodies for name in read_names(graph))
        for graph in reversed(bodies):
            kept = []
            for node in reversed(graph.node):
                passes_on = is_op(node, "Constant", *CHAIN)
                if passes_on and not any(reads[name] for name in node.output):
                    reads.subtract(node.input)
                else:
                    kept.append(node)
            replace_nodes(graph, kept[::-1])
            tensors = [t for t in graph.initializer if reads[t.name] or t.name in self.overridable]
            del graph.initializer[:]
            graph.initializer.extend(tensors)
            names = set(all_names(graph))
            values = [value for value in graph.value_info if value.name in names]
            del graph.value_info[:]
            graph.value_info.extend(values)
        self.refresh()

    def finish(self) -> None:
        """Declare the version of the format that the model needs now."""
        needed = helper.find_min_ir_version_for(self.model.opset_import, ignore_unknown=True)
        self.model.ir_version = max(self.model.ir_version, needed, 4)

    def write_payloads(self) -> dict[str, Payload]:
        """The numbers of all large initializers, new ones and those that stay."""
        kept = {
            t.name: self._copied(t)
            for t in self.model.graph.initializer
            if t.name in self.source.bulk and t.name not in self.payloads
        }
        names = {t.name for t in self.model.graph.initializer}
        return {n: self._checked(p) for n, p in (kept | self.payloads).items() if n in names}

    def _checked(self, payload: Payload) -> Payload:
        """The payload, with a check before and after each part that the source has not changed."""

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


def _separate_constants(scopes: Sequence[Scope], fresh: Callable[[str], str]) -> bool:
    """Rename constants that have the name of another graph's, as two branches may have them."""
    known: set[str] = set()
    renamed = False
    for scope in scopes:
        names = {name: fresh(name) for name in scope.tensors if name in known}
        if names:
            rename(scope.graph, names)
            renamed = True
        known |= scope.tensors.keys()
    return renamed


def _inner_scopes(scope: Scope) -> Iterator[Scope]:
    for node in scope.graph.node:
        for graph in inner_graphs(node):
            inner = Scope(graph, scope, set())
            yield inner
            yield from _inner_scopes(inner)
