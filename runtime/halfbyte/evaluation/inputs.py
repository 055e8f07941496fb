"""Inputs of a graph: arrays of a file, or seeded random ones that suit its operators."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.errors import HalfbyteError, OutOfMemoryError
from halfbyte.formats.npz import read_npz
from halfbyte.onnx.files import dtypes
from halfbyte.onnx.files.model import Graph, Model, ValueInfo
from halfbyte.room import available_bytes

Array = npt.NDArray[Any]

# Sizes of open dimensions by a part of their name; the last one matches any name.
_SIZES = (
    ("past", 0), ("batch", 1), ("height", 224), ("width", 224), ("seq", 16), ("len", 16),
    ("token", 16), ("time", 16), ("", 1),
)  # fmt: skip
_PART = 1 << 18  # numbers drawn at once, in a wider type than the input's
_THROUGH = ("Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten")


def graph_feeds(
    model: Model, path: Path | None, sizes: Mapping[str, int], seed: int
) -> dict[str, Array]:
    """Arrays for all inputs of a graph: from a file if it has them, the others random.

    Parameters
    ----------
    model : Model
    path : Path or None
        An .npz file with the names of inputs.
    sizes : mapping of str to int
        Sizes of open dimensions by their symbolic name, or "input.axis" where they have none.
    seed : int
        The same seed gives the same arrays.

    Raises
    ------
    HalfbyteError
        The model has no such name, an array has another type or shape, or an input cannot be
        random.
    """
    arrays = read_npz(path) if path is not None else {}
    return completed(model, arrays, sizes, seed, str(path))


def completed(
    model: Model, arrays: Mapping[str, Array], sizes: Mapping[str, int], seed: int, source: str
) -> dict[str, Any]:
    """The same with given arrays; errors name their `source`."""
    inputs = _inputs(model)
    for name in arrays:
        if name not in inputs:
            raise HalfbyteError(f"{source}: array {name!r}: expected one of {sorted(inputs)}")
    _check_sizes(model, inputs, sizes)
    random = np.random.default_rng(seed)
    feeds: dict[str, Any] = {}
    for name, info in inputs.items():
        if info.type is not None and info.type.kind == "optional" and name not in arrays:
            continue
        shape, dtype = _type(model, info, sizes)
        if name in arrays:
            feeds[name] = _checked(arrays[name], info, dtype, f"{source}: array {name!r}")
        else:
            limit = _limit(model.graph, name)
            feeds[name] = np.asarray(_random(random, shape, dtype, limit, name))
    return feeds


def open_sizes(model: Model, sizes: Mapping[str, int]) -> dict[str, int]:
    """The sizes of open dimensions in random inputs, by name.

    Raises
    ------
    HalfbyteError
        A name is not one of the model's, or a size is negative.
    """
    inputs = _inputs(model)
    _check_sizes(model, inputs, sizes)
    return {
        name: _size(name, axis, sizes)
        for info in inputs.values()
        for axis, name in _open_dimensions(info)
    }


def _inputs(model: Model) -> dict[str, ValueInfo]:
    """The inputs without a default."""
    return {v.name: v for v in model.graph.inputs if v.name not in model.graph.initializers}


def _open_dimensions(info: ValueInfo) -> list[tuple[int, str]]:
    """The open axes of an input, and their names."""
    shape = info.type.shape if info.type is not None else None
    return [
        (axis, dim or f"{info.name}.{axis}")
        for axis, dim in enumerate(shape or ())
        if not isinstance(dim, int)
    ]


def _check_sizes(model: Model, inputs: Mapping[str, ValueInfo], sizes: Mapping[str, int]) -> None:
    known = sorted({name for info in inputs.values() for _, name in _open_dimensions(info)})
    for name, size in sizes.items():
        if name not in known:
            raise HalfbyteError(f"{model.path}: size {name!r}: expected one of {known}")
        if size < 0:
            raise HalfbyteError(f"{model.path}: size {name!r}: expected 0 or more, found {size}")


def _type(
    model: Model, info: ValueInfo, sizes: Mapping[str, int]
) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and dtype of an input."""
    where = f"{model.path}: input {info.name!r}"
    kind = info.type
    dtype = dtypes.DTYPES.get(kind.dtype) if kind is not None else None
    if kind is None or kind.kind != "tensor" or kind.shape is None or dtype is None:
        actual = "nothing said" if kind is None else f"{kind.kind} {kind.dtype} {kind.shape}"
        raise HalfbyteError(f"{where}: expected a tensor of known type and rank, found {actual}")
    chosen = {axis: _size(name, axis, sizes) for axis, name in _open_dimensions(info)}
    shape = tuple(
        dim if isinstance(dim, int) else chosen[axis] for axis, dim in enumerate(kind.shape)
    )
    nbytes, left = math.prod(shape) * dtype.itemsize, available_bytes()
    if nbytes > left:
        raise OutOfMemoryError(
            f"{where}: {list(shape)} of {dtype}: expected at most the {left / 1e6:,.0f} MB of "
            f"memory that are left, found {nbytes / 1e6:,.0f} MB"
        )
    return shape, dtype


