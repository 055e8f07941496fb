"""float16 for weights and values, with islands of float32 where the type does not suffice.

A node computes in float32, with casts of its inputs and outputs, where

    - ONNX defines the operator for float32 only, by its schema,
    - it has a subgraph, or its operator is of a domain that is not known here,
    - one of its values, on the samples, is beyond float16's range or entirely below it,
    - one of its constants is, or rounding would lose more than a hundredth of it,
    - a logarithm reads its result, which may be too small for float16 (`spectra`),
    - ONNX Runtime does not compute it in float16 (scattered sums),
    - ``--keep NODE=fp32`` asks for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper

from halfbyte.quantize.encode import Codec
from halfbyte.quantize.onnx.editor import Editor, Weight
from halfbyte.quantize.onnx.nodes import (
    attribute,
    captured_names,
    element_type,
    inner_graphs,
    is_op,
    replace_nodes,
)
from halfbyte.quantize.onnx.numbers import Numbers
from halfbyte.quantize.onnx.recipe import Keep
from halfbyte.quantize.onnx.rewriter import Rewriter
from halfbyte.quantize.onnx.spectra import Spectra
from halfbyte.quantize.onnx.weight_encoder import Encoder
from halfbyte.weights import F16

FLOAT, HALF = TensorProto.FLOAT, TensorProto.FLOAT16
MAX = 65504.0
_MIN = 2.0**-14  # the smallest normal number
_MAX_LOSS = 0.01  # of a constant by rounding, relative
_SMALL = 256  # elements of constants that islands keep in float32
_MAX_REASONS = 8  # in the report
# Operators whose sums and products ONNX Runtime refuses to compute in float16
_SCATTERED = ("ScatterElements", "ScatterND")
# Operators whose attribute names the type of the result
_TYPED = {"Cast": "to"}
# Operators of ONNX Runtime with float16 for all inputs and outputs
_MICROSOFT = frozenset({
    "SkipLayerNormalization", "SkipSimplifiedLayerNormalization", "EmbedLayerNormalization",
    "BiasGelu", "FastGelu", "Gelu", "QuickGelu", "FusedMatMul", "FusedConv", "Attention",
    "MultiHeadAttention", "RotaryEmbedding",
})  # fmt: skip


class Float16(Rewriter):
    """Rewrites the main graph to float16; bodies compute in float32, and their weights are F16.

    Parameters
    ----------
    editor, encoder, keep
        See :class:`Rewriter`.
    tops : mapping
        Name of a value -> its largest magnitude, where it is known.
    io : bool
        Whether inputs and outputs of the graph become float16 as well.
    """

    def __init__(
        self,
        editor: Editor,
        encoder: Encoder,
        keep: Keep,
        tops: Mapping[str, float],
        *,
        io: bool = False,
    ) -> None:
        super().__init__(editor, encoder, keep)
        self.tops, self.io = tops, io
        self.islands: dict[str, str] = {}  # first output of a node -> reason for float32

    def _opset(self) -> int:
        return 7

    def run(self) -> None:
        """Rewrite the main graph."""
        graph = self.editor.model.graph
        self._types: dict[str, int] = {}  # of values as computed now, FLOAT or HALF
        self._names: dict[tuple[str, int], str] = {}  # a value in another type
        self._captured = {name for node in graph.node for name in captured_names(node)}
        self._kept = {value.name for value in graph.output} | self._captured
        self._losses: dict[str, str] = {}
        self.spectra = Spectra(self.editor.main)
        nodes: list[NodeProto] = []
        for value in graph.input:
            self._input(value)
        for node in graph.node:
            self._convert(node, nodes)
        for value in graph.output:
            if self.io and value.type.tensor_type.elem_type == FLOAT:
                value.type.tensor_type.elem_type = HALF
        self._narrow_bodies()
        replace_nodes(graph, [*self._first, *nodes])
        del graph.value_info[:]
        self.editor.prune()
        self._remark()

    def _narrow_bodies(self) -> None:
        """Store the weights that bodies read in float16, with casts before all nodes."""
        for scope in self.editor.scopes[1:]:
            for node in scope.graph.node:
                for index, name in enumerate(node.input):
                    weight = self.editor.weight(scope, name) if name else None
                    if weight is None or weight.tensor.data_type != FLOAT:
                        continue
                    size = int(np.prod(weight.shape, dtype=np.int64))
                    if size > _SMALL and not self._loss_of(weight):
                        node.input[index] = self._value(self.encoder.narrowed(weight, HALF), weight)

    def _remark(self) -> None:
        """Report how many nodes compute in float32, and why."""
        for reason, count in Counter(self.islands.values()).most_common(_MAX_REASONS):
            nodes = "node computes" if count == 1 else "nodes compute"
            self.remarks.append(f"{count} {nodes} in float32: {reason}")

    # ---- nodes ------------------------------------------------------------------------------

    def _convert(self, node: NodeProto, nodes: list[NodeProto]) -> None:
        if node.op_type == "Constant":
            nodes.append(node)
            return
        reason = self._reason(node)
        data_type = FLOAT if reason else HALF
        floats = any(self._gives_float(node, i) for i, name in enumerate(node.output) if name)
        if reason and (floats or any(name in self._types for name in node.input)):
            self.islands[node.output[0]] = reason
        for index, name in enumerate(node.input):
            if name:
                slot = data_type if self._takes_half(node, index) else FLOAT
                node.input[index] = self._as(name, slot, nodes, exact=node in self.spectra)
        self._set_type(node, data_type)
        nodes.append(node)
        for index, name in enumerate(node.output):
            if name and self._gives_float(node, index):
                computed = data_type if self._gives_half(node, index) else FLOAT
                self._give(node, index, computed, nodes)

    def _give(self, node: NodeProto, index: int, data_type: int, nodes: list[NodeProto]) -> None:
        """Note the type of an output; graph outputs and values that bodies read keep theirs."""
        name = node.output[index]
        outer = HALF if self.io and name not in self._captured else FLOAT
        if name not in self._kept or data_type == outer:
            self._types[name] = data_type
            return
        inner = self.editor.fresh(f"{name}_{_suffix(data_type)}")
        node.output[index] = inner
        nodes.append(helper.make_node("Cast", [inner], [name], to=outer))
        self._types[name], self._types[inner] = outer, data_type
        self._names[name, data_type] = inner

    def _input(self, value: onnx.ValueInfoProto) -> None:
        if value.type.tensor_type.elem_type != FLOAT:
            return
        if (
            self.io
            and value.name not in self._captured
            and value.name not in self.editor.overridable
        ):
            value.type.tensor_type.elem_type = HALF
            self._types[value.name] = HALF
        else:
            self._types[value.name] = FLOAT

    def _as(self, name: str, data_type: int, nodes: list[NodeProto], *, exact: bool) -> str:
        """The name of a value in the type that a node takes; `exact` constants stay float32."""
        if self.editor.main.constant(name) is not None:
            return self._constant(name, data_type, exact=exact)
        current = self._types.get(name)
        if current is None or current == data_type:
            return name
        if (name, data_type) not in self._names:
            cast = self.editor.fresh(f"{name}_{_suffix(data_type)}")
            nodes.append(helper.make_node("Cast", [name], [cast], to=data_type))
            self._names[name, data_type] = cast
        return self._names[name, data_type]

    def _constant(self, name: str, data_type: int, *, exact: bool) -> str:
        weight = self.editor.weight(self.editor.main, name)
        if weight is None or weight.tensor.data_type != FLOAT or weight.transposed:
            return name
        size = int(np.prod(weight.shape, dtype=np.int64))
        kept = exact or self.keep.type_of(weight.name) == "F32"
        if data_type == FLOAT and (kept or size <= _SMALL or self._loss(name)):
            return name
        if size == 0:
            return name
        if size == 1 and data_type == HALF:
            if (name, HALF) not in self._names:
                value = self.encoder.numbers(weight).take(0, 1).astype(np.float16)
                self._names[name, HALF] = self.editor.add(
                    f"{name}_f16", value.reshape(weight.shape)
                )
            return self._names[name, HALF]
        result = self.encoder.narrowed(weight, HALF)
        return result.names[0] if data_type == HALF else self._value(result, weight)

    def _set_type(self, node: NodeProto, data_type: int) -> None:
        """Update the attribute that names the type of the result."""
        for item in node.attribute:
            if item.name == _TYPED.get(node.op_type) and item.i == FLOAT and data_type == HALF:
                item.i = HALF

    # ---- which nodes ------------------------------------------------------------------------

    def _reason(self, node: NodeProto) -> str:
        """The reason why a node computes in float32; '' where it does not."""
        if self.keep.type_of(node.name) == "F32":
            return "--keep"
        if inner_graphs(node):
            return "it has a subgraph"
        if node in self.spectra:
            return "a logarithm reads the spectrum"
        for name in (*node.input, *node.output):
            top = self.tops.get(name)
            if top is not None and top > MAX:
                return f"values up to {top:.3g}"
            if top is not None and 0 < top < _MIN:
                return f"values no larger than {top:.3g}"
            if name and self._loss(name):
                return self._loss(name)
        if not self._is_defined(node):
            return "the operator takes no float16"
        return ""

    def _loss(self, name: str) -> str:
        """What float16 would lose of a constant; '' where that is acceptable."""
        weight = self.editor.weight(self.editor.main, name) if name else None
        return "" if weight is None else self._loss_of(weight)

    def _loss_of(self, weight: Weight) -> str:
        if weight.tensor.data_type != FLOAT or 0 in weight.shape:
            return ""
        if self.keep.type_of(weight.name) == "F32":
            return f"{weight.name} is kept"
        if weight.name not in self._losses:
            reason = _loss_of(self.encoder.numbers(weight), self.encoder.codec)
            self._losses[weight.name] = reason
            if reason:
                self.notes[weight.name] = reason
        return self._losses[weight.name]

    def _gives_float(self, node: NodeProto, index: int) -> bool:
        """Whether an output is float32 in the original model."""
        name = node.output[index]
        known = element_type(self.editor.types, name)
        if known or name in self.tops:
            return known in (0, FLOAT)
        read = [i for i, one in enumerate(node.input) if one in self._types]
        schema = self._schema(node)
        if schema is None:
            return index == 0 and bool(read)
        formal = _formal(schema.outputs, index).type_str
        return any(_formal(schema.inputs, i).type_str == formal for i in read)

    def _is_defined(self, node: NodeProto) -> bool:
        """Whether an operator is defined for float16: for its outputs, and for an input."""
        if node.domain == "com.microsoft":
            return node.op_type in _MICROSOFT
        schema = self._schema(node)
        if schema is None or any(a.name == "dtype" for a in node.attribute):
            return False
        if is_op(node, *_SCATTERED) and attribute(node, "reduction", b"none") != b"none":
            return False
        if node.op_type == "ConstantOfShape" or "dtype" in schema.attributes:
            return False
        floats = [i for i, name in enumerate(node.output) if name and self._gives_float(node, i)]
        read = [i for i, name in enumerate(node.input) if self._types.get(name) is not None]
        return all(self._gives_half(node, i) for i in floats[:1]) and (
            not read or any(self._takes_half(node, i) for i in read)
        )

    def _schema(self, node: NodeProto) -> onnx.defs.OpSchema | None:
        try:
            return onnx.defs.get_schema(node.op_type, self.editor.opset(node.domain), node.domain)
        except onnx.defs.SchemaError:
            return None

    def _takes_half(self, node: NodeProto, index: int) -> bool:
        schema = self._schema(node)
        if schema is None:
            return node.domain == "com.microsoft"
        return _allows_half(schema, _formal(schema.inputs, index))

    def _gives_half(self, node: NodeProto, index: int) -> bool:
        schema = self._schema(node)
        if schema is None:
            return node.domain == "com.microsoft"
        return _allows_half(schema, _formal(schema.outputs, index))


def _formal(
    parameters: Sequence[onnx.defs.OpSchema.FormalParameter], index: int
) -> onnx.defs.OpSchema.FormalParameter:
    """The parameter of an index; the last one may be variadic."""
    return parameters[min(index, len(parameters) - 1)]


def _allows_half(schema: onnx.defs.OpSchema, formal: onnx.defs.OpSchema.FormalParameter) -> bool:
    for constraint in schema.type_constraints:
        if constraint.type_param_str == formal.type_str:
            return "tensor(float16)" in constraint.allowed_type_strs
    return formal.type_str == "tensor(float16)"


def _loss_of(numbers: Numbers, codec: Codec) -> str:
    """Why numbers should not be float16; infinities do not count, since float16 has them."""
    energy, top = np.zeros(2), 0.0
    for _, x in numbers.slices():
        if not np.isfinite(x).all():
            x = np.where(np.isfinite(x), x, np.float32(0))
        top = max(top, float(x.max(initial=0)), -float(x.min(initial=0)))
        if top > MAX:
            return f"values up to {top:.3g}"
        decoded = codec.decode(F16, codec.encode(F16, x), x.shape[1])
        energy += codec.square_error(x, decoded)
    if energy[1] > _MAX_LOSS**2 * energy[0] or (top > 0 and not energy[0]):
        return f"values no larger than {top:.3g} lose their digits"
    return ""


def _suffix(data_type: int) -> str:
    return "f16" if data_type == HALF else "f32"
