"""Falcon RW: Falcon with ALiBi in place of rotation, and parts one after the other."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import _block, falcon
from halfbyte.text.architectures._block import Block, Config
from halfbyte.text.architectures._keys import Keys

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES = _block.TABLES
EQUALIZED = falcon.EQUALIZED
MODEL_TYPES: tuple[str, ...] = ()  # see `falcon.variant`
BLOCK = Block(norm="layer", gated=False, activation="gelu")
build = partial(_block.build, BLOCK)


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    falcon.translate(config, "falcon-rw")
    del config.metadata["rope.dimension_count"]


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``falcon-rw.*``; slopes are scaled as products are."""
    keys = Keys(file, "falcon-rw")
    scale = keys.size("attention.key_length", 1 << 12) ** -0.5
    return _block.read_config(keys, BLOCK, alibi=8.0, alibi_scale=scale)
