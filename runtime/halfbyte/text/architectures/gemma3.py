"""Gemma 3 (text): norms before and after each part, five of six layers see a window.

Embeddings are multiplied by sqrt(dim). Layers with a window turn by a base of their own, without
the scaling of the others. GELU takes the place of SwiGLU's activation. GGUF's norms have the one
in them that the original adds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from halfbyte.core import ops
from halfbyte.core.program import Buffer, Program, capture
from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import _decoder
from halfbyte.text.architectures._decoder import Decoder, RotaryConfig
from halfbyte.text.architectures._keys import Keys

TABLES: frozenset[str] = frozenset()
_PERIOD = 6  # layers, of which the last sees all, where a file does not tell
_LAYERS_27B = 62  # this size alone scales by dim / heads: files of llama.cpp's do not say it


@dataclass(frozen=True)
class Config(RotaryConfig):
    """What Gemma 3 has beside others."""

    local_base: float  # rope.freq_base_swa
    scale: float  # of products of queries and keys


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``gemma3.*``."""
    keys = Keys(file, "gemma3")
    c = _decoder.rotary(keys, period=_PERIOD)
    wide = c.dim / c.heads if c.layers == _LAYERS_27B else c.head_dim
    config = Config(
        **vars(c),
        local_base=keys.number("rope.freq_base_swa", 10000.0),
        scale=keys.number("attention.scale", wide**-0.5),
    )
    keys.refuse_others(config.head_dim)
    return config


def build(file: ModelFile, config: Config, *, context: int, batch: int, cache: str) -> Program:
    """Capture the model; see :class:`Decoder`."""
    with capture(file.path.name) as program:
        model = Decoder(file, config, program, context, batch, cache)
        everywhere = model.rope(config, interleaved=False)
        local = model.rope(
            config, interleaved=False, base=config.local_base, factor=1, name="local."
        )
        size = np.full(config.dim, config.dim**0.5, np.float32)
        x = ops.mul(model.embed(), model.row("sqrt(dim)", size))
        for layer in range(config.layers):
            block, window = f"blk.{layer}.", config.windows[layer]
            q, k, v = model.queries_keys_values(model.norm(x, block + "attn_norm"), block)
            q = model.norm(q, block + "attn_q_norm", heads=config.heads)
            k = model.norm(k, block + "attn_k_norm", heads=config.kv_heads)
            mixed = model.attend(
                block, q, k, v,
                rope=local if window else everywhere, window=window, scale=config.scale,
            )  # fmt: skip
            y = model.linear(mixed, block + "attn_output", config.dim)
            x = ops.add(x, model.norm(y, block + "post_attention_norm"))
            y = _geglu(model, model.norm(x, block + "ffn_norm"), block)
            x = ops.add(x, model.norm(y, block + "post_ffw_norm"))
        x = ops.take_last(x, rows=model.asked)
        model.head(model.norm(x, "output_norm"))
    return program


def _geglu(model: Decoder, x: Buffer, block: str) -> Buffer:
    """(gelu(gate) * up) through `down`. Source: Shazeer 2020, GLU Variants."""
    c = model.config
    gate = ops.gelu(model.linear(x, block + "ffn_gate", c.hidden), approximate="tanh")
    up = model.linear(x, block + "ffn_up", c.hidden)
    return model.linear(ops.mul(gate, up), block + "ffn_down", c.dim)
