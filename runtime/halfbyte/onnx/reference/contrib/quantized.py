"""8-bit operators with a scale and a zero point for each operand: (x - zero) scale."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.core.ops.elementwise import UNARY
from halfbyte.core.ops.quantized import bytes_of
from halfbyte.core.ops.reduce import mean_of
from halfbyte.errors import ProgramError
from halfbyte.onnx.reference import _shapes, conv
from halfbyte.onnx.reference._attention import softmax
from halfbyte.onnx.reference._numbers import rounded, widened
from halfbyte.onnx.reference.contrib._common import (
    contrib,
    dequantized,
    quantized,
    sigmoid,
)
from halfbyte.onnx.reference.pooling import average_pool, pooled
from halfbyte.onnx.reference.rnn import lstm_layer, lstm_step

Array = npt.NDArray[Any]
Zero = Array | None  # None is zero


_SINGLE = "a.2,3 s.1 a s.1 a > a"
_PAIR = "a.2,3 s.1 a a s.1 a s.1 a > a"


def _pair(*inputs: Array | None) -> _shapes.Shape:
    """The shape of two quantized tensors broadcast, each followed by its scale and zero point."""
    a, b = inputs[0], inputs[3]
    if a is None or b is None:
        raise ProgramError("an operand is left out")
    return np.broadcast_shapes(a.shape, b.shape)


@contrib("QLinearAdd", types=_PAIR, infer=_shapes.Rule(_pair))
def qlinear_add(
    a: Array, a_scale: Array, a_zero: Zero, b: Array, b_scale: Array, b_zero: Zero,
    c_scale: Array, c_zero: Zero = None,
) -> Array:  # fmt: skip
    """a + b, broadcast."""
    total = dequantized(a, a_scale, a_zero) + dequantized(b, b_scale, b_zero)
    return quantized(total, c_scale, _typed(c_zero, a))


@contrib("QLinearMul", types=_PAIR, infer=_shapes.Rule(_pair))
def qlinear_mul(
    a: Array, a_scale: Array, a_zero: Zero, b: Array, b_scale: Array, b_zero: Zero,
    c_scale: Array, c_zero: Zero = None,
) -> Array:  # fmt: skip
    """a b, element by element, broadcast."""
    product = dequantized(a, a_scale, a_zero) * dequantized(b, b_scale, b_zero)
    return quantized(product, c_scale, _typed(c_zero, a))


def _typed(zero: Zero, like: Array) -> Array:
    """The zero point; 0 where it is left out."""
    return np.zeros((), like.dtype) if zero is None else zero


@contrib("QLinearSigmoid", infer=_shapes.same, types=_SINGLE)
def qlinear_sigmoid(
    x: Array, x_scale: Array, x_zero: Zero, y_scale: Array, y_zero: Zero = None
) -> Array:
    """1 / (1 + exp(-x))."""
    return quantized(sigmoid(dequantized(x, x_scale, x_zero)), y_scale, _typed(y_zero, x))


@contrib("QLinearLeakyRelu", infer=_shapes.same, types=_SINGLE)
def qlinear_leaky_relu(
    x: Array, x_scale: Array, x_zero: Zero, y_scale: Array, y_zero: Zero = None, *,
    alpha: float = 0.01,
) -> Array:  # fmt: skip
    """x, or alpha x where x is negative."""
    real = dequantized(x, x_scale, x_zero)
    sloped = UNARY["leaky_relu"](real, alpha, 0)
    return quantized(sloped, y_scale, _typed(y_zero, x))


@contrib("QLinearSoftmax", infer=_shapes.same, types=_SINGLE)
def qlinear_softmax(
    x: Array, x_scale: Array, x_zero: Zero, y_scale: Array, y_zero: Array, *,
    opset: int, axis: int = -1,
) -> Array:  # fmt: skip
    """softmax along `axis`; under an opset below 13, over all axes from `axis` on."""
    real = dequantized(x, x_scale, x_zero)
    if opset < 13:
        rows = real.reshape(*x.shape[: axis % x.ndim], -1)
        return quantized(softmax(rows).reshape(x.shape), y_scale, y_zero)
    result = np.moveaxis(softmax(np.moveaxis(real, axis, -1)), -1, axis)
    return quantized(result, y_scale, y_zero)


def _concatenated(y_scale: Array, y_zero: Array, *inputs: Array, axis: int) -> _shapes.Shapes:
    joined: Any = _shapes.joined.shapes
    return _shapes.blank(joined(*inputs[::3], axis=axis), y_zero.dtype)


@contrib("QLinearConcat", infer=_shapes.Rule(_concatenated))
def qlinear_concat(y_scale: Array, y_zero: Array, *inputs: Array, axis: int) -> Array:
    """Tensors, each followed by its scale and zero point, concatenated along `axis`."""
    if len(inputs) % 3:
        raise ProgramError(f"{len(inputs)} inputs, expected tensor, scale and zero point of each")
    parts = [dequantized(inputs[i], inputs[i + 1], inputs[i + 2]) for i in range(0, len(inputs), 3)]
    return quantized(np.concatenate(parts, axis), y_scale, y_zero)


def _chosen(condition: Array, x: Array, *others: Array | None) -> _shapes.Shape:
    """The shape of a choice between the second input and the fifth."""
    y = others[2]
    if y is None:
        raise ProgramError("an operand is left out")
    return np.broadcast_shapes(condition.shape, x.shape, y.shape)


@contrib("QLinearWhere", infer=_shapes.Rule(_chosen), types="c.9 a.2,3 s.1 a a s.1 a s.1 a > a")
def qlinear_where(
    condition: Array, x: Array, x_scale: Array, x_zero: Array, y: Array, y_scale: Array,
    y_zero: Array, z_scale: Array, z_zero: Array,
) -> Array:  # fmt: skip
    """x where the condition is true, else y."""
    parts = dequantized(x, x_scale, x_zero), dequantized(y, y_scale, y_zero)
    return quantized(np.where(condition, *parts), z_scale, z_zero)


@contrib("QLinearReduceMean", infer=_shapes.reduced_by_attribute, types=_SINGLE)
def qlinear_reduce_mean(
    data: Array, scale: Array, zero: Zero, reduced_scale: Array, reduced_zero: Zero = None, *,
    axes: Sequence[int], keepdims: int,
) -> Array:  # fmt: skip
    """The mean over `axes`."""
    real = dequantized(data, scale, zero)
    mean = mean_of(real, tuple(axes) or None, keepdims=bool(keepdims))
    return quantized(mean, reduced_scale, _typed(reduced_zero, data))


def _channels(x: Array, *others: Array | None, channels_last: int = 0) -> _shapes.Shape:
    ones = [1] * (x.ndim - 2)
    return (len(x), *ones, x.shape[-1]) if channels_last else (*x.shape[:2], *ones)


@contrib("QLinearGlobalAveragePool", types=_SINGLE, infer=_shapes.alike(_channels))
def qlinear_global_average_pool(
    x: Array, x_scale: Array, x_zero: Array, y_scale: Array, y_zero: Array, *,
    channels_last: int = 0,
) -> Array:  # fmt: skip
    """The mean of each channel."""
    if x.ndim < 3:
        raise ProgramError(f"input {list(x.shape)}: expected three axes or more")
    axes = tuple(range(1, x.ndim - 1) if channels_last else range(2, x.ndim))
    mean = mean_of(dequantized(x, x_scale, x_zero), axes)
    return quantized(mean, y_scale, y_zero)


def _in_order(
    rule: Callable[..., Any], x: Array, *others: Array | None, channels_last: int = 0,
    **attributes: Any,
) -> _shapes.Shape:  # fmt: skip
    """The shape that a rule for channels along the second axis gives, whatever their axis is."""
    batch, channels, *sizes = rule(
        np.moveaxis(x, -1, 1) if channels_last else x, *others, **attributes
    )
    return (batch, *sizes, channels) if channels_last else (batch, channels, *sizes)


def _average(x: Array, *others: Array | None, count_include_pad: int = 0, **attributes: Any) -> Any:
    return pooled(x, **attributes)


@contrib(
    "QLinearAveragePool",
    types=_SINGLE,
    infer=_shapes.alike(functools.partial(_in_order, _average)),
)
def qlinear_average_pool(
    x: Array, x_scale: Array, x_zero: Zero, y_scale: Array, y_zero: Zero = None, *,
    kernel_shape: Sequence[int], auto_pad: str = "NOTSET", ceil_mode: int = 0,
    channels_last: int = 0, count_include_pad: int = 0, pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Array:  # fmt: skip
    """AveragePool; padding counts as zero if `count_include_pad`."""
    real = dequantized(x, x_scale, x_zero)
    pooled = average_pool(
        np.moveaxis(real, -1, 1) if channels_last else real, kernel_shape=kernel_shape,
        auto_pad=auto_pad, ceil_mode=ceil_mode, count_include_pad=count_include_pad, pads=pads,
        strides=strides,
    )  # fmt: skip
    pooled = np.moveaxis(pooled, 1, -1) if channels_last else pooled
    return quantized(pooled, y_scale, _typed(y_zero, x))


@contrib(
    "QLinearConv",
    product=True,
    infer=_shapes.alike(functools.partial(_in_order, conv.convolved)),
    types="a.2,3 s.1 a b.2,3 s.1 b s.1 c.2,3 i.6 > c",
)
def qlinear_conv(
    x: Array, x_scale: Array, x_zero: Array, w: Array, w_scale: Array, w_zero: Array,
    y_scale: Array, y_zero: Array, b: Array | None = None, *, auto_pad: str = "NOTSET",
    channels_last: int = 0, dilations: Sequence[int] | None = None, group: int = 1,
    kernel_shape: Sequence[int] | None = None, pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Array:  # fmt: skip
    """ONNX's QLinearConv, of x [batch, sizes..., channels] if `channels_last`; w is Conv's."""
    result: Array = conv.qlinear_conv(
        np.moveaxis(x, -1, 1) if channels_last else x, x_scale, x_zero, w, w_scale, w_zero,
        y_scale, y_zero, b, auto_pad=auto_pad, dilations=dilations, group=group,
        kernel_shape=kernel_shape, pads=pads, strides=strides,
    )  # fmt: skip
    return np.moveaxis(result, 1, -1) if channels_last else result


def _qgemm_shape(
    a: Array, a_scale: Array, a_zero: Array, b: Array, b_scale: Array, b_zero: Array,
    c: Array | None = None, y_scale: Array | None = None, y_zero: Array | None = None, *,
    transA: int = 0, transB: int = 0, **attributes: Any,
) -> _shapes.Shapes:  # fmt: skip
    shape = _shapes.after_product((a.T if transA else a).shape, (b.T if transB else b).shape)
    as_floats = y_scale is None or y_zero is None
    return _shapes.blank(shape, np.float32 if as_floats or y_zero is None else y_zero.dtype)


@contrib(
    "QGemm", infer=_shapes.Rule(_qgemm_shape), types="a.2,3 s.1 a b.2,3 s.1 b i.6 s.1 c.2,3 > -"
)
def qgemm(
    a: Array, a_scale: Array, a_zero: Array, b: Array, b_scale: Array, b_zero: Array,
    c: Array | None = None, y_scale: Array | None = None, y_zero: Array | None = None, *,
    alpha: float = 1.0, transA: int = 0, transB: int = 0,
) -> Array:  # fmt: skip
    """alpha a b + c, in floats where there is no y_scale or no y_zero.

    b's scale and zero point may be by column; c is int32 in units of alpha a_scale b_scale.
    """
    left = a.astype(np.int32) - a_zero.astype(np.int32)
    right = b.astype(np.int32)
    right = (right.T if transB else right) - b_zero.astype(np.int32)
    sums = (left.T if transA else left) @ right
    factor = np.float32(alpha) * a_scale * b_scale
    real = (sums if c is None else sums + c).astype(np.float32) * factor
    return real if y_scale is None or y_zero is None else quantized(real, y_scale, y_zero)


def _like_zero(x: Array, scale: Array, zero: Zero = None, **attributes: Any) -> _shapes.Shapes:
    return _shapes.blank(x.shape, np.uint8 if zero is None else zero.dtype)


@contrib("QuantizeLinear", infer=_shapes.alike(_like_zero), types="a a > -")
def quantize_linear(x: Array, scale: Array, zero: Zero = None, *, axis: int = 1) -> Array:
    """round(x / scale) + zero; vectors are over `axis`."""
    return _like(x, quantized(widened(x), widened(scale), zero, axis))


@contrib("DequantizeLinear", infer=_shapes.same, types="a b a > b")
def dequantize_linear(x: Array, scale: Array, zero: Zero = None, *, axis: int = 1) -> Array:
    """(x - zero) scale; vectors are over `axis`."""
    return _like(x, rounded(dequantized(x, widened(scale), zero, axis), scale.dtype))


def _like(x: Array, result: Array) -> Array:
    """A result of x's shape; a scale or zero point may not broadcast x."""
    if result.shape != x.shape:
        raise ProgramError(f"scale or zero point: {list(result.shape)} with x {list(x.shape)}")
    return result


