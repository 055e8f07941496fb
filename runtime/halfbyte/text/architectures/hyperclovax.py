"""HyperCLOVA X: Granite with norms of what attention and feed-forward parts give.

Logits are multiplied by their factor, by which Granite divides. Models without these norms are
Granite's in GGUF.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import CHANNELS, _block, granite
from halfbyte.text.architectures._block import Block, Config
from halfbyte.text.architectures._keys import Keys

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES = _block.TABLES
EQUALIZED = CHANNELS
MODEL_TYPES = ("hyperclovax",)
BLOCK = Block(interleaved=True, after=True)
build = partial(_block.build, BLOCK)
_NORMS = {"post_norm1": "post_attention_norm", "post_norm2": "post_ffw_norm"}


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    normed = config.keys.boolean("use_post_norm", True)
    granite.translate(config, "hyperclovax" if normed else "granite")
    if config.keys.get("attention_multiplier") is None:
        del config.metadata["attention.scale"]
    config.metadata["logit_scale"] = np.float32(1 / config.keys.number("logits_scaling", 1.0))
    if normed:
        config.names = {**config.names, **_NORMS}


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``hyperclovax.*``."""
    keys = Keys(file, "hyperclovax")
    return _block.read_config(keys, BLOCK, **granite.read_scales(keys))
