"""Convolutions absorb the normalization, the bias, the sum and the activation after them."""

from __future__ import annotations

from typing import Any

import numpy as np

from halfbyte.onnx.files.model import Node
from halfbyte.onnx.fusion.half_types import FLOAT
from halfbyte.onnx.fusion.rewriter import MICROSOFT, OWN, Array, Rewriter, make_node

SCALED_KERNEL = "ScaledKernel"  # halfbyte's own; see reference/own.py
_LARGEST = float(np.finfo(np.float32).max)
_FACTOR = 2.0**64  # of weights at most, and 1 / _FACTOR at least


def fuse_batch_norm(r: Rewriter) -> None:
    """BatchNormalization of a convolution with constant weights is folded into them."""
    for node in r.nodes("BatchNormalization"):
        conv = r.producer(node.inputs[0], "Conv")
        if conv is None or not r.used_once(node.inputs[0]) or node.attributes.get("training_mode"):
            continue
        if len([o for o in node.outputs if o]) != 1:
            continue
        shape = _kernel_shape(r, conv.inputs[1])
        vectors = [r.constant(name) for name in (*conv.inputs[2:], *node.inputs[1:])]
        if shape is None or len(vectors) not in (4, 5):
            continue
        if any(v is None or v.dtype != np.float32 or v.shape != shape[:1] for v in vectors):
            continue  # statistics of each position, before opset 9
        factor, bias = _folded(vectors, node.attributes.get("epsilon", 1e-5))
        scaled = make_node(
            SCALED_KERNEL, [conv.inputs[1], r.add_constant(factor)], [r.fresh(conv.inputs[1])],
            domain=OWN, version=1,
        )  # fmt: skip
        inputs = [conv.inputs[0], scaled.outputs[0], r.add_constant(bias)]
        r.replace(node, scaled, _conv(conv, inputs, node))


def _conv(conv: Node, inputs: list[str], node: Node) -> Node:
    """The convolution with other inputs and the outputs of `node`."""
    return make_node(
        "Conv", inputs, node.outputs, version=conv.version, name=conv.name, **conv.attributes
    )


def _folded(vectors: list[Any], epsilon: float) -> tuple[Array, Array]:
    """The factor s / sqrt(v + epsilon) of weights, in float64; b' = (b - m) factor + shift."""
    scale, shift, mean, variance = vectors[-4:]
    factor = scale.astype(np.float64) / np.sqrt(variance.astype(np.float64) + epsilon)
    before = vectors[0].astype(np.float64) if len(vectors) > 4 else 0.0
    return factor, ((before - mean) * factor + shift).astype(np.float32)


def fuse_affine(r: Rewriter) -> None:
    """Mul and Add of constants per channel after a convolution change its weights and its bias."""
    for node in r.nodes("Mul", "Add"):
        operands = r.split_constant(node)
        if operands is None or not r.used_once(operands[0]):
            continue
        conv = r.producer(operands[0], "Conv")
        kernel = None if conv is None else _kernel(r, conv.inputs[1])
        if conv is None or kernel is None:
            continue
        name, shape, factor = kernel
        value = _by_channel(operands[1], shape)
        bias = _bias(r, conv, shape[0])
        if value is None or bias is None:
            continue
        if node.op_type == "Add":
            new_bias = bias + value
        else:
            new_bias, factor = bias * value, factor * value
        if not _is_moderate(factor) or np.abs(new_bias).max(initial=0) > _LARGEST:
            continue
        shift = r.add_constant(new_bias.astype(np.float32))
        if node.op_type == "Add":
            r.replace(node, _conv(conv, [*conv.inputs[:2], shift], node))
            continue
        scaled = make_node(
            SCALED_KERNEL, [name, r.add_constant(factor)], [r.fresh(name)], domain=OWN, version=1
        )
        bias_input = [shift] if len(conv.inputs) > 2 else []
        inputs = [conv.inputs[0], scaled.outputs[0], *bias_input]
        r.replace(node, scaled, _conv(conv, inputs, node))


def _is_moderate(factor: Array) -> bool:
    """Whether usual weights times these are within float32's range."""
    sizes = np.abs(factor[factor != 0])
    return bool(((sizes >= 1 / _FACTOR) & (sizes <= _FACTOR)).all())


def _kernel(r: Rewriter, name: str) -> tuple[str, tuple[int, ...], Array] | None:
    """The weights of a convolution by their name, their shape, and the factors of its outputs."""
    scaled = r.producer(name, SCALED_KERNEL, domain=OWN)
    factor = None if scaled is None else r.constant(scaled.inputs[1])
    name = name if scaled is None else scaled.inputs[0]
    shape = _kernel_shape(r, name)
    if shape is None:
        return None
    return name, shape, np.ones(shape[0]) if factor is None else factor


