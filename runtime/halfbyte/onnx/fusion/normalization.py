"""Layer norms and RMS norms spelled out by exporters, and normalized sums."""

from __future__ import annotations

import itertools

import numpy as np

from halfbyte.onnx.files.model import Node
from halfbyte.onnx.fusion.rewriter import MICROSOFT, OWN, Rewriter, make_node, near


def fuse_normalizations(r: Rewriter) -> None:
    """Spelled-out layer norms and RMS norms become LayerNormalization and RMSNormalization.

    They are halfbyte's own: ONNX's do not broadcast rows of one number, as the nodes do.
    """
    for node in r.nodes("Add", "Mul"):
        norm = _layer_norm(r, node) or _folded_norm(r, node) or _rms_norm(r, node)
        if norm is None:
            continue
        x, scale, bias, epsilon = norm
        new = make_node(
            "RMSNormalization" if bias is None else "LayerNormalization",
            [x, scale, *([bias] if bias else [])], node.outputs, domain=OWN, name=node.name,
            epsilon=epsilon,
        )  # fmt: skip
        r.replace(node, new)


_Norm = tuple[str, str, str | None, float]  # x, scale, bias ("": none; None: an RMS norm), epsilon


def _layer_norm(r: Rewriter, node: Node) -> _Norm | None:
    """(x - mean) / sqrt(mean((x - mean)^2) + epsilon) scale + bias."""
    product: Node | None = node
    bias = ""
    if node.op_type == "Add":
        added = _vector(r, node)
        if added is None:
            return None
        product, bias = r.producer(added[0], "Mul"), added[1]
    elif any(user.op_type == "Add" and _vector(r, user) for user in r.consumers(node.outputs[0])):
        return None  # the Add is the last node
    scaled = None if product is None else _vector(r, product)
    quotient = None if scaled is None else _quotient(r, scaled[0])
    x = None if quotient is None else _centred(r, quotient[0])
    if scaled is None or quotient is None or x is None:
        return None
    epsilon = _deviation(r, quotient[1], x, centred=True)
    return None if epsilon is None else (x, scaled[1], bias, epsilon)


def _folded_norm(r: Rewriter, node: Node) -> _Norm | None:
    """x f + (bias - mean f) with f = scale / sqrt(variance + epsilon), as TensorFlow spells it."""
    if node.op_type != "Add":
        return None
    for first, second in (node.inputs, node.inputs[::-1]):
        product, rest = r.producer(first, "Mul"), r.producer(second, "Sub")
        moved = None if rest is None else r.producer(rest.inputs[1], "Mul")
        if product is None or rest is None or moved is None or not _is_vector(r, rest.inputs[0]):
            continue
        for x, factor in (product.inputs, product.inputs[::-1]):
            if factor not in moved.inputs or not _is_mean(r, _other(moved, factor), x):
                continue
            scaled = r.producer(factor, "Mul")
            split = None if scaled is None else _vector(r, scaled)
            inverse = None if split is None else r.producer(split[0], "Reciprocal")
            epsilon = None
            if inverse is not None:
                epsilon = _deviation(r, inverse.inputs[0], x, centred=True)
            if split is not None and epsilon is not None:
                return x, split[1], rest.inputs[0], epsilon
    return None


def _rms_norm(r: Rewriter, node: Node) -> _Norm | None:
    """x / sqrt(mean(x^2) + epsilon) scale."""
    scaled = _vector(r, node) if node.op_type == "Mul" else None
    quotient = None if scaled is None else _quotient(r, scaled[0])
    if scaled is None or quotient is None or _centred(r, quotient[0]) is not None:
        return None
    epsilon = _deviation(r, quotient[1], quotient[0], centred=False)
    return None if epsilon is None else (quotient[0], scaled[1], None, epsilon)


def _vector(r: Rewriter, node: Node) -> tuple[str, str] | None:
    """The computed operand of a node with two, and the other: a vector of float32 or float16."""
    operands = r.split_constant(node)
    if operands is None:
        return None
    name = node.inputs[1] if node.inputs[0] == operands[0] else node.inputs[0]
    return (operands[0], name) if _is_vector(r, name) else None


def _is_vector(r: Rewriter, name: str) -> bool:
    value = r.constant(name)
    return value is not None and value.ndim == 1 and value.dtype in (np.float32, np.float16)


def _other(node: Node, name: str) -> str:
    """The other one of two operands."""
    return node.inputs[1] if node.inputs[0] == name else node.inputs[0]


