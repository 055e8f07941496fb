"""Maincoder: Llama with norms of heads, in files of llama.cpp."""

from __future__ import annotations

from functools import partial

from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import CHANNELS, _block
from halfbyte.text.architectures._block import Block, Config
from halfbyte.text.architectures._keys import Keys

TABLES = _block.TABLES
EQUALIZED = CHANNELS
MODEL_TYPES: tuple[str, ...] = ()  # of GGUF files only
BLOCK = Block(head_norms="rotated", interleaved=True)
build = partial(_block.build, BLOCK)
translate = _block.refuse_folder


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``maincoder.*``."""
    return _block.read_config(Keys(file, "maincoder"), BLOCK)
