"""Falcon H1: attention and a state space side by side in each layer.

GGUF's matrices are multiplied with the factors that config.json gives them.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from halfbyte.formats.model_file import ModelFile
from halfbyte.formats.transforms import scaled
from halfbyte.text.architectures import _block, _ssm, granitehybrid
from halfbyte.text.architectures._block import Block, Config
from halfbyte.text.architectures._keys import Keys
from halfbyte.text.architectures.llama import NAMES

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES = _block.TABLES
EQUALIZED = granitehybrid.EQUALIZED
MODEL_TYPES = ("falcon_h1",)
BLOCK = Block()
build = partial(_block.build, BLOCK)
PARTS = {
    "final_layernorm": "output_norm",
    "pre_ff_layernorm": "ffn_norm.",  # as in llama.cpp's files
    "feed_forward.gate_proj": "ffn_gate",
    "feed_forward.up_proj": "ffn_up",
    "feed_forward.down_proj": "ffn_down",
}


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    keys = config.keys
    config.keep_original()  # which has the factors
    keys.expect("hidden_act", "silu")
    for key in ("attention_bias", "mlp_bias", "projectors_bias"):
        keys.expect(key, False)
    config.decoder("falcon-h1", default_epsilon=1e-5)
    config.rope()
    config.names = NAMES | PARTS
    config.tied = keys.boolean("tie_word_embeddings", False)
    channels = keys.integer("mamba_expand", 2) * config.size("embedding_length")
    granitehybrid.translate_space(config, keys.integer("mamba_d_ssm", channels))
    if keys.boolean("mamba_rms_norm", False):
        keys.otherwise(mamba_norm_before_gate=True).expect("mamba_norm_before_gate", False)
    _scale(config)


def _scale(config: Translation) -> None:
    """Set the factors of matrices; those of ``ssm_in`` differ by its parts."""
    keys, size = config.keys, config.size
    one = {
        name: keys.number(f"{name}_multiplier", 1.0)
        for name in (
            "attention_in", "attention_out", "key", "ssm_in", "ssm_out", "embedding", "lm_head",
        )
    }  # fmt: skip
    gate, down = keys.otherwise(mlp_multipliers=[1.0] * 2).numbers("mlp_multipliers", 2)
    parts = keys.otherwise(ssm_multipliers=[1.0] * 5).numbers("ssm_multipliers", 5)
    shared = size("ssm.group_count") * size("ssm.state_size")
    channels, heads = size("ssm.inner_size"), size("ssm.time_step_rank")
    rows = np.repeat(parts * np.float32(one["ssm_in"]), [channels] * 2 + [shared] * 2 + [heads])
    factors = {
        "token_embd": one["embedding"],
        "attn_q": one["attention_in"],
        "attn_k": one["attention_in"] * one["key"],
        "attn_v": one["attention_in"],
        "attn_output": one["attention_out"],
        "ssm_in": rows,
        "ssm_out": one["ssm_out"],
        "ffn_gate": gate,
        "ffn_down": down,
        "output": one["lm_head"],
    }
    if config.tied:  # what the head reads makes up for the factor of the embedding
        factors["output_norm"] = one["lm_head"] / one["embedding"]
    config.transforms |= {f"{part}.weight": scaled(factor) for part, factor in factors.items()}


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``falcon-h1.*``."""
    keys = Keys(file, "falcon-h1")
    return _block.read_config(keys, BLOCK, mixer=_ssm.read(keys))
