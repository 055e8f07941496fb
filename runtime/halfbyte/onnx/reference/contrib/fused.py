"""Products and convolutions fused with a transpose, a residual or an activation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.onnx.reference import _shapes
from halfbyte.onnx.reference._numbers import rounded, widened
from halfbyte.onnx.reference.contrib._common import activated, contrib, present
from halfbyte.onnx.reference.conv import conv, convolved
from halfbyte.onnx.reference.conv_transpose import conv_transpose, widened_images
from halfbyte.onnx.reference.pooling import max_pool, pooled

Array = npt.NDArray[Any]


def _transposed(x: Array, batch: int, matrix: int) -> Array:
    """x with its first axis moved before the last (if `batch`), then the last two swapped."""
    if batch:
        x = np.moveaxis(x, 0, -2)
    return np.swapaxes(x, -1, -2) if matrix and x.ndim > 1 else x


def _product(
    a: Array, b: Array, *others: Array | None, transA: int = 0, transB: int = 0,
    transBatchA: int = 0, transBatchB: int = 0, **attributes: Any,
) -> _shapes.Shape:  # fmt: skip
    left, right = _transposed(a, transBatchA, transA), _transposed(b, transBatchB, transB)
    return _shapes.after_product(left.shape, right.shape)


@contrib("TransposeMatMul", infer=_shapes.Rule(_product), types="a a > a")
@contrib("FusedMatMul", infer=_shapes.Rule(_product), types="a a > a")
def fused_matmul(
    a: Array,
    b: Array,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    transBatchA: int = 0,
    transBatchB: int = 0,
) -> Array:
    """alpha a b, each of them transposed first where its attributes say so."""
    left = _transposed(widened(a), transBatchA, transA)
    product = np.matmul(left, _transposed(widened(b), transBatchB, transB))
    return rounded(product * np.asarray(alpha, product.dtype), a.dtype)


@contrib("FusedMatMulActivation", infer=_shapes.Rule(_product), types="a a > a")
def fused_matmul_activation(
    a: Array,
    b: Array,
    *,
    activation: str,
    activation_alpha: float | None = None,
    activation_beta: float | None = None,
    activation_gamma: float | None = None,
    activation_axis: int | None = None,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    transBatchA: int = 0,
    transBatchB: int = 0,
) -> Array:
    """FusedMatMul, then an activation."""
    product = fused_matmul(
        widened(a), widened(b), alpha=alpha, transA=transA, transB=transB,
        transBatchA=transBatchA, transBatchB=transBatchB,
    )  # fmt: skip
    parameters = present(activation_alpha, activation_beta, activation_gamma)
    return rounded(activated(product, activation, parameters), a.dtype)


@contrib("FusedGemm", infer=_shapes.Rule(_product), types="a a a > a")
def fused_gemm(
    a: Array,
    b: Array,
    c: Array | None = None,
    *,
    activation: str | None = None,
    activation_alpha: float | None = None,
    activation_beta: float | None = None,
    activation_gamma: float | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Array:
    """Gemm (alpha a b + beta c), then an activation."""
    left, right = (_transposed(widened(x), 0, t) for x, t in ((a, transA), (b, transB)))
    result = left @ right * np.asarray(alpha, left.dtype)
    if c is not None:
        result = result + widened(c) * np.asarray(beta, left.dtype)
    parameters = present(activation_alpha, activation_beta, activation_gamma)
    return rounded(activated(result, activation, parameters), a.dtype)


def _convolved(
    x: Array, w: Array, b: Array | None = None, z: Array | None = None, *,
    activation: str | None = None, activation_params: Sequence[float] = (), **attributes: Any,
) -> _shapes.Shape:  # fmt: skip
    shape = convolved(x, w, **attributes)
    return shape if z is None else np.broadcast_shapes(shape, z.shape)


def _convolved_last(
    x: Array, w: Array, b: Array | None = None, z: Array | None = None, **attributes: Any
) -> _shapes.Shape:
    """The same where channels are the last axis."""
    planes = None if z is None else np.moveaxis(z, -1, 1)
    batch, channels, *sizes = _convolved(np.moveaxis(x, -1, 1), w, b, planes, **attributes)
    return (batch, *sizes, channels)


@contrib("FusedConv", infer=_shapes.Rule(_convolved, _shapes.most_rank.rank), types="a a a a > a")
def fused_conv(
    x: Array,
    w: Array,
    b: Array | None = None,
    z: Array | None = None,
    *,
    activation: str | None = None,
    activation_params: Sequence[float] = (),
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Array:
    """Conv, plus z of the result's shape, then an activation."""
    bias = None if b is None else widened(b)
    result = conv(
        widened(x), widened(w), bias, auto_pad=auto_pad, dilations=dilations, group=group,
        kernel_shape=kernel_shape, pads=pads, strides=strides,
    )  # fmt: skip
    whole = result if z is None else result + widened(z)
    return rounded(activated(whole, activation, activation_params), x.dtype)