def _both(a: Array, a_zero: Zero, b: Array, b_zero: Zero = None) -> _shapes.Shape:
    return np.broadcast_shapes(a.shape, b.shape)


@contrib("MulInteger", infer=_shapes.Rule(_both), types="a a b b > 6")
def mul_integer(a: Array, a_zero: Zero, b: Array, b_zero: Zero = None) -> Array:
    """(a - za) (b - zb) in int32."""
    one = np.ones((), np.float32)
    return (dequantized(a, one, a_zero) * dequantized(b, one, b_zero)).astype(np.int32)


def _summed(data: Array, *, axes: Sequence[int], keepdims: int) -> _shapes.Shapes:
    reduced: Any = _shapes.reduced_by_attribute.shapes
    kind = np.uint32 if data.dtype.kind == "u" else np.int32
    return _shapes.blank(reduced(data, axes=axes, keepdims=keepdims), kind)


@contrib("ReduceSumInteger", infer=_shapes.Rule(_summed))
def reduce_sum_integer(data: Array, *, axes: Sequence[int], keepdims: int) -> Array:
    """The sum over `axes`, in int32 or uint32."""
    kind = np.uint32 if data.dtype.kind == "u" else np.int32
    return np.asarray(data.sum(tuple(axes) or None, dtype=kind, keepdims=bool(keepdims)))


