"""Control flow: If, Loop, Scan."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.errors import ProgramError
from halfbyte.onnx.files.dtypes import DTYPES
from halfbyte.onnx.reference.arrays import Kept
from halfbyte.onnx.reference.registry import Body, define

Array = npt.NDArray[Any]


@define("If", dynamic=True, special=True)
def if_(cond: Array, *, then_branch: Body, else_branch: Body) -> tuple[Any, ...]:
    """Outputs of `then_branch` where cond (one element) is true, else of `else_branch`."""
    return tuple(then_branch() if cond.item() else else_branch())


@define("Loop", dynamic=True, special=True)
def loop(trips: Array | None, cond: Array | None, *carried: Any, body: Body) -> tuple[Any, ...]:
    """`body` (iteration, condition, carried...) -> (condition, carried..., scanned...), repeated.

    It ends after `trips` iterations (None: no limit) or when the condition is false; scanned
    outputs are stacked along a new first axis. Iteration and condition have the shape that `body`
    declares, () or (1,).
    """
    shapes = [_declared(body, place) for place in (0, 1)]
    going = True if cond is None else bool(cond.item())
    rounds = count() if trips is None else range(int(trips.item()))
    state = list(carried)
    scanned: list[list[Array]] = [[] for _ in body.graph.outputs[1 + len(carried) :]]
    kept = Kept("what the iterations scan")
    for iteration in rounds:
        if not going:
            break
        number, condition = np.array(iteration, np.int64), np.array(True)
        results = body(number.reshape(shapes[0]), condition.reshape(shapes[1]), *state)
        going = bool(results[0].item())
        state = results[1 : 1 + len(state)]
        for values, value in zip(scanned, results[1 + len(state) :], strict=True):
            values.append(value)
            kept.add(value)
    first = 1 + len(state)
    return (*state, *(_stacked(v, body, first + i, 0) for i, v in enumerate(scanned)))


def _declared(body: Body, place: int) -> tuple[int, ...]:
    """The shape of an input of one element: (1,) where the body declares one axis."""
    kind = body.graph.inputs[place].type if place < len(body.graph.inputs) else None
    return (1,) if kind is not None and kind.shape is not None and len(kind.shape) == 1 else ()


@define("Scan", since=9, dynamic=True, special=True)
def scan(
    *values: Array,
    body: Body,
    num_scan_inputs: int,
    scan_input_axes: Sequence[int] | None = None,
    scan_input_directions: Sequence[int] | None = None,
    scan_output_axes: Sequence[int] | None = None,
    scan_output_directions: Sequence[int] | None = None,
) -> tuple[Any, ...]:
    """`body` (state..., slices...) -> (state..., slices...), over slices of the last inputs.

    Slices are taken along `scan_input_axes` (0) and stacked along `scan_output_axes` (0), from the
    last to the first where a direction is 1.
    """
    held = len(values) - num_scan_inputs
    if held < 0 or num_scan_inputs < 1:
        raise ProgramError(f"{num_scan_inputs} scan inputs, expected 1 to {len(values)}")
    state, scanned = list(values[:held]), list(values[held:])
    axes = scan_input_axes or [0] * num_scan_inputs
    scanned = [np.moveaxis(x, axis, 0) for x, axis in zip(scanned, axes, strict=True)]
    directions = scan_input_directions or [0] * num_scan_inputs
    scanned = [x[::-1] if d else x for x, d in zip(scanned, directions, strict=True)]
    if len({len(x) for x in scanned}) != 1:
        raise ProgramError(f"scan inputs of lengths {[len(x) for x in scanned]}, expected one")
    return _scan(state, scanned, body, scan_output_axes, scan_output_directions)


def _scan(
    state: list[Any],
    scanned: Sequence[Array],
    body: Body,
    axes: Sequence[int] | None = None,
    directions: Sequence[int] | None = None,
) -> tuple[Any, ...]:
    """Iterate over the first axes of `scanned`."""
    held = len(state)
    collected: list[list[Array]] = [[] for _ in body.graph.outputs[held:]]
    kept = Kept("what the iterations scan")
    for parts in zip(*scanned, strict=True):
        results = body(*state, *(np.asarray(part) for part in parts))
        state = results[:held]
        for values, value in zip(collected, results[held:], strict=True):
            values.append(value)
            kept.add(value)
    axes = axes or [0] * len(collected)
    directions = directions or [0] * len(collected)
    outputs = [
        _stacked(values[::-1] if direction else values, body, held + index, axis)
        for index, (values, axis, direction) in enumerate(
            zip(collected, axes, directions, strict=True)
        )
    ]
    return (*state, *outputs)


@define("Scan", since=8, dynamic=True, special=True)
def scan_8(
    lengths: Array | None,
    *values: Array,
    body: Body,
    num_scan_inputs: int,
    directions: Sequence[int] | None = None,
) -> tuple[Any, ...]:
    """The same for every element of a batch: state [batch, ...], scan inputs [batch, time, ...].

    `lengths` [batch] is the number of steps of each element; outputs after them are zero.
    """
    held = len(values) - num_scan_inputs
    directions = directions or [0] * num_scan_inputs
    steps = values[-1].shape[1]
    rows = []
    for index in range(len(values[-1])):
        length = steps if lengths is None else int(lengths[index])
        parts = [x[index, :length] for x in values[held:]]
        parts = [x[::-1] if d else x for x, d in zip(parts, directions, strict=True)]
        results = _scan([np.asarray(x[index]) for x in values[:held]], parts, body)
        whole = [
            np.concatenate([x, np.zeros((steps - length, *x.shape[1:]), x.dtype)])
            for x in results[held:]
        ]
        rows.append((*results[:held], *whole))
    return tuple(np.stack(parts) for parts in zip(*rows, strict=True))


def _stacked(values: Sequence[Array], body: Body, output: int, axis: int) -> Array:
    """Values stacked along a new axis; without values, an array of the type that `body` declares.

    Sizes that it does not declare are zero.
    """
    if values:
        return np.stack(values, axis)
    info = body.graph.outputs[output].type
    dtype = DTYPES.get(info.dtype if info else 0)
    if info is None or dtype is None:
        raise ProgramError("no iteration, and the body does not say its outputs' types")
    shape = [d if isinstance(d, int) else 0 for d in info.shape or ()]
    shape.insert(axis % (len(shape) + 1), 0)
    return np.zeros(shape, dtype)
