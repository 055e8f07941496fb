"""Layers that keep a state of a fixed size in place of keys and values for every position.

A state is an operand that is read and written. It belongs to the tokens before `position`; at
position 0 it counts as zeros, whatever it holds, so that nothing is cleared between texts.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from halfbyte.core.ops.operator import operator

F32 = npt.NDArray[np.float32]


@operator(
    "CausalConvWithState",
    "x:f32[n,c] w:f32[k,c] bias?:f32[c] state:f32[t,c] -> y:f32[n,c] state:f32[t,c]",
    operations=lambda d: 2 * d["n"] * d["k"] * d["c"],
    demands={
        "t = k - 1": lambda d: d["t"] == d["k"] - 1,
        "position of 0 and more": lambda d: d["position"] >= 0,
    },
)
def causal_conv(x: F32, w: F32, bias: F32 | None, state: F32, *, position: int) -> tuple[F32, F32]:
    """y[i, c] = bias[c] + sum_t w[t, c] x[i - k + 1 + t, c]: a convolution over the tokens so far.

    Rows before the first of x are those of `state`, which then takes the last k - 1 rows; at
    position 0 they are zeros.

    Source: ONNX Runtime's CausalConvWithState, with channels last.
    """
    if position == 0:
        state[...] = 0
    rows = np.concatenate([state, x])
    y = np.zeros_like(x) if bias is None else np.tile(bias, (len(x), 1))
    for weights, first in zip(w, range(len(w)), strict=True):
        y += weights * rows[first : first + len(x)]
    state[...] = rows[len(x) :]
    return y, state


BLOCK = 16  # channels whose states are interleaved


@operator(
    "LinearAttention",
    "x:f32[n,c] dt:f32[n,h] rate:f32[u,r,16] bc:f32[n,w] skip?:f32[c] beta?:f32[n,h] "
    "state:f32[u,s,16] -> y:f32[n,c] state:f32[u,s,16]",
    operations=lambda d: 6 * d["n"] * d["s"] * d["c"],
    demands={
        "16 u = c": lambda d: 16 * d["u"] == d["c"],
        "w = 2 groups s": lambda d: d["groups"] >= 1 and d["w"] == 2 * d["groups"] * d["s"],
        "r = 1 or s": lambda d: d["r"] in (1, d["s"]),
        "h = c, or heads and groups of whole sixteens of c": lambda d: (
            (d["h"] == d["c"] or d["c"] % (16 * d["h"]) == 0) and d["c"] % (16 * d["groups"]) == 0
        ),
        "groups of whole heads h": lambda d: d["h"] % d["groups"] == 0,
        "position of 0 and more": lambda d: d["position"] >= 0,
    },
    product=True,
    like="attention",
)
def selective_scan(
    x: F32, dt: F32, rate: F32, bc: F32, skip: F32 | None, beta: F32 | None, state: F32,
    *, groups: int, position: int, swapped: bool = False, tiled: bool = False,
) -> tuple[F32, F32]:  # fmt: skip
    """A linear recurrence over tokens, for each of c channels with s states.

    With the numbers b and c that a row of `bc` holds for a channel's group, first those of all
    groups for b, then for c, or the other way round if they are `swapped`::

        S = exp(dt rate) S + dt x b        y = sum_s S c + skip x

    Channels of a head share dt. Heads of a group are neighbours or, if `tiled`, head i is of group
    i modulo `groups`. `rate` has a number for each channel, or for each of its states.
    With `beta`, by the delta rule, which replaces what the decayed state holds for b in part::

        S = exp(dt rate) S + beta (x - exp(dt rate) sum_s S b) b

    State and rate are in blocks of sixteen channels: [c / 16, s, 16].

    Source: Gu and Dao 2023, Mamba; Dao and Gu 2024, Mamba-2; Yang et al. 2024, Gated DeltaNet; ONNX
    Runtime's LinearAttention.
    """
    if position == 0:
        state[...] = 0
    n, c = x.shape
    s, y, heads = state.shape[1], np.empty_like(x), dt.shape[1]
    head = np.arange(c) // (c // heads)
    group = head % groups if tiled else head // (heads // groups)
    values = bc.reshape(n, 2, groups, s)[:, :: -1 if swapped else 1, group]  # [n, 2, c, s]
    b, queries = values.reshape(n, 2, -1, BLOCK, s).transpose(1, 0, 2, 4, 3)
    step = np.repeat(dt, c // heads, axis=1).reshape(n, -1, 1, BLOCK)
    new = x.reshape(n, -1, 1, BLOCK)
    part = None if beta is None else np.repeat(beta, c // heads, axis=1).reshape(step.shape)
    for i in range(n):
        decay, given = np.exp(step[i] * rate), step[i] * new[i]
        if part is not None:
            held = (state * b[i]).sum(axis=1, keepdims=True)
            given = part[i] * (new[i] - decay * held)
        state *= decay
        state += given * b[i]
        y[i] = (state * queries[i]).sum(axis=1).reshape(c)
    return y if skip is None else y + skip * x, state


@operator(
    "GeneralizedDeltaRule",
    "x:f32[n,c] decay:f32[n,c] key:f32[n,c] query:f32[n,c] removal:f32[n,c] correction:f32[n,c] "
    "bonus:f32[n,c] state:f32[u,s,16] -> y:f32[n,c] own:f32[n,c] state:f32[u,s,16]",
    operations=lambda d: 11 * d["n"] * d["s"] * d["c"],
    demands={
        "16 u = c": lambda d: 16 * d["u"] == d["c"],
        "s a multiple of 16, and c one of s": lambda d: d["s"] % 16 == d["c"] % d["s"] == 0,
        "position of 0 and more": lambda d: d["position"] >= 0,
    },
    product=True,
    like="attention",
)
def generalized_delta_rule(
    x: F32, decay: F32, key: F32, query: F32, removal: F32, correction: F32, bonus: F32, state: F32,
    *, position: int,
) -> tuple[F32, F32, F32]:  # fmt: skip
    """A linear recurrence over tokens whose states decay and are replaced each by itself.

    Channels are in heads of s, and each channel has a state for each of the s numbers that a head's
    decay and keys have::

        S = decay S - (sum_s S removal) correction + x key
        y = sum_s S query                  own = sum_s x key bonus

    The state is in blocks of sixteen channels, [c / 16, s, 16]. The last is what a token adds for
    itself, whatever the state.

    Source: Peng et al. 2025, RWKV-7 "Goose" with Expressive Dynamic State Evolution.
    """
    if position == 0:
        state[...] = 0
    (n, c), s = x.shape, state.shape[1]
    head = np.arange(c).reshape(-1, BLOCK)[:, :1] // s * s + np.arange(s)  # [u, s]
    y, own = np.empty_like(x), np.empty_like(x)
    for i in range(n):
        new = x[i].reshape(-1, 1, BLOCK)
        w, k, q, r, b, z = (
            v[i][head][..., None] for v in (decay, key, query, removal, correction, bonus)
        )
        held = (state * r).sum(axis=1, keepdims=True)
        state[...] = w * state + new * k - held * b
        y[i] = (state * q).sum(axis=1).reshape(c)
        own[i] = (new * k * z).sum(axis=1).reshape(c)
    return y, own, state
