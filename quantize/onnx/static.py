"""Integer weights and activations with fixed scales, as QuantizeLinear and DequantizeLinear.

The result is in QDQ form: each quantized node stays as it is, between DequantizeLinear of its
inputs and QuantizeLinear of its output, which runtimes fuse to integer operators.

    products      Conv, Gemm and MatMul with constant weights: int8 per channel, biases in int32
                  with the products' scales
    arithmetic    Add, Mul, Concat, pooling ... if all operands are quantized
    moves         MaxPool, Reshape, ...: values keep their scale

BatchNormalization after a convolution is folded into its weights (`folding`). Relu, and Clip from
0, after a node become the range of its output. Everything else runs in floats, including the sums
of a transformer's residual. Gemm gets a zero point for its weights: ONNX Runtime fuses it only with
one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import NodeProto, TensorProto, helper

from halfbyte.quantize.onnx.calibrate import Calibration
from halfbyte.quantize.onnx.editor import Editor, Scope, Weight
from halfbyte.quantize.onnx.nodes import attribute, clone, input_of, is_op
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
_LOWEST = {"uint8": (0, np.uint8), "int8": (-128, np.int8)}  # quantized value, and its type


@dataclass
class _Step:
    """A node that is quantized, with the activation that is absorbed into it."""

    node: NodeProto
    output: str  # of the activation, if there is one
    weight: Weight | None = None  # of a product


class Static(Rewriter):
    """Rewrites the main graph with fixed scales.

    Parameters
    ----------
    editor, encoder, keep
        See :class:`Rewriter`.
    calibration : Calibration
        Provides the ranges of values.
    activations : str
        "uint8" or "int8".
    """

    first_level = 2  # the first one keeps the layer's result in floats

    def __init__(
        self,
        editor: Editor,
        encoder: Encoder,
        keep: Keep,
        calibration: Calibration,
        *,
        activations: str = "uint8",
        levels: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__(editor, encoder, keep, levels)
        self._calibration, self._activations = calibration, activations

    def _opset(self) -> int:
        return 13

    def _prepare(self) -> None:
        self._readers = self.editor.readers()
        self._outputs = {value.name for value in self.editor.model.graph.output}
        self._absorbed: set[str] = set()  # first outputs of absorbed nodes
        self._steps: dict[str, _Step] = {}  # by the first outputs of their nodes
        self._moves: set[str] = set()  # first outputs of nodes that only move values
        self._find_steps()
        names = sorted(self._values())
        self._ranges = self._calibration.ranges(self.editor, names)
        self._shared: dict[str, str] = {}  # a moved value -> the value whose scale it has
        self._parameters: dict[str, tuple[str, str]] = {}
        self._dequantized: dict[str, str] = {}  # values from outside -> the same, rounded

    # ---- choice of nodes --------------------------------------------------------------------

    def _find_steps(self) -> None:
        scope = self.editor.main
        self._inside: set[str] = set()  # values between quantized nodes
        self._floats = set(self.levels)  # values that are not rounded
        for node in scope.graph.node:
            if node.output[0] in self._absorbed or self.keep.type_of(node.name) == "F32":
                continue
            if self._is_float(node):
                continue
            if self._is_product(scope, node):
                product = find_product(self.editor, scope, node)
                weight = product.weight if product else self.editor.weight(scope, node.input[1])
                step = self._with_activation(_Step(node, node.output[0], weight=weight))
                self._steps[node.output[0]] = step
                if node.op_type == "Conv" or self._is_read_inside(step.output):
                    self._inside.add(step.output)
            elif is_op(node, *ARITHMETIC) and self._all_inside(node):
                self._steps[node.output[0]] = self._with_activation(_Step(node, node.output[0]))
                self._inside.add(self._steps[node.output[0]].output)
            elif is_op(node, *MOVES) and node.input[0] in self._inside and self._moves_all(node):
                self._moves.add(node.output[0])
                self._inside.update(node.output)

    def _is_float(self, node: NodeProto) -> bool:
        """Whether a node's values stay in floats; those that a node moves stay so after it."""
        if self._floats.isdisjoint((*node.output, *node.input)):
            return False
        if is_op(node, *MOVES):
            self._floats.update(node.output)
        return True

    def _moves_all(self, node: NodeProto) -> bool:
        """Whether all outputs of a node are moved values; MaxPool may return indices as well."""
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
        """Whether a convolution or another product reads a product's result directly."""
        return any(is_op(node, "Conv", "Gemm", "MatMul") for node in self._readers.get(name, []))

    def _with_activation(self, step: _Step) -> _Step:
        """Absorb the activation after a node, if it starts at zero."""
        node = self._only_reader(step.output)
        if node is not None and self._starts_at_zero(node):
            step.output = node.output[0]
            self._absorbed.add(node.output[0])
        return step

    def _only_reader(self, name: str) -> NodeProto | None:
        readers = self._readers.get(name, [])
        return readers[0] if len(readers) == 1 and name not in self._outputs else None

    def _starts_at_zero(self, node: NodeProto) -> bool:
        """Whether a node is Relu, or Clip from 0: then a range that starts at 0 replaces it."""
        if is_op(node, "Relu"):
            return True
        if not is_op(node, "Clip") or len(node.input) < 2 or not node.input[1]:
            return False
        low = self._numbers(node.input[1])
        return low is not None and low.size == 1 and float(low.reshape(-1)[0]) == 0

    def _numbers(self, name: str) -> F32 | None:
        """The numbers of a small constant."""
        weight = self.editor.weight(self.editor.main, name)
        if weight is None:
            return None
        numbers = self.encoder.numbers(weight)
        return numbers.take(0, numbers.rows).reshape(-1)

    def _values(self) -> set[str]:
        """Values that need a range: inputs of quantized nodes, and values between these nodes."""
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
        if node.output[0] in self._absorbed:
            return []
        step = self._steps.get(node.output[0])
        if step is not None:
            return self._step(step)
        if node.output[0] in self._moves:
            return self._moved(node)
        if self._is_product(scope, node):
            self._dequantize_product(scope, node)
        elif is_op(node, *CHANNELS):
            self._dequantize(scope, node)
        table = self._table(scope, node)
        return [node] if table is None else self._gather_quantized(node, table, per_channel=True)

    def _step(self, step: _Step) -> list[NodeProto]:
        node, nodes = step.node, list[NodeProto]()
        copy = clone(node)
        if step.weight is not None:
            copy.input[0] = self._quantized(node.input[0], nodes)
            self._give_weights(step, step.weight, copy)
        else:
            for index, name in enumerate(_values_of(node)):
                copy.input[index] = self._quantized(name, nodes)
        nodes.append(copy)
        if step.output in self._inside:
            copy.output[0] = self._output(step.output, nodes)
        else:
            copy.output[0] = step.output
        return nodes

    def _moved(self, node: NodeProto) -> list[NodeProto]:
        """A node that moves values, which keep their scale."""
        copy, nodes = clone(node), list[NodeProto]()
        copy.input[0] = self._quantized(node.input[0], nodes)
        nodes.append(copy)
        source = self._shared.get(node.input[0], node.input[0])
        for index, name in enumerate(node.output):
            if name:
                self._shared[name] = source
                copy.output[index] = self._output(name, nodes)
        return nodes

    def _output(self, name: str, nodes: list[NodeProto]) -> str:
        """Quantize a node's output, so that all readers get it rounded under the old name.

        Returns the new name of the node's own output.
        """
        raw = self.editor.fresh(f"{name}_float")
        nodes += self._pair(raw, name, name)
        return raw

    def _quantized(self, name: str, nodes: list[NodeProto]) -> str:
        """The name under which quantized nodes read a value."""
        if name in self._inside:
            return name
        if name not in self._dequantized:
            self._dequantized[name] = self.editor.fresh(f"{name}_dequantized")
            nodes += self._pair(name, self._dequantized[name], name)
        return self._dequantized[name]

    def _pair(self, value: str, rounded: str, name: str) -> list[NodeProto]:
        """QuantizeLinear and DequantizeLinear with the scale of a value."""
        scale, zero = self._scale(name)
        quantized = self.editor.fresh(f"{name}_quantized")
        return [
            helper.make_node("QuantizeLinear", [value, scale, zero], [quantized]),
            helper.make_node("DequantizeLinear", [quantized, scale, zero], [rounded]),
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
        """Scale and zero point: 0 is exact, and the range covers all 256 quantized values."""
        low, high = self._ranges[self._shared.get(name, name)]
        low, high = min(low, 0.0), max(high, 0.0)
        scale = np.float32((high - low) / 255)
        if not np.isfinite(scale) or scale < np.finfo(np.float32).tiny:
            scale = np.float32(1)
        lowest, dtype = _LOWEST[self._activations]
        zero = lowest + round(-low / float(scale))
        return scale, np.array(min(max(zero, lowest), lowest + 255), dtype)

    # ---- weights ----------------------------------------------------------------------------

    def _give_weights(self, step: _Step, weight: Weight, copy: NodeProto) -> None:
        """Give the copy of a product quantized weights and bias."""
        by_rows = _is_by_rows(step.node)
        axis = 0 if by_rows != weight.transposed else 1
        result = self.encoder.channels(weight, axis, factor=self._factor(step.node))
        copy.input[1] = self._weight(result, weight, axis)
        bias = self._bias(step.node, weight.shape[0 if by_rows else 1])
        if bias is not None:
            copy.input[2] = self._stored_bias(step.node, bias, result)

    def _dequantize_product(self, scope: Scope, node: NodeProto) -> None:
        """Quantize the weights of a product whose activations stay in floats."""
        weight = self.editor.weight(scope, node.input[1])
        if weight is not None:
            axis = 0 if _is_by_rows(node) != weight.transposed else 1
            result = self.encoder.channels(weight, axis, factor=self._factor(node))
            node.input[1] = self._weight(result, weight, axis)

    def _weight(self, result: Result, weight: Weight, axis: int) -> str:
        """The dequantized value of a weight, computed before all other nodes."""
        quantized, scales = result.names
        key = f"{quantized}{weight.transposed}"
        if key not in self._derived:
            name = self.editor.fresh(f"{weight.name}_dequantized")
            if weight.transposed:
                transposed = self.editor.fresh(f"{quantized}_transposed")
                self._first.append(
                    helper.make_node("Transpose", [quantized], [transposed], perm=[1, 0])
                )
                quantized, axis = transposed, 1 - axis
            zeros = self.editor.add(f"{weight.name}_zero", np.zeros(result.scales.shape, np.int8))
            self._first.append(
                helper.make_node("DequantizeLinear", [quantized, scales, zeros], [name], axis=axis)
            )
            self._derived[key] = name
        return self._derived[key]

    def _bias(self, node: NodeProto, size: int) -> F32 | None:
        """A constant bias [size], or None."""
        has_bias = bool(input_of(node, 2)) and node.op_type != "MatMul"
        bias = self._numbers(node.input[2]) if has_bias else None
        scaled = attribute(node, "beta", 1.0) != 1 or attribute(node, "alpha", 1.0) != 1
        if bias is None or bias.size not in (1, size) or scaled:
            return None
        return np.broadcast_to(bias, (size,)).astype(np.float32)

    def _stored_bias(self, node: NodeProto, bias: F32, result: Result) -> str:
        """A bias in int32 with the scales of the sums, or in floats if it is too large."""
        scale, _ = self._numbers_of(node.input[0])
        scales = np.broadcast_to(result.scales * scale, bias.shape).astype(np.float32)
        name = f"{result.weight.name}_bias"
        with np.errstate(all="ignore"):
            quantized = np.rint(bias.astype(np.float64) / scales)
        if not np.all(np.abs(quantized) < 2**31 - 1):
            return self.editor.add(name, bias)
        stored = self.editor.add(f"{name}_quantized", quantized.astype(np.int32))
        factors = self.editor.add(f"{name}_scale", scales)
        value = self.editor.fresh(f"{name}_dequantized")
        self._first.append(helper.make_node("DequantizeLinear", [stored, factors], [value], axis=0))
        return value


def _is_by_rows(node: NodeProto) -> bool:
    """Whether channels of a product's result are rows of its weights."""
    return node.op_type == "Conv" or bool(attribute(node, "transB", 0))


def _values_of(node: NodeProto) -> list[str]:
    """Inputs of arithmetic that are values; the other inputs of Clip are its limits."""
    return list(node.input[:1] if node.op_type == "Clip" else node.input)
