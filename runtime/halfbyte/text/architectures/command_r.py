"""Command R (`cohere`): parallel parts that read one LayerNorm without biases; scaled logits."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import _block
from halfbyte.text.architectures._block import Block, Config
from halfbyte.text.architectures._keys import Keys
from halfbyte.text.architectures.llama import NAMES

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES = _block.TABLES
EQUALIZED = _block.PARALLEL
MODEL_TYPES = ("cohere",)
BLOCK = Block(norm="layer", parallel=True, interleaved=True)
build = partial(_block.build, BLOCK)


def translate(config: Translation, architecture: str = "command-r") -> None:
    """Translate a config.json into GGUF's terms."""
    keys = config.keys
    keys.expect("hidden_act", "silu")
    keys.expect("use_qk_norm", False, None)
    config.decoder(architecture, epsilon="layer_norm_eps", default_epsilon=1e-5)
    config.rope()
    config.metadata["logit_scale"] = np.float32(keys.number("logit_scale", 0.0625))
    config.names = NAMES
    config.tied = keys.boolean("tie_word_embeddings", True)


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``command-r.*``."""
    keys = Keys(file, "command-r")
    return _block.read_config(keys, BLOCK, output_scale=keys.number("logit_scale", 1.0))
