"""Nodes between DequantizeLinear and QuantizeLinear become the operators that compute in integers.

A graph that was quantized with calibration has the scale and zero point of each value, and nodes in
float. DequantizeLinear, Conv, QuantizeLinear becomes QLinearConv, and so on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from halfbyte.onnx.files.model import Node
from halfbyte.onnx.fusion.rewriter import MICROSOFT, Array, Rewriter, make_node

FLOAT = 1  # ONNX's number of float32


@dataclass
class _Integers:
    """A quantized value: names of its integers, and of its constant scale and zero point."""

    value: str
    scale: str
    zero: str
    axis: int  # of the scales, if there are several


def fuse_quantized(r: Rewriter) -> None:
    """Every pattern, from the first node to the last: integers reach as far as possible."""
    for node in r.nodes("QuantizeLinear"):
        source = r.producer(node.inputs[0])
        if source is None or not r.used_once(node.inputs[0]) or not _per_tensor(r, node):
            continue
        activation = None
        if source.op_type in ("Relu", "Clip") and not source.domain:
            activation, inner = source, r.producer(source.inputs[0])
            if inner is None or not _absorbed(r, source, node) or not r.used_once(source.inputs[0]):
                continue
            source = inner
        fused = _fused(r, source, node, activation)
        if fused is not None:
            r.replace(node, fused)


def _fused(r: Rewriter, source: Node, node: Node, activation: Node | None) -> Node | None:
    """The integer operator that computes the outputs of `node`, if there is one."""
    if source.domain:
        return None
    if source.op_type == "Conv":
        return _conv(r, source, node)
    if source.op_type == "MatMul":
        return _matmul(r, source, node)
    if source.op_type == "Gemm":
        return _gemm(r, source, node)
    if source.op_type in ("Add", "Mul"):
        return _pair(r, source, node)
    if source.op_type in ("GlobalAveragePool", "AveragePool", "Sigmoid", "LeakyRelu"):
        return _single(r, source, node) if activation is None else None
    if source.op_type in ("MaxPool", "Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze"):
        return _moved(r, source, node) if activation is None else None
    return None


def dequantized(r: Rewriter, name: str) -> _Integers | None:
    """The integers of a value that DequantizeLinear computes with constant scales."""
    node = r.producer(name, "DequantizeLinear")
    if node is None or r.constant(node.inputs[1]) is None:
        return None
    if node.attributes.get("block_size", 0):
        return None
    zero = node.inputs[2] if len(node.inputs) > 2 else ""
    if zero and r.constant(zero) is None:
        return None
    return _Integers(node.inputs[0], node.inputs[1], zero, node.attributes.get("axis", 1))


def _scale(r: Rewriter, name: str) -> Array:
    value = r.constant(name)
    return np.zeros(0) if value is None else value


_BYTES = (np.dtype(np.uint8), np.dtype(np.int8))


def _is_tensor(r: Rewriter, integers: _Integers | None) -> bool:
    """Whether these are bytes with one scale of float32, and a zero point."""
    if integers is None or not integers.zero:
        return False
    scale, zero = _scale(r, integers.scale), _scale(r, integers.zero)
    return scale.size == zero.size == 1 and scale.dtype == np.float32 and zero.dtype in _BYTES


def _same_type(r: Rewriter, *zeros: str) -> bool:
    """Whether integers with these zero points are all signed, or all unsigned."""
    return len({_scale(r, zero).dtype for zero in zeros}) == 1


def _is_matrix(r: Rewriter, integers: _Integers | None, axis: int) -> bool:
    """Whether these are constant bytes with one scale, or one for each index of an axis."""
    value = None if integers is None else r.constant(integers.value)
    if integers is None or value is None or value.dtype not in _BYTES or not value.ndim:
        return False
    scale, zero = _scale(r, integers.scale), _scale(r, integers.zero)
    if scale.dtype != np.float32 or (
        integers.zero and zero.shape != scale.shape and not zero.size == scale.size == 1
    ):
        return False
    along = integers.axis in (axis % value.ndim, axis % value.ndim - value.ndim)
    return scale.size == 1 or (along and scale.shape == (value.shape[axis],))


def _per_tensor(r: Rewriter, node: Node) -> bool:
    """Whether QuantizeLinear gives integers of 8 bits with one scale and a zero point."""
    if len(node.inputs) < 3 or node.attributes.get("block_size", 0):
        return False
    scale, zero = r.constant(node.inputs[1]), r.constant(node.inputs[2])
    if scale is None or zero is None or scale.dtype != np.float32:
        return False
    return scale.size == zero.size == 1 and zero.dtype in _BYTES


def _absorbed(r: Rewriter, activation: Node, node: Node) -> bool:
    """Whether the range of the integers already applies the activation."""
    scale, zero = (_scale(r, name).reshape(-1) for name in node.inputs[1:3])
    limits = np.iinfo(zero.dtype)
    low = (int(limits.min) - int(zero[0])) * float(scale[0])
    high = (int(limits.max) - int(zero[0])) * float(scale[0])
    slack = float(scale[0]) / 2
    if activation.op_type == "Relu":
        return low >= -slack
    bounds = [activation.attributes.get("min"), activation.attributes.get("max")]
    for index, name in enumerate(activation.inputs[1:3]):
        if name and r.number(name) is None:
            return False  # it is computed
        bounds[index] = r.number(name)
    floor, ceiling = bounds
    is_above = floor is None or low >= floor - slack
    return is_above and (ceiling is None or high <= ceiling + slack)


def _conv(r: Rewriter, conv: Node, node: Node) -> Node | None:
    x, w = dequantized(r, conv.inputs[0]), dequantized(r, conv.inputs[1])
    if x is None or w is None or not _is_tensor(r, x) or not _is_matrix(r, w, 0):
        return None
    inputs = [x.value, x.scale, x.zero, w.value, w.scale, _zeros(r, w), *node.inputs[1:3]]
    if len(conv.inputs) > 2 and conv.inputs[2]:
        bias = _bias(r, conv.inputs[2], x, w, 0)
        if bias is None:
            return None
        inputs.append(bias)
    return make_node(
        "QLinearConv", inputs, node.outputs, version=10, name=conv.name, **conv.attributes
    )


def _zeros(r: Rewriter, w: _Integers) -> str:
    """The zero points of weights; zeros by default."""
    if w.zero:
        return w.zero
    value = r.constant(w.value)
    dtype = np.int8 if value is None else value.dtype
    return r.add_constant(np.zeros(_scale(r, w.scale).shape, dtype))


def _bias(r: Rewriter, name: str, x: _Integers, w: _Integers, axis: int) -> str | None:
    """A bias in units of the products, from int32 or float; one for each index of the axis."""
    weight = r.constant(w.value)
    shape = () if weight is None else (weight.shape[axis],)
    scale = _scale(r, x.scale).astype(np.float64) * _scale(r, w.scale)
    held = dequantized(r, name)
    integers = None if held is None else r.constant(held.value)
    if (
        held is not None
        and integers is not None
        and integers.shape == shape
        and integers.dtype == np.int32
        and not (held.zero and _scale(r, held.zero).any())
        and _scale(r, held.scale).size in (1, scale.size)
        and np.allclose(_scale(r, held.scale), scale, rtol=1e-4, atol=0)
    ):
        return held.value
    value = r.constant(name)
    if value is None or value.dtype != np.float32 or value.shape != shape or not scale.all():
        return None
    units = np.rint(value / scale.reshape(-1))
    if np.abs(units).max(initial=0) >= 2**31:
        return None
    return r.add_constant(units.astype(np.int32))


def _matmul(r: Rewriter, product: Node, node: Node) -> Node | None:
    a, b = dequantized(r, product.inputs[0]), dequantized(r, product.inputs[1])
    if a is None or b is None or not _is_tensor(r, a):
        return None
    if not (_is_tensor(r, b) or (_is_matrix(r, b, -1) and r.rank(b.value) == 2)):
        return None
    inputs = [a.value, a.scale, a.zero, b.value, b.scale, _zeros(r, b), *node.inputs[1:3]]
    return make_node("QLinearMatMul", inputs, node.outputs, version=10, name=product.name)


def _gemm(r: Rewriter, gemm: Node, node: Node) -> Node | None:
    a, b = dequantized(r, gemm.inputs[0]), dequantized(r, gemm.inputs[1])
    if a is None or b is None or not _is_tensor(r, a) or gemm.attributes.get("beta", 1.0) != 1.0:
        return None
    axis = 0 if gemm.attributes.get("transB", 0) else 1
    if gemm.attributes.get("alpha", 1.0) != 1.0 or not _is_matrix(r, b, axis):
        return None
    bias = ""
    if len(gemm.inputs) > 2 and gemm.inputs[2]:
        integers = _bias(r, gemm.inputs[2], a, b, axis)
        if integers is None:
            return None
        bias = integers
    inputs = [a.value, a.scale, a.zero, b.value, b.scale, _zeros(r, b), bias, *node.inputs[1:3]]
    attributes = {k: v for k, v in gemm.attributes.items() if k in ("transA", "transB")}
    return make_node(
        "QGemm", inputs, node.outputs, domain=MICROSOFT, version=1, name=gemm.name, **attributes
    )


def _pair(r: Rewriter, pair: Node, node: Node) -> Node | None:
    a, b = dequantized(r, pair.inputs[0]), dequantized(r, pair.inputs[1])
    if a is None or b is None or not _is_tensor(r, a) or not _is_tensor(r, b):
        return None
    if not _same_type(r, a.zero, b.zero, node.inputs[2]):
        return None
    inputs = [a.value, a.scale, a.zero, b.value, b.scale, b.zero, *node.inputs[1:3]]
    kind = f"QLinear{pair.op_type}"
    return make_node(kind, inputs, node.outputs, domain=MICROSOFT, version=1, name=pair.name)


def _single(r: Rewriter, single: Node, node: Node) -> Node | None:
    x = dequantized(r, single.inputs[0])
    if x is None or not _is_tensor(r, x) or "dilations" in single.attributes:
        return None
    if not _same_type(r, x.zero, node.inputs[2]):
        return None
    inputs = [x.value, x.scale, x.zero, *node.inputs[1:3]]
    kind = f"QLinear{single.op_type}"
    attributes = dict(single.attributes)
    return make_node(
        kind, inputs, node.outputs, domain=MICROSOFT, version=1, name=single.name, **attributes
    )


def _moved(r: Rewriter, moved: Node, node: Node) -> Node | None:
    """Nodes that move elements, or take the largest, keep the integers."""
    x = dequantized(r, moved.inputs[0])
    if x is None or not _is_tensor(r, x) or len(moved.outputs) != 1:
        return None
    if moved.op_type == "MaxPool" and r.model.opsets.get("", 1) < 12:
        return None
    for ours, theirs in zip((x.scale, x.zero), node.inputs[1:3], strict=True):
        first, second = _scale(r, ours), _scale(r, theirs)
        if first.dtype != second.dtype or not np.array_equal(first.reshape(-1), second.reshape(-1)):
            return None
    return make_node(
        moved.op_type, [x.value, *moved.inputs[1:]], node.outputs, name=moved.name,
        version=moved.version, **moved.attributes,
    )  # fmt: skip


def fuse_dynamic(r: Rewriter) -> None:
    """DynamicQuantizeLinear, MatMulInteger, Cast, Mul of the scales: DynamicQuantizeMatMul.

    ConvInteger becomes Conv.
    """
    for node in r.nodes("Mul"):
        fused = _dynamic(r, node)
        if fused is not None:
            r.replace(node, fused)

    for node in r.nodes("Cast"):
        _conv_of_integers(r, node)


def _conv_of_integers(r: Rewriter, cast: Node) -> None:
    """ConvInteger with constant weights, Cast: Conv of whole numbers, for which there is a kernel.

    Sums below 2^24 are exact; the cast rounds others to float32 too.
    """
    conv = r.producer(cast.inputs[0], "ConvInteger")
    if conv is None or cast.attributes.get("to") != FLOAT or not r.used_once(conv.outputs[0]):
        return
    x, w, x_zero, w_zero = (*conv.inputs, "", "")[:4]
    weight, zeros = r.constant(w), r.constant(w_zero) if w_zero else np.zeros(1, np.int8)
    if weight is None or weight.ndim < 3 or zeros is None or zeros.size not in (1, len(weight)):
        return
    offsets = np.broadcast_to(zeros.reshape(-1), len(weight)).astype(weight.dtype)
    ones = r.add_constant(np.ones(len(weight), np.float32))
    kernel = [w, ones, r.add_constant(offsets)]
    reals = r.fresh(x), r.fresh(w)
    image = [x, r.add_constant(np.ones((), np.float32)), *([x_zero] if x_zero else [])]
    r.replace(
        cast,
        make_node("DequantizeLinear", image, reals[:1], version=13),
        make_node("DequantizeLinear", kernel, reals[1:], version=13, axis=0),
        make_node("Conv", reals, cast.outputs, version=11, name=conv.name, **conv.attributes),
    )


def _dynamic(r: Rewriter, node: Node) -> Node | None:
    for name, scales_name in (node.inputs, node.inputs[::-1]):
        cast = r.producer(name, "Cast")
        product = None if cast is None else r.producer(cast.inputs[0], "MatMulInteger")
        scales = r.producer(scales_name, "Mul")
        split = None if scales is None else r.split_constant(scales)
        if cast is None or product is None or split is None or not r.used_once(name):
            continue
        quantize = r.producer(product.inputs[0], "DynamicQuantizeLinear")
        if quantize is None or len(product.inputs) < 3 or split[0] != quantize.outputs[1]:
            continue
        if product.inputs[2] != quantize.outputs[2] or not r.used_once(product.outputs[0]):
            continue
        zero = product.inputs[3] if len(product.inputs) > 3 else ""
        weight = r.constant(product.inputs[1])
        if weight is None or weight.ndim != 2 or (zero and r.constant(zero) is None):
            continue
        if cast.attributes.get("to") != FLOAT or split[1].shape not in (
            (), (1,), weight.shape[1:],
        ):  # fmt: skip
            continue
        inputs = [quantize.inputs[0], product.inputs[1], r.name_of(split[1]), zero]
        return make_node(
            "DynamicQuantizeMatMul", inputs if zero else inputs[:3], node.outputs,
            domain=MICROSOFT, version=1, name=product.name,
        )  # fmt: skip
    return None
