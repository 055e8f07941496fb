"""Nodes over constants that depend on sizes which differ between calls (`size_arrays`).

The results are such constants too: their numbers have formulas where a node moves or combines
whole numbers that have some; of others, the shape is known, and the node's definition computes them
for the sizes of each run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from halfbyte.errors import ProgramError
from halfbyte.onnx.files.dtypes import DTYPES
from halfbyte.onnx.files.model import Node
from halfbyte.onnx.reference.arrays import axes_of, axis_of
from halfbyte.onnx.size_arrays import SizedArray, is_sized, now, with_numbers
from halfbyte.onnx.sizes import FixedSizeError, Sizes, broadcast_shapes, is_named

MAX_NUMBERS = 64  # of an array whose numbers have formulas

Shape = tuple[int, ...]


def results_of(
    node: Node, call: Callable[[Sequence[Any]], Sequence[Any]], inputs: Sequence[Any]
) -> Sequence[Any]:
    """Results of a node of which some inputs are sized arrays, and no input is computed.

    Raises
    ------
    FixedSizeError
        No rule knows them.
    """
    sized = next(v for v in inputs if is_sized(v))
    formulas = _FORMULAS.get(node.op_type) if not node.domain else None
    if formulas is not None and all(map(_has_numbers, inputs)):
        numbers = [None if v is None else _objects(v) for v in inputs]
        result = formulas(node, numbers)
        if result is not None:
            dtype = DTYPES[node.attributes["to"]] if node.op_type == "Cast" else sized.dtype
            return [with_numbers(sized.under, result, dtype)]
    shapes = _SHAPES.get(node.op_type) if not node.domain else None
    inferred = None if shapes is None else shapes(node, inputs)
    if inferred is None:
        raise FixedSizeError(sized.under.values)
    return [_later(sized.under, node, call, inputs, *inferred)]


def _later(
    under: Sizes,
    node: Node,
    call: Callable[[Sequence[Any]], Sequence[Any]],
    inputs: Sequence[Any],
    dtype: np.dtype[Any],
    shape: Shape,
) -> SizedArray:
    """A node's result, which is computed by its definition for the sizes of each run."""

    def compute() -> np.ndarray[Any, Any]:
        (result,) = call([now(v) for v in inputs])
        wanted = tuple(d.now() if is_named(d) else d for d in shape)
        if result.shape != wanted or result.dtype != dtype:
            raise ProgramError(f"{node}: {result.dtype}{result.shape}, expected {dtype}{wanted}")
        return np.asarray(result)

    array = SizedArray(under, dtype, shape, compute=compute)
    array.now()  # it has to fit the captured call
    return array


def _has_numbers(value: Any) -> bool:
    if value is None or (is_sized(value) and value.numbers is not None):
        return True
    real = type(value) is np.ndarray
    return real and value.dtype.kind in "iub" and value.size <= MAX_NUMBERS


def _objects(value: Any) -> np.ndarray[Any, Any]:
    return value.numbers if is_sized(value) else value.astype(object)  # type: ignore[no-any-return]


def _axes(node: Node, inputs: Sequence[Any]) -> list[int] | None:
    given = inputs[1] if len(inputs) > 1 and inputs[1] is not None else None
    return node.attributes.get("axes") if given is None else [int(a) for a in given.reshape(-1)]


def _unsqueezed(node: Node, inputs: Sequence[Any]) -> Any:
    axes = _axes(node, inputs)
    return None if axes is None else np.expand_dims(inputs[0], tuple(axes))


def _squeezed(node: Node, inputs: Sequence[Any]) -> Any:
    axes = _axes(node, inputs)
    return np.squeeze(inputs[0], None if axes is None else tuple(axes))


def _gathered(node: Node, inputs: Sequence[Any]) -> Any:
    data, places = inputs
    return np.take(data, places.astype(np.int64), axis=node.attributes.get("axis", 0))


