"""Rules of functions that are composed of others: extremes, Elu, PRelu."""

from __future__ import annotations

import math

import numpy as np

from halfbyte.core import ops
from halfbyte.onnx.capture import Capture
from halfbyte.onnx.lowering.elementwise import apply, combine
from halfbyte.onnx.lowering.move import moved, side_by_side
from halfbyte.onnx.lowering.registry import lower
from halfbyte.onnx.lowering.strides import broadcast
from halfbyte.onnx.sizes import broadcast_shapes
from halfbyte.onnx.values import Array, Value, is_channels_last, key_of, sizes_of


@lower("Max", "Min")
def extreme(c: Capture, *operands: Value | Array) -> Value | Array | None:
    """The largest or smallest of float32 operands, with broadcasting."""
    if any(key_of(v) != "f32" for v in operands):
        return None
    result, *others = sorted(operands, key=lambda v: isinstance(v, np.ndarray))
    for other in others:
        pair = _limited(c, result, other) or _extreme(c, result, other)
        if pair is None:
            return None
        result = pair
    return result


def _limited(c: Capture, x: Value | Array, limit: Value | Array) -> Value | None:
    """The extreme of x and a number."""
    if not isinstance(x, Value) or isinstance(limit, Value) or limit.size != 1:
        return None
    if limit.ndim > len(x.shape):
        return None
    number = float(limit.reshape(-1)[0])
    if c.node.op_type == "Max":
        return apply(c, x, "clip", number, math.inf)
    return apply(c, x, "clip", -math.inf, number)


def _extreme(c: Capture, x: Value | Array, y: Value | Array) -> Value | None:
    """The extreme of two tensors, which are put side by side and reduced."""
    shape = broadcast_shapes(x.shape, y.shape)
    if not math.prod(shape):
        return None
    last = all(isinstance(v, Value) and is_channels_last(v) and v.shape == shape for v in (x, y))
    parts = [part for v in (x, y) if (part := _layer(c, v, shape, last)) is not None]
    rows = side_by_side(c, parts, 0) if len(parts) == 2 else None
    if rows is None:
        return None
    layers = c.plain(rows).view((1, 2, math.prod(shape)))
    z = ops.reduce(layers, function=c.node.op_type.lower())
    if last and isinstance(x, Value):
        return c.value_channels_last(z.view(sizes_of(c.channels_last(x))))
    return c.value(z, shape)


def _layer(
    c: Capture, x: Value | Array, shape: tuple[int, ...], last: bool
) -> Value | Array | None:
    """A tensor, broadcast to a shape, as [1, ...]; with its channels last if all have them so."""
    if not isinstance(x, Value):
        return np.ascontiguousarray(np.broadcast_to(x, shape))[np.newaxis]
    whole: Value | None = c.value(c.channels_last(x)) if last else x
    if x.shape != shape:
        whole = moved(c, x, shape, broadcast(x.shape, shape))
    return None if whole is None else c.reshaped(whole, (1, *whole.shape))


@lower("Elu")
def elu(c: Capture, x: Value, *, alpha: float = 1.0) -> Value | None:
    """x, or alpha (exp(x) - 1) below 0."""
    if not math.isfinite(alpha):
        return None
    power = _below(c, x)
    power = power and apply(c, power, "exp")
    power = power and combine(c, "sub", power, np.array(1, np.float32))
    if power is not None and alpha != 1:
        power = combine(c, "mul", power, np.array(alpha, np.float32))
    return _with_positive(c, x, power)


@lower("PRelu")
def prelu(c: Capture, x: Value | Array, slope: Value | Array) -> Value | None:
    """x, or slope x below 0."""
    if not isinstance(x, Value) or key_of(slope) != "f32":
        return None
    if len(slope.shape) > len(x.shape) or broadcast_shapes(x.shape, slope.shape) != x.shape:
        return None
    if isinstance(slope, np.ndarray) and not np.isfinite(slope).all():
        return None
    low = _below(c, x)
    return _with_positive(c, x, low and combine(c, "mul", low, slope))


def _below(c: Capture, x: Value) -> Value | None:
    return apply(c, x, "clip", -math.inf, 0.0)


def _with_positive(c: Capture, x: Value, below: Value | None) -> Value | None:
    """max(x, 0), plus what a function is below 0."""
    positive = None if below is None else apply(c, x, "relu")
    return None if positive is None or below is None else combine(c, "add", positive, below)
