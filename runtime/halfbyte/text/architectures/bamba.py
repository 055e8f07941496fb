"""Bamba: Mamba-2's state spaces in most layers, and attention that rotates half of each head."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from halfbyte.errors import FormatError
from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import _block, _ssm, falcon_h1, granitehybrid
from halfbyte.text.architectures._block import Block, Config
from halfbyte.text.architectures._keys import Keys
from halfbyte.text.architectures.llama import NAMES

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES = _block.TABLES
EQUALIZED = granitehybrid.EQUALIZED
MODEL_TYPES = ("bamba",)
BLOCK = Block()
build = partial(_block.build, BLOCK)


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    keys = config.keys = config.keys.otherwise(partial_rotary_factor=0.5)
    keys.expect("hidden_act", "silu")
    for key in ("attention_bias", "mlp_bias"):
        keys.expect(key, False)
    config.decoder("bamba", default_epsilon=1e-5)
    config.partial_rotation()
    config.rope()
    layers = config.size("block_count")
    attends = [layer in keys.list("attn_layer_indices") for layer in range(min(layers, 1 << 10))]
    if not any(attends):
        raise FormatError(
            f"{keys.where}: key 'attn_layer_indices': expected some of {layers} layers"
        )
    granitehybrid.translate_attends(config, attends)
    config.names = {**NAMES, **falcon_h1.PARTS}
    config.tied = keys.boolean("tie_word_embeddings", False)
    channels = keys.integer("mamba_expand", 2) * config.size("embedding_length")
    granitehybrid.translate_space(config, channels)


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``bamba.*``."""
    keys = Keys(file, "bamba")
    attends, heads = keys.attends(keys.size("block_count", 1 << 10))
    return _block.read_config(keys, BLOCK, kv_heads=heads, attends=attends, mixer=_ssm.read(keys))