def _size(name: str, axis: int, sizes: Mapping[str, int]) -> int:
    if name in sizes:
        return sizes[name]
    if name.rpartition(".")[2] == str(axis):  # without a name
        return 1 if axis == 0 else 16
    if "+" in name:  # exporters write sums of other sizes so
        return sum(_size(part.strip(), axis, sizes) for part in name.split("+"))
    if name.isdigit():
        return int(name)
    return next(size for part, size in _SIZES if part in name.lower())


def _checked(array: Array, info: ValueInfo, dtype: np.dtype[Any], where: str) -> Array:
    shape = info.type.shape if info.type is not None and info.type.shape is not None else ()
    if dtype == dtypes.STRING and array.dtype.kind in "SU":
        array = array.astype(object)
    if array.dtype != dtype:
        raise HalfbyteError(f"{where}: expected {dtype}, found {array.dtype}")
    fits = len(shape) == array.ndim and all(
        not isinstance(dim, int) or dim == size
        for dim, size in zip(shape, array.shape, strict=True)
    )
    if not fits:
        raise HalfbyteError(f"{where}: expected {list(shape)}, found {list(array.shape)}")
    return array


def _limit(graph: Graph, name: str) -> int | None:
    """Rows of the smallest table that an input indexes; None where it indexes none."""
    names, rows = {name}, []
    for node in graph.nodes:
        inputs = node.inputs
        if node.op_type in _THROUGH and inputs and inputs[0] in names:
            names.update(node.outputs)
        elif node.op_type == "Gather" and len(inputs) == 2 and inputs[1] in names:
            table = graph.initializers.get(inputs[0])
            if table is not None and table.shape:
                rows.append(table.shape[node.attributes.get("axis", 0)])
        elif node.op_type == "EmbedLayerNormalization":
            pairs = {inputs[0]: inputs[2], inputs[1]: inputs[4]}
            rows += [
                graph.initializers[table].shape[0]
                for ids, table in pairs.items()
                if ids in names and table in graph.initializers
            ]
    return min(rows, default=None)


def _random(
    random: np.random.Generator,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    limit: int | None,
    name: str,
) -> Any:
    """Normal numbers; indices into a table; ones for masks; 0 and 1 for other integers."""
    if dtype == dtypes.STRING:
        return np.full(shape, "text", object)
    if dtype.kind == "b":
        return _drawn(lambda n: random.random(n) < 0.5, shape, dtype)
    if dtype.names:
        return dtypes.narrow(np.asarray(random.standard_normal(shape, np.float32)), dtype)
    if dtype.kind in "fc":
        return _drawn(random.standard_normal, shape, dtype)
    if "mask" in name.lower():
        return np.ones(shape, dtype)
    if limit is None and dtype.itemsize == 1:  # quantized values
        limits = np.iinfo(dtype)
        return random.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    return _drawn(lambda n: random.integers(0, max(limit or 2, 1), n), shape, dtype)


def _drawn(
    draw: Callable[[int], Array], shape: tuple[int, ...], dtype: np.dtype[Any]
) -> npt.NDArray[Any]:
    values = np.empty(math.prod(shape), dtype)
    for start in range(0, values.size, _PART):
        part = values[start : start + _PART]
        part[...] = draw(part.size)
    return values.reshape(shape)