def _quotient(r: Rewriter, name: str) -> tuple[str, str] | None:
    """Dividend and divisor of a / b, or of a times 1 / b."""
    quotient = r.producer(name, "Div")
    if quotient is not None:
        return quotient.inputs[0], quotient.inputs[1]
    product = r.producer(name, "Mul")
    if product is None:
        return None
    for first, second in (product.inputs, product.inputs[::-1]):
        inverse = r.producer(second, "Reciprocal", "Div")
        if inverse is None:
            continue
        if inverse.op_type == "Reciprocal":
            return first, inverse.inputs[0]
        if near(r.number(inverse.inputs[0]), 1):
            return first, inverse.inputs[1]
    return None


def _deviation(r: Rewriter, name: str, x: str, *, centred: bool) -> float | None:
    """Epsilon of sqrt(mean(x^2) + epsilon) along the last axis; of x - mean(x), if centred."""
    root = r.producer(name, "Sqrt")
    total = None if root is None else r.producer(root.inputs[0], "Add")
    split = None if total is None else r.split_number(total)
    mean = None if split is None else r.producer(split[0], "ReduceMean")
    square = None
    if mean is not None and _last_axis(r, mean):
        square = r.producer(mean.inputs[0], "Pow", "Mul")
    if square is None or split is None:
        return None
    if square.op_type == "Pow":
        same = r.number(square.inputs[1]) == 2
    else:
        same = square.inputs[0] == square.inputs[1]
    of = _centred(r, square.inputs[0]) if centred else square.inputs[0]
    return split[1] if same and of == x else None


def _centred(r: Rewriter, name: str) -> str | None:
    """x of x - mean(x) along the last axis."""
    difference = r.producer(name, "Sub")
    if difference is None or not _is_mean(r, difference.inputs[1], difference.inputs[0]):
        return None
    return difference.inputs[0]


def _is_mean(r: Rewriter, name: str, x: str) -> bool:
    mean = r.producer(name, "ReduceMean")
    return mean is not None and mean.inputs[0] == x and _last_axis(r, mean)


def _last_axis(r: Rewriter, node: Node) -> bool:
    """Whether a reduction is over only the last axis, which it keeps."""
    axes = node.attributes.get("axes")
    if axes is None and len(node.inputs) > 1:
        value = r.constant(node.inputs[1])
        axes = None if value is None else value.reshape(-1).tolist()
    rank = r.rank(node.inputs[0])
    last = [[-1]] if rank is None else [[-1], [rank - 1]]
    return list(axes or ()) in last and node.attributes.get("keepdims", 1) == 1


def fuse_skips(r: Rewriter) -> None:
    """LayerNormalization of a sum becomes SkipLayerNormalization, which also returns the sum."""
    own = r.nodes("LayerNormalization", domain=OWN)
    for node in itertools.chain(r.nodes("LayerNormalization"), own):
        if node.attributes.get("axis", -1) != -1 or len([o for o in node.outputs if o]) != 1:
            continue
        total = r.producer(node.inputs[0], "Add")
        if total is None or r.split_constant(total) is not None or r.is_output(total.outputs[0]):
            continue
        if len(node.inputs) < 3 or not all(_is_vector(r, name) for name in node.inputs[1:]):
            continue
        if node.domain != OWN and not _fills_rows(r, *node.inputs[1:]):
            continue
        later = [u for u in r.consumers(total.outputs[0]) if u is not node]
        unused = () if node.domain == OWN else ("", "")  # ONNX Runtime's mean and deviation
        outputs = [*node.outputs, *unused, total.outputs[0]] if later else list(node.outputs)
        skip = make_node(
            "SkipLayerNormalization", [*total.inputs, *node.inputs[1:]], outputs,
            domain=node.domain or MICROSOFT, version=1, name=node.name,
            epsilon=node.attributes.get("epsilon", 1e-5),
        )  # fmt: skip
        if later:
            r.replace(total)
        r.replace(node, skip)
        _move_up(r, skip, later)


def _fills_rows(r: Rewriter, scale: str, bias: str) -> bool:
    """Whether ONNX's LayerNormalization broadcasts neither; ONNX Runtime's operator cannot."""
    first, second = r.constant(scale), r.constant(bias)
    return first is not None and second is not None and first.size == second.size != 1


def _move_up(r: Rewriter, node: Node, later: list[Node]) -> None:
    """Put a node before the first that needs it now."""
    places = [r.graph.nodes.index(user) for user in later]
    at = r.graph.nodes.index(node)
    if places and min(places) < at:
        r.graph.nodes.remove(node)
        r.graph.nodes.insert(min(places), node)
