"""Cases of ONNX Runtime's own operators: random inputs by operator, with a fixed seed."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Case:
    """One node.

    Attributes
    ----------
    inputs : sequence of arrays
        None where one is left out.
    outputs : sequence of str
        Their names; "" where one is left out.
    constants : sequence of int
        Inputs that ONNX Runtime requires to be initializers.
    apart : int
        The largest difference of integers: 1 where ONNX Runtime rounds elsewhere.
    """

    operator: str
    label: str
    inputs: Sequence[Array | None]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    outputs: Sequence[str] = ("y",)
    constants: Sequence[int] = ()
    apart: int = 0
    rtol: float = 2e-5
    atol: float = 2e-5
    domain: str = "com.microsoft"
    opset: int = 17

    def __str__(self) -> str:
        return f"{self.operator}-{self.label}"


class Random:
    """Arrays of a case, seeded by its label."""

    def __init__(self, label: str) -> None:
        self.rng = np.random.default_rng(zlib.crc32(label.encode()))

    def f(self, *shape: int) -> Array:
        return self.rng.standard_normal(shape).astype(np.float32)

    def scale(self, *shape: int) -> Array:
        return self.rng.uniform(0.01, 0.1, shape).astype(np.float32)

    def u8(self, *shape: int) -> Array:
        return self.rng.integers(0, 256, shape).astype(np.uint8)

    def i8(self, *shape: int) -> Array:
        return self.rng.integers(-128, 128, shape).astype(np.int8)

    def weights(self, *shape: int) -> Array:
        """Seven bits: without a dot product of bytes ONNX Runtime clips sums of larger ones."""
        return self.rng.integers(-64, 64, shape).astype(np.int8)

    def i32(self, low: int, high: int, *shape: int) -> Array:
        return self.rng.integers(low, high, shape).astype(np.int32)

    def i64(self, low: int, high: int, *shape: int) -> Array:
        return self.rng.integers(low, high, shape).astype(np.int64)


def i64(*values: int) -> Array:
    return np.array(values, np.int64)


def i32(*values: int) -> Array:
    return np.array(values, np.int32)


def scalar(value: float) -> Array:
    return np.array(value, np.float32)


def zero(value: int, dtype: Any = np.uint8) -> Array:
    return np.array(value, dtype)


def activation_cases() -> Iterator[Case]:
    r = Random("activations")
    x, b = r.f(2, 3, 8) * 2, r.f(8)
    yield Case("Gelu", "3d", [x])
    yield Case("BiasGelu", "3d", [x, b])
    yield Case("FastGelu", "plain", [x])
    yield Case("FastGelu", "bias", [x, b])
    yield Case("QuickGelu", "alpha", [x], {"alpha": 1.5})
    yield Case("QuickGelu", "default", [x])


def norm_cases() -> Iterator[Case]:
    r = Random("norms")
    x, skip, gamma, beta, bias = r.f(2, 3, 16), r.f(2, 3, 16), r.f(16), r.f(16), r.f(16)
    outs = ["y", "", "", "sum"]
    yield Case("SkipLayerNormalization", "all", [x, skip, gamma, beta, bias],
               {"epsilon": 1e-5}, outs)  # fmt: skip
    yield Case("SkipLayerNormalization", "least", [x, skip, gamma])
    yield Case("SkipLayerNormalization", "broadcast", [x, skip[0], gamma, beta])
    yield Case("SkipSimplifiedLayerNormalization", "all", [x, skip, gamma, bias],
               {"epsilon": 1e-5}, outs)  # fmt: skip
    yield Case("SkipSimplifiedLayerNormalization", "least", [x, skip, gamma])
    yield Case("SimplifiedLayerNormalization", "default", [x, gamma], domain="")
    yield Case("SimplifiedLayerNormalization", "axis", [x, r.f(3, 16)],
               {"axis": 1, "epsilon": 1e-3}, ["y", "inverse"], domain="")  # fmt: skip
    ids, segments = r.i32(0, 10, 2, 5), r.i32(0, 2, 2, 5)
    words, positions, kinds = r.f(10, 16), r.f(7, 16), r.f(2, 16)
    mask = i32(1, 1, 1, 0, 0, 1, 1, 1, 1, 0).reshape(2, 5)
    yield Case("EmbedLayerNormalization", "bert",
               [ids, segments, words, positions, kinds, gamma, beta, mask],
               {"epsilon": 1e-5}, ["y", "lengths", "sum"])  # fmt: skip
    yield Case("EmbedLayerNormalization", "no segments",
               [ids, None, words, positions, None, gamma, beta, None, segments],
               {}, ["y", "lengths"])  # fmt: skip
    tables = [r.u8(10, 16), r.u8(7, 16), r.u8(2, 16), r.u8(16), r.u8(16)]
    scales, zeros = [r.scale()[()] for _ in tables], [r.u8()[()] for _ in tables]
    yield Case("QEmbedLayerNormalization", "bert", [ids, segments, *tables, mask,
               *map(np.asarray, scales), *map(np.asarray, zeros)], {"epsilon": 1e-5},
               ["y", "lengths"])  # fmt: skip
    words, positions, _, *others = tables
    yield Case("QEmbedLayerNormalization", "no segments", [ids, None, words, positions, None,
               *others, None, *(np.asarray(s) if i != 2 else None for i, s in enumerate(scales)),
               *(np.asarray(z) if i != 2 else None for i, z in enumerate(zeros))],
               {}, ["y", "lengths"])  # fmt: skip


def older_cases() -> Iterator[Case]:
    r = Random("older")
    x = r.f(2, 3, 4, 5)
    for operator, attributes in (
        ("Affine", {"alpha": 2.0, "beta": 0.5}), ("Scale", {"scale": 3.0}),
        ("ScaledTanh", {"alpha": 2.0, "beta": 0.5}),
        ("ParametricSoftplus", {"alpha": 2.0, "beta": 0.5}),
        ("ImageScaler", {"scale": 2.0, "bias": [1.0, 2.0, 3.0]}),
        ("Crop", {"border": [1, 0, 2, 1]}), ("Crop", {"border": [1, 2, 0, 0], "scale": [2, 3]}),
    ):  # fmt: skip
        yield Case(operator, str(len(attributes)), [x], attributes, domain="", opset=9)


def product_cases() -> Iterator[Case]:
    r = Random("products")
    a, b = r.f(2, 4, 3, 5), r.f(2, 4, 5, 6)
    swap = np.swapaxes
    yield Case("FusedMatMul", "plain", [a, b], {"alpha": 0.5})
    yield Case("FusedMatMul", "transposed", [swap(a, 2, 3).copy(), swap(b, 2, 3).copy()],
               {"transA": 1, "transB": 1})  # fmt: skip
    yield Case("FusedMatMul", "batch", [r.f(3, 2, 4, 5), r.f(6, 2, 4, 5)],
               {"transBatchA": 1, "transBatchB": 1, "transB": 1})  # fmt: skip
    yield Case("TransposeMatMul", "b", [a, swap(b, 2, 3).copy()], {"transB": 1})
    for name, more in (("Relu", {}), ("Tanh", {}), ("Sigmoid", {}),
                       ("LeakyRelu", {"activation_alpha": 0.3})):  # fmt: skip
        yield Case("FusedGemm", name, [r.f(3, 4), r.f(5, 4), r.f(5)],
                   {"activation": name, "transB": 1, "alpha": 0.7, "beta": 1.3} | more)  # fmt: skip
    for name, values in (("Relu", ()), ("LeakyRelu", (0.2,)), ("Clip", (-0.5, 0.5)),
                         ("HardSigmoid", (0.3, 0.4)), ("Tanh", ())):  # fmt: skip
        more = {"activation_params": list(values)} if values else {}
        yield Case("FusedConv", name, [r.f(1, 4, 6, 6), r.f(4, 2, 3, 3), r.f(4)],
                   {"activation": name, "group": 2, "pads": [1, 1, 1, 1]} | more)  # fmt: skip
    yield Case("FusedConv", "residual", [r.f(1, 3, 5, 5), r.f(4, 3, 3, 3), r.f(4), r.f(1, 4, 3, 3)],
               {"activation": "Relu"})  # fmt: skip
    yield Case("NhwcMaxPool", "u8", [r.u8(1, 6, 6, 8)],
               {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]})  # fmt: skip
    yield Case("ConvTransposeWithDynamicPads", "2d",
               [r.f(1, 2, 4, 4), r.f(2, 3, 3, 3), i64(1, 1, 0, 0), r.f(3)],
               {"strides": [2, 2]})  # fmt: skip


def nbits_cases() -> Iterator[Case]:
    for bits, block, k, n in ((4, 16, 32, 5), (4, 32, 80, 7), (8, 32, 64, 6), (2, 32, 64, 8),
                              (4, 128, 100, 3)):  # fmt: skip
        r = Random(f"nbits {bits} {block}")
        blocks = -(-k // block)
        a, w = r.f(2, 3, k), r.u8(n, blocks, block * bits // 8)
        scales = r.scale(n, blocks)
        zeros = r.u8(n, -(-blocks * bits // 8))
        what = {"K": k, "N": n, "bits": bits, "block_size": block}
        label = f"{bits} bits, blocks of {block}"
        options: dict[str, Any] = {"constants": (1, 2, 3, 4, 5), "rtol": 1e-4, "atol": 1e-4}
        yield Case("MatMulNBits", label, [a, w, scales], what, **options)
        yield Case("MatMulNBits", f"{label}, zeros", [a, w, scales, zeros], what, **options)
        yield Case("MatMulNBits", f"{label}, bias",
                   [a, w, scales, zeros, None, r.f(n)], what, **options)  # fmt: skip
        if bits == 4:
            yield Case("MatMulNBits", f"{label}, float zeros",
                       [a, w, scales, r.f(n, blocks) + 8], what, **options)  # fmt: skip
            order = (np.arange(k) * 7 % k // block).astype(np.int32)
            yield Case("MatMulNBits", f"{label}, g_idx",
                       [a, w, scales, None, order], what, **options)  # fmt: skip
    r = Random("bnb4")
    for kind in (0, 1):
        yield Case("MatMulBnb4", f"{kind}", [r.f(2, 64), r.u8(64 * 8 // 2), r.scale(64 * 8 // 32)],
                   {"K": 64, "N": 8, "block_size": 32, "quant_type": kind},
                   constants=(1, 2), rtol=1e-4, atol=1e-4)  # fmt: skip
    for bits in (4, 8):
        data, scales = r.u8(6, 64 * bits // 8), r.scale(6, 4)
        attributes = {"bits": bits, "block_size": 16, "gather_axis": 0, "quantize_axis": 1}
        indices = i64(5, 0, 3, 3).reshape(2, 2)
        yield Case("GatherBlockQuantized", f"{bits} bits", [data, indices, scales], attributes,
                   constants=(0, 2))  # fmt: skip
        yield Case("GatherBlockQuantized", f"{bits} bits, zeros",
                   [data, indices, scales, r.u8(6, 4 * bits // 8)], attributes,
                   constants=(0, 2, 3))  # fmt: skip


def integer_product_cases() -> Iterator[Case]:
    r = Random("integer products")
    a, b = r.f(3, 8), r.weights(8, 5)
    yield Case("DynamicQuantizeMatMul", "plain", [a, b, scalar(0.02)], atol=1e-3)
    yield Case("DynamicQuantizeMatMul", "columns",
               [a, b, r.scale(5), r.i8(5), r.f(5)], atol=1e-3)  # fmt: skip
    yield Case("MatMulIntegerToFloat", "plain",
               [r.u8(3, 8), b, scalar(0.03), scalar(0.02)], atol=1e-4)  # fmt: skip
    yield Case("MatMulIntegerToFloat", "columns",
               [r.u8(3, 8), b, scalar(0.03), r.scale(5), zero(120), r.i8(5), r.f(5)],
               atol=1e-4)  # fmt: skip
    yield Case(
        "MatMulInteger16",
        "plain",
        [r.i32(-999, 999, 3, 4).astype(np.int16), r.i32(-999, 999, 4, 5).astype(np.int16)],
    )
    yield Case("QGemm", "floats",
               [r.u8(3, 8), scalar(0.02), zero(9), r.weights(8, 5), scalar(0.03),
                zero(-3, np.int8)],
               atol=1e-4)  # fmt: skip
    yield Case("QGemm", "quantized",
               [r.u8(3, 8), scalar(0.02), zero(9), r.weights(5, 8), r.scale(5),
                np.zeros(5, np.int8), r.i32(-500, 500, 5), scalar(0.1), zero(120)],
               {"transB": 1, "alpha": 1.0}, apart=1)  # fmt: skip
    tiny = zero(-4, np.int8)
    yield Case("QuantizeLinear", "axis", [r.f(3, 4), r.scale(4), r.u8(4)], {"axis": 1})
    yield Case("QuantizeLinear", "scalar", [r.f(3, 4), scalar(0.02), tiny])
    yield Case("DequantizeLinear", "axis", [r.u8(3, 4), r.scale(3), r.u8(3)], {"axis": 0})
    yield Case("DequantizeLinear", "i32", [r.i32(-99, 99, 3, 4), scalar(0.02)])


def qlinear_cases() -> Iterator[Case]:
    r = Random("qlinear")
    s, t, u = scalar(0.03), scalar(0.05), scalar(0.08)
    for kind, make, z in (("u8", r.u8, 120), ("i8", r.i8, -5)):
        dtype = np.dtype(kind.replace("u8", "uint8").replace("i8", "int8"))
        p, q = zero(z, dtype), zero(z + 7, dtype)
        yield Case("QLinearAdd", kind, [make(2, 3, 4), s, p, make(3, 1), t, q, u, p], apart=1)
        yield Case("QLinearMul", kind, [make(2, 3, 4), s, p, make(4), t, q, u, p], apart=1)
        yield Case("QLinearSigmoid", kind, [make(3, 4), s, p, scalar(1 / 256), q], apart=1)
        yield Case("QLinearLeakyRelu", kind, [make(3, 4), s, p, t, q], {"alpha": 0.2}, apart=1)
        yield Case("QLinearConcat", kind, [t, p, make(2, 3), s, q, make(2, 4), u, p],
                   {"axis": 1}, apart=1)  # fmt: skip
        for opset in (12, 13):
            yield Case("QLinearSoftmax", f"{kind}, {opset}",
                       [make(2, 3, 4), s, p, scalar(1 / 256), zero(dtype.type(0), dtype)],
                       {"axis": 1, "opset": opset}, apart=1, constants=(1, 2, 3, 4))  # fmt: skip
        yield Case("QLinearGlobalAveragePool", kind, [make(2, 3, 4, 5), s, p, t, q], apart=1)
        yield Case("QLinearGlobalAveragePool", f"{kind}, last", [make(2, 4, 5, 3), s, p, t, q],
                   {"channels_last": 1}, apart=1)  # fmt: skip
        pool = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2]}
        yield Case("QLinearAveragePool", kind, [make(1, 2, 6, 6), s, p, t, q], pool, apart=1)
        yield Case("QLinearAveragePool", f"{kind}, padding",
                   [make(1, 2, 6, 6), s, p, t, q], pool | {"count_include_pad": 1},
                   apart=1)  # fmt: skip
        yield Case("QLinearAveragePool", f"{kind}, last", [make(1, 6, 6, 2), s, p, t, q],
                   pool | {"channels_last": 1}, apart=1)  # fmt: skip
        yield Case("QLinearWhere", kind,
                   [np.array([[True], [False]]), make(2, 3), s, p, make(2, 3), t, q, u, p],
                   apart=1, constants=(2, 3, 5, 6, 7, 8))  # fmt: skip
        yield Case("QLinearConv", kind,
                   [make(1, 5, 5, 3), s, p, r.weights(4, 3, 3, 3), r.scale(4), np.zeros(4, np.int8),
                    scalar(0.5), q, r.i32(-900, 900, 4)],
                   {"channels_last": 1, "pads": [1, 1, 1, 1]}, apart=1,
                   constants=(3, 4, 5, 8))  # fmt: skip


def recurrent_cases() -> Iterator[Case]:
    for label, shape in (("by direction", (2,)), ("by column", (2, 20))):
        r = Random(f"lstm {label}")
        yield Case("DynamicQuantizeLSTM", label,
                   [r.f(4, 3, 6), r.weights(2, 6, 20), r.weights(2, 5, 20), r.f(2, 40), *[None] * 4,
                    r.scale(*shape) / 10, np.zeros(shape, np.int8), r.scale(*shape) / 10,
                    np.zeros(shape, np.int8)],
                   {"direction": "bidirectional", "hidden_size": 5}, ["y", "y_h", "y_c"],
                   constants=(1, 2, 8, 9, 10, 11), atol=2e-2)  # fmt: skip


def tensor_cases() -> Iterator[Case]:
    r = Random("tensors")
    for mode in ("bilinear", "nearest", "bicubic"):
        yield Case("GridSample", mode, [r.f(2, 3, 5, 6), r.f(2, 4, 4, 2) * 0.6],
                   {"mode": mode, "padding_mode": "border"}, atol=1e-4)  # fmt: skip
    yield Case("Inverse", "batch", [r.f(2, 3, 4, 4)], rtol=1e-3, atol=1e-3)
    yield Case("Trilu", "upper", [r.f(2, 4, 5), i64(1).reshape(())])
    yield Case("Trilu", "lower", [r.f(4, 5)], {"upper": 0})
    yield Case("Pad", "constant", [r.f(2, 3), i64(0, 2, 1, 0), r.f(1)])
    yield Case("Pad", "row", [r.f(4, 3), i64(1, 0, 0, 2).reshape(1, 4)], {"mode": "reflect"})
    yield Case("GatherND", "2d", [r.f(3, 4, 5), r.i64(0, 3, 2, 2)])
    yield Case("ExpandDims", "middle", [r.f(3, 4), i32(1).reshape(())])
    yield Case("Range", "step", [scalar(1), scalar(7), scalar(1.5)])
    yield Case("Range", "default", [i64(2), i64(6)])
    yield Case("Unique", "1d", [r.i32(0, 5, 12).astype(np.float32)], {}, ["y", "idx", "counts"])
    yield Case("CDist", "square", [r.f(4, 3), r.f(5, 3)])
    yield Case("CDist", "root", [r.f(4, 3), r.f(5, 3)], {"metric": "euclidean"})
    yield Case("UnfoldTensor", "step", [r.f(2, 9, 3)], {"dim": 1, "size": 4, "step": 2})
    yield Case("NGramRepeatBlock", "2", [r.i64(0, 3, 2, 9), r.f(2, 4)], {"ngram_size": 2})
    boxes = np.array([[0.1, 0.2, 0.9, 0.8], [-0.2, 0, 1.2, 0.5], [0.7, 0.9, 0.2, 0]], np.float32)
    for mode in ("bilinear", "nearest"):
        yield Case("CropAndResize", mode,
                   [r.f(2, 3, 6, 7), boxes, i32(1, 0, 1), i32(4, 3)],
                   {"mode": mode, "extrapolation_value": 2.0})  # fmt: skip


def attention_cases() -> Iterator[Case]:
    yield from rotary_cases()
    r = Random("attention")
    x, w, b = r.f(2, 4, 16), r.f(16, 48) * 0.3, r.f(48)
    heads = {"num_heads": 4}
    yield Case("Attention", "plain", [x, w, b], heads)
    yield Case("Attention", "causal", [x, w, b], heads | {"unidirectional": 1})
    yield Case("Attention", "lengths", [x, w, b, i32(4, 2)], heads)
    yield Case("Attention", "ends and begins", [x, w, b, i32(4, 3, 0, 1)], heads)
    yield Case("Attention", "mask", [x, w, b, i32(1, 1, 0, 1, 1, 1, 1, 0).reshape(2, 4)], heads)
    yield Case("Attention", "3d mask", [x, w, b, r.i32(0, 2, 2, 4, 4)], heads)
    past = r.f(2, 2, 4, 3, 4)
    yield Case("Attention", "past", [x, w, b, None, past], heads | {"unidirectional": 1},
               ["y", "present"])  # fmt: skip
    yield Case("Attention", "bias", [x, w, b, None, None, r.f(1, 4, 4, 4)],
               heads | {"scale": 0.3})  # fmt: skip
    yield Case("Attention", "sizes", [x, r.f(16, 16 + 16 + 8) * 0.3, r.f(40)],
               heads | {"qkv_hidden_sizes": [16, 16, 8]})  # fmt: skip
    yield Case("QAttention", "plain",
               [r.u8(2, 4, 16), r.weights(16, 48), b, scalar(0.01), scalar(0.005), None, zero(128),
                zero(1, np.int8)], heads, constants=(1,), atol=1e-4)  # fmt: skip
    yield Case("QAttention", "past",
               [r.u8(2, 4, 16), r.weights(16, 48), b, scalar(0.01), scalar(0.005), None, zero(128),
                zero(1, np.int8), past], heads | {"unidirectional": 1}, ["y", "present"],
               constants=(1,), atol=1e-4)  # fmt: skip
    yield from multi_head_cases()
    yield from group_query_cases()


def rotary_cases() -> Iterator[Case]:
    r = Random("rotary")
    angles = r.f(9, 4)
    cos, sin = np.cos(angles), np.sin(angles)
    yield Case("RotaryEmbedding", "3d", [r.f(2, 3, 16), r.i64(0, 9, 2, 3), cos, sin])
    yield Case("RotaryEmbedding", "offset", [r.f(2, 3, 16), i64(4), cos, sin])
    yield Case("RotaryEmbedding", "interleaved",
               [r.f(2, 3, 16), r.i64(0, 9, 2, 3), cos, sin], {"interleaved": 1})  # fmt: skip
    yield Case("RotaryEmbedding", "4d", [r.f(2, 5, 3, 8), i64(1), cos, sin])
    yield Case("RotaryEmbedding", "partial",
               [r.f(2, 3, 24), r.i64(0, 9, 2, 3), cos, sin],
               {"num_heads": 2, "rotary_embedding_dim": 8})  # fmt: skip


def multi_head_cases() -> Iterator[Case]:
    r = Random("multi head")
    q, k, v = r.f(2, 4, 16), r.f(2, 6, 16), r.f(2, 6, 16)
    heads = {"num_heads": 4}
    name = "MultiHeadAttention"
    three = ["y", "present_key", "present_value"]
    yield Case(name, "cross", [q, k, v], heads)
    yield Case(name, "bias", [q, k, v, r.f(48)], heads)
    yield Case(name, "mask", [q, k, v, None, r.i32(0, 2, 2, 6) | i32(1, 0, 0, 0, 0, 0)], heads)
    yield Case(name, "lengths", [q, k, v, None, i32(3, 6)], heads)
    yield Case(name, "added", [q, k, v, None, None, r.f(2, 4, 4, 6)], heads | {"scale": 0.4})
    yield Case(name, "causal", [q, r.f(2, 4, 16), r.f(2, 4, 16)], heads | {"unidirectional": 1})
    past = [r.f(2, 4, 3, 4), r.f(2, 4, 3, 4)]
    yield Case(name, "past", [q, k, v, None, None, None, *past], heads, three)
    yield Case(name, "by heads", [q, r.f(2, 4, 6, 4), r.f(2, 4, 6, 4)], heads)
    yield Case(name, "values", [q, k, r.f(2, 6, 8)], heads, ["y"])


def group_query_cases() -> Iterator[Case]:
    r = Random("group query")
    name, heads = "GroupQueryAttention", {"num_heads": 4, "kv_num_heads": 2}
    outs = ["y", "key", "value"]
    angles = r.f(32, 8)
    caches = [np.cos(angles), np.sin(angles)]

    def inputs(n: int, past: int, batch: int = 1, packed: bool = False) -> list[Array | None]:
        q, k, v = r.f(batch, n, 64), r.f(batch, n, 32), r.f(batch, n, 32)
        new = [np.concatenate([q, k, v], 2), None, None] if packed else [q, k, v]
        cache = [r.f(batch, 2, past, 16), r.f(batch, 2, past, 16)]
        lengths = np.full(batch, past + n - 1, np.int32)
        return [*new, *cache, lengths, i32(past + n).reshape(())]

    yield Case(name, "prompt", inputs(5, 0, 2), heads, outs)
    yield Case(name, "token", inputs(1, 6, 2), heads, outs)
    yield Case(name, "several", inputs(3, 6), heads, outs)
    yield Case(name, "packed", inputs(5, 0, 2, packed=True), heads, outs)
    rotary = heads | {"do_rotary": 1}
    yield Case(name, "rotary", [*inputs(5, 0, 2), *caches], rotary, outs)
    yield Case(name, "rotary token", [*inputs(1, 6, 2), *caches], rotary, outs)
    yield Case(name, "rotary interleaved", [*inputs(2, 6, packed=True), *caches],
               rotary | {"rotary_interleaved": 1}, outs)  # fmt: skip
    for window in (1, 2, 4, 20):
        yield Case(name, f"window {window}", inputs(7, 0), heads | {"local_window_size": window},
                   outs)  # fmt: skip
        yield Case(name, f"window {window} token", inputs(1, 7),
                   heads | {"local_window_size": window}, outs)  # fmt: skip
    yield Case(name, "softcap", inputs(3, 4), heads | {"softcap": 2.0, "scale": 0.7}, outs)
    yield Case(name, "smooth", inputs(3, 4), heads | {"smooth_softmax": 1}, outs)
    none = [None, None, None]
    yield Case(name, "bias", [*inputs(3, 4), *none, r.f(1, 4, 3, 7)], heads, outs)
    yield Case(name, "sink", [*inputs(3, 4), *none, None, r.f(4)], heads, outs)
    yield Case(name, "scores", inputs(3, 4), heads | {"qk_output": 1}, [*outs, "qk"])
    yield Case(name, "weights", inputs(3, 4), heads | {"qk_output": 2}, [*outs, "qk"])
    positions = [*inputs(3, 4), *caches, i64(4, 5, 6).reshape(1, 3)]
    yield Case(name, "positions", positions, rotary, outs)


FAMILIES: Sequence[Callable[[], Iterator[Case]]] = (
    activation_cases, norm_cases, older_cases, product_cases, nbits_cases, integer_product_cases,
    qlinear_cases, recurrent_cases, tensor_cases, attention_cases,
)  # fmt: skip


def all_cases() -> list[Case]:
    return [case for family in FAMILIES for case in family()]