@contrib("DynamicQuantizeLSTM", types="a - > a a a", infer=_shapes.recurrent(2, hidden_axis=1))
def dynamic_quantize_lstm(
    x: Array, w: Array, r: Array, b: Array | None, sequence_lens: Array | None,
    initial_h: Array | None, initial_c: Array | None, p: Array | None,
    w_scale: Array, w_zero: Array, r_scale: Array, r_zero: Array, *,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None, activations: Sequence[str] | None = None,
    clip: float = 0.0, direction: str = "forward", hidden_size: int = 0, input_forget: int = 0,
) -> Any:  # fmt: skip
    """LSTM with 8-bit weights, w [directions, inputs, 4 hidden], r [directions, hidden, 4 hidden].

    Scales and zero points are by direction, or by direction and column. x is quantized to 8 bits as
    DynamicQuantizeLinear does, and so is the hidden state of a direction at each step.
    """
    weights = [
        np.swapaxes((q.astype(np.int32) - _by_column(zero).astype(np.int32))
                    .astype(np.float32) * _by_column(scale), 1, 2)
        for q, scale, zero in ((w, w_scale, w_zero), (r, r_scale, r_zero))
    ]  # fmt: skip
    return lstm_layer(
        (_in_bytes(x), weights[0], weights[1], b, sequence_lens), (initial_h, initial_c), p,
        (activations, activation_alpha, activation_beta, clip), direction, 0,
        lstm_step(input_forget, _in_bytes),
    )  # fmt: skip


def _in_bytes(x: Array) -> Array:
    """Numbers rounded to 8 bits, by their range with 0."""
    quantized, scale, zero = bytes_of(x, x.min(initial=0), x.max(initial=0))
    return (quantized.astype(np.int32) - zero).astype(np.float32) * scale


def _by_column(values: Array) -> Array:
    """[directions] or [directions, columns], to be broadcast with [directions, rows, columns]."""
    return values.reshape(len(values), 1, -1)