def _quotient(node: Node, inputs: Sequence[Any]) -> Any:
    x, y = np.broadcast_arrays(*inputs)
    pairs = list(zip(x.reshape(-1), y.reshape(-1), strict=True))
    if any(a < 0 or b <= 0 for a, b in pairs):
        return None
    result = np.empty(x.size, object)
    result[:] = [a // b for a, b in pairs]
    return result.reshape(x.shape)


def _sliced(node: Node, inputs: Sequence[Any]) -> Any:
    data, *bounds = inputs
    if len(bounds) < 2 or data.ndim != 1:
        return None
    first, last = (int(b.reshape(-1)[0]) for b in bounds[:2])
    step = int(bounds[3].reshape(-1)[0]) if len(bounds) > 3 and bounds[3] is not None else 1
    return data[first:last:step] if step > 0 else None


def _cast(node: Node, inputs: Sequence[Any]) -> Any:
    whole = DTYPES.get(node.attributes.get("to", 0)) in (np.int64, np.int32)
    return inputs[0] if whole else None


def _reshaped(node: Node, inputs: Sequence[Any]) -> Any:
    data, shape = inputs
    sizes = [int(d) for d in shape.reshape(-1)]
    return None if 0 in sizes else data.reshape(sizes)


_FORMULAS: dict[str, Callable[[Node, Sequence[Any]], Any]] = {
    "Identity": lambda node, inputs: inputs[0],
    "Gather": _gathered,
    "Unsqueeze": _unsqueezed,
    "Squeeze": _squeezed,
    "Concat": lambda node, inputs: np.concatenate(inputs, axis=node.attributes["axis"]),
    "Cast": _cast,
    "Add": lambda node, inputs: inputs[0] + inputs[1],
    "Sub": lambda node, inputs: inputs[0] - inputs[1],
    "Mul": lambda node, inputs: inputs[0] * inputs[1],
    "Div": _quotient,
    "Slice": _sliced,
    "Reshape": _reshaped,
}


# ---- shapes of other results -------------------------------------------------------------------

Found = tuple[np.dtype[Any], Shape] | None


def _elementwise(node: Node, inputs: Sequence[Any]) -> Found:
    given = [v for v in inputs if v is not None]
    dtype = given[-1].dtype
    if node.op_type in ("Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual", "Not"):
        dtype = np.dtype(bool)
    return dtype, broadcast_shapes(*(v.shape for v in given))


def _slice_shape(node: Node, inputs: Sequence[Any]) -> Found:
    if len(inputs) < 3:
        return None
    data, first, last, *others = inputs
    rank, count = data.ndim, len(first)
    along = others[0] if others and others[0] is not None else np.arange(count)
    by = others[1] if len(others) > 1 and others[1] is not None else np.ones(count, np.int64)
    shape = list(data.shape)
    for axis, begin, end, step in zip(
        axes_of(along, rank), first.tolist(), last.tolist(), by.tolist(), strict=True
    ):
        if step != 1:
            return None
        shape[axis] = bounds(begin, end, shape[axis])[1]
    return data.dtype, tuple(shape)


def bounds(first: Any, last: Any, size: Any) -> tuple[Any, Any]:
    """The first place and the length of [first, last) of an axis, as Slice has it with step 1."""
    places = []
    for place in (first, last):
        place = place + size if place < 0 else place
        place = 0 if place < 0 else size if place > size else place
        places.append(place)
    begin, end = places
    return begin, (end - begin if end > begin else 0)


def _gather_shape(node: Node, inputs: Sequence[Any]) -> Found:
    data, places = inputs
    at = axis_of(node.attributes.get("axis", 0), data.ndim)
    return data.dtype, (*data.shape[:at], *places.shape, *data.shape[at + 1 :])


def _unsqueeze_shape(node: Node, inputs: Sequence[Any]) -> Found:
    axes = _axes(node, inputs)
    if axes is None:
        return None
    rank = inputs[0].ndim + len(axes)
    added, sizes = axes_of(axes, rank), iter(inputs[0].shape)
    return inputs[0].dtype, tuple(1 if i in added else next(sizes) for i in range(rank))


def _expand_shape(node: Node, inputs: Sequence[Any]) -> Found:
    return inputs[0].dtype, broadcast_shapes(inputs[0].shape, inputs[1].tolist())


def _filled_shape(node: Node, inputs: Sequence[Any]) -> Found:
    value = node.attributes.get("value")
    dtype = value.dtype if isinstance(value, np.ndarray) else np.dtype(np.float32)
    return dtype, tuple(inputs[0].tolist())


def _range_shape(node: Node, inputs: Sequence[Any]) -> Found:
    first, last, step = (v.item() for v in inputs)
    if inputs[0].dtype.kind not in "iu" or step != 1 or not last > first:
        return None
    return inputs[0].dtype, (last - first,)


def _transpose_shape(node: Node, inputs: Sequence[Any]) -> Found:
    shape = inputs[0].shape
    order = node.attributes.get("perm", list(reversed(range(len(shape)))))
    return inputs[0].dtype, tuple(shape[i] for i in order)


def _reshape_shape(node: Node, inputs: Sequence[Any]) -> Found:
    wanted = list(inputs[1].tolist())
    if any(d == 0 for d in wanted):
        return None
    if sum(1 for d in wanted if d == -1) == 1:
        at = next(i for i, d in enumerate(wanted) if d == -1)
        known = math.prod(d for i, d in enumerate(wanted) if i != at)
        wanted[at] = inputs[0].size // known
    return inputs[0].dtype, tuple(wanted)


def _cast_shape(node: Node, inputs: Sequence[Any]) -> Found:
    dtype = DTYPES.get(node.attributes.get("to", 0))
    return None if dtype is None else (dtype, inputs[0].shape)


_SHAPES: dict[str, Callable[[Node, Sequence[Any]], Found]] = {
    "Slice": _slice_shape,
    "Gather": _gather_shape,
    "Unsqueeze": _unsqueeze_shape,
    "Expand": _expand_shape,
    "ConstantOfShape": _filled_shape,
    "Range": _range_shape,
    "Transpose": _transpose_shape,
    "Reshape": _reshape_shape,
    "Cast": _cast_shape,
    "Identity": lambda node, inputs: (inputs[0].dtype, inputs[0].shape),
    "Trilu": lambda node, inputs: (inputs[0].dtype, inputs[0].shape),
    **dict.fromkeys(
        (
            "Add", "Sub", "Mul", "Div", "Equal", "Less", "Greater", "LessOrEqual",
            "GreaterOrEqual", "And", "Or", "Not", "Where", "Neg", "Abs", "Min", "Max", "Clip",
        ),
        _elementwise,
    ),
}  # fmt: skip
