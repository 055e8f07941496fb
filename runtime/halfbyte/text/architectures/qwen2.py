"""Qwen 2 and 2.5: Llama with biases of queries, keys and values; pairs are half a head apart."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import CHANNELS, _block
from halfbyte.text.architectures._block import Block, Config
from halfbyte.text.architectures._keys import Keys
from halfbyte.text.architectures.llama import NAMES

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES = _block.TABLES
EQUALIZED = CHANNELS
MODEL_TYPES = ("qwen2",)
BLOCK = Block()
build = partial(_block.build, BLOCK)


def translate(
    config: Translation, architecture: str = "qwen2", head_dim: int | None = None
) -> None:
    """Translate a config.json into GGUF's terms."""
    keys = config.keys
    keys.expect("hidden_act", "silu")
    config.decoder(architecture, head_dim)
    config.rope()
    if keys.boolean("use_sliding_window", False):
        first = keys.integer("max_window_layers", 28)
        config.windows(config.local_layers(lambda layer: layer >= first))
    config.names = NAMES
    config.tied = keys.boolean("tie_word_embeddings", False)


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``qwen2.*``."""
    return _block.read_config(Keys(file, "qwen2"), BLOCK)
