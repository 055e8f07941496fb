"""Shapes and ranks of results, as far as the shapes of inputs decide them.

These are the rules for `define`; definitions of the same form share one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from halfbyte.onnx.files.dtypes import DTYPES
from halfbyte.onnx.files.model import Node
from halfbyte.onnx.reference.arrays import Array, axes_of, axis_of, integers
from halfbyte.onnx.sizes import broadcast_shapes

Shape = tuple[int, ...]
Shapes = Shape | Array | Sequence[Shape | Array] | None
Ranks = Sequence[int | None]
Length = Callable[[int], int | None]  # of an input by its index


@dataclass(frozen=True)
class Rule:
    """Shapes and ranks of an operator's results.

    Attributes
    ----------
    shapes : callable or None
        Called like the definition, with arrays whose values count only where they are constants.
        Returns the shape of the result, or a list of shapes where the definition returns a tuple;
        None where the shapes are not known. An array stands for its shape and dtype (`blank`),
        where the table of types does not have the dtype. For inputs that do not fit it may raise
        what definitions raise.
    rank : callable or None
        Called before any shape is known, with the ranks of inputs as far as they are known, the
        node, and a function that gives the length of an input that is a vector.
    views : bool
        Results are views of inputs, so that the definition itself is the rule: it reads no element.
    """

    shapes: Callable[..., Shapes] | None = None
    rank: Callable[[Ranks, Node, Length], int | None] | None = None
    views: bool = False


def blank(shape: Sequence[int], dtype: Any) -> Array:
    """An array of this shape and dtype that takes no memory."""
    return np.broadcast_to(np.zeros((), dtype), tuple(shape))


# ---- shapes ------------------------------------------------------------------------------------


def _same(x: Array, *others: Array | None, **attributes: Any) -> Shape:
    """The shape of the first input."""
    return x.shape


def _together(*parts: Array | None, **attributes: Any) -> Shape:
    """The shape of all inputs broadcast together."""
    return broadcast_shapes(*(part.shape for part in parts if part is not None))


def after_product(a: Shape, b: Shape) -> Shape:
    """The shape of a matrix product, as numpy.matmul has it."""
    if not a or not b or a[-1] != b[max(len(b) - 2, 0)]:
        raise ValueError(f"a product of {list(a)} and {list(b)}")
    rows = a[-2:-1]
    columns = b[-1:] if len(b) > 1 else ()
    return (*broadcast_shapes(a[:-2], b[:-2]), *rows, *columns)


def _product(a: Array, b: Array, *others: Array | None, **attributes: Any) -> Shape:
    """The shape of the product of the first two inputs."""
    return after_product(a.shape, b.shape)


def without(shape: Shape, axes: Sequence[int], keepdims: int) -> Shape:
    """The shape with these axes reduced to one element, or removed."""
    dropped = set(axes)
    sizes = enumerate(shape)
    return tuple(1 if i in dropped else n for i, n in sizes if keepdims or i not in dropped)


def _reduced_by_attribute(
    x: Array, *others: Array | None, axes: Sequence[int] | None = None, keepdims: int = 1,
    **attributes: Any,
) -> Shape:  # fmt: skip
    """The shape of a reduction over axes that an attribute names, or over all."""
    return without(x.shape, axes_of(axes or range(x.ndim), x.ndim), keepdims)


def _reduced_by_input(
    x: Array, axes: Array | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
) -> Shape:
    """The shape of a reduction over axes that an input names; without it over all, or none."""
    listed = [] if axes is None else integers(axes)
    whole = [] if noop_with_empty_axes else range(x.ndim)
    return without(x.shape, axes_of(listed or whole, x.ndim), keepdims)


def _one_axis(x: Array, *, axis: int = 0, keepdims: int = 1, **attributes: Any) -> Shape:
    """The shape of a reduction over one axis."""
    return without(x.shape, [axis_of(axis, x.ndim)], keepdims)


def _joined(*parts: Array, axis: int) -> Shape:
    """The shape of arrays concatenated along an axis."""
    at = axis_of(axis, parts[0].ndim)
    around = {(part.ndim, part.shape[:at], part.shape[at + 1 :]) for part in parts}
    if len(around) > 1:
        raise ValueError(f"shapes {[list(part.shape) for part in parts]} along axis {axis}")
    before, after = parts[0].shape[:at], parts[0].shape[at + 1 :]
    return (*before, sum(part.shape[at] for part in parts), *after)


def _gathered(data: Array, indices: Array, *, axis: int = 0) -> Shape:
    """The shape of slices taken along an axis."""
    at = axis_of(axis, data.ndim)
    return (*data.shape[:at], *indices.shape, *data.shape[at + 1 :])


def _with_mask(x: Array, *others: Array | None, **attributes: Any) -> Shapes:
    """The first input's shape, and that of a mask."""
    return [blank(x.shape, x.dtype), blank(x.shape, np.bool_)]