def _kernel_shape(r: Rewriter, name: str) -> tuple[int, ...] | None:
    """The shape of float32 weights that are constant, or made of a constant of few bits."""
    weight = r.constant(name)
    dtype: Any = np.float32 if weight is None else weight.dtype
    if node := r.producer(name, "DequantizeLinear"):
        constants = [r.constant(each) for each in node.inputs if each]
        weight, scale = constants[:2]
        if any(each is None for each in constants) or node.attributes.get("output_dtype"):
            return None
        dtype = None if scale is None else scale.dtype
    elif (node := r.producer(name, "Cast")) and node.attributes.get("to") == FLOAT:
        weight = r.constant(node.inputs[0])
    if weight is None or weight.ndim < 3 or dtype != np.float32:
        return None
    return weight.shape


def _by_channel(value: Array, shape: tuple[int, ...]) -> Array | None:
    """A finite float32 constant as one number for each output of a convolution, in float64."""
    spread = (1,) * (len(shape) - value.ndim) + value.shape
    channels = shape[0]
    if value.dtype != np.float32 or len(spread) != len(shape) or not np.isfinite(value).all():
        return None
    if value.size != 1 and (value.size != channels or spread[1] != channels):
        return None
    return np.broadcast_to(value.reshape(-1), channels).astype(np.float64)


def _bias(r: Rewriter, conv: Node, channels: int) -> Array | None:
    """The bias of a convolution in float64; None if it is not constant."""
    if len(conv.inputs) < 3 or not conv.inputs[2]:
        return np.zeros(channels)
    bias = r.constant(conv.inputs[2])
    return None if bias is None or bias.shape != (channels,) else bias.astype(np.float64)


def fuse_activation(r: Rewriter) -> None:
    """Conv with an activation, and with the Add of another value between them, is FusedConv."""
    for node in r.nodes("Relu", "Clip", "LeakyRelu", "HardSigmoid", "Sigmoid", "Tanh"):
        activation = _activation(r, node)
        if activation is None or not r.used_once(node.inputs[0]):
            continue
        conv = r.producer(node.inputs[0], "Conv") or r.producer(
            node.inputs[0], "FusedConv", domain=MICROSOFT
        )
        if conv is None or "activation" in conv.attributes:
            continue
        kind, parameters = activation
        attributes = {**conv.attributes, "activation": kind}
        if parameters:
            attributes["activation_params"] = parameters
        r.replace(node, _fused(conv.inputs, node, conv.name, attributes))


def fuse_sums(r: Rewriter) -> None:
    """The Add of another value to a convolution becomes its input Z.

    Of two convolutions that are added, the second absorbs the first. Shapes are equal or broadcast,
    as in ONNX's Add; kernels take equal ones.
    """
    for node in r.nodes("Add"):
        for name, other in (node.inputs[::-1], node.inputs):
            conv = r.producer(name, "Conv")
            if conv is None or not r.used_once(name) or r.constant(other) is not None:
                continue
            if other == name or not _is_image(r, other):
                continue
            inputs = [*conv.inputs, *[""] * (3 - len(conv.inputs)), other]
            r.replace(node, _fused(inputs, node, conv.name, dict(conv.attributes)))
            break


def _is_image(r: Rewriter, name: str) -> bool:
    """Whether a value probably has the shape of a convolution's result."""
    kinds = ("Conv", "Relu", "Clip", "MaxPool", "AveragePool", "BatchNormalization")
    return (r.producer(name, *kinds) or r.producer(name, "FusedConv", domain=MICROSOFT)) is not None


def _fused(inputs: Any, node: Node, name: str, attributes: dict[str, Any]) -> Node:
    return make_node(
        "FusedConv", inputs, node.outputs, domain=MICROSOFT, version=1, name=name, **attributes
    )


def _activation(r: Rewriter, node: Node) -> tuple[str, list[float]] | None:
    """The name and parameters of an activation as FusedConv has them."""
    if node.op_type in ("Relu", "Sigmoid", "Tanh"):
        return node.op_type, []
    if node.op_type == "LeakyRelu":
        return "LeakyRelu", [node.attributes.get("alpha", 0.01)]
    if node.op_type == "HardSigmoid":
        return node.op_type, [
            node.attributes.get("alpha", 0.2), node.attributes.get("beta", 0.5),
        ]  # fmt: skip
    limits = [node.attributes.get("min"), node.attributes.get("max")]
    for index, name in enumerate(node.inputs[1:3]):
        if name:
            limits[index] = r.number(name)
            if limits[index] is None:
                return None
    largest = float(np.finfo(np.float32).max)
    low, high = limits
    return "Clip", [-largest if low is None else low, largest if high is None else high]
