"""Nemotron and Minitron: LayerNorm, relu squared without gate, rotation of a part of a head.

The gains of norms in GGUF include the 1 that the original adds.
"""

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
MODEL_TYPES = ("nemotron",)
BLOCK = Block(norm="layer", gated=False, activation="relu_squared")
build = partial(_block.build, BLOCK)


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    keys = config.keys
    keys.expect("hidden_act", "relu2")
    config.decoder("nemotron", epsilon="norm_eps", default_epsilon=1e-5)
    config.partial_rotation(0.5)
    config.rope()
    config.add_one("attn_norm", "ffn_norm", "output_norm")
    config.names = NAMES
    config.tied = keys.boolean("tie_word_embeddings", False)


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``nemotron.*``."""
    return _block.read_config(Keys(file, "nemotron"), BLOCK)
