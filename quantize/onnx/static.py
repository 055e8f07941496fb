"""Integer weights and activations with fixed scales, as QuantizeLinear and DequantizeLinear.

What is quantized is written as QDQ: each node stays as it is, between DequantizeLinear of its
inputs and QuantizeLinear of its output, which runtimes fuse to integer operators.

    products      Conv, Gemm and MatMul with constant weights: int8 a channel, biases int32 with the
                  products' scales
    arithmetic    Add, Mul, Concat, pooling ... between quantized values alone
    moves         MaxPool, Reshape, ...: values keep their scale

BatchNormalization behind a convolution is folded into its weights; Relu, and Clip from 0 on, behind
a node become the range of its output. Everything else runs in floats.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import NodeProto, TensorProto, helper

from halfbyte.quantize.onnx.calibrate import Calibration
from halfbyte.quantize.onnx.editor import Editor, Scope, Weight
from halfbyte.quantize.onnx.nodes import attribute, is_op
from halfbyte.quantize.onnx.recipe import Keep
from halfbyte.quantize.onnx.rewriter import CHANNELS, Rewriter, find_product
from halfbyte.quantize.onnx.weight_encoder import Encoder, Result

F32 = npt.NDArray[np.float32]

ARITHMETIC = frozenset(
    {
        "Add",
        "Mul",
        "Concat",
        "AveragePool",
        "GlobalAveragePool",
        "Relu",
        "Clip",
        "Sigmoid",
        "LeakyRelu",
    }
)
MOVES = frozenset({"MaxPool", "Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Slice",
                   "Identity", "Split"})  # fmt: skip
_CODES = {"uint8": (0, np.uint8), "int8": (-128, np.int8)}  # the lowest code, and its type


@dataclass
class _Step:
    """A node that is quantized, with what is absorbed into it."""

    node: NodeProto
    output: str  # what it makes in the end
    weight: Weight | None = None  # of a product


class Static(Rewriter):
    """Rewrites the main graph with fixed scales.

    Parameters
    ----------
    editor, encoder, keep
        See :class:`Rewriter`.
    calibration : Calibration
        Gives the ranges of values.
    activations : str
        "uint8" or "int8".
    """

    def __init__(
        self,
        editor: Editor,
        encoder: Encoder,
        keep: Keep,
        calibration: Calibration,
        *,
        activations: str = "uint8",
    ) -> None:
        super().__init__(editor, encoder, keep)
        self._calibration, self._activations = calibration, activations

    def _opset(self) -> int:
        return 13

    def _prepare(self) -> None:
        self._readers = self.editor.readers()
        self._outputs = {value.name for value in self.editor.model.graph.output}
        self._gone: set[str] = set()  # first outputs of nodes that are absorbed
        self._steps: dict[str, _Step] = {}  # by the first outputs of their nodes
        self._moves: set[str] = set()  # first outputs of nodes that move values
        self._find_steps()
        names = sorted(self._values())
        self._ranges = self._calibration.ranges(self.editor, names)
        self._shared: dict[str, str] = {}  # a moved value -> the one whose scale it has
        self._parameters: dict[str, tuple[str, str]] = {}
        self._dequantized: dict[str, str] = {}  # values from outside, after their rounding

    # ---- what is quantized ------------------------------------------------------------------

    def _find_steps(self) -> None:
        scope = self.editor.main
        self._inside: set[str] = set()  # values between quantized nodes
        for node in scope.graph.node:
            if node.output[0] in self._gone or self.keep.type_of(node.name) == "F32":
                continue
            if self._is_product(scope, node):
                product = find_product(self.editor, scope, node)
                weight = product.weight if product else self.editor.weight(scope, node.input[1])
                step = self._absorbed(_Step(node, node.output[0], weight=weight))
                self._steps[node.output[0]] = step
                if node.op_type == "Conv" or self._is_read_inside(step.output):
                    self._inside.add(step.output)
            elif is_op(node, *ARITHMETIC) and self._all_inside(node):
                self._steps[node.output[0]] = self._absorbed(_Step(node, node.output[0]))
                self._inside.add(self._steps[node.output[0]].output)
            elif is_op(node, *MOVES) and node.input[0] in self._inside and self._moves_all(node):
                self._moves.add(node.output[0])
                self._inside.update(node.output)

    def _moves_all(self, node: NodeProto) -> bool:
        """Whether all that a node gives are values that it was given: MaxPool gives indices too."""
        return node.op_type == "Split" or len(node.output) == 1

    def _is_product(self, scope: Scope, node: NodeProto) -> bool:
        if not is_op(node, "Conv", "Gemm", "MatMul") or attribute(node, "transA", 0):
            return False
        weight = self.editor.weight(scope, node.input[1])
        if weight is None or weight.data_type != TensorProto.FLOAT or 0 in weight.shape:
            return False
        if node.op_type == "Conv" and weight.transposed:
            return False
        if node.op_type != "Conv" and len(weight.shape) != 2:
            return False
        return bool(self._choose(node, weight, "int8"))

    def _all_inside(self, node: NodeProto) -> bool:
        return all(name in self._inside for name in _values_of(node))

    def _is_read_inside(self, name: str) -> bool:
        """Whether a product's result goes to a convolution or another product at once."""
        return any(is_op(node, "Conv", "Gemm", "MatMul") for node in self._readers.get(name, []))

    def _absorbed(self, step: _Step) -> _Step:
        """Take the activation behind a node into it."""
        node = self._only_reader(step.output)
        if node is not None and self._starts_at_zero(node):
            step.output = node.output[0]
            self._gone.add(node.output[0])
        return step

    def _only_reader(self, name: str) -> NodeProto | None:
        readers = self._readers.get(name, [])
        return readers[0] if len(readers) == 1 and name not in self._outputs else None

    def _starts_at_zero(self, node: NodeProto) -> bool:
        """Whether a node is Relu, or Clip from 0 on: then codes from the lowest one on do it."""
        if is_op(node, "Relu"):
            return True
        if not is_op(node, "Clip") or len(node.input) < 2 or not node.input[1]:
            return False
        low = self._numbers(node.input[1])
        return low is not None and low.size == 1 and float(low.reshape(-1)[0]) == 0

    def _numbers(self, name: str) -> F32 | None:
        """A small constant's numbers."""
        weight = self.editor.weight(self.editor.main, name)
        if weight is None:
            return None
        numbers = self.encoder.numbers(weight)
        return numbers.take(0, numbers.rows).reshape(-1)

    def _values(self) -> set[str]:
        """Values that need a range: inputs of quantized nodes, and what lies between these."""
        names = set(self._inside)
        for step in self._steps.values():
            names |= {step.node.input[0]}
        return names

    # ---- rewriting --------------------------------------------------------------------------

    def _rewritten(self, scope: Scope, node: NodeProto) -> list[NodeProto]:
        if scope is not self.editor.main:
            if is_op(node, *CHANNELS):
                self._dequantize(scope, node)
            return [node]
        if node.output[0] in self._gone:
            return []
        step = self._steps.get(node.output[0])
        if step is not None:
            return self._step(step)
        if node.output[0] in self._moves:
            return self._moved(node)
        if is_op(node, *CHANNELS):
            self._dequantize(scope, node)
        table = self._table(scope, node)
        return [node] if table is None else self._gather_codes(node, table, per_channel=True)

    def _step(self, step: _Step) -> list[NodeProto]:
        node, nodes = step.node, list[NodeProto]()
        made = NodeProto()
        made.CopyFrom(node)
        if step.weight is not None:
            made.input[0] = self._quantized(node.input[0], nodes)
            self._give_weights(step, step.weight, made)
        else:
            for index, name in enumerate(_values_of(node)):
                made.input[index] = self._quantized(name, nodes)
        nodes.append(made)
        if step.output in self._inside:
            made.output[0] = self._output(step.output, nodes)
        else:
            made.output[0] = step.output
        return nodes

    def _moved(self, node: NodeProto) -> list[NodeProto]:
        """A node that moves values: their scale stays."""
        made, nodes = NodeProto(), list[NodeProto]()
        made.CopyFrom(node)
        made.input[0] = self._quantized(node.input[0], nodes)
        nodes.append(made)
        source = self._shared.get(node.input[0], node.input[0])
        for index, name in enumerate(node.output):
            if name:
                self._shared[name] = source
                made.output[index] = self._output(name, nodes)
        return nodes

    def _output(self, name: str, nodes: list[NodeProto]) -> str:
        """Quantize what the node before makes, so that all read it rounded, under its own name.

        Returns the name under which the node makes it.
        """
        raw = self.editor.fresh(f"{name}_float")
        nodes += self._pair(raw, name, name)
        return raw

    def _quantized(self, name: str, nodes: list[NodeProto]) -> str:
        """A value as quantized nodes read it."""
        if name in self._inside:
            return name
        if name not in self._dequantized:
            self._dequantized[name] = self.editor.fresh(f"{name}_dequantized")
            nodes += self._pair(name, self._dequantized[name], name)
        return self._dequantized[name]

    def _pair(self, value: str, rounded: str, name: str) -> list[NodeProto]:
        """QuantizeLinear and DequantizeLinear with the scale of a value."""
        scale, zero = self._scale(name)
        codes = self.editor.fresh(f"{name}_quantized")
        return [
            helper.make_node("QuantizeLinear", [value, scale, zero], [codes]),
            helper.make_node("DequantizeLinear", [codes, scale, zero], [rounded]),
        ]

    def _scale(self, name: str) -> tuple[str, str]:
        """Names of a value's scale and zero point."""
        name = self._shared.get(name, name)
        if name not in self._parameters:
            scale, zero = self._numbers_of(name)
            self._parameters[name] = (
                self.editor.add(f"{name}_scale", np.array(scale)),
                self.editor.add(f"{name}_zero", zero),
            )
        return self._parameters[name]

    def _numbers_of(self, name: str) -> tuple[np.float32, npt.NDArray[Any]]:
        """Scale and zero point: 0 is a code, and the range is as long as all codes."""
        low, high = self._ranges[self._shared.get(name, name)]
        low, high = min(low, 0.0), max(high, 0.0)
        scale = np.float32((high - low) / 255)
        if not np.isfinite(scale) or scale < np.finfo(np.float32).tiny:
            scale = np.float32(1)
        lowest, dtype = _CODES[self._activations]
        zero = lowest + round(-low / float(scale))
        return scale, np.array(min(max(zero, lowest), lowest + 255), dtype)

    # ---- weights ----------------------------------------------------------------------------

    def _give_weights(self, step: _Step, weight: Weight, made: NodeProto) -> None:
        """A product's weights and bias."""
        conv = is_op(step.node, "Conv")
        by_rows = conv or (step.node.op_type == "Gemm" and bool(attribute(step.node, "transB", 0)))
        axis = 0 if by_rows != weight.transposed else 1
        result = self.encoder.channels(weight, axis, factor=self._factor(step.node))
        made.input[1] = self._weight(result, weight, axis)
        bias = self._bias(step.node, weight.shape[0 if by_rows else 1])
        if bias is not None:
            made.input[2] = self._stored_bias(step.node, bias, result)

    def _weight(self, result: Result, weight: Weight, axis: int) -> str:
        """A weight in floats again, before everything else."""
        codes, scales = result.names  # ONNX Runtime fuses Gemm only beside a zero point
        key = f"{codes}{weight.transposed}"
        if key not in self._made:
            name = self.editor.fresh(f"{weight.name}_dequantized")
            if weight.transposed:
                turned = self.editor.fresh(f"{codes}_transposed")
                self._first.append(helper.make_node("Transpose", [codes], [turned], perm=[1, 0]))
                codes, axis = turned, 1 - axis
            zeros = self.editor.add(f"{weight.name}_zero", np.zeros(result.scales.shape, np.int8))
            self._first.append(
                helper.make_node("DequantizeLinear", [codes, scales, zeros], [name], axis=axis)
            )
            self._made[key] = name
        return self._made[key]

    def _bias(self, node: NodeProto, size: int) -> F32 | None:
        """A constant bias [size], or None."""
        there = len(node.input) > 2 and bool(node.input[2]) and node.op_type != "MatMul"
        bias = self._numbers(node.input[2]) if there else None
        scaled = attribute(node, "beta", 1.0) != 1 or attribute(node, "alpha", 1.0) != 1
        if bias is None or bias.size not in (1, size) or scaled:
            return None
        return np.broadcast_to(bias, (size,)).astype(np.float32)

    def _stored_bias(self, node: NodeProto, bias: F32, result: Result) -> str:
        """A bias in int32 with the scales of the sums; in floats where it is too large."""
        scale, _ = self._numbers_of(node.input[0])
        scales = np.broadcast_to(result.scales * scale, bias.shape).astype(np.float32)
        name = f"{result.weight.name}_bias"
        with np.errstate(all="ignore"):
            codes = np.rint(bias.astype(np.float64) / scales)
        if not np.all(np.abs(codes) < 2**31 - 1):
            return self.editor.add(name, bias)
        stored = self.editor.add(f"{name}_quantized", codes.astype(np.int32))
        factors = self.editor.add(f"{name}_scale", scales)
        made = self.editor.fresh(f"{name}_dequantized")
        self._first.append(helper.make_node("DequantizeLinear", [stored, factors], [made], axis=0))
        return made


def _values_of(node: NodeProto) -> list[str]:
    """Inputs of arithmetic that are values; Clip's others are its limits."""
    return list(node.input[:1] if node.op_type == "Clip" else node.input)
