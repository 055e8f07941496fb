"""Qwen 3: RMSNorm of each head's query and key before rotation; no biases."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import CHANNELS, _block, qwen2
from halfbyte.text.architectures._block import Block, Config
from halfbyte.text.architectures._keys import Keys
from halfbyte.text.architectures.llama import NAMES

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES = _block.TABLES
EQUALIZED = CHANNELS
MODEL_TYPES = ("qwen3",)
BLOCK = Block(head_norms="heads")
build = partial(_block.build, BLOCK)
HEAD_NORMS = {"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    qwen2.translate(config, "qwen3", head_dim=128)
    config.names = NAMES | HEAD_NORMS


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``qwen3.*``."""
    return _block.read_config(Keys(file, "qwen3"), BLOCK)
