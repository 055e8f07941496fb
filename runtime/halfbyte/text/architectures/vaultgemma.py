"""VaultGemma: Gemma 2 without norms of what attention and feed-forward parts give."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import CHANNELS, _block, gemma2
from halfbyte.text.architectures._block import Block, Config

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES = _block.TABLES
EQUALIZED = CHANNELS
MODEL_TYPES = ("vaultgemma",)
BLOCK = Block(activation="gelu_tanh")
build = partial(_block.build, BLOCK)


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    gemma2.translate(config, "vaultgemma")
    for norm in ("post_attention_norm", "post_ffw_norm"):
        del config.transforms[f"{norm}.weight"]
    config.names = {name: new for name, new in config.names.items() if not new.startswith("post_")}


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``vaultgemma.*``."""
    return gemma2.read_config(file, "vaultgemma")