@contrib("NhwcFusedConv", infer=_shapes.alike(_convolved_last), types="a a a a > a")
def nhwc_fused_conv(
    x: Array, w: Array, b: Array | None = None, z: Array | None = None, *,
    activation: str | None = None, activation_params: Sequence[float] = (),
    auto_pad: str = "NOTSET", dilations: Sequence[int] | None = None, group: int = 1,
    kernel_shape: Sequence[int] | None = None, pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Array:  # fmt: skip
    """FusedConv of x [batch, sizes..., channels], z and the result likewise; w is Conv's."""
    first = fused_conv(
        np.moveaxis(x, -1, 1), w, b, None if z is None else np.moveaxis(z, -1, 1),
        activation=activation, activation_params=activation_params, auto_pad=auto_pad,
        dilations=dilations, group=group, kernel_shape=kernel_shape, pads=pads, strides=strides,
    )  # fmt: skip
    return np.moveaxis(first, 1, -1)


@contrib(
    "NhwcConv",
    infer=_shapes.alike(lambda x, w, *b, **a: _convolved_last(x, np.moveaxis(w, -1, 1), **a)),
    types="a a a > a",
)
def nhwc_conv(
    x: Array, w: Array, b: Array | None = None, *, auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None, group: int = 1,
    kernel_shape: Sequence[int] | None = None, pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Array:  # fmt: skip
    """Conv of x [batch, sizes..., channels]; w [m, sizes..., channels / group] is too."""
    return nhwc_fused_conv(
        x, np.moveaxis(w, -1, 1), b, auto_pad=auto_pad, dilations=dilations, group=group,
        kernel_shape=kernel_shape, pads=pads, strides=strides,
    )  # fmt: skip


def _pooled_last(x: Array, **attributes: Any) -> _shapes.Shape:
    shape: Any = pooled(np.moveaxis(x, -1, 1), **attributes)
    batch, channels, *sizes = shape
    return (batch, *sizes, channels)


@contrib("NhwcMaxPool", infer=_shapes.alike(_pooled_last), types="a > a")
def nhwc_max_pool(
    x: Array, *, kernel_shape: Sequence[int], auto_pad: str = "NOTSET", ceil_mode: int = 0,
    dilations: Sequence[int] | None = None, pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Array:  # fmt: skip
    """MaxPool of 8-bit x [batch, sizes..., channels]."""
    result = max_pool(
        np.moveaxis(x, -1, 1), kernel_shape=kernel_shape, auto_pad=auto_pad, ceil_mode=ceil_mode,
        dilations=dilations, pads=pads, strides=strides,
    )  # fmt: skip
    first = result[0] if isinstance(result, tuple) else result
    return np.moveaxis(first, 1, -1)


def _dynamic_pads(
    x: Array, w: Array, pads: Array | None = None, b: Array | None = None, **attributes: Any
) -> Any:
    return widened_images(x, w, pads=None if pads is None else pads.tolist(), **attributes)


@contrib(
    "ConvTransposeWithDynamicPads", decided_by=(2,), infer=_shapes.Rule(_dynamic_pads),
    types="a > a",
)  # fmt: skip
def conv_transpose_with_dynamic_pads(
    x: Array, w: Array, pads: Array | None = None, b: Array | None = None, *,
    auto_pad: str = "NOTSET", dilations: Sequence[int] | None = None, group: int = 1,
    kernel_shape: Sequence[int] | None = None, output_padding: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Any:  # fmt: skip
    """ConvTranspose whose pads are an input."""
    return conv_transpose(
        x, w, b, auto_pad=auto_pad, dilations=dilations, group=group, kernel_shape=kernel_shape,
        output_padding=output_padding, strides=strides,
        pads=None if pads is None else pads.tolist(),
    )  # fmt: skip
