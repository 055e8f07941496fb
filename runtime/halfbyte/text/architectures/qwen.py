"""Qwen (1): Llama with biases of queries, keys and values, in files of llama.cpp."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import CHANNELS, _block
from halfbyte.text.architectures._block import Block, Config
from halfbyte.text.architectures._keys import Keys

TABLES = _block.TABLES
EQUALIZED = CHANNELS
MODEL_TYPES: tuple[str, ...] = ()  # of GGUF files only
BLOCK = Block()
build = partial(_block.build, BLOCK)
translate = _block.refuse_folder


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``qwen.*``."""
    keys = Keys(file, "qwen")
    hidden = keys.size("feed_forward_length", 1 << 22, low=2) // 2  # of two matrices
    return replace(_block.read_config(keys, BLOCK), hidden=hidden)
