"""Cases of every operator, as data: operands, attributes, and bounds for a backend's errors.

`bound` is computed from the case in float64: None means that results are equal to the bit.
Tests and benches share these.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from tests.core.ops import (
    cases_conv,
    cases_graphs,
    cases_low_rank,
    cases_recurrent,
    cases_winograd,
)
from tests.core.ops.case import EPS, TINY, Case, activations

from halfbyte.core import ops
from halfbyte.weights import BY_DTYPE, Q4_0, Q8_0, BlockFormat, Packed, Tensor
from halfbyte.weights.codes import KINDS, Coded, Fp4
from halfbyte.weights.packed import packed_rows

WIDE = tuple(f.name for f in BY_DTYPE.values() if not issubclass(f, Packed) and not f.in_memory)
BLOCKED = tuple(name for name in WIDE if issubclass(BY_DTYPE[name.lower()], BlockFormat))
PACKED = tuple(f.name for f in BY_DTYPE.values() if issubclass(f, Packed))


def weight(name: str, m: int, k: int) -> Tensor:
    """A random matrix in a format, with a row of zeros and extreme integers and scales."""
    kind = BY_DTYPE[name.lower()]
    if issubclass(kind, Coded | Fp4):
        rows = memory_only(kind, m, k)
    else:
        rows = kind.encode(activations(m, k, spread=k**-0.5))
    if issubclass(kind, BlockFormat):
        spoil(kind, rows.view(kind.layout)[-1, -1:])
    data = kind.pack(rows) if issubclass(kind, Packed) else rows.reshape(-1)
    return Tensor("w", kind, (m, k), data)


def memory_only(kind: type[BlockFormat], m: int, k: int) -> npt.NDArray[np.uint8]:
    """Random rows in a layout that no encoder writes; the kind of codes depends on the size."""
    random = np.random.default_rng(m)
    rows = random.integers(0, 256, (m, kind.row_bytes(k)), np.uint8)
    blocks = rows.view(kind.layout)
    for name in {"d", "dmin"} & {*(kind.layout.names or ())}:
        blocks[name] = random.standard_normal(blocks[name].shape) * 0.01
    if m > 1:
        blocks[0]["d"] = 0
    if issubclass(kind, Coded):
        blocks["kind"] = (m + k // 256) % len(KINDS)
    return rows


def spoil(kind: type[BlockFormat], block: npt.NDArray[np.void]) -> None:
    """Give a block [1] the largest and smallest integers and integer scales, alternating."""
    q = np.tile([0x80, 0x7F], kind.block // 2) if kind.bits == 8 else np.zeros(kind.block)
    if kind.bits < 8:
        q[::3], q[1::3] = 2**kind.bits - 1, 2 ** (kind.bits - 1)
    kind.store_quantized(block, q.astype(np.uint8)[None])
    if "scales" in (kind.layout.names or ()):
        scales = block["scales"].view(np.uint8)
        scales[...] = np.resize(np.array([0xFF, 0x80, 0, 0x7F, 0xC1], np.uint8), scales.shape)


def whole(name: str, k: int) -> int:
    """k, or the next number of columns that is whole blocks of the format."""
    block = BY_DTYPE[name.removesuffix("_R16").lower()].block
    return -(-k // block) * block


def _matmul() -> Iterator[Case]:
    shapes = [
        (1, 32, 1),
        (1, 64, 5),
        (2, 96, 16),
        (3, 64, 17),
        (5, 256, 33),
        (1, 576, 64),
        (9, 160, 48),
    ]
    for name in WIDE:
        more = [(1, k, 3) for k in range(1, 34)] if BY_DTYPE[name.lower()].block == 1 else []
        more += [(1, 1024, 258)] * bool(more)  # half a megabyte in F16: a row at a time
        for n, k, m in dict.fromkeys((n, whole(name, k), m) for n, k, m in shapes + more):
            x, w = activations(n, k), weight(name, m, k)
            size = np.abs(x).astype(np.float64) @ np.abs(w.decode()).T.astype(np.float64)
            bound = (k + 2) * EPS * size + TINY
            label = f"{name}-{n}x{k}x{m}"
            yield Case(label, ops.matmul, {"x": x, "w": w}, bound=bound, fused=True)
            if m > 1:
                r = activations(n + 1, m)[1:].copy()
                bound = bound + EPS * (size + np.abs(r))
                operands = {"x": x, "w": w, "r": r}
                yield Case(f"{label}-r", ops.matmul, operands, bound=bound, fused=True)


def _matmul_int8() -> Iterator[Case]:
    for name in BLOCKED + PACKED:
        shapes = [(1, 32, 1), (1, 64, 15), (1, 64, 16), (2, 96, 17), (3, 256, 47), (9, 160, 64)]
        shapes += [(16, 64, 16), (39, 96, 50), (7, 1088, 32), (67, 544, 16)] * (name in PACKED)
        shapes += [(1, 576, 32)]
        for n, k, m in dict.fromkeys((n, whole(name, k), m) for n, k, m in shapes):
            xq, xd, xs = ops.dynamic_quantize(activations(n, k))
            xq[-1, -32:] = [127, -127] * 16
            xs[-1, -2:] = 0
            operands = {"xq": xq, "xd": xd, "xs": xs, "w": weight(name, m, k)}
            yield Case(f"{name}-{n}x{k}x{m}", ops.matmul_int8, operands)
            r, bias = activations(n + 1, m)[1:].copy(), activations(2, m)[0]
            yield Case(f"{name}-{n}x{k}x{m}-r", ops.matmul_int8, {**operands, "r": r})
            operands = {**operands, "r": r if n == 1 else None, "bias": bias}
            yield Case(f"{name}-{n}x{k}x{m}-bias", ops.matmul_int8, operands)


def _extremes() -> Iterator[Case]:
    """Integers of 15 whose products have one sign in two columns of four, another in the rest."""
    kind = packed_rows(Q4_0)
    x = np.full((16, 128), 7, np.float32)
    x[:, ::32] = -8
    w = Tensor("w", kind, x.shape, kind.pack(kind.encode(x)))
    xq = np.tile(np.array([[127, 127, -127, -127]], np.int8), (5, 32))
    xq[1::2] *= -1
    xs = xq.reshape(5, 8, 16).sum(axis=2, dtype=np.int16)
    for operator, block in ((ops.matmul_int8, 32), (ops.matmul_rotated, 128)):
        xd = np.ones((5, 128 // block), np.float32)
        yield Case(operator.name, operator, {"xq": xq, "xd": xd, "xs": xs, "w": w})


def _codes() -> Iterator[Case]:
    """Each row has one code everywhere, and all activations have the same magnitude and sign."""
    names = ("q2_k", "q3_k", "codes", "codes_3", "iq4_nl", "iq4_xs", "mxfp4", "fp4")
    for kind in (packed_rows(BY_DTYPE[name]) for name in names):
        blocks = np.zeros((16, 256 // kind.block), kind.layout)
        for field in blocks.dtype.names or ():
            blocks[field] = 100
        each = np.arange(16, dtype=np.uint8)[:, None, None] % np.uint8(2**kind.bits)
        kind.store_quantized(blocks, each.repeat(blocks.shape[1], 1).repeat(kind.block, 2))
        for number in range(len(KINDS) if issubclass(kind, Coded) else 1):
            if issubclass(kind, Coded):
                blocks["kind"] = number
            w = Tensor("w", kind, (16, 256), kind.pack(blocks.view(np.uint8)))
            for sign in (1, -1):
                xq = np.full((1, 256), 127 * sign, np.int8)
                xs = xq.reshape(1, 16, 16).sum(axis=2, dtype=np.int16)
                operands = {"xq": xq, "xd": np.ones((1, 8), np.float32), "xs": xs, "w": w}
                yield Case(f"{kind.name}-{number}-{sign}", ops.matmul_int8, operands)


def _tables() -> Iterator[Case]:
    for name in WIDE + PACKED:
        for m in (7, 16, 39):
            ids = np.array([3, 0, m - 1, 3, m, 6, -1, 2**31 - 1, -(2**31)], np.int32)
            w = weight(name, m, whole(name, 96))
            yield Case(f"{name}-{m}", ops.gather, {"w": w, "ids": ids})
    for n, step in ((1, 1), (5, 3), (130, 1), (130, 35)):
        attributes = {"start": 7, "step": step}
        yield Case(f"{n}-{step}", ops.range_from, {"ids": np.zeros(n, np.int32)}, attributes)
    for n, rows in ((1, 1), (5, 1), (5, 5), (5, 2)):
        yield Case(f"{n}-{rows}", ops.last_rows, {"x": activations(n, 19)}, {"rows": rows})


def _quantize() -> Iterator[Case]:
    for n, k in ((1, 32), (3, 64), (2, 576)):
        yield Case(f"{n}x{k}", ops.dynamic_quantize, {"x": activations(n, k)})
    edges = np.zeros((4, 64), np.float32)
    edges[0, :32] = np.arange(-16, 16) / 2  # max 8: no x * 127 / 8 is a tie; row 1 has ties
    edges[1, :4] = [127, 0.5, 1.5, 2.5]  # exact halves go to the even neighbour
    edges[1, 32:36] = [-127, -0.5, -1.5, -2.5]
    edges[2, 0], edges[2, 33] = 1e-38, 3e-37  # 127 / max overflows, and just does not
    edges[3, 0], edges[3, 32:34] = 3e38, [1e-45, -1e-45]
    yield Case("edges", ops.dynamic_quantize, {"x": edges})


def quantized_bound(
    y: npt.NDArray[np.float64], off: npt.NDArray[np.float64], size: int = 32
) -> tuple[npt.NDArray[np.float64], ...]:
    """Bounds for int8 blocks of a result with error `off`: integers differ only near ties."""
    blocks, off = (v.reshape(len(y), -1, size) for v in (y, off))
    top = np.abs(blocks).max(2, keepdims=True)
    scale = np.divide(127, top, out=np.zeros_like(top), where=top > 0)
    reach = (off + np.abs(blocks) * (off / np.maximum(top, TINY)).max(2, keepdims=True)) * scale
    tied = np.abs(blocks * scale - np.floor(blocks * scale) - 0.5) <= reach + 1e-4
    d = (off.max(2) + 4 * EPS * top[..., 0]) / 127
    sums = tied.reshape(len(y), -1, 16).sum(2)
    return tied.reshape(y.shape).astype(float), d, sums.astype(float)


def _fused() -> Iterator[Case]:
    for n, d in ((1, 32), (3, 64), (2, 576)):
        x, gain = activations(n, d), activations(1, d)[0] + 1
        wide, epsilon = x.astype(np.float64), 1e-5
        y = wide / np.sqrt((wide**2).mean(-1, keepdims=True) + epsilon) * gain
        bound = quantized_bound(y, (d / 2 + 8) * EPS * np.abs(y) + TINY)
        operands = {"x": x, "weight": gain}
        yield Case(f"{n}x{d}", ops.rms_norm_quantize, operands, {"epsilon": epsilon}, bound)
        gate, up = activations(n, d, spread=4), activations(n + 1, d)[1:].copy()
        y = gate.astype(np.float64) / (1 + np.exp(-gate.astype(np.float64))) * up
        size = np.abs(gate.astype(np.float64) * up)
        off, operands = 18 * EPS * size + TINY, {"gate": gate, "up": up}
        yield Case(f"{n}x{d}", ops.swiglu, operands, bound=off)
        bound = quantized_bound(y, off)
        yield Case(f"{n}x{d}", ops.swiglu_quantize, operands, bound=bound)
    for case in _rotary():
        x = case.operands["x"]
        for dtype in (np.float16, np.float32):
            heads = x.shape[1] // case.attributes["head_dim"]
            cache = activations(20, x.shape[1]).astype(dtype)
            assert isinstance(case.bound, np.ndarray)
            bound = np.zeros(cache.shape)
            step = 2.0**-10 if dtype == np.float16 else 0.0  # may round the other way
            bound[4 : 4 + len(x)] = case.bound + step * np.abs(x).max() * 2
            blocks = np.nan_to_num(key_blocks(cache, heads))
            attributes = {k: v for k, v in case.attributes.items() if k != "head_dim"}
            yield Case(
                f"{case.label}-{np.dtype(dtype).name}", ops.rotary_cache_write_keys,
                {**case.operands, "cache": blocks}, attributes,
                np.nan_to_num(key_blocks(bound, heads)),
            )  # fmt: skip


def _norms() -> Iterator[Case]:
    for d in (1, 15, 16, 17, 33, 64, 576):
        x, gain, bias = activations(3, d), activations(1, d)[0] + 1, activations(2, d)[0]
        wide, epsilon = x.astype(np.float64), 1e-5
        y = wide / np.sqrt((wide**2).mean(-1, keepdims=True) + epsilon) * gain
        yield Case(
            f"{d}", ops.rms_norm, {"x": x, "weight": gain}, {"epsilon": epsilon},
            bound=(d / 2 + 8) * EPS * np.abs(y) + TINY,
        )  # fmt: skip
        heads = np.concatenate([x, 3 * x[::-1]], axis=1)
        wide_heads = np.concatenate([y, y[::-1]], axis=1)
        yield Case(
            f"2x{d}", ops.rms_norm, {"x": heads, "weight": gain},
            {"epsilon": epsilon, "heads": 2}, bound=(d / 2 + 8) * EPS * np.abs(wide_heads) + TINY,
        )  # fmt: skip
        deviation = np.sqrt(wide.var(-1, keepdims=True) + epsilon)
        size = (np.abs(wide) + np.abs(wide).mean(-1, keepdims=True)) / deviation * np.abs(gain)
        # The mean is off by d eps mean|x|, which the division by the deviation magnifies.
        yield Case(
            f"{d}", ops.layer_norm, {"x": x, "weight": gain, "bias": bias}, {"epsilon": epsilon},
            bound=(d + 16) * EPS * (size + np.abs(bias)) + TINY,
        )  # fmt: skip


def _rotary() -> Iterator[Case]:
    for interleaved in (True, False):
        for head_dim, r, heads in ((8, 4, 3), (16, 8, 1), (64, 32, 2), (48, 16, 2), (6, 2, 5)):
            x = activations(3, heads * head_dim)
            angle = np.arange(10)[:, None] * 0.5 ** np.arange(r)
            cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
            pairs = np.abs(x).astype(np.float64).reshape(3, heads, head_dim)
            yield Case(
                f"{'pairs' if interleaved else 'halves'}-{heads}x{head_dim}-{r}",
                ops.rotary_embedding, {"x": x, "cos": cos, "sin": sin},
                {"head_dim": head_dim, "position": 4, "interleaved": interleaved},
                bound=np.broadcast_to(2 * EPS * 2 * pairs.max(-1, keepdims=True), pairs.shape)
                .reshape(x.shape) + TINY,
            )  # fmt: skip


def _attention() -> Iterator[Case]:
    for n, position, heads, kv_heads, head_dim, window in (
        (1, 0, 1, 1, 8, 0), (1, 15, 2, 1, 16, 0), (3, 14, 4, 2, 8, 0), (5, 33, 9, 3, 64, 0),
        (17, 0, 2, 2, 20, 0), (2, 95, 1, 1, 128, 0), (7, 61, 6, 3, 32, 0), (1, 130, 8, 2, 16, 0),
        (70, 0, 3, 1, 16, 0),
        (1, 0, 2, 1, 8, 1), (3, 14, 4, 2, 8, 64), (1, 130, 8, 2, 16, 40), (1, 300, 3, 1, 20, 150),
        (6, 33, 9, 3, 64, 7), (70, 0, 3, 1, 16, 16), (40, 290, 2, 2, 32, 33), (9, 20, 1, 1, 40, 1),
    ):  # fmt: skip
        for dtype in (np.float16, np.float32):
            t, label = position + n + 3, f"{np.dtype(dtype).name}-{n}-{position}-{window}"
            q = activations(n, heads * head_dim)
            k = activations(t, kv_heads * head_dim).astype(dtype)
            v = k + activations(t + 1, kv_heads * head_dim)[1:].astype(dtype)
            unseen = unseen_rows(t, n, position, window)
            k[unseen], v[unseen] = np.nan, np.nan  # what must not be used
            case = Case(
                f"{label}-{heads}-{kv_heads}-{head_dim}", ops.group_query_attention,
                {"q": q, "k": key_blocks(k, kv_heads), "v": by_head(v, kv_heads)},
                {"position": position, "scale": head_dim**-0.5, "window": window},
            )  # fmt: skip
            case.bound = _attention_bound(case, np.nan_to_num(k), np.nan_to_num(v), head_dim)
            yield case
            if window in (7, 16, 40) or position == 14:
                yield from _changed(case, heads)
            x, cache = activations(n, k.shape[1]), np.nan_to_num(k)
            x.flat[:3] = [65519.9, 65520, 1e-8]  # the largest finite F16, the first infinite, 0
            where = {"position": position}
            operands = {"x": x, "cache": by_head(cache, kv_heads)}
            yield Case(label, ops.cache_write, operands, where)
            blocks = np.nan_to_num(key_blocks(cache, kv_heads))
            yield Case(label, ops.cache_write_keys, {"x": x, "cache": blocks}, where)


def _attention_q8_0() -> Iterator[Case]:
    """Over a cache in Q8_0; positions cross groups of sixteen and steps of 128 keys."""
    for n, position, heads, kv_heads, head_dim, window in (
        (1, 0, 1, 1, 32, 0), (1, 15, 3, 1, 64, 0), (3, 14, 4, 2, 64, 0), (5, 33, 9, 3, 32, 0),
        (2, 126, 2, 1, 128, 0), (7, 253, 6, 3, 64, 0), (1, 300, 8, 2, 128, 0),
        (40, 110, 3, 1, 96, 0), (2, 15, 5, 1, 512, 0),
        (1, 300, 8, 2, 64, 150), (6, 33, 9, 3, 32, 7), (40, 290, 2, 2, 32, 33),
        (9, 20, 1, 1, 32, 1),
    ):  # fmt: skip
        t, e, label = position + n + 3, kv_heads * head_dim, f"q8_0-{n}-{position}-{window}"
        q, k = activations(n, heads * head_dim), activations(t, e)
        v = k + activations(t + 1, e)[1:]
        v[-4] = 0  # the last that is used
        keys, values = Q8_0.encode(k), Q8_0.encode(v)
        unseen = unseen_rows(t, n, position, window)
        keys[unseen], values[unseen] = 0xFF, 0xFF  # what must not be used: NaN
        case = Case(
            f"{label}-{heads}-{kv_heads}-{head_dim}", ops.group_query_attention,
            {"q": q, "k": key_blocks_q8_0(keys, kv_heads), "v": by_head(values, kv_heads)},
            {"position": position, "scale": head_dim**-0.5, "window": window},
        )  # fmt: skip
        xq, xd, _ = ops.dynamic_quantize.meaning(q)
        rounded = (xq.reshape(-1, 32) * xd.reshape(-1, 1)).reshape(q.shape)
        seen = Case(case.label, case.operator, {"q": rounded}, case.attributes)
        numbers = (np.nan_to_num(Q8_0.decode(rows)) for rows in (keys, values))
        case.bound = _attention_bound(seen, *numbers, head_dim)
        yield case
        if window == 150:
            yield from _changed(case, heads)
        x, where = activations(n, e), {"position": position}
        x[-1, -32:] = [127, 0.5, -0.5, 1.5] * 8  # halves go away from zero
        operands = {"x": x, "cache": by_head(values, kv_heads)}
        yield Case(label, ops.cache_write, operands, where)
        operands = {"x": x, "cache": key_blocks_q8_0(keys, kv_heads)}
        yield Case(label, ops.cache_write_keys, operands, where)


def _changed(case: Case, heads: int) -> Iterator[Case]:
    """The same attention with scores changed; of large scores, caps and sinks matter."""
    slopes = np.exp2(-np.arange(1, heads + 1, dtype=np.float32))
    sinks = activations(1, heads, spread=2)[0]
    total = case.attributes["position"] + len(case.operands["q"])
    for name, more, softcap in (
        ("softcap", {}, 0.5), ("slopes", {"slopes": slopes}, 0.0), ("sinks", {"sinks": sinks}, 0.0),
        ("all", {"slopes": slopes, "sinks": sinks}, 3.0),
    ):  # fmt: skip
        error = 2 * EPS * (16 * softcap + 4 * total + 4 * np.abs(sinks).max())
        yield Case(
            f"{name}-{case.label}", case.operator, {**case.operands, **more},
            {**case.attributes, "softcap": softcap}, bound=case.bound + 8 * error,
        )  # fmt: skip


def unseen_rows(t: int, n: int, position: int, window: int) -> list[int]:
    """Positions of a cache of t that are in the window of none of n rows."""
    first = max(position + 1 - window, 0) if window else 0
    return [*range(first), *range(position + n, t)]


def key_blocks_q8_0(keys: npt.NDArray[np.uint8], heads: int) -> npt.NDArray[np.uint8]:
    """Encoded keys [t, row] in the cache's layout, padded with NaN."""
    padded = np.full((-len(keys) % ops.KEY_BLOCK + len(keys), keys.shape[1]), 0xFF, np.uint8)
    padded[: len(keys)] = keys
    rows = by_head(padded, heads)
    return (
        packed_rows(Q8_0)
        .pack(rows.reshape(-1, rows.shape[2]))
        .reshape(heads, -1, ops.KEY_BLOCK * rows.shape[2])
    )


