"""Cases of the operators of encoders: see `cases`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from tests.core.ops.cases import EPS, TINY, Case, activations, quantized_bound

from halfbyte.core import ops
from halfbyte.core.ops.panels import Activation, pack_panels

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]

# Rows: every height of a tile, and more than a block; outputs: every width, and ends of panels;
# columns: more than are summed up at once.
PRODUCTS = (
    (1, 1, 1), (1, 32, 5), (2, 3, 16), (3, 64, 17), (4, 7, 33), (5, 33, 48), (6, 16, 64),
    (7, 400, 65), (12, 20, 32), (13, 24, 100), (23, 8, 16), (97, 40, 48), (1, 800, 130),
)  # fmt: skip


def _sizes(x: F32, w: F32) -> F64:
    """The size of a sum's terms: sum |x| |w|."""
    return np.abs(x.astype(np.float64)) @ np.abs(w.astype(np.float64)).T


def _matmul_panels() -> Iterator[Case]:
    for number, (n, k, m) in enumerate(PRODUCTS):
        x, w = activations(n, k), activations(m, k, spread=k**-0.5)
        bias, r = activations(2, m)[0], activations(n + 1, m)[1:].copy()
        sums = _sizes(x, w) + np.abs(bias)
        for residual in (None, r):
            activation = list(Activation)[(number + (residual is not None)) % len(Activation)]
            size = sums if residual is None else sums + np.abs(r)
            operands = {"x": x, "w": pack_panels(w), "bias": bias}
            if residual is not None:
                operands["r"] = residual
            yield Case(
                f"{n}x{k}x{m}-{activation.name}{'' if residual is None else '-r'}",
                ops.matmul_panels, operands, {"activation": int(activation)},
                bound=(1.2 * (k + 4) + 16) * EPS * size + TINY, fused=True,
            )  # fmt: skip


def _quantized() -> Iterator[Case]:
    for n, d in ((1, 32), (3, 64), (2, 576), (5, 1056)):
        x, epsilon = activations(n, d), 1e-5
        gain, bias = activations(1, d)[0] + 1, activations(2, d)[0]
        wide = x.astype(np.float64)
        mean, deviation = (
            wide.mean(-1, keepdims=True),
            np.sqrt(wide.var(-1, keepdims=True) + epsilon),
        )
        y = (wide - mean) / deviation * gain + bias
        size = (np.abs(wide) + np.abs(wide).mean(-1, keepdims=True)) / deviation * np.abs(gain)
        off = (d + 16) * EPS * (size + np.abs(bias)) + TINY
        yield Case(
            f"{n}x{d}", ops.layer_norm_quantize, {"x": x, "weight": gain, "bias": bias},
            {"epsilon": epsilon}, bound=(off, *quantized_bound(y, off)),
        )  # fmt: skip
        scale = np.abs(activations(1, d)[0]) + 1
        yield Case(
            f"{n}x{d}-gain", ops.layer_norm_quantize,
            {"x": x, "weight": gain, "bias": bias, "gain": scale},
            {"epsilon": epsilon}, bound=(off * scale + TINY, *quantized_bound(y, off)),
        )  # fmt: skip
        for approximate in ("none", "tanh"):
            y = ops.gelu.meaning(x, approximate=approximate).astype(np.float64)
            bound = quantized_bound(y, 16 * EPS * np.abs(wide) + TINY)
            attributes = {"approximate": approximate}
            yield Case(f"{approximate}-{n}x{d}", ops.gelu_quantize, {"x": x}, attributes, bound)


# batch, heads, kv heads, queries, keys, numbers of a key, of a value; bias, reach, softcap
ATTENTION = (
    (1, 1, 1, 1, 1, 8, 8, "", None, 0), (2, 3, 3, 7, 7, 16, 16, "keys", None, 0),
    (2, 4, 2, 17, 33, 32, 32, "", 0, 0), (1, 2, 1, 40, 150, 20, 40, "full", None, 0),
    (1, 2, 2, 33, 260, 64, 48, "keys", 227, 0), (1, 1, 1, 18, 20, 200, 130, "rows", 2, 0),
    (3, 2, 1, 16, 129, 5, 3, "full", 40, 30.0), (1, 2, 2, 70, 70, 32, 32, "rows", 0, 5.0),
)  # fmt: skip
BIASES = {
    "keys": (1, 0, 0),
    "heads": (1, 1, 0),
    "rows": (0, 0, 1),
    "full": (1, 1, 1),
}  # of batch, head, row


def _attention() -> Iterator[Case]:
    yield from map(_attention_case, ATTENTION)


def _attention_case(sizes: tuple[Any, ...]) -> Case:
    """Queries, keys and values in one matrix, heads side by side."""
    batch, heads, kv_heads, s, t, d, e, kind, reach, softcap = sizes
    rows, wide = max(s, t), heads * d + kv_heads * (d + e)
    x = activations(batch * rows, wide)
    strides = {
        f"{name}_{axis}": size
        for name, one in (("q", d), ("k", d), ("v", e))
        for axis, size in (("batch", rows * wide), ("head", one), ("row", wide))
    }
    attributes = {
        "batch": batch, "heads": heads, "kv_heads": kv_heads, "s": s, "t": t, "d": d, "e": e,
        **strides, "scale": d**-0.5, "k_at": heads * d, "v_at": (heads + kv_heads) * d,
        "reach": t if reach is None else reach, "softcap": float(softcap),
    }  # fmt: skip
    operands = dict.fromkeys("qkv", x.reshape(-1))
    if kind:
        own = BIASES[kind]
        shape = [n if used else 1 for n, used in zip((batch, heads, s), own, strict=True)]
        bias = activations(shape[0] * shape[1] * shape[2] + 3, t)[3:].copy()
        bias[np.abs(bias) > 2] = -3e38
        bias[-1] = -np.inf  # hides all keys
        operands["bias"] = bias.reshape(-1)
        steps = (shape[1] * shape[2] * t, shape[2] * t, t)
        for axis, used, step in zip(("batch", "head", "row"), own, steps, strict=True):
            attributes[f"bias_{axis}"] = step * used
    case = Case(f"{batch}-{heads}-{s}-{t}-{d}-{kind}", ops.attention, operands, attributes)
    largest = np.abs(x.astype(np.float64)).max()
    score = (d + 8) * EPS * largest**2 * d**0.5 + 4 * EPS
    size = np.full((batch, s, heads, e), largest)
    case.bound = (2 * score + (2 * t + 32) * EPS) * size + TINY
    return case


