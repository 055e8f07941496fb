"""The original and the quantized graph in one, with a switch for each layer.

A layer is a value that both graphs compute, each by nodes of its own, from values that both have:

    value = exact + gate (rounded - exact)

`gate` is an input of the merged model, 0 or 1; both sides read values that have gates themselves.
With all gates at 1 the model computes what the quantized one does, with all at 0 what the original
does, and it is prepared once for any choice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper

from halfbyte.onnx.files import open_onnx
from halfbyte.quantize.onnx.editor import Editor
from halfbyte.quantize.onnx.nodes import captured_names, clone, element_type, value_types
from halfbyte.quantize.onnx.running import Running, row_of, sums_of
from halfbyte.quantize.onnx.samples import Feeds
from halfbyte.quantize.onnx.source import read_source


@dataclass(frozen=True)
class Layer:
    """A value that the quantized graph computes in another way than the original.

    Attributes
    ----------
    value : str
    covered : tuple of str
        Outputs of the original's nodes that compute it.
    label : str
        Name and operators of these nodes.
    weights : int
        Numbers of the constants that these nodes read.
    """

    value: str
    covered: tuple[str, ...]
    label: str
    weights: int


class Gates:
    """A merged model.

    Parameters
    ----------
    editor : Editor
        After its rewriter has run: knows the original.
    written : Path
        The quantized model.
    """

    def __init__(self, editor: Editor, written: Path) -> None:
        quantized = read_source(written)
        proto, after = clone(editor.original), quantized.model.graph
        types = value_types(proto)
        old, new = _Producers(proto.graph), _Producers(after)
        shared = {*old.nodes.keys() & new.nodes.keys(), *(v.name for v in proto.graph.input)}
        sizes = {t.name: int(np.prod(t.dims, dtype=np.int64)) for t in proto.graph.initializer}
        twins: dict[int, NodeProto] = {}
        self.layers: list[Layer] = []
        for node in proto.graph.node:
            for name in node.output:
                if name not in shared or element_type(types, name) != TensorProto.FLOAT:
                    continue
                exact, rounded = old.slice(name, shared), new.slice(name, shared)
                if [n.SerializeToString() for n in exact] == [
                    n.SerializeToString() for n in rounded
                ]:
                    continue
                self.layers.append(_layer(name, exact, sizes))
                twins |= {id(n): n for n in rounded}
        self._merge(proto, after, twins.values(), shared)
        bulk = editor.source.bulk | quantized.bulk
        for tensor in proto.graph.initializer:
            if tensor.name in bulk and not tensor.raw_data:
                tensor.data_location = TensorProto.EXTERNAL
                tensor.external_data.add(key="location", value=tensor.name)
        model = open_onnx(proto.SerializeToString(), name=str(editor.source.path), external=bulk)
        self._running = Running(model, mapped=[*editor.source.file.mapped, *quantized.file.mapped])

    def _merge(
        self,
        proto: ModelProto,
        after: GraphProto,
        twins: Iterable[NodeProto],
        shared: Collection[str],
    ) -> None:
        """Add the quantized graph's nodes, and gates, to the original."""
        graph, gated = proto.graph, {layer.value for layer in self.layers}
        for node in graph.node:
            node.output[:] = [f"{n}.exact" if n in gated else n for n in node.output]
        for node in twins:
            twin = clone(node)
            twin.output[:] = [f"{n}.rounded" if n in shared else n for n in node.output]
            graph.node.append(twin)
        for name in sorted(gated):
            gate = self._gate(name)
            graph.input.append(helper.make_tensor_value_info(gate, TensorProto.FLOAT, []))
            graph.node.extend([
                helper.make_node("Sub", [f"{name}.rounded", f"{name}.exact"], [f"{name}.noise"]),
                helper.make_node("Mul", [f"{name}.noise", gate], [f"{name}.gated"]),
                helper.make_node("Add", [f"{name}.exact", f"{name}.gated"], [name]),
            ])  # fmt: skip
        del graph.value_info[:]
        known = {tensor.name for tensor in graph.initializer}
        graph.initializer.extend(t for t in after.initializer if t.name not in known)

    @staticmethod
    def _gate(name: str) -> str:
        return f"{name}.gate"

    def run(self, feeds: Feeds, rounded: Collection[str]) -> dict[str, object]:
        """The outputs with the layers of these values rounded."""
        gates = {
            self._gate(layer.value): np.array(layer.value in rounded, np.float32)
            for layer in self.layers
        }
        return self._running({**feeds, **gates})

    def losses(
        self, samples: Sequence[tuple[Feeds, dict[str, object]]], rounded: Collection[str]
    ) -> dict[str, float]:
        """1 - cosine of each output to the original's, over pairs of inputs and exact outputs."""
        sums = {name: np.zeros(5) for name in self._running.names}
        for feeds, exact in samples:
            outputs = self.run(feeds, rounded)
            for name in sums:
                sums[name] += sums_of(exact[name], outputs[name])
        return {name: row_of(name, one).loss for name, one in sums.items() if one.any()}

    def close(self) -> None:
        """Stop the threads."""
        self._running.close()


class _Producers:
    """The nodes of a graph by the values that they compute."""

    def __init__(self, graph: GraphProto) -> None:
        self.nodes = {name: node for node in graph.node for name in node.output if name}

    def slice(self, name: str, ends: Collection[str]) -> list[NodeProto]:
        """The nodes that compute a value from those of `ends`, the last first."""
        nodes: dict[int, NodeProto] = {}
        pending = [name]
        while pending:
            node = self.nodes.get(pending.pop())
            if node is None or id(node) in nodes:
                continue
            nodes[id(node)] = node
            reads = (*node.input, *sorted(captured_names(node)))
            pending += [read for read in reads if read and read not in ends]
        return list(nodes.values())


def _layer(value: str, nodes: Sequence[NodeProto], sizes: dict[str, int]) -> Layer:
    computing = [node for node in nodes if node.op_type not in ("Constant", "Identity")]
    names = " + ".join(node.op_type for node in reversed(computing))
    label = next((node.name for node in reversed(computing) if node.name), value)
    return Layer(
        value,
        tuple(name for node in nodes for name in node.output if name),
        f"{label} ({names})",
        sum(sizes.get(name, 0) for node in nodes for name in node.input),
    )
