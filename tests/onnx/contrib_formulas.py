"""Cases of operators that ONNX Runtime runs only on GPUs, and their formulas' results in float64.

Each is (case, results); results are written out here, or computed by operators that are compared
with ONNX Runtime elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from tests.onnx.contrib_cases import Array, Case, Random, i32, i64, scalar, zero

from halfbyte.onnx.reference import find

Judged = tuple[Case, Sequence[Array]]
erf = np.vectorize(math.erf)


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x.astype(np.float64))))


def softmax(x: Array, axis: int | tuple[int, ...] = -1) -> Array:
    powers = np.exp(x.astype(np.float64))
    return np.asarray(powers / powers.sum(axis, keepdims=True))


def first(x: Array) -> Array:
    """Channels from last to first."""
    return np.moveaxis(x, -1, 1)


def ours(name: str, *inputs: Any, **attributes: Any) -> Any:
    """Results of another operator's definition."""
    definition = find("com.microsoft", name, 1)
    assert definition is not None
    return definition.meaning(*inputs, **attributes)


def activations() -> Iterator[Judged]:
    r = Random("activation formulas")
    x, bias, gate = r.f(2, 3, 8), r.f(8), r.f(2, 3, 8)
    yield Case("BiasAdd", "plain", [x, bias, gate]), [x + bias + gate]
    left, right = np.split(x.astype(np.float64) + bias, 2, -1)
    gelu = right * (1 + erf(right / math.sqrt(2))) / 2
    yield Case("BiasSplitGelu", "plain", [x, bias]), [left * gelu]
    w = r.f(8, 8)
    yield Case("GemmFastGelu", "bias", [x, w, bias]), [ours("FastGelu", x @ w, bias)]
    yield Case("ScaledSiLU", "scale", [x, bias], {"alpha": 0.5}), [x * sigmoid(x * 0.5) * bias]
    narrow = gate[..., :1]
    yield Case("GatedAdd", "plain", [x, gate, narrow]), [x + gate * narrow]
    data, mask = r.f(2, 3, 4, 5), r.f(2, 1, 1, 5)
    yield (Case("BiasSoftmax", "inner", [data, mask], {"axis": 3, "is_inner_broadcast": 1}),
           [softmax(data + mask)])  # fmt: skip
    mask = r.f(1, 3, 4, 5)
    yield (Case("BiasSoftmax", "outer", [data, mask], {"axis": 2, "is_inner_broadcast": 0}),
           [softmax(data + mask, (2, 3))])  # fmt: skip


def norms() -> Iterator[Judged]:
    r = Random("norm formulas")
    x, scale, gate = r.f(2, 3, 8), r.f(8), r.f(2, 3, 8)
    root = np.sqrt(np.square(x.astype(np.float64)).mean(-1, keepdims=True) + 1e-5)
    yield Case("GatedRMSNorm", "silu", [x, scale, gate]), [x / root * scale * gate * sigmoid(gate)]
    image, gamma, beta, skip, bias = r.f(2, 4, 5, 6), r.f(6), r.f(6), r.f(2, 4, 5, 6), r.f(6)

    def grouped(whole: Array) -> Array:
        parts = whole.astype(np.float64).reshape(2, 4, 5, 3, 2)
        centered = parts - parts.mean((1, 2, 4), keepdims=True)
        deviation = np.sqrt(np.square(centered).mean((1, 2, 4), keepdims=True) + 1e-5)
        return np.asarray((centered / deviation).reshape(whole.shape) * gamma + beta)

    what = {"groups": 3, "activation": 0}
    yield Case("GroupNorm", "last", [image, gamma, beta], what), [grouped(image)]
    swished = grouped(image) * sigmoid(grouped(image))
    yield (Case("GroupNorm", "first", [first(image), gamma, beta],
                what | {"activation": 1, "channels_last": 0}), [first(swished)])  # fmt: skip
    total = image + skip + bias
    yield (Case("SkipGroupNorm", "all", [image, gamma, beta, skip, bias], what, ["y", "sum"]),
           [grouped(total), total])  # fmt: skip
    total = image + skip[:, :1, :1]
    yield (Case("SkipGroupNorm", "narrow", [image, gamma, beta, skip[:, 0, 0]], what),
           [grouped(total)])  # fmt: skip


def convolutions() -> Iterator[Judged]:
    r = Random("convolution formulas")
    x, w, b, z = r.f(1, 5, 5, 3), r.f(4, 3, 3, 3), r.f(4), r.f(1, 3, 3, 4)
    fused = ours("FusedConv", first(x), w, b, first(z), activation="Relu")
    yield (Case("NhwcFusedConv", "residual", [x, w, b, z], {"activation": "Relu"}),
           [np.moveaxis(fused, 1, -1)])  # fmt: skip
    plain = ours("FusedConv", first(x), w, b, strides=[2, 2])
    yield (Case("NhwcConv", "strides", [x, np.moveaxis(w, 1, -1), b], {"strides": [2, 2]}),
           [np.moveaxis(plain, 1, -1)])  # fmt: skip


