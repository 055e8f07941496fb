"""Rules of attention in the forms of ONNX and ONNX Runtime, without a past.

Queries, keys and values are read where they are, with strides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from halfbyte.core import ops
from halfbyte.core.buffer import Buffer
from halfbyte.core.ops.full_attention import MAX_HEAD
from halfbyte.core.ops.operator import record_host
from halfbyte.onnx.capture import Capture
from halfbyte.onnx.lowering.dynamic import matmul_integer_to_float
from halfbyte.onnx.lowering.elementwise import combine
from halfbyte.onnx.lowering.linear import flat, product
from halfbyte.onnx.lowering.registry import MICROSOFT, OWN, lower
from halfbyte.onnx.lowering.strides import broadcast, row_major
from halfbyte.onnx.reference.contrib.attention import FILTER, padding_mask
from halfbyte.onnx.sizes import broadcast_shapes
from halfbyte.onnx.values import Array, Operand, Value, key_of, shape_of, sizes_of

Tensor = Value | Array


@dataclass
class Heads:
    """Queries, keys or values [batch, heads, length, width] in a buffer, with these strides."""

    buffer: Buffer
    at: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # of batch, head and row


def by_heads(c: Capture, x: Tensor | None, heads: int) -> Heads | None:
    """A float32 tensor [batch, heads, length, width] or [batch, length, heads width] by heads."""
    if x is None or key_of(x) != "f32" or not math.prod(shape_of(x)):
        return None
    shape = shape_of(x)
    if len(shape) == 3 and heads > 0 and not shape[2] % heads:
        return _parts(c.plain(x), shape, heads, 1)[0]
    if len(shape) != 4:
        return None
    if isinstance(x, Value):
        buffer, order = x.origin()
        steps = row_major(sizes_of(buffer))
        strides = [steps[i] for i in order]
        if strides[3] == 1 or shape[3] == 1:
            return Heads(buffer, 0, shape, tuple(strides[:3]))
    return Heads(c.plain(x), 0, shape, tuple(row_major(shape)[:3]))


def _parts(buffer: Buffer, shape: Sequence[int], heads: int, count: int) -> list[Heads]:
    """A tensor [batch, length, count heads width] as `count` tensors side by side."""
    batch, length, row = shape
    width = row // heads // count
    sizes = (batch, heads, length, width)
    strides = (length * row, width, row)
    return [Heads(buffer, i * heads * width, sizes, strides) for i in range(count)]


def attend(
    c: Capture, q: Heads | None, k: Heads | None, v: Heads | None, bias: Operand = None, *,
    scale: float | None, causal: bool = False, softcap: float = 0.0,
) -> Buffer | None:  # fmt: skip
    """Attention [batch, length, heads, width]; None if the shapes do not fit."""
    if q is None or k is None or v is None:
        return None
    (batch, heads, s, d), (_, kv_heads, t, e) = q.shape, v.shape
    if (k.shape != (batch, kv_heads, t, d)) or v.shape[0] != batch or heads % kv_heads:
        return None
    if max(d, e) > MAX_HEAD:
        return None
    extra: dict[str, int] = {}
    added = None
    if bias is not None:
        shape = shape_of(bias)
        if key_of(bias) != "f32" or not 1 <= len(shape) <= 4 or shape[-1] != t:
            return None
        try:
            if broadcast_shapes(shape, (batch, heads, s, t)) != (batch, heads, s, t):
                return None
        except ValueError:
            return None
        steps = broadcast(shape, (batch, heads, s, t))
        extra = dict(zip(("bias_batch", "bias_head", "bias_row"), steps[:3], strict=True))
        added = c.plain(bias).view((math.prod(shape),))
    for name, part in (("q", q), ("k", k), ("v", v)):
        steps = list(part.strides)
        extra |= dict(zip((f"{name}_batch", f"{name}_head", f"{name}_row"), steps, strict=True))
    y: Buffer = ops.attention(
        *(flat(p.buffer) for p in (q, k, v)), added,
        batch=batch, heads=heads, kv_heads=kv_heads, s=s, t=t, d=d, e=e,
        q_at=q.at, k_at=k.at, v_at=v.at, **extra,
        scale=d**-0.5 if scale is None else scale, reach=0 if causal else t, softcap=softcap,
    )  # fmt: skip
    return y


def _joined(c: Capture, y: Buffer | None) -> Value | None:
    """The result of attention as [batch, length, heads width]."""
    if y is None:
        return None
    batch, s, heads, e = sizes_of(y)
    return c.value(y, (batch, s, heads * e))


def added_where(c: Capture, seen: Tensor, hidden: float) -> Tensor | None:
    """The bias of scores for a mask of the keys that are seen: 0, or `hidden` for other keys."""
    if isinstance(seen, np.ndarray):
        return np.where(seen, np.float32(0), np.float32(hidden))
    if seen.dtype != "bool":
        return None
    buffers = record_host(
        "Where",
        lambda x: (np.where(x, np.float32(0), np.float32(hidden)),),
        [c.plain(seen)],
        [("f32", seen.shape)],
    )
    return c.value(buffers[0])


@lower("Attention")
def attention(
    c: Capture, q: Operand, k: Operand, v: Operand, mask: Operand = None,
    past_key: Operand = None, past_value: Operand = None, valid: Operand = None, *,
    is_causal: int = 0, kv_num_heads: int = 0, left_window_size: int = -1, q_num_heads: int = 0,
    right_window_size: int = -1, scale: float | None = None, softcap: float = 0.0,
    **attributes: Any,
) -> Value | None:  # fmt: skip
    """ONNX's Attention, without windows and caches."""
    if past_key is not None or past_value is not None or valid is not None or q is None:
        return None
    if left_window_size >= 0 or right_window_size >= 0 or any(c.node.outputs[1:]):
        return None
    if attributes.get("softmax_precision", 1) not in (0, 1):
        return None
    if mask is not None and key_of(mask) == "bool":
        mask = added_where(c, mask, -np.inf)
    parts = (by_heads(c, q, q_num_heads), by_heads(c, k, kv_num_heads))
    y = attend(
        c, *parts, by_heads(c, v, kv_num_heads), mask,
        scale=scale, causal=bool(is_causal), softcap=softcap,
    )  # fmt: skip
    if y is None or len(shape_of(q)) == 3:
        return _joined(c, y)
    return c.transposed(c.value(y), (0, 2, 1, 3))


