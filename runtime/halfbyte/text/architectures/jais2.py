"""Jais 2: Llama with LayerNorm, relu squared without gate, and biases."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import _block
from halfbyte.text.architectures._block import Block, Config
from halfbyte.text.architectures._keys import Keys
from halfbyte.text.architectures.llama import NAMES

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES = _block.TABLES
EQUALIZED: dict[str, tuple[str, ...]] = {}  # biases forbid it
MODEL_TYPES = ("jais2",)
BLOCK = Block(norm="layer", gated=False, activation="relu_squared")
build = partial(_block.build, BLOCK)


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    config.keys.expect("hidden_act", "relu2")
    config.decoder("jais2", epsilon="layer_norm_eps", default_epsilon=1e-5)
    config.rope()
    config.names = NAMES
    config.tied = config.keys.boolean("tie_word_embeddings", False)


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``jais2.*``."""
    return _block.read_config(Keys(file, "jais2"), BLOCK)