# As above; more than a step of keys, than a unit of queries, and parts of sixteens.
ATTENTION_INT8 = (
    (1, 1, 1, 1, 1, 16, 16, ""), (2, 3, 3, 7, 7, 16, 16, "keys"), (2, 4, 2, 17, 33, 32, 32, ""),
    (1, 2, 1, 150, 300, 64, 48, "keys"), (2, 2, 2, 16, 131, 32, 64, "heads"),
)  # fmt: skip


def _attention_int8() -> Iterator[Case]:
    """Quantized weights, bytes for weights of at most 1, may round the other way."""
    for batch, heads, kv_heads, s, t, d, e, kind in ATTENTION_INT8:
        case = _attention_case((batch, heads, kv_heads, s, t, d, e, kind, None, 0))
        case.operator = ops.attention_int8
        for name in ("reach", "softcap", "bias_row"):
            case.attributes.pop(name, None)
        largest = np.abs(case.operands["v"]).max()
        assert isinstance(case.bound, np.ndarray)
        case.bound = case.bound + 2 / 255 * largest
        yield case


# Tokens of each text, heads, kv heads, numbers of a head, rows of a bias
TEXTS = (
    ([1], 1, 1, 16, 0), ([5, 1, 33], 4, 2, 32, 0), ([150, 2, 129], 2, 2, 64, 2),
    ([17, 40], 3, 3, 20, 1),
)  # fmt: skip


def _attention_texts() -> Iterator[Case]:
    """Float sums are bounded as in `_attention_case`; so is rounding to int8."""
    for sizes, heads, kv_heads, d, biases in TEXTS:
        n, t = sum(sizes), max(sizes)
        q, k, v = (activations(n, count * d) for count in (heads, kv_heads, kv_heads))
        operands = {"q": q, "k": k, "v": v, "blocks": ops.text_blocks(sizes)}
        attributes = {"heads": heads, "kv_heads": kv_heads, "d": d, "scale": d**-0.5}
        largest = max(float(np.abs(x).max()) for x in (q, k, v))
        score = (d + 8) * EPS * largest**2 * d**0.5 + 4 * EPS
        bound = np.full((n, heads * d), (2 * score + (2 * t + 32) * EPS) * largest) + TINY
        label = f"{'-'.join(map(str, sizes))}x{heads}x{d}"
        if d % 16 == 0 and not biases:
            yield Case(
                label, ops.attention_texts_int8, operands, attributes, bound + 2 / 255 * largest
            )
        if biases:
            bias = activations(biases, 2 * t + 3)
            bias[:, :7] = -np.inf  # a window: the farthest keys are hidden
            operands = operands | {"bias": bias.reshape(-1)}
            step = bias.shape[1] if biases > 1 else 0
            attributes = attributes | {"w": bias.shape[1], "bias_head": step}
        yield Case(label, ops.attention_texts, operands, attributes, bound)


# outer, inner, rows, sums, columns; whether x and w differ along outer and inner; w is [k, m]
BATCHES = (
    (1, 1, 3, 5, 7, (0, 0), (0, 0), True), (2, 3, 17, 20, 33, (1, 1), (1, 1), True),
    (3, 2, 5, 16, 64, (1, 0), (0, 1), False), (2, 2, 100, 8, 16, (0, 1), (1, 1), False),
)  # fmt: skip


def _batched() -> Iterator[Case]:
    for outer, inner, n, k, m, own_x, own_w, columns in BATCHES:
        label = f"{outer}x{inner}-{n}x{k}x{m}"
        x, w = activations(outer * inner * n, k).reshape(-1), activations(outer * inner * m, k)
        row, step = (1, m) if columns else (k, 1)
        own = {"w_outer": inner * m * k * own_w[0], "w_inner": m * k * own_w[1]}
        attributes = {
            "outer": outer, "inner": inner, "g": -(-m // 16), "k": k, "m": m,
            **own, "w_row": row, "w_step": step,
        }  # fmt: skip
        yield Case(label, ops.pack_batched, {"w": w.reshape(-1)}, attributes)
        packed = ops.pack_batched.meaning(w.reshape(-1), **attributes)
        each = packed[0, 0].size
        attributes = {
            "outer": outer, "inner": inner, "n": n, "m": m,
            "x_outer": inner * n * k * own_x[0], "x_inner": n * k * own_x[1], "x_row": k,
            "w_outer": inner * each * own_w[0], "w_inner": each * own_w[1],
        }  # fmt: skip
        sizes = {"x": np.abs(x), "w": np.abs(packed)}
        bound = (k + 2) * EPS * ops.matmul_batched.meaning(**sizes, **attributes) + TINY
        operands = {"x": x, "w": packed}
        yield Case(label, ops.matmul_batched, operands, attributes, bound, fused=True)


FAMILIES = (
    _batched, _attention, _attention_int8, _attention_texts, _matmul_panels, _quantized,
)  # fmt: skip
