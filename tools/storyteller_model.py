"""The storyteller's network in PyTorch, and its file: a Llama-type model in llama2.c's layout."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class Config:
    """Sizes of the model: 992,640 parameters."""

    dim: int = 128
    hidden: int = 320
    layers: int = 5
    heads: int = 4
    kv_heads: int = 2
    vocabulary: int = 1024
    context: int = 256
    epsilon: float = 1e-5
    theta: float = 10000.0

    @property
    def head_dim(self) -> int:
        """Width of a head."""
        return self.dim // self.heads


CONFIG = Config()


def rotary(config: Config) -> tuple[Tensor, Tensor]:
    """cos and sin [context, head_dim / 2] of position * theta^(-2j / head_dim)."""
    pairs = config.head_dim // 2
    frequency = config.theta ** (-torch.arange(pairs, dtype=torch.float64) / pairs)
    angle = torch.arange(config.context, dtype=torch.float64)[:, None] * frequency
    return angle.cos().float(), angle.sin().float()


def _linear(rows: int, columns: int, scale: float = 1.0) -> nn.Linear:
    layer = nn.Linear(columns, rows, bias=False)
    nn.init.normal_(layer.weight, std=0.02 * scale)
    return layer


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """RoPE on interleaved pairs of x [..., length, head_dim]."""
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2)


class Block(nn.Module):
    """Grouped-query attention, then SwiGLU, each on the RMS-normalized stream."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        dim, kv = config.dim, config.kv_heads * config.head_dim
        depth = (2 * config.layers) ** -0.5  # so that additions to the stream start small
        self.head_dim = config.head_dim
        self.attention_norm = nn.RMSNorm(dim, eps=config.epsilon)
        self.q, self.k, self.v = _linear(dim, dim), _linear(kv, dim), _linear(kv, dim)
        self.o = _linear(dim, dim, depth)
        self.ffn_norm = nn.RMSNorm(dim, eps=config.epsilon)
        self.gate, self.up = _linear(config.hidden, dim), _linear(config.hidden, dim)
        self.down = _linear(dim, config.hidden, depth)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """X [rows, length, dim], with cos and sin [length, head_dim / 2] -> the same shape."""
        rows, length, dim = x.shape
        h = self.attention_norm(x)
        q, k, v = (
            layer(h).view(rows, length, -1, self.head_dim).transpose(1, 2)
            for layer in (self.q, self.k, self.v)
        )
        y = functional.scaled_dot_product_attention(
            _rotated(q, cos, sin), _rotated(k, cos, sin), v, is_causal=True, enable_gqa=True
        )
        x = x + self.o(y.transpose(1, 2).reshape(rows, length, dim))
        h = self.ffn_norm(x)
        return x + self.down(functional.silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):
    """Embedding, blocks, norm, and the embedding again as the head."""

    def __init__(self, config: Config = CONFIG) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary, config.dim)
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.RMSNorm(config.dim, eps=config.epsilon)
        self.cos, self.sin = rotary(config)

    def forward(self, ids: Tensor) -> Tensor:
        """Token ids [rows, length] -> logits [rows, length, vocabulary]."""
        x = self.embedding(ids)
        cos, sin = self.cos[: ids.shape[1]], self.sin[: ids.shape[1]]
        for block in self.blocks:
            x = block(x, cos, sin)
        return functional.linear(self.norm(x), self.embedding.weight)


def model_bytes(model: Llama) -> bytes:
    """llama2.c's version 0: header, float32 tensors grouped by kind, rotary tables."""
    c = model.config
    header = struct.pack(
        "<7i", c.dim, c.hidden, c.layers, c.heads, c.kv_heads, c.vocabulary, c.context
    )
    tensors = [model.embedding.weight]
    for name in ("attention_norm", "q", "k", "v", "o", "ffn_norm", "gate", "down", "up"):
        tensors += [getattr(block, name).weight for block in model.blocks]
    tensors += [model.norm.weight, *rotary(c)]
    return header + b"".join(t.detach().numpy().astype("<f4").tobytes() for t in tensors)
