"""Qwen 3 VL (text): Qwen 3, whose positions of a text are the same in all sections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import _block, qwen2, qwen3, qwen35
from halfbyte.text.architectures._block import Config
from halfbyte.text.architectures._keys import Keys
from halfbyte.text.architectures.llama import NAMES
from halfbyte.text.architectures.qwen2vl import IMAGES

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES = qwen3.TABLES
EQUALIZED = qwen3.EQUALIZED
MODEL_TYPES = ("qwen3_vl_text",)
build = qwen3.build


def translate(config: Translation, architecture: str = "qwen3vl") -> None:
    """Translate a config.json into GGUF's terms."""
    config.keys = config.keys.otherwise(rope_theta=500000.0)
    qwen2.translate(config, architecture, head_dim=128)
    qwen35.translate_sections(config, [24, 20, 20])
    config.names = NAMES | qwen3.HEAD_NORMS


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``qwen3vl.*``."""
    return _block.read_config(Keys(file, "qwen3vl"), qwen3.BLOCK, others=IMAGES)