def _numbered(x: Array, *, dtype: int = 0, **attributes: Any) -> Shapes:
    """The first input's shape, in the type that an attribute names."""
    return blank(x.shape, DTYPES[dtype] if dtype else x.dtype)


def _by_channel(x: Array, **attributes: Any) -> Shape:
    """The shape of one result per channel: [N, C, 1...]."""
    return (*x.shape[:2], *[1] * (x.ndim - 2))


# ---- ranks -------------------------------------------------------------------------------------


def _first_rank(ranks: Ranks, node: Node, length: Length) -> int | None:
    return ranks[0]


def _most_rank(ranks: Ranks, node: Node, length: Length) -> int | None:
    known = [rank for rank in ranks if rank is not None]
    return max(known) if len(known) == len([*filter(None, node.inputs)]) else None


def _product_rank(ranks: Ranks, node: Node, length: Length) -> int | None:
    """The rank of a product of matrices, or of stacks of them."""
    known = [rank for rank in ranks[:2] if rank is not None and rank >= 2]
    return max(known) if len(known) == 2 else None


def _kept_rank(ranks: Ranks, node: Node, length: Length) -> int | None:
    return ranks[0] if node.attributes.get("keepdims", 1) else None


def _gathered_rank(ranks: Ranks, node: Node, length: Length) -> int | None:
    """The axes of the indices replace one axis."""
    first, places = (*ranks, None)[:2]
    return None if first is None or places is None else first - 1 + places


def _stated_rank(ranks: Ranks, node: Node, length: Length) -> int | None:
    """The number of elements of the second input."""
    return length(1) if len(ranks) > 1 else None


def expanded_rank(ranks: Ranks, node: Node, length: Length) -> int | None:
    wanted = _stated_rank(ranks, node, length)
    return None if ranks[0] is None or wanted is None else max(ranks[0], wanted)


def _axes_more(sign: int) -> Callable[[Ranks, Node, Length], int | None]:
    """The rank with axes added or removed that the second input or an attribute names."""

    def rank(ranks: Ranks, node: Node, length: Length) -> int | None:
        axes = node.attributes.get("axes")
        count = len(axes) if isinstance(axes, list) else None
        count = length(1) if len(node.inputs) > 1 else count
        return None if ranks[0] is None or count is None else ranks[0] + sign * count

    return rank


# ---- rules -------------------------------------------------------------------------------------

UNKNOWN = Rule()
same = Rule(_same, _first_rank)  # as the first input
same_rank = Rule(rank=_first_rank)
most_rank = Rule(rank=_most_rank)
together = Rule(_together, _most_rank)  # as all inputs, as NumPy broadcasts them
product = Rule(_product, _product_rank)  # of the first two inputs
reduced_by_attribute = Rule(_reduced_by_attribute, _kept_rank)
reduced_by_input = Rule(_reduced_by_input, _kept_rank)
one_axis = Rule(_one_axis, _kept_rank)
with_mask = Rule(_with_mask, _first_rank)
numbered = Rule(_numbered, _first_rank)
by_channel = Rule(_by_channel, _first_rank)
vector = Rule(rank=lambda ranks, node, length: 1)
matrix = Rule(rank=lambda ranks, node, length: 2)
gathered = Rule(_gathered, _gathered_rank)
joined = Rule(_joined, _first_rank)
stated = Rule(rank=_stated_rank)
unsqueezed = Rule(rank=_axes_more(1))
squeezed = Rule(rank=_axes_more(-1))


def views(rule: Rule = UNKNOWN) -> Rule:
    """The rule of results that are views of inputs, with the rank of another rule."""
    return replace(rule, views=True)


def alike(shapes: Callable[..., Shapes]) -> Rule:
    """The rule of a result that has as many axes as the first input."""
    return Rule(shapes, _first_rank)


def recurrent(states: int, hidden_axis: int = 2) -> Rule:
    """The rule of a recurrent layer with `states` states: all outputs, and the last of each state.

    `hidden_axis` is the axis of the third input, [directions, ...], that has the hidden size.
    """

    def shapes(
        x: Array, w: Array, r: Array, *others: Array | None, layout: int = 0, **attributes: Any
    ) -> Shapes:
        time, batch = (x.shape[1], x.shape[0]) if layout else x.shape[:2]
        directions, hidden = len(r), r.shape[hidden_axis]
        if layout:
            y, last = (batch, time, directions, hidden), (batch, directions, hidden)
        else:
            y, last = (time, directions, batch, hidden), (directions, batch, hidden)
        return [y, *[last] * states]

    return Rule(shapes)
