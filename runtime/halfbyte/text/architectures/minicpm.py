"""MiniCPM 1, 2 and 4: Llama with Granite's factors, which other keys of config.json have."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import CHANNELS, _block, granite
from halfbyte.text.architectures._block import Config
from halfbyte.text.architectures._keys import Keys
from halfbyte.text.architectures.llama import NAMES

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES = _block.TABLES
EQUALIZED = CHANNELS
MODEL_TYPES = ("minicpm",)
BLOCK = granite.BLOCK
build = partial(_block.build, BLOCK)


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    keys = config.keys
    keys.expect("hidden_act", "silu")
    keys.expect("num_experts", 0, None)
    config.decoder("minicpm")
    config.rope()
    config.interleave("attn_q", heads="attention.head_count")
    config.interleave("attn_k", heads="attention.head_count_kv")
    config.names = NAMES
    config.tied = keys.boolean("tie_word_embeddings", True)
    dim, layers = config.size("embedding_length"), config.size("block_count")
    config.metadata |= {
        "embedding_scale": np.float32(keys.number("scale_emb", 1.0)),
        "residual_scale": np.float32(keys.number("scale_depth", 1.0) / layers**0.5),
        "logit_scale": np.float32(dim / keys.number("dim_model_base", 1.0)),
    }


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``minicpm.*``; llama.cpp has these defaults."""
    keys = Keys(file, "minicpm")
    dim, layers = keys.size("embedding_length", 1 << 20), keys.size("block_count", 1 << 10)
    return _block.read_config(
        keys, BLOCK,
        embedding_scale=keys.number("embedding_scale", 12.0),
        residual_scale=keys.number("residual_scale", 1.4 / layers**0.5),
        output_scale=1 / keys.number("logit_scale", 256 / dim),
    )  # fmt: skip
