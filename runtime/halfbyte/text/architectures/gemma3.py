"""Gemma 3 (text): norms before and after each part, a sliding window in five of six layers.

Embeddings are multiplied by sqrt(dim). Layers with a window rotate by a base of their own, without
the scaling of the others. GELU replaces SwiGLU's activation. The gains of norms in GGUF include the
1 that the original adds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from halfbyte.core import ops
from halfbyte.core.buffer import Buffer
from halfbyte.core.program import Program, capture
from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import CHANNELS, _decoder
from halfbyte.text.architectures._decoder import Decoder, RotaryConfig
from halfbyte.text.architectures._keys import Keys
from halfbyte.text.architectures.llama import NAMES
from halfbyte.text.architectures.qwen3 import HEAD_NORMS

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.config import Keys as ConfigKeys
    from halfbyte.formats.huggingface.names import Translation

TABLES: frozenset[str] = frozenset()
EQUALIZED = CHANNELS
MODEL_TYPES = ("gemma3_text",)
PERIOD = 6  # layers, the last without a window, if a file does not say
_LAYERS_27B = 62  # only this size scales by dim / heads, which llama.cpp's files do not say


def variant(keys: ConfigKeys) -> str:
    """EmbeddingGemma, if keys after the query are seen."""
    return "gemma_embedding" if keys.get("use_bidirectional_attention") is True else ""


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    translate_as(config, "gemma3")


def translate_as(config: Translation, architecture: str) -> None:
    """The same, for an architecture with these layers."""
    keys, values = config.keys, config.metadata
    keys.expect("hidden_activation", "gelu_pytorch_tanh", None)
    keys.expect("attn_logit_softcapping", None)
    keys.expect("final_logit_softcapping", None)
    config.decoder(architecture, 256)
    translate_rope(config)
    period = keys.integer("sliding_window_pattern", keys.integer("_sliding_window_pattern", PERIOD))
    layers = config.local_layers(lambda layer: (layer + 1) % period != 0)
    config.windows(layers)
    if layers == [(layer + 1) % PERIOD != 0 for layer in range(len(layers))]:
        values.pop("attention.sliding_window_pattern", None)  # llama.cpp's default
    scalar = keys.number("query_pre_attn_scalar", 256.0)
    if scalar != values["attention.key_length"]:
        values["attention.scale"] = np.float32(scalar**-0.5)
    config.add_one("attn_norm", "attn_q_norm", "attn_k_norm", "post_attention_norm")
    config.add_one("ffn_norm", "post_ffw_norm", "output_norm")
    config.names = {
        **NAMES,
        **HEAD_NORMS,
        "post_attention_layernorm": "post_attention_norm",
        "pre_feedforward_layernorm": "ffn_norm",
        "post_feedforward_layernorm": "post_ffw_norm",
    }
    config.tied = keys.boolean("tie_word_embeddings", True)


def translate_rope(config: Translation) -> None:
    """Bases of the layers without a window and of those with one."""
    keys, rope = config.keys, config.keys.rope()
    local = rope.inner("sliding_attention")
    everywhere = rope.inner("full_attention") if "full_attention" in rope.values else rope
    if "rope_theta" in keys.values and "rope_theta" not in everywhere.values:
        config.rope(everywhere)  # an older config
    else:
        config.rope(everywhere.otherwise(rope_theta=1_000_000.0))
    base = local.number("rope_theta", keys.number("rope_local_base_freq", 10000.0))
    config.metadata["rope.freq_base_swa"] = np.float32(base)


@dataclass(frozen=True)
class Config(RotaryConfig):
    """Hyperparameters with Gemma 3's own."""

    local_base: float = 0.0  # rope.freq_base_swa
    scale: float = 0.0  # of the products of queries and keys


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``gemma3.*``."""
    keys = Keys(file, "gemma3")
    c = _decoder.rotary(keys, period=PERIOD)
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
        x = ops.last_rows(x, rows=model.logit_rows)
        model.head(model.norm(x, "output_norm"))
    return program


def _geglu(model: Decoder, x: Buffer, block: str) -> Buffer:
    """(gelu(gate) * up) through `down`. Source: Shazeer 2020, GLU Variants."""
    c = model.config
    gate = ops.gelu(model.linear(x, block + "ffn_gate", c.hidden), approximate="tanh")
    up = model.linear(x, block + "ffn_up", c.hidden)
    return model.linear(ops.mul(gate, up), block + "ffn_down", c.dim)