def by_head(x: npt.NDArray[Any], heads: int) -> npt.NDArray[Any]:
    """Rows [t, e] in the cache's layout: [heads, t, e / heads]."""
    return np.ascontiguousarray(x.reshape(len(x), heads, -1).swapaxes(0, 1))


def key_blocks(k: npt.NDArray[Any], heads: int) -> npt.NDArray[Any]:
    """Keys in the cache's layout: [heads, ceil(t / 16), e / heads, 16], padded with NaN."""
    padded = np.full((-len(k) % ops.KEY_BLOCK + len(k), k.shape[1]), np.nan, k.dtype)
    padded[: len(k)] = k
    blocks = padded.reshape(-1, ops.KEY_BLOCK, heads, k.shape[1] // heads)
    return np.ascontiguousarray(blocks.transpose(2, 0, 3, 1))


def _attention_bound(
    case: Case, k: npt.NDArray[Any], v: npt.NDArray[Any], head_dim: int
) -> npt.NDArray[np.float64]:
    """A score's error is head_dim eps sum|q k|, which is the relative error of its weight."""
    scale, q = case.attributes["scale"], case.operands["q"]
    n, group = len(q), q.shape[1] // k.shape[1]
    total = case.attributes["position"] + n

    def heads(x: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        x = np.abs(x[:total].astype(np.float64))
        return x.reshape(len(x), -1, head_dim).transpose(1, 0, 2)

    keys, values = (np.repeat(heads(x), group, 0) for x in (k, v))
    products = heads(q) @ keys.transpose(0, 2, 1)
    score_error = (head_dim + 8) * EPS * scale * products.max()
    size = np.broadcast_to(values.max(axis=1, keepdims=True), (len(values), n, head_dim))
    bound = (2 * score_error + (2 * total + 32) * EPS) * size
    return bound.transpose(1, 0, 2).reshape(n, -1) + TINY


def _elementwise() -> Iterator[Case]:
    x = activations(40, 777)  # enough for several threads, which meet inside a row
    for operator in (ops.add, ops.mul):
        yield Case("1-777", operator, {"x": x, "y": activations(1, 777)})
    for d in (*range(1, 34), 100):
        x, y = activations(3, d, spread=4), activations(4, d)[:3].copy()
        wide = x.astype(np.float64)
        bound = 16 * EPS * np.abs(wide) + TINY
        yield Case(f"{d}", ops.silu, {"x": x}, bound=16 * EPS * np.abs(wide) + TINY)
        yield Case(f"erf-{d}", ops.gelu, {"x": x}, {"approximate": "none"}, bound=bound)
        yield Case(f"tanh-{d}", ops.gelu, {"x": x}, {"approximate": "tanh"}, bound=bound)
        for rows in (3, 1):
            yield Case(f"{rows}-{d}", ops.add, {"x": x, "y": y[:rows].copy()})
            yield Case(f"{rows}-{d}", ops.mul, {"x": x, "y": y[:rows].copy()})
        p = np.exp(wide - wide.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        # exp's argument, up to |x - max|, is rounded once.
        off = d + 16 + np.abs(wide - wide.max(-1, keepdims=True))
        yield Case(f"{d}", ops.softmax, {"x": x}, bound=off * EPS * p + TINY)
    edges = np.array([[-3e38, -1e4, -104, -88, -1, -1e-30, 0, 1e-30, 1, 88, 104, 1e4]], np.float32)
    bound = 16 * EPS * np.abs(edges.astype(np.float64)) + TINY
    yield Case("edges", ops.silu, {"x": edges}, bound=bound)
    edges, bound = edges[:, 1:].copy(), bound[:, 1:]  # x^3 of the first overflows
    for approximate in ("none", "tanh"):
        operands, attributes = {"x": edges}, {"approximate": approximate}
        yield Case(f"edges-{approximate}", ops.gelu, operands, attributes, bound=bound)


def all_cases() -> list[Case]:
    """Every case of every operator."""
    from tests.core.ops import cases_encoder, cases_experts, cases_rotated  # which take from here

    families = (
        _matmul, _matmul_int8, _extremes, _codes, _tables, _quantize, _norms, _rotary, _attention,
        _attention_q8_0, _elementwise, _fused, *cases_graphs.FAMILIES,
        *cases_conv.FAMILIES, *cases_winograd.FAMILIES, *cases_recurrent.FAMILIES,
        *cases_low_rank.FAMILIES, *cases_encoder.FAMILIES, *cases_experts.FAMILIES,
        *cases_rotated.FAMILIES,
    )  # fmt: skip
    return [case for family in families for case in family()]
