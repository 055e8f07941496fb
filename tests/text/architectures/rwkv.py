"""RWKV 7 in float64, by the formulas of its paper, with the names of flash-linear-attention.

Source: Peng et al. 2025, RWKV-7 "Goose" with Expressive Dynamic State Evolution.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from tests.text.architectures import models

F64 = npt.NDArray[np.float64]
Norm = Callable[[F64, str, float], F64]

NAME = "rwkv7"
_C = models.config(NAME)
_DIM, _HEAD, _HIDDEN = _C["hidden_size"], _C["head_dim"], _C["intermediate_size"]
_LAYERS, _HEADS = range(_C["num_hidden_layers"]), _DIM // _HEAD
_RANKS = {"w": "decay", "a": "a", "v": "v", "g": "gate"}


def _shapes() -> dict[str, list[int]]:
    table, vector = [_C["vocab_size"], _DIM], [_DIM]
    shapes = {"model.embeddings.weight": table}

    def norm(name: str) -> None:
        shapes.update({f"{name}.weight": vector, f"{name}.bias": vector})

    for layer in _LAYERS:
        name = f"model.layers.{layer}."
        if layer == 0:
            norm(f"{name}pre_norm")
        norm(f"{name}attn_norm")
        shapes |= {f"{name}attn.x_{part}": [1, 1, _DIM] for part in "rwkvag"}
        shapes |= {f"{name}attn.k_k": vector, f"{name}attn.k_a": vector}
        shapes[f"{name}attn.r_k"] = [_HEADS, _HEAD]
        shapes |= {f"{name}attn.{part}_proj.weight": [_DIM, _DIM] for part in "rkvo"}
        for part, key in _RANKS.items():
            rank, lora = _C[f"{key}_low_rank_dim"], f"{name}attn.{part}_lora.lora."
            if part == "v" and layer == 0:
                continue
            shapes |= {f"{lora}0.weight": [rank, _DIM], f"{lora}2.weight": [_DIM, rank]}
            if part != "g":
                shapes[f"{lora}2.bias"] = vector
        norm(f"{name}attn.g_norm")
        norm(f"{name}ffn_norm")
        shapes[f"{name}ffn.x_k"] = vector
        shapes[f"{name}ffn.key.weight"] = [_HIDDEN, _DIM]
        shapes[f"{name}ffn.value.weight"] = [_DIM, _HIDDEN]
    norm("model.norm")
    return shapes | {"lm_head.weight": table}


SHAPES = _shapes()


def _sigmoid(x: F64) -> F64:
    return 1 / (1 + np.exp(-x))


class _Model:
    """The tensors, and what is computed with them."""

    def __init__(self) -> None:
        self.w = {
            name: models.values(f"{NAME}/{name}", tuple(shape)).astype(np.float64)
            for name, shape in SHAPES.items()
        }
        self.first: F64 | None = None

    def norm(self, x: F64, name: str) -> F64:
        x = x - x.mean(axis=-1, keepdims=True)
        x = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + _C["norm_eps"])
        return x * self.w[f"{name}.weight"] + self.w[f"{name}.bias"]

    def mixed(self, x: F64, share: str) -> F64:
        """Rows in part like the row before them."""
        before = np.concatenate([np.zeros_like(x[:1]), x[:-1]])
        return x + (before - x) * self.w[share].reshape(-1)

    def low_rank(self, x: F64, name: str, function: Callable[[F64], F64]) -> F64:
        y = function(x @ self.w[f"{name}.lora.0.weight"].T) @ self.w[f"{name}.lora.2.weight"].T
        return y + self.w.get(f"{name}.lora.2.bias", 0)

    def attention(self, x: F64, name: str) -> F64:
        xr, xw, xk, xv, xa, xg = (self.mixed(x, f"{name}x_{part}") for part in "rwkvag")
        r, k, v = (
            y @ self.w[f"{name}{p}_proj.weight"].T for y, p in ((xr, "r"), (xk, "k"), (xv, "v"))
        )
        w = np.exp(-np.exp(-0.5) * _sigmoid(self.low_rank(xw, name + "w_lora", np.tanh)))
        a = _sigmoid(self.low_rank(xa, name + "a_lora", lambda y: y))
        if self.first is None:
            self.first = v
        else:
            share = _sigmoid(self.low_rank(xv, name + "v_lora", lambda y: y))
            v = v + (self.first - v) * share
        kappa = (k * self.w[name + "k_k"]).reshape(-1, _HEADS, _HEAD)
        kappa = kappa / np.linalg.norm(kappa, axis=-1, keepdims=True)
        k = k * (1 + (a - 1) * self.w[name + "k_a"])
        r, w, k, v, a = (y.reshape(-1, _HEADS, _HEAD) for y in (r, w, k, v, a))
        y = _states(r, w, k, v, kappa, a)
        y = y - y.mean(axis=-1, keepdims=True)
        y = y / np.sqrt(np.mean(y * y, axis=-1, keepdims=True) + _HEAD * _C["norm_eps"])
        y = y.reshape(len(x), -1) * self.w[name + "g_norm.weight"] + self.w[name + "g_norm.bias"]
        bonus = (r * k * self.w[name + "r_k"]).sum(axis=-1, keepdims=True) * v
        gate = self.low_rank(xg, name + "g_lora", _sigmoid)
        return (y + bonus.reshape(y.shape)) * gate @ self.w[name + "o_proj.weight"].T

    def feed_forward(self, x: F64, name: str) -> F64:
        y = np.maximum(self.mixed(x, name + "x_k") @ self.w[name + "key.weight"].T, 0)
        return y * y @ self.w[name + "value.weight"].T


def _states(r: F64, w: F64, k: F64, v: F64, kappa: F64, a: F64) -> F64:
    """S r of each token, S = S (diag(w) - kappa^T (a kappa)) + v^T k, of each head."""
    state, y = np.zeros((_HEADS, _HEAD, _HEAD)), np.empty_like(r)
    for i in range(len(r)):
        change = kappa[i][:, :, None] * (a[i] * kappa[i])[:, None]
        state = state @ (w[i][:, None] * np.eye(_HEAD) - change)
        state = state + v[i][:, :, None] * k[i][:, None]
        y[i] = (state @ r[i][..., None])[..., 0]
    return y


def logits() -> models.F32Array:
    """Logits [tokens, vocabulary] of the tiny model's text."""
    model = _Model()
    x = model.w["model.embeddings.weight"][models.ids(NAME)]
    x = model.norm(x, "model.layers.0.pre_norm")
    for layer in _LAYERS:
        name = f"model.layers.{layer}."
        x = x + model.attention(model.norm(x, name + "attn_norm"), name + "attn.")
        x = x + model.feed_forward(model.norm(x, name + "ffn_norm"), name + "ffn.")
    y: F64 = model.norm(x, "model.norm") @ model.w["lm_head.weight"].T
    return y.astype(np.float32)
