"""Activations spelled out by exporters.

They are Gelu by erf or tanh, x sigmoid(x), x hard_sigmoid(x), and Softplus that is x where it is
large.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from halfbyte.onnx.files.model import Node
from halfbyte.onnx.fusion.rewriter import MICROSOFT, Rewriter, make_node, near

_ROOT = math.sqrt(2 / math.pi)
_CUBIC = 0.044715


def fuse_activations(r: Rewriter) -> None:
    """The last Mul or Div of a spelled-out Gelu, Swish or HardSwish becomes that operator."""
    for node in r.nodes("Mul", "Div"):
        fused = _gelu(r, node) or _swish(r, node) or _hard_swish(r, node)
        if fused is not None and not _adds_axis(r, node, fused.inputs[0]):
            r.replace(node, fused)
    for node in r.nodes("Where"):
        _softplus(r, node)


def _softplus(r: Rewriter, node: Node) -> None:
    """x where x > 20 or more, else log(1 + e^x): the same, as log(1 + e^x) rounds to x there."""
    condition, x, other = node.inputs
    greater, soft = r.producer(condition, "Greater"), r.producer(other, "Softplus")
    if greater is None or soft is None or not greater.inputs[0] == x == soft.inputs[0]:
        return
    threshold = r.number(greater.inputs[1])
    constant = r.constant(greater.inputs[1])
    if threshold is None or threshold < 20 or constant is None or constant.ndim:
        return
    if constant.dtype == np.float32:
        r.replace(node, make_node("Softplus", [x], node.outputs, name=node.name))


def _adds_axis(r: Rewriter, last: Node, x: str) -> bool:
    """Whether the pattern may add an axis: x may be a scalar, and a constant is not one."""
    if r.rank(x):
        return False
    nodes = [last]
    while nodes:
        for name in nodes.pop().inputs:
            value, producer = r.constant(name), r.producer(name)
            if value is not None and value.ndim:
                return True
            if name != x and producer is not None:
                nodes.append(producer)
    return False


# ---- Gelu ----------------------------------------------------------------------------------------


def _gelu(r: Rewriter, node: Node) -> Node | None:
    """x * 0.5 * (1 + f(x)), multiplied in any order."""
    for factors in _products(r, node):
        half = [f for f in factors if near(r.number(f), 0.5)]
        rest = [f for f in factors if f not in half]
        if len(half) != 1:
            continue
        for x, gate in (rest, rest[::-1]):
            add = r.producer(gate, "Add")
            one = None if add is None else r.split_number(add)
            kind = _kind(r, one[0], x) if one is not None and near(one[1], 1) else None
            if kind is not None:
                return make_node(
                    "Gelu", [x], node.outputs, version=20, name=node.name, approximate=kind
                )
    return None


def _products(r: Rewriter, node: Node) -> Iterator[list[str]]:
    """The three factors of a product of two products."""
    if node.op_type != "Mul":
        return
    for inner_name, other in (node.inputs, node.inputs[::-1]):
        inner = r.producer(inner_name, "Mul")
        if inner is not None and r.used_once(inner_name):
            yield [*inner.inputs, other]


def _kind(r: Rewriter, name: str, x: str) -> str | None:
    """The form of Gelu whose function this is: erf(x / sqrt 2), or tanh."""
    inner = r.producer(name, "Erf", "Tanh")
    if inner is None:
        return None
    if inner.op_type == "Erf":
        return "none" if _is_scaled(r, inner.inputs[0], x, math.sqrt(0.5)) else None
    return "tanh" if _is_cubic(r, inner.inputs[0], x) else None


def _is_scaled(r: Rewriter, name: str, x: str, by: float) -> bool:
    """Whether a value is x times a number, or divided by its reciprocal."""
    node = r.producer(name, "Mul", "Div")
    scaled = None if node is None else r.split_number(node)
    if node is None or scaled is None or scaled[0] != x:
        return False
    if node.op_type == "Div":
        return node.inputs[0] == x and near(scaled[1], 1 / by)
    return near(scaled[1], by)


def _is_cubic(r: Rewriter, name: str, x: str) -> bool:
    """Whether a value is sqrt(2 / pi) (x + 0.044715 x^3), or sqrt(2 / pi) x (1 + 0.044715 x^2)."""
    outer = r.producer(name, "Mul")
    scaled = None if outer is None else r.split_number(outer)
    if outer is None:
        return False
    if scaled is not None and near(scaled[1], _ROOT):
        total = r.producer(scaled[0], "Add")
        return total is not None and any(
            first == x and _is_term(r, second, x, 3)
            for first, second in (total.inputs, total.inputs[::-1])
        )
    for first, second in (outer.inputs, outer.inputs[::-1]):
        total = r.producer(second, "Add")
        one = None if total is None else r.split_number(total)
        if one is not None and near(one[1], 1) and _is_term(r, one[0], x, 2):
            return _is_scaled(r, first, x, _ROOT)
    return False


def _is_term(r: Rewriter, name: str, x: str, power: int) -> bool:
    """Whether a value is 0.044715 x^power, multiplied in any order."""
    factors = [name]
    while len(factors) <= power:
        product = next((m for f in factors if (m := r.producer(f, "Mul")) is not None), None)
        if product is None:
            break
        factors.remove(product.outputs[0])
        factors += product.inputs
    constants = [f for f in factors if r.constant(f) is not None]
    others = [f for f in factors if f not in constants]
    if len(constants) != 1 or not near(r.number(constants[0]), _CUBIC):
        return False
    if len(others) == 1 and others[0] != x:
        raised = r.producer(others[0], "Pow")
        return raised is not None and raised.inputs[0] == x and r.number(raised.inputs[1]) == power
    return others == [x] * power


# ---- Swish, QuickGelu, HardSwish -----------------------------------------------------------------


def _swish(r: Rewriter, node: Node) -> Node | None:
    """x * Sigmoid(x), or x * Sigmoid(number x), which is QuickGelu."""
    if node.op_type != "Mul":
        return None
    for x, gate in (node.inputs, node.inputs[::-1]):
        sigmoid = r.producer(gate, "Sigmoid")
        if sigmoid is None or not r.used_once(gate):
            continue
        if sigmoid.inputs[0] == x:
            return make_node("Swish", [x], node.outputs, version=24, name=node.name)
        scaled = r.producer(sigmoid.inputs[0], "Mul")
        split = None if scaled is None else r.split_number(scaled)
        if split is not None and split[0] == x:
            return make_node(
                "QuickGelu", [x], node.outputs, domain=MICROSOFT, version=1, name=node.name,
                alpha=split[1],
            )  # fmt: skip
    return None


def _hard_swish(r: Rewriter, node: Node) -> Node | None:
    """x * HardSigmoid(x) of slope 1 / 6, or x * Clip(x + 3, 0, 6) / 6 in any order."""
    for x in _gated(r, node):
        return make_node("HardSwish", [x], node.outputs, version=14, name=node.name)
    return None


def _gated(r: Rewriter, node: Node) -> Iterator[str]:
    if node.op_type == "Div":
        product = r.producer(node.inputs[0], "Mul")
        if (
            product is not None
            and r.used_once(node.inputs[0])
            and near(r.number(node.inputs[1]), 6)
        ):
            pairs = (product.inputs, product.inputs[::-1])
            yield from (x for x, gate in pairs if _is_clipped(r, gate, x))
        return
    for x, gate in (node.inputs, node.inputs[::-1]):
        sigmoid = r.producer(gate, "HardSigmoid")
        if sigmoid is not None and sigmoid.inputs[0] == x and _is_sixth(sigmoid):
            yield x
        share = r.producer(gate, "Div")
        if share is not None and near(r.number(share.inputs[1]), 6):
            yield from [x] if _is_clipped(r, share.inputs[0], x) else []


def _is_sixth(node: Node) -> bool:
    attributes = node.attributes
    return near(attributes.get("alpha", 0.2), 1 / 6) and near(attributes.get("beta", 0.5), 0.5)


def _is_clipped(r: Rewriter, name: str, x: str) -> bool:
    """Whether a value is Clip(x + 3, 0, 6)."""
    clip = r.producer(name, "Clip")
    if clip is None:
        return False
    limits = [clip.attributes.get("min"), clip.attributes.get("max")]
    for index, limit in enumerate(clip.inputs[1:3]):
        limits[index] = r.number(limit)
    add = r.producer(clip.inputs[0], "Add")
    shifted = None if add is None else r.split_number(add)
    return limits == [0, 6] and shifted is not None and shifted[0] == x and near(shifted[1], 3)
