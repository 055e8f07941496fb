"""GLM 4 (`glm`): Llama with rotation of half of a head, and gate and up in one matrix."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import CHANNELS, _block
from halfbyte.text.architectures._block import Block, Config
from halfbyte.text.architectures._keys import Keys
from halfbyte.text.architectures.llama import NAMES as LLAMA_NAMES

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES = _block.TABLES
EQUALIZED = CHANNELS
MODEL_TYPES = ("glm",)
BLOCK = Block(interleaved=True)
build = partial(_block.build, BLOCK)
NAMES = LLAMA_NAMES | {"mlp.gate_up_proj": "ffn_up"}


def translate(config: Translation, architecture: str = "chatglm") -> None:
    """Translate a config.json into GGUF's terms."""
    keys = config.keys
    keys.expect("hidden_act", "silu")
    config.decoder(architecture, 128)
    config.partial_rotation(0.5)
    config.rope()
    dim, hidden = config.size("embedding_length"), config.size("feed_forward_length")
    config.shapes["ffn_up"] = (2 * hidden, dim)  # gate and up
    config.names = NAMES
    config.tied = keys.boolean("tie_word_embeddings", False)


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``chatglm.*``."""
    return _block.read_config(Keys(file, "chatglm"), BLOCK)
