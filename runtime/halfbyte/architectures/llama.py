"""Llama: RMSNorm, rotary positions, grouped-query attention, SwiGLU; tied or untied head."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from halfbyte import ops
from halfbyte.errors import FormatError, UnsupportedError
from halfbyte.formats import metadata
from halfbyte.formats.model_file import ModelFile
from halfbyte.program import Buffer, Program, Size, capture
from halfbyte.weights import Tensor

_EPSILON, _ROPE_BASE = "attention.layer_norm_rms_epsilon", "rope.freq_base"
TABLES = frozenset({"rope_freqs.weight"})

# Metadata of this architecture beside what `read_config` takes; each must say what is built here.
_OTHERS: dict[str, object] = {
    "vocab_size": metadata.ANY,  # the embedding tells
    "tensor_data_layout": metadata.ANY,
    "attention.layer_norm_epsilon": metadata.ANY,  # of LayerNorm: there is none
    "rope.scaling.type": "none",
    "rope.scaling.factor": 1,
    "rope.scaling.original_context_length": metadata.ANY,  # for types other than "none"
    "expert_count": 0,
    "expert_used_count": 0,
    "attention.causal": True,
    "attention.sliding_window": 0,
    "use_parallel_residual": False,
}


@dataclass(frozen=True)
class Config:
    """Hyperparameters, under GGUF's ``llama.*`` keys."""

    layers: int
    dim: int  # embedding_length
    hidden: int  # feed_forward_length
    heads: int
    kv_heads: int
    head_dim: int
    rotated: int  # rope.dimension_count: elements of a head that turn
    context: int
    vocabulary: int
    epsilon: float
    rope_base: float


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, each in its range and consistent with the others."""

    read = set()

    def size(key: str, high: int, default: int | None = None) -> int:
        read.add(key)
        if default is None:
            return metadata.integer(file, f"llama.{key}", 1, high)
        return metadata.integer(file, f"llama.{key}", 1, high, default)

    dim, heads = size("embedding_length", 1 << 20), size("attention.head_count", 1 << 12)
    kv_heads = size("attention.head_count_kv", 1 << 12, heads)
    if heads % kv_heads or ("llama.attention.key_length" not in file.metadata and dim % heads):
        raise FormatError(
            f"{file.path}: metadata 'llama.attention.head_count': {heads} heads do not fit "
            f"{kv_heads} key/value heads and width {dim}"
        )
    head_dim = size("attention.key_length", 1 << 12, dim // heads)
    rotated = size("rope.dimension_count", head_dim, head_dim)
    if rotated % 2:
        raise FormatError(
            f"{file.path}: metadata 'llama.rope.dimension_count': expected an even number, "
            f"found {rotated}"
        )
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise FormatError(f"{file.path}: tensor 'token_embd.weight': expected a matrix")
    config = Config(
        layers=size("block_count", 1 << 10),
        dim=dim,
        hidden=size("feed_forward_length", 1 << 22),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        rotated=rotated,
        context=size("context_length", 1 << 24),
        vocabulary=embedding.shape[0],
        epsilon=metadata.number(file, "llama." + _EPSILON),
        rope_base=metadata.number(file, "llama." + _ROPE_BASE, 10000.0),
    )
    others = {**_OTHERS, "attention.value_length": head_dim}
    metadata.refuse_others(file, "llama.", read | {_EPSILON, _ROPE_BASE}, others)
    return config


_TABLE_ROWS = 4096
LOGIT_ROWS = 16  # rows of logits of one run: a vocabulary is wide


def build(file: ModelFile, config: Config, *, context: int, batch: int, cache: str) -> Program:
    """Capture the model.

    Parameters
    ----------
    context : int
        Tokens that the KV cache holds.
    batch : int
        Most tokens of one run (size `n`). Logits are those of its last tokens (size `rows`).
    cache : str
        Type of the cached keys and values, "f16", "f32" or "q8_0".
    """
    if cache == "q8_0" and (config.head_dim % 32 or config.head_dim > ops.MOST_Q8_0_HEAD):
        raise UnsupportedError(
            f"{file.path}: cache 'q8_0': head_dim {config.head_dim}: expected a multiple of 32, "
            f"at most {ops.MOST_Q8_0_HEAD}"
        )
    with capture(file.path.name) as program:
        n, position = program.size("n", batch), program.size("position", context)
        asked = program.size("rows", min(LOGIT_ROWS, batch))
        model = _Model(file, config, program, position, cache)
        embedding = model.weight("token_embd.weight", config.vocabulary, config.dim)
        x = ops.gather(embedding, program.input("ids", "i32", (n,)))
        for layer in range(config.layers):
            x = model.attention(layer, x)
            x = model.feed_forward(layer, x)
        x = ops.take_last(x, rows=asked)
        x = ops.rms_norm(x, model.weight("output_norm.weight", config.dim), epsilon=config.epsilon)
        head = embedding
        if "output.weight" in file.tensors:
            head = model.weight("output.weight", config.vocabulary, config.dim)
        program.output("logits", ops.matmul(x, head))
    return program


class _Model:
    """What the layers share while they are captured."""

    def __init__(
        self, file: ModelFile, config: Config, program: Program, position: Size, cache: str
    ) -> None:
        self.file, self.config, self.program = file, config, program
        self.position, self.cache = position, cache
        shape = (position.maximum, config.rotated // 2)
        factors = _rotary_factors(file, shape[1])
        self.cos, self.sin = (
            program.table(
                f"rope.{f.__name__}", shape, partial(_rotary_table, f, config, shape, factors)
            )
            for f in (np.cos, np.sin)
        )

    def weight(self, name: str, *shape: int) -> Buffer:
        return self.program.weight(metadata.tensor(self.file, name, shape))

    def attention(self, layer: int, x: Buffer) -> Buffer:
        c, block = self.config, f"blk.{layer}."
        width, kv_width = c.heads * c.head_dim, c.kv_heads * c.head_dim
        h = ops.rms_norm(x, self.weight(block + "attn_norm.weight", c.dim), epsilon=c.epsilon)
        q = ops.matmul(h, self.weight(block + "attn_q.weight", width, c.dim))
        k = ops.matmul(h, self.weight(block + "attn_k.weight", kv_width, c.dim))
        v = ops.matmul(h, self.weight(block + "attn_v.weight", kv_width, c.dim))
        context = self.position.maximum
        key_blocks = (c.kv_heads, -(-context // ops.KEY_BLOCK), c.head_dim, ops.KEY_BLOCK)
        keys = self.program.state(block + "k", self.cache, key_blocks)
        values = self.program.state(block + "v", self.cache, (c.kv_heads, context, c.head_dim))
        ops.cache_write_keys(self._rotate(k), keys, position=self.position)
        ops.cache_write(v, values, position=self.position)
        mixed = ops.group_query_attention(
            self._rotate(q), keys, values,
            position=self.position, scale=c.head_dim**-0.5,
        )  # fmt: skip
        output = self.weight(block + "attn_output.weight", c.dim, width)
        y: Buffer = ops.add(x, ops.matmul(mixed, output))
        return y

    def feed_forward(self, layer: int, x: Buffer) -> Buffer:
        c, block = self.config, f"blk.{layer}."
        h = ops.rms_norm(x, self.weight(block + "ffn_norm.weight", c.dim), epsilon=c.epsilon)
        gate = ops.matmul(h, self.weight(block + "ffn_gate.weight", c.hidden, c.dim))
        up = ops.matmul(h, self.weight(block + "ffn_up.weight", c.hidden, c.dim))
        inner = ops.mul(ops.silu(gate), up)
        down = self.weight(block + "ffn_down.weight", c.dim, c.hidden)
        y: Buffer = ops.add(x, ops.matmul(inner, down))
        return y

    def _rotate(self, x: Buffer) -> Buffer:
        y: Buffer = ops.rotary_embedding(
            x, self.cos, self.sin,
            head_dim=self.config.head_dim, position=self.position, interleaved=True,
        )  # fmt: skip
        return y


def _rotary_factors(file: ModelFile, pairs: int) -> Tensor | None:
    """GGUF's ``rope_freqs.weight``, where a model has it."""
    if "rope_freqs.weight" not in file.tensors:
        return None
    factors = metadata.tensor(file, "rope_freqs.weight", (pairs,))
    if not np.all(factors.decode() > 0):
        raise FormatError(f"{file.path}: tensor 'rope_freqs.weight': expected positive numbers")
    return factors


def _rotary_table(
    function: np.ufunc, config: Config, shape: tuple[int, int], factors: Tensor | None
) -> npt.NDArray[np.float32]:
    """cos or sin [context, rotated / 2] of position * base^(-2j / rotated) / factor_j.

    `factors` is GGUF's ``rope_freqs.weight``: what Llama 3's scaling divides each frequency by.
    """
    context, pairs = shape
    frequency = config.rope_base ** (-np.arange(pairs, dtype=np.float64) / pairs)
    if factors is not None:
        frequency = frequency / factors.decode()
    table = np.empty(shape, np.float32)
    for first in range(0, context, _TABLE_ROWS):  # float64 only for a few rows at a time
        position = np.arange(first, min(first + _TABLE_ROWS, context), dtype=np.float64)
        table[first : first + _TABLE_ROWS] = function(position[:, None] * frequency)
    return table
