"""Rules of convolutions and pools over one to three spatial axes, computed with channels last.

A convolution is a product with panels of weights over rows that are gathered in the cache; a
depthwise one goes along the channels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from halfbyte.core import ops
from halfbyte.core.ops.panels import PANEL
from halfbyte.onnx.capture import Capture
from halfbyte.onnx.lowering.elementwise import apply, combine
from halfbyte.onnx.lowering.linear import vector
from halfbyte.onnx.lowering.move import along, side_by_side, sliced
from halfbyte.onnx.lowering.registry import MICROSOFT, lower
from halfbyte.onnx.lowering.sliding import Sliding, floats, image, result, sliding
from halfbyte.onnx.lowering.volume import image_pool, volume_conv, volume_pool
from halfbyte.onnx.sizes import is_named
from halfbyte.onnx.values import Array, Operand, Value, key_of, sizes_of

_INFINITE = float("inf")
MIN_WINOGRAD = 512  # pairs of channels
COPIES = 4  # results for each channel, up to which a convolution is depthwise
_FUNCTIONS = {"LeakyRelu": "leaky_relu", "Sigmoid": "sigmoid", "Tanh": "tanh",
              "HardSigmoid": "hard_sigmoid"}  # fmt: skip


@lower("Conv")
def conv(
    c: Capture, x: Value, w: Value | Array, b: Operand = None, *, auto_pad: str = "NOTSET",
    dilations: list[int] | None = None, group: int = 1, kernel_shape: list[int] | None = None,
    pads: list[int] | None = None, strides: list[int] | None = None,
) -> Value | None:  # fmt: skip
    """Convolutions of float32 with constant weights."""
    return fused_conv(
        c, x, w, b, auto_pad=auto_pad, dilations=dilations, group=group, pads=pads,
        kernel_shape=kernel_shape, strides=strides,
    )  # fmt: skip


@lower("FusedConv", domain=MICROSOFT)
def fused_conv(
    c: Capture, x: Value, w: Value | Array, b: Operand = None, z: Operand = None, *,
    activation: str = "", activation_params: Sequence[float] = (), auto_pad: str = "NOTSET",
    dilations: list[int] | None = None, group: int = 1, kernel_shape: list[int] | None = None,
    pads: list[int] | None = None, strides: list[int] | None = None,
) -> Value | None:  # fmt: skip
    """Convolutions with an activation and a sum.

    The kernel applies the sum and the limits of the activation; other functions follow it.
    """
    if isinstance(w, Value) or isinstance(b, Value):
        return None
    if {x.dtype, key_of(w)} != {"f32"} or w.ndim != len(x.shape) or not w.size:
        return None
    m, channels, *kernel = w.shape
    if channels * group != x.shape[1] or m % group or list(kernel_shape or kernel) != kernel:
        return None
    window = sliding(x, kernel, strides, dilations, pads, auto_pad)
    if window is None or (z is not None and not _fits(z, (x.shape[0], m, *window.results))):
        return None
    if len(activation_params) != _PARAMETERS.get(activation, -1) or any(
        map(math.isnan, activation_params)
    ):
        return None
    w = window.trim(x, w)
    low, high, function = _activation(activation, activation_params)
    depthwise = group == x.shape[1] > 1 and m <= COPIES * group and not window.volume
    added_later = depthwise and z is not None  # the depthwise kernel has no sum
    limits = {"lo": -_INFINITE, "hi": _INFINITE} if added_later else {"lo": low, "hi": high}
    value = _convolved(c, x, w, b, z, window, group, limits, depthwise=depthwise)
    if added_later and value is not None and isinstance(z, Value):
        value = combine(c, "add", value, z)
        value = apply(c, value, "clip", low, high) if value and (low, high) != _NONE else value
    if function and value is not None:
        value = apply(c, value, function, *activation_params)
    return value


def _convolved(
    c: Capture, x: Value, w: Array, b: Array | None, z: Operand, window: Sliding, group: int,
    limits: dict[str, float], *, depthwise: bool,
) -> Value | None:  # fmt: skip
    """The convolution with its sum and limits; depthwise without its sum."""
    bias = vector(c, b, len(w))
    if depthwise and len(w) > group:
        return _multiplied(c, x, w, b, window, group, limits)
    if window.volume:
        r = c.channels_last(z) if isinstance(z, Value) else None
        volume = volume_conv(c, c.channels_last(x), w, bias, r, window.volume, group, limits)
        return None if volume is None else c.value_channels_last(volume)
    if depthwise:
        weight = floats(c, w, "by tap", lambda: np.ascontiguousarray(w.reshape(len(w), -1).T))
        y = ops.conv2d_depthwise(image(c, x), weight, bias, **window.attributes, **limits)
    elif (together := _together(w, window, group, exactly=z is not None)) > 1:
        return _few(c, x, w, b, z, window, together, limits)
    elif group == 1 and _by_winograd(w, window):
        weight = floats(c, w, "winograd", lambda: ops.pack_winograd(w))
        operands = [image(c, x), weight, bias, *([image(c, z)] if isinstance(z, Value) else [])]
        places = {name: window.attributes[name] for name in ("p", "q", "top", "left")}
        y = ops.conv2d_winograd(*operands, **places, **limits)
    else:
        weight = floats(c, w, f"packed {group}", lambda: ops.pack_kernels(w, group))
        images = [image(c, v) for v in (x, z) if isinstance(v, Value)]
        if window.lay(x):
            images = [b.view((b.shape[0], 1, *b.shape[1::2])) for b in images]
        operands = [images[0], weight, bias, *images[1:]]
        y = ops.conv2d(*operands, groups=group, **window.attributes, **limits)
        if len(x.shape) == 4:
            y = y.view((x.shape[0], *window.results, len(w)))
    return result(c, y, len(x.shape))


def _by_winograd(w: Array, window: Sliding) -> bool:
    """Whether Winograd's convolution is possible, with finite transformed weights, and faster: few
    channels leave its products too short, and results that do not fill their patches of 2 x 2 are
    computed in vain.
    """
    a, (m, channels, *kernel) = window.attributes, w.shape
    once = all(a[name] == 1 for name in ("stride_h", "stride_w", "dilation_h", "dilation_w"))
    if not once or kernel != [3, 3] or channels % PANEL or m * channels < MIN_WINOGRAD:
        return False
    if not (is_named(a["p"]) or is_named(a["q"])):
        patches = -(-a["p"] // 2) * -(-a["q"] // 2)
        if patches < PANEL or 16 * patches > 5 * a["p"] * a["q"]:
            return False
    return bool(np.isfinite(np.vdot(w, w)))  # no weight is beyond 2e19


def _together(w: Array, window: Sliding, group: int, *, exactly: bool) -> int:
    """How many neighbours in a row fill the sixteen lanes that few outputs leave empty.

    If `exactly`, the row consists of so many again and again.
    """
    m, width, q = len(w), w.shape[-1], window.attributes["q"]
    if group > 1 or width < 2 or window.attributes["dilation_w"] != 1 or is_named(q):
        return 1
    most = min(16 // m, q)
    whole = max((count for count in range(1, most + 1) if q % count == 0), default=1)
    return whole if exactly or 2 * whole > most else most


def _few(
    c: Capture, x: Value, w: Array, b: Array | None, z: Operand, window: Sliding, count: int,
    limits: dict[str, float],
) -> Value | None:  # fmt: skip
    """A convolution whose windows step over `count` pixels, which become outputs of one place."""
    m, width, a = len(w), w.shape[-1], window.attributes
    step, places = a["stride_w"], -(-a["q"] // count)
    wider = width + (count - 1) * step

    def shifted() -> Array:
        wide = np.zeros((count, *w.shape[:-1], wider), np.float32)
        for i in range(count):
            wide[i, ..., i * step : i * step + width] = w
        return ops.pack_kernels(wide.reshape(count * m, *wide.shape[2:]), 1)

    bias = None if b is None else np.tile(b, count)
    changed = {"q": places, "kernel_w": wider, "stride_w": step * count}
    operands = [image(c, x), floats(c, w, f"{count} together at {step}", shifted)]
    operands.append(vector(c, bias, count * m))
    if isinstance(z, Value):
        operands.append(image(c, z).view((x.shape[0], a["p"], places, count * m)))
    y = ops.conv2d(*operands, groups=1, **(a | changed), **limits)
    rows = c.value(y.view((x.shape[0], a["p"], places * count, m)))
    whole = sliced(c, rows, along(rows.shape, 2, (0, 1, a["q"])))
    return None if whole is None else result(c, c.plain(whole), len(x.shape))


def _multiplied(
    c: Capture, x: Value, w: Array, b: Array | None, window: Sliding, group: int,
    limits: dict[str, float],
) -> Value | None:  # fmt: skip
    """A depthwise convolution with several results for each channel: on as many copies of x."""
    copies = len(w) // group
    whole = side_by_side(c, [c.value(image(c, x))] * copies, 3)
    if whole is None:
        return None

    def ordered() -> Array:
        by_copy = w.reshape(group, copies, -1).transpose(2, 1, 0)
        return np.ascontiguousarray(by_copy.reshape(-1, len(w)))

    bias = None if b is None else np.ascontiguousarray(b.reshape(group, copies).T).reshape(-1)
    weight = floats(c, w, "by tap and copy", ordered)
    y = ops.conv2d_depthwise(
        c.plain(whole), weight, vector(c, bias, len(w)), **window.attributes, **limits
    )
    n, rows, columns, m = sizes_of(y)
    transposed = ops.transpose(y.view((n * rows * columns, copies, group), "i32"))
    return result(c, transposed.view((n, rows, columns, m), "f32"), len(x.shape))


_NONE = (-_INFINITE, _INFINITE)
_PARAMETERS = {"": 0, "Relu": 0, "Clip": 2, "LeakyRelu": 1, "Sigmoid": 0, "Tanh": 0,
               "HardSigmoid": 2}  # fmt: skip


def _fits(z: Value | Array, shape: tuple[int, ...]) -> bool:
    return isinstance(z, Value) and z.dtype == "f32" and z.shape == shape


def _activation(name: str, parameters: Sequence[float]) -> tuple[float, float, str]:
    """The limits of an activation, and its function if it is not only limits."""
    if name == "Relu":
        return 0.0, _INFINITE, ""
    if name == "Clip":
        low, high = parameters
        return low, high, ""
    return (*_NONE, _FUNCTIONS[name] if name else "")


@lower("MaxPool")
def max_pool(
    c: Capture, x: Value, *, kernel_shape: list[int], auto_pad: str = "NOTSET", ceil_mode: int = 0,
    dilations: list[int] | None = None, pads: list[int] | None = None, storage_order: int = 0,
    strides: list[int] | None = None,
) -> Value | None:  # fmt: skip
    """Max pools of float32, int8 and uint8, without indices."""
    if len([o for o in c.node.outputs if o]) > 1 or x.dtype not in ("f32", "i8", "u8"):
        return None
    window = sliding(x, kernel_shape, strides, dilations, pads, auto_pad, bool(ceil_mode))
    if window is None:
        return None
    if window.volume:
        volume = volume_pool(c.channels_last(x), window.volume, window.results)
        return c.value_channels_last(volume)
    return result(c, image_pool(image(c, x), window.attributes), len(x.shape))


@lower("AveragePool")
def average_pool(
    c: Capture, x: Value, *, kernel_shape: list[int], auto_pad: str = "NOTSET", ceil_mode: int = 0,
    count_include_pad: int = 0, dilations: list[int] | None = None, pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Value | None:  # fmt: skip
    """Average pools of float32."""
    window = sliding(x, kernel_shape, strides, dilations, pads, auto_pad, bool(ceil_mode))
    if window is None or x.dtype != "f32" or window.volume:
        return None
    bottom, right = window.ends
    y = ops.average_pool(
        image(c, x), **window.attributes, bottom=bottom, right=right,
        count_include_pad=int(bool(count_include_pad)),
    )  # fmt: skip
    return result(c, y, len(x.shape))


@lower("GlobalAveragePool", "GlobalMaxPool")
def global_pool(c: Capture, x: Value) -> Value | None:
    """The mean or the maximum of each channel, in either layout of x."""
    if x.dtype != "f32" or not x.size or len(x.shape) < 3:
        return None
    function = "max" if c.node.op_type == "GlobalMaxPool" else "mean"
    n, channels, *between = x.shape
    if x.channels_last is not None:
        y = ops.reduce(x.channels_last.view((n, math.prod(between), channels)), function=function)
    else:
        y = ops.reduce(c.plain(x).view((n * channels, math.prod(between), 1)), function=function)
    return c.value(y, (n, channels, *[1] * len(between)))


@lower("BatchNormalization")
def batch_normalization(
    c: Capture, x: Value, scale: Value | Array, b: Value | Array, mean: Value | Array,
    variance: Value | Array, *, epsilon: float = 1e-5, training_mode: int = 0, spatial: int = 1,
    **attributes: Any,
) -> Value | None:  # fmt: skip
    """x factor + shift by channel, with constant statistics."""
    if any(isinstance(v, Value) for v in (scale, b, mean, variance)) or training_mode:
        return None
    if len([o for o in c.node.outputs if o]) > 1 or not spatial or len(x.shape) < 2:
        return None
    statistics = [np.asarray(v) for v in (scale, b, mean, variance)]
    if any(v.shape != (x.shape[1],) for v in statistics):
        return None
    gain, offset, center, spread = (v.astype(np.float64) for v in statistics)
    with np.errstate(all="ignore"):
        factor = gain / np.sqrt(spread + epsilon)
        shift = offset - center * factor
    shape = (-1, *[1] * (len(x.shape) - 2))
    scaled = combine(c, "mul", x, factor.astype(np.float32).reshape(shape))
    return (
        None
        if scaled is None
        else combine(c, "add", scaled, shift.astype(np.float32).reshape(shape))
    )
