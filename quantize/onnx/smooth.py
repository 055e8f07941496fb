"""Channels of similar size where activations are quantized, without changing the model.

A transformer's norms make some channels far larger than the rest; where activations share one int8
scale, such a channel costs its neighbours precision. Gain and bias of a norm may be divided by any
s_c per channel if the columns of the matrices that read it are multiplied by s_c:

    s_c^2 = rms x_c / rms W_c

both relative to their medians and at least 1/20, and s_c between 1/16 and 16. If errors of both
sides are spread evenly over the channels, this minimizes the products' error (Cauchy-Schwarz).
Source: Xiao et al. 2023, SmoothQuant, with maxima. Other readers of the norm's value, such as a
residual, read its product with s, which gets the old name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from onnx import NodeProto, helper

from halfbyte.quantize.onnx.editor import CHAIN, Editor
from halfbyte.quantize.onnx.nodes import attribute, is_op, replace_nodes
from halfbyte.quantize.onnx.norms import Norm, find_norm
from halfbyte.quantize.onnx.numbers import Numbers
from halfbyte.quantize.onnx.rewriter import Product

F32 = npt.NDArray[np.float32]

MAX_FACTOR = 16.0  # for s and for 1 / s
_MIN_SIZE = 0.05  # of a channel, relative to the median
_MOVES = ("Reshape", "Identity")  # may stand between a norm and a product


@dataclass(frozen=True)
class Group:
    """A norm and the products that read it.

    Attributes
    ----------
    norm : Norm
    products : list of Product
    readers : list of NodeProto
        Readers that may get the divided value: products, moves on the way to them, and Shape.
    is_private : bool
        Whether the norm's value has no other readers.
    """

    norm: Norm
    products: list[Product]
    readers: list[NodeProto]
    is_private: bool


def find_groups(editor: Editor, products: Iterable[Product]) -> Iterator[Group]:
    """Norms of the main graph, each with those of the given products that read it.

    Matrices with other readers stay as they are.
    """
    uses, readers = _uses(editor), editor.readers()
    outputs = {value.name for value in editor.model.graph.output}
    known = {p.node.output[0]: p for p in products if uses[p.weight.name] == 1}

    def reached(node: NodeProto, value: str, size: int) -> list[Product]:
        """The products that a node passes a value on to; none if it goes elsewhere as well."""
        name = node.output[0]
        if list(node.input).count(value) != 1 or node.input[0] != value:
            return []
        if name in known:
            product = known[name]
            transposed = node.op_type == "Gemm" and attribute(node, "transA", 0)
            return [] if transposed or product.k != size else [product]
        if not is_op(node, *_MOVES) or name in outputs:
            return []
        ends = [reached(r, name, size) for r in readers.get(name, ()) if not is_op(r, "Shape")]
        return [product for part in ends for product in part] if all(ends) else []

    for node in editor.model.graph.node:
        value = node.output[0]
        norm = find_norm(editor, editor.main, value)
        if norm is None or not norm.is_float:
            continue
        inner = {v.node.output[0] for v in norm.vectors} - {value}
        if inner & outputs or any(len(readers[name]) > 1 for name in inner):
            continue
        ends = [(r, reached(r, value, norm.size)) for r in readers.get(value, ())]
        group = [product for _, part in ends for product in part]
        divided = [reader for reader, part in ends if part or is_op(reader, "Shape")]
        if group:
            is_private = len(divided) == len(ends) and value not in outputs
            yield Group(norm, group, divided, is_private)


def smooth(editor: Editor, groups: Iterable[Group], squares: Mapping[str, F32]) -> dict[str, F32]:
    """Divide norms by s.

    Parameters
    ----------
    editor : Editor
        Its main graph is changed.
    groups : iterable of Group
    squares : mapping
        Sums of squares of the channels of each value that products read.

    Returns
    -------
    dict
        Output of a product -> s, float32 [K], by which its columns are still to be multiplied.
    """
    graph = editor.model.graph
    factors: dict[str, F32] = {}
    restored: dict[str, NodeProto] = {}  # by the output of the node that they follow
    for group in groups:
        s = _scales(editor, group, squares)
        if s is None:
            continue
        for vector in group.norm.vectors:
            name = vector.node.input[vector.index]
            vector.node.input[vector.index] = editor.add(f"{name}.smooth", vector.values / s)
        node = group.norm.node
        value, node.output[0] = node.output[0], editor.fresh(f"{node.output[0]}.smooth")
        for reader in group.readers:
            reader.input[0] = node.output[0]
        if not group.is_private:
            inputs = [node.output[0], editor.add(f"{value}.scale", s)]
            restored[node.output[0]] = helper.make_node("Mul", inputs, [value])
        factors |= {product.node.output[0]: s for product in group.products}
    nodes = ([node, restored.get(node.output[0])] for node in graph.node)
    replace_nodes(graph, [node for pair in nodes for node in pair if node is not None])
    editor.refresh()
    return factors


def _uses(editor: Editor) -> Counter[str]:
    """How many nodes read each constant, including transposed and cast."""
    uses: Counter[str] = Counter()
    for scope in editor.scopes:
        for node in scope.graph.node:
            if not is_op(node, *CHAIN):
                weights = (editor.weight(scope, name) for name in node.input)
                uses.update(weight.name for weight in weights if weight is not None)
    return uses


def _scales(editor: Editor, group: Group, squares: Mapping[str, F32]) -> F32 | None:
    """s; None where sizes are unknown or not finite."""
    x = squares.get(group.products[0].node.input[0])
    if x is None or x.shape != (group.norm.size,):
        return None
    w = np.sum([_column_squares(editor, product) for product in group.products], axis=0)
    sizes, columns = _over_median(np.sqrt(x)), _over_median(np.sqrt(w))
    if sizes is None or columns is None:
        return None
    s: F32 = np.clip(np.sqrt(sizes / columns), 1 / MAX_FACTOR, MAX_FACTOR).astype(np.float32)
    return s


def _over_median(sizes: F32) -> F32 | None:
    median = float(np.median(sizes))
    if not 0 < median < np.inf or not np.isfinite(sizes).all():
        return None
    ratios: F32 = np.maximum(sizes / np.float32(median), np.float32(_MIN_SIZE))
    return ratios


def _column_squares(editor: Editor, product: Product) -> F32:
    """Sums of squares of the K columns of a product's matrix."""
    numbers = Numbers(editor.source, product.weight.tensor)
    by_rows = product.by_rows == product.weight.transposed  # of the tensor as stored
    if by_rows:
        return np.concatenate([np.square(part).sum(axis=1) for _, part in numbers.slices()])
    total: F32 = np.sum([np.square(part).sum(axis=0) for _, part in numbers.slices()], axis=0)
    return total