@lower("Attention", domain=OWN)
def fused_attention(
    c: Capture, q: Operand, k: Operand, v: Operand, mask: Operand = None, *, scale: float,
    axis: int = -1, to_end: int = 0,
) -> Value | None:  # fmt: skip
    """Fused attention with as many heads of keys and values as of queries, or with one.

    A mask has at most four axes.
    """
    if q is None or k is None or v is None or {len(shape_of(x)) for x in (q, k, v)} != {4}:
        return None
    if shape_of(k)[1] not in (1, shape_of(q)[1]):
        return None
    y: Value | None = attention(c, q, k, v, mask, scale=scale)
    return y


def _filtered(
    c: Capture, mask: Operand, bias: Operand, value: float, batch: int, t: int
) -> tuple[bool, Operand]:
    """Whether the mask and bias of scores can be combined, and their sum."""
    if mask is None:
        return True, bias

    def meaning(numbers: Array) -> tuple[Array]:
        seen = np.asarray(padding_mask(numbers, batch, t))
        return (np.where(seen, np.float32(0), np.float32(value)).astype(np.float32),)

    if isinstance(mask, np.ndarray):
        added: Operand = meaning(mask)[0]
    else:
        shape = meaning(np.zeros(mask.shape, mask.numpy))[0].shape
        (buffer,) = record_host("Where", meaning, [c.plain(mask)], [("f32", shape)])
        added = c.value(buffer)
    if bias is None or added is None:
        return True, added
    if isinstance(added, np.ndarray) and isinstance(bias, np.ndarray):
        return True, added + bias
    total = combine(c, "add", added, bias)
    return total is not None, total


@lower("MultiHeadAttention", domain=MICROSOFT)
def multi_head_attention(
    c: Capture, query: Operand, key: Operand = None, value: Operand = None, bias: Operand = None,
    mask: Operand = None, attention_bias: Operand = None, *past: Operand, num_heads: int,
    unidirectional: int = 0, mask_filter_value: float = FILTER, scale: float | None = None,
) -> Value | None:  # fmt: skip
    """Attention of queries, keys and values in three tensors, or in one [batch, n, heads, 3, d]."""
    if query is None or any(p is not None for p in past) or any(c.node.outputs[1:]):
        return None
    parts: list[Heads | None]
    if len(shape_of(query)) == 5 and key is None and bias is None and key_of(query) == "f32":
        parts = list(_interleaved(c.plain(query), shape_of(query)))
    elif key is None or value is None:
        return None
    else:
        tensors = _biased(c, (query, key, value), bias)
        if tensors is None:
            return None
        parts = [by_heads(c, x, num_heads) for x in tensors]
    if parts[0] is None or parts[1] is None or (unidirectional and not _square(parts)):
        return None
    ok, added = _filtered(
        c, mask, attention_bias, mask_filter_value, parts[0].shape[0], parts[1].shape[2]
    )
    if not ok:
        return None
    q, k, v = parts
    y = attend(c, q, k, v, added, scale=scale or None, causal=bool(unidirectional))
    return _joined(c, y)


