"""softmax(Q K^T scale + mask) V, spelled out by exporters, becomes one Attention."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from halfbyte.onnx.files.model import Node
from halfbyte.onnx.fusion.rewriter import Array, Rewriter, make_node
from halfbyte.onnx.reference.own import DOMAIN as OWN

_LOWEST = -1e4  # a number that hides a key is at most this
_ABSORBING = -1e9  # a number so low absorbs any score that it is added to
_LAST = 2**31 - 1  # ends from here on mean the end of the axis
_SWAP = [0, 1, 3, 2]


@dataclass
class _Scores:
    q: str
    k: str  # transposed: [..., d, t]
    scale: float
    masks: list[str] = field(default_factory=list)  # added to the scores
    hidden: list[tuple[str, Array]] = field(
        default_factory=list
    )  # the keys that are seen; the others' score


def fuse_attention(r: Rewriter) -> None:
    """Products of a softmax with values become Attention of rank 4.

    The result of a query that sees no key is zeros, where the spelled-out graph has NaN.
    """
    for node in r.nodes("MatMul"):
        weights = _weights(r, node.inputs[0])
        axis = None if weights is None else _axis_of_keys(r, weights)
        if weights is None or axis is None:
            continue
        scores = _scores(r, weights.inputs[0])
        if scores is None or any(
            r.rank(name) != 4 for name in (scores.q, scores.k, node.inputs[1])
        ):
            continue
        transposed = _untransposed(r, scores.k)
        if transposed is None:
            continue
        keys, nodes = transposed
        mask, more = _joined(r, scores)
        inputs = [scores.q, keys, node.inputs[1], *([mask] if mask else [])]
        new = make_node(
            "Attention", inputs, node.outputs, domain=OWN, name=node.name, scale=scores.scale,
            **axis,
        )  # fmt: skip
        r.replace(node, *nodes, *more, new)


def _weights(r: Rewriter, name: str) -> Node | None:
    """The softmax that a value is, perhaps with zeros in the place of NaN, as PyTorch has it."""
    if not r.used_once(name):
        return None
    where = r.producer(name, "Where")
    if where is None:
        return r.producer(name, "Softmax")
    test, zero, inner = where.inputs
    missing, softmax = r.producer(test, "IsNaN"), r.producer(inner, "Softmax")
    if missing is None or softmax is None or missing.inputs[0] != inner or r.is_output(inner):
        return None
    alone = r.used_once(test) and len(r.consumers(inner)) == 2
    return softmax if alone and r.number(zero) == 0 else None


def _axis_of_keys(r: Rewriter, softmax: Node) -> dict[str, int] | None:
    """The axis of a softmax along the last of four, as attributes of Attention; else None.

    Before version 13 the default is the second, and a softmax is along all axes from its own on.
    """
    version = softmax.version or r.model.opsets.get("", 1)
    axis = softmax.attributes.get("axis", -1 if version >= 13 else 1)
    if axis not in (-1, 3):
        return None
    return {} if axis == -1 else {"axis": axis, "to_end": int(version < 13)}


# ---- scores --------------------------------------------------------------------------------------


def _scores(r: Rewriter, name: str) -> _Scores | None:
    """Q K^T with masks added, or with a number where a key is hidden, in any sequence."""
    wrapped: list[Node] = []
    while (masked := r.producer(name, "Add", "Where")) is not None and r.used_once(name):
        inner = _masked(r, masked)
        if inner is None:
            return None
        wrapped.append(masked)
        name = inner
    scores = _scaled(r, name)
    if scores is None:
        return None
    for masked in reversed(wrapped):
        if masked.op_type == "Add":
            scores.masks += [other for other in masked.inputs if other != name]
        elif (number := r.constant(masked.inputs[2])) is not None:
            scores.hidden.append((masked.inputs[0], number.reshape(())))
        name = masked.outputs[0]
    return scores


def _masked(r: Rewriter, node: Node) -> str | None:
    """The scores that a node masks."""
    if node.op_type == "Where":
        hidden = r.number(node.inputs[2])
        return node.inputs[1] if hidden is not None and _hides(r, node, hidden) else None
    scores = [n for n in node.inputs if r.producer(n, "MatMul", "Mul", "Div", "Add", "Where")]
    masked = [n for n in scores if _leads_to_product(r, n)]
    return masked[0] if len(masked) == 1 and node.inputs.count(masked[0]) == 1 else None


def _leads_to_product(r: Rewriter, name: str) -> bool:
    """Whether a value is scores: a product, perhaps with a factor and masks."""
    for _ in range(8):
        node = r.producer(name, "MatMul", "Mul", "Div", "Add", "Where")
        if node is None or not r.used_once(name):
            return False
        if node.op_type == "MatMul":
            return True
        if node.op_type == "Where":
            name = node.inputs[1]
        elif node.op_type == "Add":
            inner = [n for n in node.inputs if r.producer(n, "MatMul", "Mul", "Div", "Where")]
            name = inner[0] if inner else ""
        else:
            split = r.split_number(node)
            name = "" if split is None else split[0]
    return False


def _hides(r: Rewriter, where: Node, number: float) -> bool:
    """Whether hiding a key is the same as adding the number to its score.

    It is if the number absorbs any score, or if every query sees a key, as with a triangle.
    """
    if number <= _ABSORBING:
        return True
    name = where.inputs[0]
    while (producer := r.producer(name, "Slice", "Cast", "Unsqueeze")) is not None:
        name = producer.inputs[0]
    value = r.constant(name)
    if number > _LOWEST or value is None or value.ndim < 2:
        return False
    square = value.reshape(-1, *value.shape[-2:]).astype(bool)
    return len(square) == 1 and bool((square[0] == np.tri(*square[0].shape)).all())


def _joined(r: Rewriter, scores: _Scores) -> tuple[str, list[Node]]:
    """All masks as one: their sum."""
    nodes, parts = [], list(scores.masks)
    for condition, hidden in scores.hidden:
        zero, lowest = r.add_constant(np.zeros_like(hidden)), r.add_constant(hidden)
        parts.append(r.fresh(condition))
        nodes.append(make_node("Where", [condition, zero, lowest], [parts[-1]]))
    while len(parts) > 1:
        first, second, *rest = parts
        parts = [r.fresh(first), *rest]
        nodes.append(make_node("Add", [first, second], [parts[0]]))
    return "".join(parts), nodes


def _scaled(r: Rewriter, name: str) -> _Scores | None:
    """Q K^T, perhaps multiplied or divided by a number."""
    if not r.used_once(name):
        return None
    scale, product = 1.0, r.producer(name, "MatMul")
    if product is None:
        name, scale = _factor(r, name)
        product = r.producer(name, "MatMul") if r.used_once(name) else None
    if product is None:
        return None
    q, q_scale = _factor(r, product.inputs[0])
    k, k_scale = _factor(r, product.inputs[1])
    scale *= q_scale * k_scale
    return _Scores(q, k, scale) if scale > 0 else None


def _factor(r: Rewriter, name: str) -> tuple[str, float]:
    """A value without its constant factor, and that factor."""
    node = r.producer(name, "Mul", "Div")
    split = None if node is None or not r.used_once(name) else r.split_number(node)
    if node is None or split is None or not split[1]:
        return name, 1.0
    if node.op_type == "Mul":
        return split
    return (split[0], 1 / split[1]) if node.inputs[0] == split[0] else (name, 1.0)


# ---- keys ----------------------------------------------------------------------------------------


def _untransposed(r: Rewriter, name: str) -> tuple[str, list[Node]] | None:
    """Keys [b, h, t, d] from [b, h, d, t]; two transposes may cancel.

    PyTorch multiplies both Q and K^T with a number that it computes from the shape.
    """
    node = r.producer(name, "Transpose", "Mul")
    if node is not None and node.op_type == "Mul":
        for inner, number in (node.inputs, node.inputs[::-1]):
            swapped = _swapped(r, inner)
            if swapped is not None and _is_number(r, number):
                keys, nodes = swapped
                scaled = r.fresh(name)
                return scaled, [*nodes, make_node("Mul", [keys, number], [scaled])]
        return None
    return _swapped(r, name)


def _swapped(r: Rewriter, name: str) -> tuple[str, list[Node]] | None:
    """A transposed value with its last two axes swapped."""
    if (merged := _merged(r, name)) is not None:
        return merged
    node = r.producer(name, "Transpose")
    perm = None if node is None else list(node.attributes.get("perm", ()))
    if node is None or perm is None or sorted(perm) != [0, 1, 2, 3]:
        return None
    perm = [perm[i] for i in _SWAP]
    if perm == sorted(perm):
        return node.inputs[0], []
    new = r.fresh(name)
    return new, [make_node("Transpose", [node.inputs[0]], [new], perm=perm)]


def _merged(r: Rewriter, name: str) -> tuple[str, list[Node]] | None:
    """The same for [b h, t, d] that is transposed and then seen as [b, h, d, t]."""
    outer = r.producer(name, "Reshape")
    turn = None if outer is None else r.producer(outer.inputs[0], "Transpose")
    if outer is None or turn is None or list(turn.attributes.get("perm", ())) != [0, 2, 1]:
        return None
    before, after = _shape(r, turn.inputs[0]), _shape(r, name)
    if before is None or after is None or len(before) != 3 or len(after) != 4:
        return None
    if before[1:] != after[:1:-1] or 0 in after or min(before[1:]) < 1:
        return None
    wanted = np.array([*after[:2], *before[1:]], np.int64)
    new = r.fresh(name)
    node = make_node("Reshape", [turn.inputs[0], r.add_constant(wanted)], [new])
    return new, [node]


def _shape(r: Rewriter, name: str) -> list[int] | None:
    """The shape that a constant gives to a value; -1 and 0 are those of Reshape."""
    node = r.producer(name, "Reshape", "Transpose")
    if node is None:
        return None
    if node.op_type == "Reshape":
        wanted = r.constant("".join(node.inputs[1:2]))
        return None if wanted is None or wanted.ndim != 1 else [int(d) for d in wanted]
    shape, perm = _shape(r, node.inputs[0]), node.attributes.get("perm", ())
    return [shape[i] for i in perm] if shape and len(shape) == len(perm) else None


def _is_number(r: Rewriter, name: str) -> bool:
    """Whether a value is a number that is computed from one size of a shape."""
    while (node := r.producer(name, "Sqrt", "Cast", "Reciprocal", "Div", "Mul")) is not None:
        if node.op_type in ("Div", "Mul"):
            split = r.split_number(node)
            if split is None:
                return False
            name = split[0]
        else:
            name = node.inputs[0]
    node = r.producer(name, "Gather", "Slice")
    if node is None or r.producer(node.inputs[0], "Shape") is None:
        return False
    constants = [r.constant(n) for n in node.inputs[1:]]
    if any(value is None or value.size != 1 for value in constants):
        return False
    numbers = [int(value.reshape(-1)[0]) for value in constants if value is not None]
    if node.op_type == "Gather":
        return all(value is not None and value.ndim <= 1 for value in constants)
    first, last, *_ = numbers
    return last - first == 1 or (first == -1 and last >= _LAST)
