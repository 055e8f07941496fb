"""Qwen 3.5 with experts (text): Qwen 3.5 with a mixture, and a part with a gate for every token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import _experts, qwen3next, qwen35
from halfbyte.text.architectures._block import Config
from halfbyte.text.architectures._keys import Keys

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES = qwen3next.TABLES
EQUALIZED = qwen3next.EQUALIZED
MODEL_TYPES = ("qwen3_5_moe_text",)
build = qwen3next.build


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    hidden = config.keys.integer("moe_intermediate_size", 512)
    config.keys = config.keys.otherwise(intermediate_size=hidden)
    qwen35.translate_text(config, "qwen35moe")
    qwen3next.translate_experts(config)


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``qwen35moe.*``."""
    keys = Keys(file, "qwen35moe")
    return qwen3next.read(keys, apart=True, experts=_experts.read(keys))