def integers() -> Iterator[Judged]:
    r = Random("integer formulas")
    a, b = r.u8(2, 3), r.u8(3)
    product = (a.astype(np.int32) - 3) * (b.astype(np.int32) - 5)
    yield Case("MulInteger", "zeros", [a, zero(3), b, zero(5)]), [product]
    c, d = r.i8(2, 3, 4), r.u8(2, 3, 4)
    yield (Case("ReduceSumInteger", "i8", [c], {"axes": [1], "keepdims": 1}),
           [c.sum(1, np.int32, keepdims=True)])  # fmt: skip
    yield (Case("ReduceSumInteger", "u8", [d], {"axes": [0, 2], "keepdims": 0}),
           [d.sum((0, 2), np.uint32)])  # fmt: skip


def attention() -> Iterator[Judged]:
    r = Random("attention formulas")
    q, k, v = r.f(2, 4, 16), r.f(2, 4, 16), r.f(2, 4, 16)
    expected = ours("MultiHeadAttention", q, k, v, num_heads=4)[0]
    parts = [x.reshape(2, 4, 4, 4) for x in (q, k, v)]
    heads = {"num_heads": 4}
    yield Case("MultiHeadAttention", "packed", [np.stack(parts, 3)], heads), [expected]
    pairs = np.stack(parts[1:], 3)
    yield Case("MultiHeadAttention", "packed pairs", [q, pairs], heads), [expected]
    gains = [r.f(4), r.f(4)]
    normal = [
        ours("SimplifiedLayerNormalization", part, gain, epsilon=1e-6)[0].reshape(2, 4, 16)
        for part, gain in zip(parts, gains, strict=False)
    ]
    counts, none = (np.full(2, 3, np.int32), i32(4).reshape(())), [None] * 7
    what = {"num_heads": 4, "kv_num_heads": 4}
    plain = ours("GroupQueryAttention", *normal, v, None, None, *counts, **what)
    inputs = [q, k, v, None, None, *counts, *none, *gains]
    yield Case("GroupQueryAttention", "norms", inputs, what), plain[:1]


def tensors() -> Iterator[Judged]:
    r = Random("tensor formulas")
    a, b = r.f(2, 3, 2), r.f(2, 3, 2)
    x, y = (part[..., 0] + 1j * part[..., 1] for part in (a, b))
    for name, product in (("ComplexMul", x * y), ("ComplexMulConj", x * y.conj())):
        yield Case(name, "plain", [a, b]), [np.stack([product.real, product.imag], -1)]
    signal = r.f(3, 8)
    matrix = np.exp(-2j * np.pi * np.outer(np.arange(8), np.arange(5)) / 8)
    spectrum = np.stack([(signal @ matrix).real, (signal @ matrix).imag], -1).astype(np.float32)
    one = {"signal_ndim": 1, "onesided": 1, "normalized": 0}
    yield Case("Rfft", "1d", [signal], one), [spectrum]
    yield Case("Irfft", "1d", [spectrum], one), [signal]
    rows = r.i64(0, 3, 2, 2)
    yield Case("TorchEmbedding", "2d", [signal, rows]), [signal[rows]]
    odd = np.array([1, np.inf], np.float32)
    yield Case("IsAllFinite", "finite", [signal, signal]), [np.array(True)]
    yield Case("IsAllFinite", "infinite", [signal, odd]), [np.array(False)]
    yield Case("IsAllFinite", "nan", [odd], {"isnan_only": 1}), [np.array(True)]
    yield (Case("BiasDropout", "residual", [signal, signal[0], signal], {}, ["y", "mask"]),
           [signal + signal[0] + signal, np.ones((3, 8), np.bool_)])  # fmt: skip
    data, scales = r.u8(6, 8), r.scale(6, 2)
    numbers = ((data[:, :, None] >> np.array([0, 2, 4, 6])) & 3).reshape(6, 32)
    wide = (numbers - 2.0) * np.repeat(scales, 16, 1)
    wide = np.concatenate([wide, np.zeros((1, 32))])
    yield (Case("GatherBlockQuantized", "2 bits", [data, i64(5, -1, 6), scales],
                {"bits": 2, "block_size": 16}), [wide[[5, 5, 6]]])  # fmt: skip
    product = np.maximum(signal @ signal.T * np.float32(0.5), 0)
    yield (Case("FusedMatMulActivation", "relu", [signal, signal],
                {"activation": "Relu", "transB": 1, "alpha": 0.5}), [product])  # fmt: skip
    mean = (data.astype(np.float64) - 9).mean(1) * 0.03 / 0.02 + 4
    yield (Case("QLinearReduceMean", "u8", [data, scalar(0.03), zero(9), scalar(0.02), zero(4)],
                {"axes": [1], "keepdims": 0}, apart=1),
           [np.rint(mean).clip(0, 255).astype(np.uint8)])  # fmt: skip
    yield Case("BiasAdd", "one", [signal, scalar(1).reshape(1), signal]), [signal + 1 + signal]


FAMILIES: Sequence[Callable[[], Iterator[Judged]]] = (
    activations, norms, convolutions, integers, attention, tensors,
)  # fmt: skip


def all_formulas() -> list[Judged]:
    return [judged for family in FAMILIES for judged in family()]