def _square(parts: Sequence[Heads | None]) -> bool:
    """Whether there are as many queries as keys, so that the first query sees the first key."""
    return len({p.shape[2] for p in parts if p is not None}) == 1


def _interleaved(buffer: Buffer, shape: Sequence[int]) -> list[Heads]:
    """The tensors that are interleaved in one [batch, length, heads, count, width]."""
    batch, length, heads, count, width = shape
    row = heads * count * width
    sizes = (batch, heads, length, width)
    strides = (length * row, count * width, row)
    return [Heads(buffer, i * width, sizes, strides) for i in range(count)]


def _biased(c: Capture, tensors: Sequence[Tensor], bias: Operand) -> list[Tensor] | None:
    """Queries, keys and values plus a constant bias, which has a part for each."""
    if bias is None:
        return list(tensors)
    if isinstance(bias, Value) or bias.dtype != np.float32:
        return None
    if any(len(shape_of(x)) != 3 for x in tensors):
        return None
    ends = np.cumsum([shape_of(x)[2] for x in tensors])
    if bias.shape != (ends[-1],):
        return None
    sums = []
    for x, part in zip(tensors, np.split(bias, ends[:2]), strict=True):
        total = combine(c, "add", x, part) if part.any() else x
        if total is None:
            return None
        sums.append(total)
    return sums


@lower("Attention", domain=MICROSOFT)
def microsoft_attention(
    c: Capture, x: Operand, weights: Operand, bias: Operand = None, mask: Operand = None,
    past: Operand = None, attention_bias: Operand = None, *more: Operand, num_heads: int,
    unidirectional: int = 0, qkv_hidden_sizes: Sequence[int] | None = None,
    mask_filter_value: float = FILTER, scale: float | None = None, **attributes: Any,
) -> Value | None:  # fmt: skip
    """Attention with the product by constant weights that computes queries, keys and values."""
    if not isinstance(x, Value) or not isinstance(weights, np.ndarray) or weights.ndim != 2:
        return None
    if past is not None or any(p is not None for p in more) or any(c.node.outputs[1:]):
        return None
    third = weights.shape[1] // 3
    if len(x.shape) != 3 or list(qkv_hidden_sizes or [third] * 3) != [third] * 3:
        return None
    if third % num_heads or attributes.get("do_rotary", 0):
        return None
    projected = product(c, x, weights, bias)
    return _of_itself(
        c, projected, num_heads, mask, attention_bias, mask_filter_value, scale, unidirectional
    )


@lower("QAttention", domain=MICROSOFT)
def q_attention(
    c: Capture, x: Operand, weights: Operand, bias: Operand, x_scale: Operand, w_scale: Operand,
    mask: Operand = None, x_zero: Operand = None, w_zero: Operand = None, past: Operand = None, *,
    num_heads: int, unidirectional: int = 0, mask_filter_value: float = FILTER,
    scale: float | None = None, **attributes: Any,
) -> Value | None:  # fmt: skip
    """The same with integers of 8 bits and their scales."""
    if not isinstance(x, Value) or not isinstance(weights, np.ndarray) or weights.ndim != 2:
        return None
    if past is not None or any(c.node.outputs[1:]) or attributes.get("do_rotary", 0):
        return None
    if len(x.shape) != 3 or weights.shape[1] % (3 * num_heads) or x_scale is None:
        return None
    projected = matmul_integer_to_float(c, x, weights, x_scale, w_scale, x_zero, w_zero, bias)
    return _of_itself(c, projected, num_heads, mask, None, mask_filter_value, scale, unidirectional)


def _of_itself(
    c: Capture, projected: Value | None, heads: int, mask: Operand, bias: Operand, value: float,
    scale: float | None, unidirectional: int,
) -> Value | None:  # fmt: skip
    """Attention of queries, keys and values side by side in rows [batch, n, 3 heads d]."""
    if projected is None:
        return None
    batch, n, _ = projected.shape
    q, k, v = _parts(c.plain(projected), projected.shape, heads, 3)
    ok, added = _filtered(c, mask, bias, value, batch, n)
    if not ok:
        return None
    y = attend(c, q, k, v, added, scale=scale or None, causal=bool(unidirectional))
    return _joined(c, y)
