"""Granite: Llama with factors of embeddings, results of parts, scores and logits."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import CHANNELS, _block
from halfbyte.text.architectures._block import Block, Config
from halfbyte.text.architectures._keys import Keys
from halfbyte.text.architectures.llama import NAMES

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES = _block.TABLES
EQUALIZED = CHANNELS
MODEL_TYPES = ("granite",)
BLOCK = Block(interleaved=True)
build = partial(_block.build, BLOCK)
DENSE = {  # in folders of Granite 4
    "shared_mlp.input_linear": "ffn_gate_up",
    "shared_mlp.output_linear": "ffn_down",
}


def translate(config: Translation, architecture: str = "granite") -> None:
    """Translate a config.json into GGUF's terms."""
    config.keys.expect("hidden_act", "silu")
    config.decoder(architecture)
    config.rope()
    translate_scales(config)

    config.interleave("attn_q", heads="attention.head_count")
    config.interleave("attn_k", heads="attention.head_count_kv")

    config.names = NAMES | DENSE
    config.tied = config.keys.boolean("tie_word_embeddings", False)


def translate_scales(config: Translation) -> None:
    """Set the factors of Granite's models."""
    for key, source in {
        "embedding_scale": "embedding_multiplier",
        "residual_scale": "residual_multiplier",
        "attention.scale": "attention_multiplier",
        "logit_scale": "logits_scaling",
    }.items():
        config.metadata[key] = np.float32(config.keys.number(source, 1.0))


def read_config(file: ModelFile, architecture: str = "granite") -> Config:
    """Hyperparameters from metadata, checked for ranges and consistency."""
    keys = Keys(file, architecture)
    return _block.read_config(keys, BLOCK, **read_scales(keys))


def read_scales(keys: Keys) -> dict[str, Any]:
    """The factors of Granite's models; logits are divided by theirs."""
    return {
        "embedding_scale": keys.number("embedding_scale", 1.0),
        "residual_scale": keys.number("residual_scale", 1.0),
        "scale": keys.optional("attention.scale"),
        "output_scale": 1 / (keys.optional("logit_scale") or 1.0),
    }
