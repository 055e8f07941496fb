"""ERNIE 4.5: Llama with pairs of neighbours, as its folders have them; biases are optional."""

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
MODEL_TYPES = ("ernie4_5",)
BLOCK = Block(interleaved=True)
build = partial(_block.build, BLOCK)


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    config.keys.expect("hidden_act", "silu")
    config.decoder("ernie4_5", 128)
    config.rope()
    config.names = NAMES
    config.tied = config.keys.boolean("tie_word_embeddings", True)


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``ernie4_5.*``."""
    return _block.read_config(Keys(file, "ernie4_5"), BLOCK)
