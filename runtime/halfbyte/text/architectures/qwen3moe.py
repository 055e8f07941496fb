"""Qwen 3 with experts: Qwen 3 with a mixture in each layer."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import CHANNELS, _block, _experts, qwen2, qwen2moe, qwen3
from halfbyte.text.architectures._block import Config
from halfbyte.text.architectures._keys import Keys
from halfbyte.text.architectures.llama import NAMES

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES = _block.TABLES
EQUALIZED = CHANNELS
MODEL_TYPES = ("qwen3_moe",)
BLOCK = qwen3.BLOCK
build = partial(_block.build, BLOCK)


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    qwen2.translate(config, "qwen3moe")
    qwen2moe.translate_experts(config, normalize=True)
    config.names = NAMES | qwen3.HEAD_NORMS | _experts.NAMES


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``qwen3moe.*``."""
    keys = Keys(file, "qwen3moe")
    return _block.read_config(keys, BLOCK, experts=_experts.read(keys))
