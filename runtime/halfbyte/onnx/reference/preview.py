"""ONNX's preview domains: FlexAttention, and the optimizers of ai.onnx.preview.training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.errors import ProgramError
from halfbyte.onnx.files.dtypes import DTYPES
from halfbyte.onnx.reference import _shapes
from halfbyte.onnx.reference._attention import grouped, softmax
from halfbyte.onnx.reference._numbers import rounded, widened
from halfbyte.onnx.reference.registry import Body, define

Array = npt.NDArray[Any]
TRAINING = "ai.onnx.preview.training"


def _attended(q: Array, k: Array, v: Array, **attributes: Any) -> _shapes.Shapes:
    return _shapes.blank((*q.shape[:3], v.shape[3]), q.dtype)


@define("FlexAttention", domain="ai.onnx.preview", special=True, infer=_shapes.alike(_attended))
def flex_attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    scale: float | None = None,
    softmax_precision: int = 0,
    score_mod: Body | None = None,
    prob_mod: Body | None = None,
) -> Array:
    """prob_mod(softmax(score_mod(scale q kᵀ))) v of [batch, heads, n, d], by subgraphs.

    Scores and probabilities have the type `softmax_precision`: float32, or float64 for float64.
    """
    dtype = DTYPES[softmax_precision or (11 if q.dtype == np.float64 else 1)]
    wide, keys, values = grouped(widened(q), widened(k), widened(v))
    root = 1 / np.sqrt(q.shape[-1]) if scale is None else scale
    scores = rounded(wide @ np.swapaxes(keys, -1, -2) * np.asarray(root, wide.dtype), dtype)
    scores = score_mod(scores)[0] if score_mod else scores
    weights = rounded(softmax(widened(scores)), dtype)
    weights = prob_mod(weights)[0] if prob_mod else weights
    return rounded(widened(weights).astype(wide.dtype) @ values, q.dtype)


def _sets(inputs: Sequence[Array], parts: int) -> list[tuple[Array, ...]]:
    """Inputs in the order X..., G..., V..., as one tuple for each X."""
    if len(inputs) % parts:
        raise ProgramError(f"{len(inputs)} tensors, expected a multiple of {parts}")
    count = len(inputs) // parts
    return [tuple(inputs[i::count]) for i in range(count)]


def _ordered(results: Sequence[tuple[Array, ...]]) -> tuple[Array, ...]:
    """The inverse of `_sets`: tuples as X..., G..., V...."""
    return tuple(value for part in zip(*results, strict=True) for value in part)


def _moved(x: Array, rate: Array, step: Array, squares: Array, epsilon: float) -> Array:
    """x - rate step / (sqrt(squares) + epsilon)."""
    return np.asarray(x - rate * step / (np.sqrt(squares) + epsilon))


def _updated(rate: Array, count: Array, *inputs: Array, parts: int) -> _shapes.Shapes:
    """Like the inputs, without the gradients."""
    each = len(inputs) // parts
    return [_shapes.blank(x.shape, x.dtype) for x in (*inputs[:each], *inputs[2 * each :])]


def _updates(parts: int) -> _shapes.Rule:
    return _shapes.Rule(lambda *inputs, **attributes: _updated(*inputs, parts=parts))


@define("Adagrad", domain=TRAINING, infer=_updates(3))
def adagrad(
    rate: Array,
    count: Array,
    *inputs: Array,
    decay_factor: float = 0.0,
    epsilon: float = 1e-6,
    norm_coefficient: float = 0.0,
) -> tuple[Array, ...]:
    """x - r g / (sqrt(h) + epsilon), with h + g² for h and r = rate / (1 + count decay).

    g is the gradient plus norm_coefficient x. Inputs are x..., g..., h...
    """
    r = (rate / (1 + count * decay_factor)).reshape(())
    updated = []
    for x, gradient, history in _sets(inputs, 3):
        g = norm_coefficient * x + gradient
        total = history + g * g
        updated.append((_moved(x, r, g, total, epsilon).astype(x.dtype), total))
    return _ordered(updated)


@define("Adam", domain=TRAINING, infer=_updates(4))
def adam(
    rate: Array,
    count: Array,
    *inputs: Array,
    alpha: float = 0.9,
    beta: float = 0.999,
    epsilon: float = 1e-6,
    norm_coefficient: float = 0.0,
    norm_coefficient_post: float = 0.0,
) -> tuple[Array, ...]:
    """x - r v / (sqrt(h) + epsilon), with moving means v of g and h of g².

    r is rate, times sqrt(1 - beta^count) / (1 - alpha^count) from the second update on; the result
    is scaled by 1 - norm_coefficient_post. Inputs are x..., g..., v..., h...
    """
    steps = int(count.item())
    factor = np.sqrt(1 - beta**steps) / (1 - alpha**steps) if steps > 0 else 1.0
    r = (rate * factor).reshape(())
    updated = []
    for x, gradient, mean, square in _sets(inputs, 4):
        g = norm_coefficient * x + gradient
        v = alpha * mean + (1 - alpha) * g
        h = beta * square + (1 - beta) * g * g
        result = (1 - norm_coefficient_post) * _moved(x, r, v, h, epsilon)
        updated.append(tuple(part.astype(x.dtype) for part in (result, v, h)))
    return _ordered(updated)


@define("Momentum", domain=TRAINING, infer=_updates(3))
def momentum(
    rate: Array,
    count: Array,
    *inputs: Array,
    alpha: float,
    beta: float,
    mode: str,
    norm_coefficient: float,
) -> tuple[Array, ...]:
    """x - rate v, with alpha v + beta g for v (beta is 1 at first); Nesterov's: of g + alpha v.

    g is the gradient plus norm_coefficient x. Inputs are x..., g..., v...
    """
    if mode not in ("standard", "nesterov"):
        raise ProgramError(f"mode {mode!r}, expected standard or nesterov")
    gain = beta if count.item() > 0 else 1.0
    updated = []
    for x, gradient, velocity in _sets(inputs, 3):
        g = norm_coefficient * x + gradient
        v = alpha * velocity + gain * g
        step = v if mode == "standard" else g + alpha * v
        updated.append(((x - rate.reshape(()) * step).astype(x.dtype), v.astype(x.dtype)))
    return _ordered(updated)
