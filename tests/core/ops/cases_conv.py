"""Cases of convolutions, pools and other operators on images with channels last."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from tests.core.ops.case import EPS, TINY, Case, activations

from halfbyte.core import ops
from halfbyte.core.ops.panels import Activation

# images, rows, columns; channels in, out, groups; kernel, strides, dilations; pads: top, left,
# bottom, right
Shape = tuple[
    tuple[int, int, int], tuple[int, int, int], tuple[int, int], tuple[int, int], tuple[int, int],
    tuple[int, int, int, int],
]  # fmt: skip

CONVOLUTIONS: tuple[Shape, ...] = (
    ((1, 1, 1), (1, 1, 1), (1, 1), (1, 1), (1, 1), (0, 0, 0, 0)),
    ((2, 3, 5), (5, 17, 1), (1, 1), (1, 1), (1, 1), (0, 0, 0, 0)),
    ((1, 7, 7), (20, 40, 1), (1, 1), (1, 1), (1, 1), (0, 0, 0, 0)),
    ((1, 9, 13), (16, 33, 1), (1, 1), (2, 2), (1, 1), (0, 0, 0, 0)),
    ((1, 12, 40), (3, 16, 1), (3, 3), (2, 2), (1, 1), (1, 1, 1, 1)),
    ((2, 8, 9), (32, 70, 1), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
    ((1, 7, 7), (100, 16, 1), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
    ((1, 2, 3), (300, 20, 1), (2, 3), (1, 1), (1, 1), (2, 2, 2, 2)),
    ((1, 11, 6), (4, 8, 1), (5, 3), (1, 2), (2, 2), (3, 0, 4, 5)),
    ((1, 10, 30), (7, 6, 1), (3, 2), (3, 1), (1, 3), (0, 1, 0, 2)),
    ((1, 6, 17), (12, 40, 2), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
    ((2, 1, 50), (6, 9, 3), (1, 4), (1, 3), (1, 2), (0, 5, 0, 0)),
    # many channels of a unit; columns by twos: rows of a kernel in parts, even and odd widths
    ((1, 2, 3), (1, 300, 1), (1, 1), (1, 1), (1, 1), (0, 0, 0, 0)),
    ((1, 1, 4), (32, 8330, 1), (1, 3), (1, 1), (1, 1), (0, 1, 0, 1)),
    ((1, 3, 5), (512, 20, 1), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
    ((1, 9, 8), (96, 40, 1), (2, 3), (2, 1), (1, 1), (0, 3, 0, 2)),
    # few pixels, and few after whole tiles; an image and its borders
    ((1, 1, 2), (70, 90, 1), (1, 1), (1, 1), (1, 1), (0, 0, 0, 0)),
    ((1, 4, 4), (24, 40, 1), (1, 1), (1, 1), (1, 1), (0, 0, 0, 0)),
    ((1, 2, 8), (24, 40, 1), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
    # several spans of pixels, groups of eight channels, and eight after sixteen
    ((2, 9, 9), (16, 16, 2), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
    ((1, 12, 13), (5, 24, 1), (1, 1), (1, 1), (1, 1), (0, 0, 0, 0)),
    # many groups of few channels
    ((1, 17, 21), (52, 39, 13), (3, 3), (2, 2), (1, 1), (1, 1, 1, 1)),
)
LARGE: Shape = ((1, 4, 5), (270, 530, 1), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1))


def window(shape: Shape) -> dict[str, int]:
    """The attributes of a window, with the size of the result."""
    (_, h, v), _, kernel, strides, dilations, (top, left, bottom, right) = shape
    names = ("kernel_h", "kernel_w", "stride_h", "stride_w", "dilation_h", "dilation_w")
    sizes = dict(zip(names, (*kernel, *strides, *dilations), strict=True))
    reach = [(k - 1) * d for k, d in zip(kernel, dilations, strict=True)]
    sizes["p"] = (h + top + bottom - reach[0] - 1) // strides[0] + 1
    sizes["q"] = (v + left + right - reach[1] - 1) // strides[1] + 1
    return {**sizes, "top": top, "left": left}


def label(shape: Shape) -> str:
    """All of its numbers."""
    return "-".join("x".join(map(str, part)) for part in shape)


def images(n: int, h: int, v: int, c: int, key: int = 0) -> npt.NDArray[np.float32]:
    """Activations [n, h, v, c] without whole rows of zeros."""
    return activations(n * h * v * c + key, 2).T[0][key:].reshape(n, h, v, c).copy()


def convolutions() -> Iterator[Case]:
    """With limits as of ReLU6, then without limits but with a residual."""
    for shape in (*CONVOLUTIONS, LARGE):
        (n, h, v), (c, m, groups), kernel, *_ = shape
        at = window(shape)
        x = images(n, h, v, c)
        k = c // groups * kernel[0] * kernel[1]
        w = activations(m, k, spread=k**-0.5).reshape(m, c // groups, *kernel)
        bias = activations(1, m)[0]
        attributes: dict[str, Any] = {**at, "groups": groups, "lo": 0.0, "hi": 6.0}
        operands = {"x": x, "w": ops.pack_kernels(w, groups), "bias": bias}
        size = ops.conv2d.meaning(
            np.abs(x), np.abs(operands["w"]), np.abs(bias),
            **{**attributes, "hi": np.inf},
        ).astype(np.float64)  # fmt: skip
        bound = (k + 3) * EPS * size + TINY
        yield Case(label(shape), ops.conv2d, operands, attributes, bound, fused=True)
        r = images(n, at["p"], at["q"], m, 1)
        attributes = {**attributes, "lo": -np.inf, "hi": np.inf}
        yield Case(
            f"{label(shape)}-r", ops.conv2d, {**operands, "r": r}, attributes,
            bound + 2 * EPS * (size + np.abs(r)), fused=True,
        )  # fmt: skip


DEPTHWISE: tuple[Shape, ...] = (
    ((1, 1, 1), (1, 1, 1), (1, 1), (1, 1), (1, 1), (0, 0, 0, 0)),
    ((2, 6, 23), (16, 16, 16), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
    ((1, 9, 30), (33, 33, 33), (3, 3), (2, 2), (1, 1), (1, 1, 1, 1)),
    ((1, 2, 2), (20, 20, 20), (3, 3), (1, 1), (1, 1), (2, 3, 2, 3)),
    ((1, 7, 19), (40, 40, 40), (5, 5), (1, 1), (1, 1), (2, 2, 2, 2)),
    ((1, 8, 31), (17, 17, 17), (5, 5), (2, 2), (1, 1), (0, 1, 3, 4)),
    ((1, 3, 9), (520, 520, 520), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
    ((1, 9, 9), (8, 8, 8), (3, 3), (1, 1), (2, 3), (4, 3, 1, 2)),
    ((1, 4, 4), (37, 37, 37), (3, 3), (1, 1), (1, 2), (1, 1, 1, 1)),
    ((2, 1, 40), (5, 5, 5), (1, 7), (1, 3), (1, 1), (0, 4, 0, 2)),
)


def depthwise() -> Iterator[Case]:
    """Borders wider than the image, kernels with special loops and without."""
    for shape in DEPTHWISE:
        (n, h, v), (c, _, _), kernel, *_ = shape
        x, w = images(n, h, v, c), activations(kernel[0] * kernel[1], c, spread=0.3)
        attributes: dict[str, Any] = {**window(shape), "lo": -1.0, "hi": 6.0}
        operands = {"x": x, "w": w, "bias": activations(1, c)[0]}
        absolute = {name: np.abs(value) for name, value in operands.items()}
        unlimited = {**attributes, "hi": np.inf}
        size = ops.conv2d_depthwise.meaning(**absolute, **unlimited).astype(np.float64)
        bound = (len(w) + 3) * EPS * size + TINY
        yield Case(label(shape), ops.conv2d_depthwise, operands, attributes, bound, fused=True)


def codes(*shape: int, key: Any = 0) -> npt.NDArray[np.uint8]:
    """Random bytes, with runs of the largest and the smallest."""
    random = np.random.default_rng([*shape, key])
    values = random.integers(0, 256, shape, np.uint8)
    values.reshape(-1)[: values.size // 3] = 255
    values.reshape(-1)[-(values.size // 5) :] = 0
    return values


def _quantized(shape: Shape, dtype: type[np.generic], depthwise: bool) -> Case:
    (n, h, v), (c, m, groups), kernel, *_ = shape
    signed = dtype is np.int8
    x = codes(n, h, v, c).view(dtype)
    w = codes(m, c // groups, *kernel, key=1).view(np.int8)
    w.reshape(m, -1)[-1] = -128
    bias = np.arange(m, dtype=np.int32) * 999 - 5000
    k = c // groups * kernel[0] * kernel[1]
    scale = np.linspace(0.5, 2, m, dtype=np.float32) / np.float32(74 * 74 * k**0.5) * 60
    scale[0] = np.nan if signed else np.inf
    attributes: dict[str, Any] = {
        **window(shape), "x_zero": -7 if signed else 131, "y_zero": -128 if signed else 100,
        "lo": -100 if signed else 0, "hi": 127 if signed else 250,
    }  # fmt: skip
    sums = w.reshape(m, -1).sum(axis=1, dtype=np.int32)
    operands = {"x": x, "w": w, "bias": bias, "sums": sums, "scale": scale}
    name = f"{'i8' if signed else 'u8'}-{label(shape)}"
    if depthwise:
        operands["w"] = np.ascontiguousarray(w.reshape(m, -1).T.astype(np.float32))
        bias[::3] += 2**26
        return Case(name, ops.conv2d_depthwise_quantized, operands, attributes)
    operands["w"] = ops.pack_quantized(w, groups, joined=attributes["dilation_w"] == 1)
    return Case(name, ops.conv2d_quantized, operands, {**attributes, "groups": groups})


def quantized() -> Iterator[Case]:
    """Both types; the largest products, scales of NaN."""
    for dtype in (np.uint8, np.int8):
        for shape in (*CONVOLUTIONS, LARGE):
            yield _quantized(shape, dtype, depthwise=False)
        for shape in DEPTHWISE:
            yield _quantized(shape, dtype, depthwise=True)


def quantized_arithmetic() -> Iterator[Case]:
    """Ties, both limits, NaN; both types."""
    ties = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 300, -300, np.nan, np.inf, -np.inf], np.float32)
    for n in (1, 16, 33):
        x = activations(1, n + 40, spread=9)[0, 40:]
        for low, zero in ((0, 7), (-128, -20)):
            attributes = {"scale": 0.25, "zero": zero, "lo": low, "hi": low + 255}
            yield Case(f"{low}-{n}", ops.quantize_linear, {"x": x}, attributes)
            edges = {"x": ties / np.float32(4)}
            yield Case(f"edges-{low}-{n}", ops.quantize_linear, edges, attributes)
            dtype = np.int8 if low else np.uint8
            x_quantized = codes(n, key=2).view(dtype)
            attributes = {"scale": 0.37, "zero": zero}
            name = f"{np.dtype(dtype)}-{n}"
            yield Case(name, ops.dequantize_linear, {"x": x_quantized}, attributes)
            attributes = {
                "x_scale": 0.7, "x_zero": zero, "z_scale": 0.4, "z_zero": 3, "y_zero": zero + 9,
                "lo": low + 10, "hi": low + 240,
            }  # fmt: skip
            other = codes(n, key=3).view(dtype)
            yield Case(name, ops.add_quantized, {"x": x_quantized, "z": other}, attributes)


def quantized_products() -> Iterator[Case]:
    """Ends of tiles, more columns than fit, depths in parts; scales of NaN and infinity."""
    for n, k, m in (
        (1, 1, 1), (1, 64, 48), (5, 3, 17), (15, 66, 33), (29, 128, 70), (57, 30, 80),
        (113, 2310, 20), (2, 100, 530),
    ):  # fmt: skip
        w = codes(m, k, 1, 1, key=1).view(np.int8)
        w.reshape(m, -1)[-1] = -128
        x, zero = codes(n, k), np.array([131 if n > 1 else 0], np.uint8)
        scale = np.linspace(0.5, 2, m, dtype=np.float32) / np.float32(74 * 74 * k**0.5) * 60
        scale[0] = np.nan if m > 50 else np.inf if n > 50 else scale[0]
        operands: dict[str, Any] = {
            "x": x, "w": ops.pack_quantized(w),
            "sums": w.reshape(m, -1).sum(axis=1, dtype=np.int32),
            "scale": scale, "bias": activations(1, m)[0],
            "x_scale": np.array([0.37], np.float32), "x_zero": zero,
        }  # fmt: skip
        yield Case(f"{n}-{k}-{m}", ops.matmul_quantized, operands)
        zeros = np.arange(m, dtype=np.int32) % 256 - 128
        sums = (x.astype(np.int32) - zero).sum(axis=1, dtype=np.int32)
        operands = {**operands, "zeros": zeros, "x_sums": sums}
        yield Case(f"{n}-{k}-{m}-zeros", ops.matmul_quantized, operands)
        operands["r"] = activations(n, m)
        operands["scale"] = np.nan_to_num(scale, nan=1, posinf=1)
        yield Case(f"{n}-{k}-{m}-sum", ops.matmul_quantized, operands, {"activation": 1})
    for activation in Activation:
        operands["x_scale"] = np.array([0.01], np.float32)
        operands["r"] = activations(n, m, spread=3)
        attributes = {"activation": int(activation)}
        case = Case(activation.name, ops.matmul_quantized, operands, attributes)
        size = np.abs(case.expected()[0].astype(np.float64))
        case.bound = None if activation < Activation.GELU else 12 * EPS * size + 1e-6
        yield case


def tensors() -> Iterator[Case]:
    """Ends of spans and rows; zeros, one sign only, ranges that vanish or overflow, NaN."""
    for n, k in ((1, 1), (1, 15), (3, 16), (2, 2048), (5, 1641), (70, 61)):
        x = activations(n * k, 1, spread=9).reshape(n, k)
        special = {"": x, "zeros": 0 * x, "positive": np.abs(x), "negative": -np.abs(x)}
        for value in (np.nan, np.inf, -np.inf, 3e38, 1e-42):
            special[str(value)] = np.clip(x, -1e-43, 1e-43) if value == 1e-42 else x.copy()
            special[str(value)][n // 2, k // 3 :: 7] = value
            special[str(value)][-1, -1] = value if value != 3e38 else -value
        for label, numbers in special.items():
            flat = {"x": numbers.reshape(-1)}
            spans = {"spans": -(-n * k // ops.RANGE)}
            case = Case(f"{label}-{n}-{k}", ops.tensor_range, flat, spans)
            yield case
            operands = {"x": numbers, "range": case.expected()[0]}
            yield Case(f"{label}-{n}-{k}", ops.quantize_tensor, operands)


POOLS: tuple[Shape, ...] = (
    ((1, 1, 1), (1, 1, 1), (1, 1), (1, 1), (1, 1), (0, 0, 0, 0)),
    ((2, 7, 9), (20, 20, 1), (3, 3), (2, 2), (1, 1), (1, 1, 1, 1)),
    ((1, 8, 5), (16, 16, 1), (2, 4), (1, 2), (2, 1), (0, 3, 1, 2)),
    ((1, 6, 7), (35, 35, 1), (3, 2), (3, 1), (1, 2), (2, 0, 1, 1)),
    ((1, 5, 6), (83, 83, 1), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
)


def pools() -> Iterator[Case]:
    """All types; means with and without the padding."""
    for shape in POOLS:
        (n, h, v), (c, _, _), kernel, *_, (_, _, bottom, right) = shape
        x, attributes = images(n, h, v, c), window(shape)
        yield Case(f"f32-{label(shape)}", ops.max_pool, {"x": x}, attributes)
        codes = np.clip(np.rint(x * 64), -128, 127).astype(np.int8)
        yield Case(f"i8-{label(shape)}", ops.max_pool, {"x": codes}, attributes)
        yield Case(f"u8-{label(shape)}", ops.max_pool, {"x": codes.view(np.uint8)}, attributes)
        for counted in (0, 1):
            more = {**attributes, "bottom": bottom, "right": right, "count_include_pad": counted}
            size = ops.average_pool.meaning(np.abs(x), **more).astype(np.float64)
            bound = (kernel[0] * kernel[1] + 2) * EPS * size + TINY
            yield Case(f"{counted}-{label(shape)}", ops.average_pool, {"x": x}, more, bound)


def resized() -> Iterator[Case]:
    """Rows and columns beyond the image too."""
    for n, h, v, c, p, q, t in (
        (1, 1, 1, 1, 1, 1, 1),
        (2, 3, 5, 17, 6, 4, 2),
        (1, 4, 4, 33, 3, 9, 4),
    ):
        x = images(n, h, v, c)
        rows = (np.arange(p * t, dtype=np.int32) * 3 % (h + 2) - 1).reshape(p, t)
        columns = (np.arange(q * t, dtype=np.int32) * 2 % (v + 2) - 1).reshape(q, t)
        operands = {
            "x": x, "rows": rows, "row_weights": activations(p, t), "columns": columns,
            "column_weights": activations(q, t),
        }  # fmt: skip
        absolute = {k: np.abs(a) if a.dtype.kind == "f" else a for k, a in operands.items()}
        size = ops.resize_linear.meaning(**absolute).astype(np.float64)
        bound = (2 * t + 4) * EPS * size + TINY
        yield Case(f"{n}x{h}x{v}x{c}-{t}", ops.resize_linear, operands, {}, bound)
        one = {"x": x.view(np.int8), "rows": rows[:, 0].copy(), "columns": columns[:, 0].copy()}
        yield Case(f"{n}x{h}x{v}x{c}", ops.resize_nearest, one)


def sampled() -> Iterator[Case]:
    """Positions inside, at borders, far outside and of no number, on one to three axes."""
    for n, sizes, c, p, rank in (
        (1, (1, 1, 1), 1, 3, 2),
        (2, (1, 4, 7), 19, 50, 2),
        (1, (3, 4, 5), 3, 60, 3),
        (1, (1, 1, 6), 2, 20, 1),
    ):
        x = images(n, sizes[0] * sizes[1], sizes[2], c).reshape(n, *sizes, c)
        grid = activations(n * p, rank, spread=0.8).reshape(n, p, rank)
        grid[0, :3] = np.array([-1, 1, 1e9], np.float32)[:, None]
        grid[-1, -1, 0] = np.nan
        for taps in (1, 2, 4):
            for padding in (0, 1, 2):
                for corners in (0, 1):
                    attributes = {"taps": taps, "padding": padding, "align_corners": corners}
                    label = f"{n}x{'x'.join(map(str, sizes))}x{c}-{taps}-{padding}-{corners}"
                    yield Case(label, ops.grid_sample, {"x": x, "grid": grid}, attributes)


def transposed() -> Iterator[Case]:
    """Elements of four bytes and of one, in squares of sixteen and smaller."""
    for n, a, b in ((1, 1, 1), (2, 3, 50), (1, 33, 16), (3, 15, 17)):
        x = np.arange(n * a * b, dtype=np.int32).reshape(n, a, b)
        yield Case(f"{n}x{a}x{b}", ops.transpose, {"x": x})
        yield Case(f"bytes-{n}x{a}x{b}", ops.transpose, {"x": x.astype(np.int8)})


FAMILIES = (
    convolutions, depthwise, quantized, quantized_arithmetic, quantized_products, tensors, pools,
    resized, sampled, transposed,
)  # fmt: skip
