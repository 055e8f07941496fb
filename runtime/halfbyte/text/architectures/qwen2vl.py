"""Qwen 2 VL and 2.5 VL (text): Qwen 2, whose positions of a text are the same in all sections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from halfbyte.formats import metadata
from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import _block, qwen2, qwen35
from halfbyte.text.architectures._block import Config
from halfbyte.text.architectures._keys import Keys

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES = qwen2.TABLES
EQUALIZED = qwen2.EQUALIZED
MODEL_TYPES = ("qwen2_vl_text", "qwen2_5_vl_text")
build = qwen2.build
IMAGES = {"rope.dimension_sections": metadata.ANY, "n_deepstack_layers": metadata.ANY}


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    qwen2.translate(config, "qwen2vl")
    qwen35.translate_sections(config, [16, 24, 24])


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``qwen2vl.*``."""
    return _block.read_config(Keys(file, "qwen2vl"), qwen2.BLOCK, others=IMAGES)
