"""Gemma: Llama with GELU, embeddings multiplied by sqrt(dim), and pairs half a head apart.

The gains of norms in GGUF include the 1 that the original adds.
"""

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
MODEL_TYPES = ("gemma",)
BLOCK = Block(activation="gelu_tanh")
build = partial(_block.build, BLOCK)


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    keys = config.keys
    keys.expect("hidden_act", "gelu_pytorch_tanh", "gelu", None)  # "gelu" by mistake
    keys.expect("hidden_activation", "gelu_pytorch_tanh", None)
    keys.expect("use_bidirectional_attention", False, None)
    config.decoder("gemma", 256)
    config.rope()
    config.add_one("attn_norm", "ffn_norm", "output_norm")
    config.names = NAMES
    config.tied = keys.boolean("tie_word_embeddings", True)


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``gemma.*``."""
    keys = Keys(file, "gemma")
    scale = keys.size("embedding_length", 1 << 20) ** 0.5
    return _block.read_config(keys, BLOCK, embedding_scale=scale)
